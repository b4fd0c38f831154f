/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the pseries machine must know of the eHCA adapter: three hooks, so
 * that the patch to QEMU's own files stays a few lines.
 */
#ifndef HW_EHCA_SPAPR_EHCA_H
#define HW_EHCA_SPAPR_EHCA_H

#include "chardev/char-fe.h"

/* For machine_class_allow_dynamic_sysbus_dev(). */
#define TYPE_EHCA "ehca"

/* Adds an lhca node to the root of the tree for each adapter. */
void spapr_ehca_dt(void *fdt);

/* qtest: "spapr-hcall NUMBER R4 .. R12"; false: not a command of ours. */
bool spapr_ehca_qtest(CharBackend *chr, char **words);

#endif
