/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the supported kernels' SA clients do differently; the verbs driver has
 * a file of its own for that (ib_ehca/compat.h).
 */
#ifndef SA_COMPAT_H
#define SA_COMPAT_H

#include <linux/version.h>

/* 6.3: the callback for path records is told their number as unsigned. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
typedef unsigned int sa_num_records;
#else
typedef int sa_num_records;
#endif

#endif /* SA_COMPAT_H */
