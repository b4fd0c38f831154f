/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of cases: see cases.c. */
#ifndef SIM_CASES_H
#define SIM_CASES_H

#include <stdbool.h>

void cases_list(void);
/* All, or the one of that name; 0 if none failed. */
int cases_run(const char *name, bool verbose);

#endif
