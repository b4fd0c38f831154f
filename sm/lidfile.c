/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LIDs on disk: which port GUID has which LID, so that a port that is away
 * when the SM restarts finds its LID again.
 *
 * One line per port, "GUID LID LMC" in C's notation, '#' opens a comment.
 * Written to FILE.new and renamed, so that FILE is always whole.  What is read
 * is checked line by line: a wrong file stops the start, it is not guessed at.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sm/internal.h"

/* "0x%016x 0x%04x %u\n" and a comment. */
#define LINE_MAX_LEN 256

static void fail(char **error, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
static void fail(char **error, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(error, fmt, ap) < 0) {
        *error = NULL;
    }
    va_end(ap);
}

static bool load_line(Sm *sm, char *line, char **why)
{
    char *words[4] = { NULL };
    char *save = NULL;
    unsigned n = 0;
    uint64_t guid, lid, lmc;
    char *end[3];

    line[strcspn(line, "#\r\n")] = '\0';
    for (char *word = strtok_r(line, " \t", &save); word && n < 4;
         word = strtok_r(NULL, " \t", &save)) {
        words[n++] = word;
    }
    if (n == 0) {
        return true;
    }
    if (n != 3) {
        fail(why, "%u words; wanted are three: GUID LID LMC", n);
        return false;
    }
    errno = 0;
    guid = strtoull(words[0], &end[0], 0);
    lid = strtoull(words[1], &end[1], 0);
    lmc = strtoull(words[2], &end[2], 0);
    if (errno || *end[0] || *end[1] || *end[2]) {
        fail(why, "not three numbers");
        return false;
    }
    if (lmc > 7 || lid >= SM_LIDS || !sm_lid_reserve(sm, guid, lid, lmc)) {
        fail(why, "GUID 0x%016" PRIx64 ", LID %" PRIu64 ", LMC %" PRIu64
             ": the GUID must not be 0, the LID from 1 to %u and a multiple "
             "of 2^LMC, LMC at most 7, and no two lines may share a GUID or "
             "a LID", guid, lid, lmc, SM_LIDS - 1);
        return false;
    }
    return true;
}

bool sm_lid_file_load(Sm *sm, char **error)
{
    FILE *file = fopen(sm->lid_file, "re");
    char line[LINE_MAX_LEN];
    unsigned number = 0;
    bool good = true;

    if (!file) {
        if (errno == ENOENT) {
            return true;                  /* the first start */
        }
        fail(error, "LID file %s: %s", sm->lid_file, strerror(errno));
        return false;
    }
    while (good && fgets(line, sizeof(line), file)) {
        char *why = NULL;

        number++;
        if (strlen(line) == sizeof(line) - 1 &&
            line[sizeof(line) - 2] != '\n') {
            fail(&why, "longer than %u bytes", LINE_MAX_LEN - 2);
            good = false;
        } else {
            good = load_line(sm, line, &why);
        }
        if (!good) {
            fail(error, "LID file %s, line %u: %s. Correct the line, or "
                 "remove the file to let LIDs be given anew", sm->lid_file,
                 number, why ? why : "out of memory");
        }
        free(why);
    }
    if (good && ferror(file)) {
        fail(error, "LID file %s: cannot be read", sm->lid_file);
        good = false;
    }
    fclose(file);
    sm->lids_changed = false;
    return good;
}

void sm_lid_file_save(Sm *sm)
{
    g_autofree char *new_name = NULL;
    FILE *file;
    bool good;

    if (!sm->lids_changed) {
        return;
    }
    sm->lids_changed = false;
    if (!sm->lid_file) {
        return;
    }
    new_name = g_strconcat(sm->lid_file, ".new", NULL);
    file = fopen(new_name, "we");
    if (!file) {
        sm_logf(sm, SM_LOG_ERROR, "LID file %s: %s", new_name,
                strerror(errno));
        return;
    }
    fprintf(file, "# LIDs given by ehca-sm: port GUID, LID, LMC\n");
    for (unsigned lid = 1; lid < SM_LIDS; lid += 1u << sm->lid_lmc[lid]) {
        if (sm->lid_guid[lid]) {
            fprintf(file, "0x%016" PRIx64 " 0x%04x %u\n", sm->lid_guid[lid],
                    lid, sm->lid_lmc[lid]);
        }
    }
    good = fflush(file) == 0 && fsync(fileno(file)) == 0;
    good = fclose(file) == 0 && good;
    if (!good || rename(new_name, sm->lid_file) != 0) {
        sm_logf(sm, SM_LOG_ERROR, "LID file %s: %s", sm->lid_file,
                strerror(errno));
        unlink(new_name);
    }
}
