/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place that knows kernel versions.  The driver is written for the
 * newest kernel it supports; what older ones (6.1) do otherwise is here.
 */
#ifndef EHCA_COMPAT_H
#define EHCA_COMPAT_H

#include <linux/version.h>
#include <linux/platform_device.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

/* 6.12: unaligned accessors moved from asm/ to linux/. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif

/* 6.11: the last argument of create_cq became the attribute bundle. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define ehca_create_cq_attrs	uverbs_attr_bundle
#else
#define ehca_create_cq_attrs	ib_udata
#endif

/* 6.11: platform drivers' remove returns void; remove_new went later. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define EHCA_PLATFORM_REMOVE	.remove
#else
#define EHCA_PLATFORM_REMOVE	.remove_new
#endif

#endif /* EHCA_COMPAT_H */
