# SPDX-License-Identifier: GPL-2.0-or-later
#
# The devices QEMU is built with: the pseries machine (which brings the
# adapter) and what the guests use.  A fifth less to compile than with all
# devices of the target.

CONFIG_PSERIES=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_NET=y
CONFIG_VIRTIO_RNG=y
CONFIG_VIRTIO_SERIAL=y
