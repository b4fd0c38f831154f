/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Trace points of this folder (trace-events). */
#include "trace/trace-hw_ehca.h"
