# SPDX-License-Identifier: GPL-2.0-or-later
"""How a guest is run: the QEMU command line that is known to work.

Theory of operation
  A guest is the pseries machine under TCG, started with VOF (the firmware
  inside QEMU, much faster than SLOF), a Debian kernel and our initramfs; no
  disk.  Beside the ehca device it has
    - a console (hvc0) on the spapr-vty, kept in a log file and reachable
      over a socket;
    - the QEMU guest agent on a virtio-serial port;
    - optionally a virtio network card in user mode, with the host's
      loopback port ssh_port forwarded to the guest's ssh.
  Everything on PCI is virtio-1 only; the Debian kernels have virtio_pci and
  virtio_console built in (6.12) or in the image (6.1).

  A guest that panics, or reboots, ends its QEMU: exit status 1 after a panic
  (-action panic=exit-failure), 0 after a shutdown.

  cap-cfpc, cap-sbbc, cap-ibs and cap-ccf-assist promise Spectre mitigations
  which TCG cannot give; QEMU refuses to start until told so.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .setup_kernels import DEFAULT_SERIES, kernel
from .setup_image import HOST_KEY_ALIAS, KNOWN_HOSTS, image_stale
from .ui import SetupError

AGENT_PORT = "org.qemu.guest_agent.0"
MACHINE = ("pseries,x-vof=on,cap-cfpc=broken,cap-sbbc=broken,"
           "cap-ibs=broken,cap-ccf-assist=off")
DEFAULT_MEMORY = 512
MIN_MEMORY = 256
# The longest path a unix socket may have (struct sockaddr_un).
SOCKET_PATH_MAX = 107

CMDLINE = ("console=hvc0", "quiet", "panic=-1", "oops=panic",
           "rcupdate.rcu_expedited=1", "mitigations=off", "audit=0",
           "apparmor=0")


@dataclass(frozen=True)
class Guest:
    """What one guest is to be like."""
    name: str
    # Its console log and its sockets are put here.
    run_dir: Path
    series: str = DEFAULT_SERIES
    memory: int = DEFAULT_MEMORY
    cpus: int = 1
    # Host loopback port of the guest's ssh; None: no network card.
    ssh_port: int | None = None
    # Load the adapter's driver at boot.
    autoload: bool = False
    # More words for the kernel's command line ("ib_ehca.debug=1").
    append: Sequence[str] = ()
    # More arguments for QEMU (chardev and device of the adapter, -trace).
    extra: Sequence[str] = ()

    @property
    def console_log(self) -> Path:
        """Everything the console ever said."""
        return self.run_dir / f"{self.name}.console.log"

    @property
    def console_socket(self) -> Path:
        """The console, to type into."""
        return self.run_dir / f"{self.name}.console.sock"

    @property
    def agent_socket(self) -> Path:
        """The guest agent."""
        return self.run_dir / f"{self.name}.qga.sock"

    @property
    def qmp_socket(self) -> Path:
        """QEMU's monitor."""
        return self.run_dir / f"{self.name}.qmp.sock"


def qemu_argv(guest: Guest, *, check_image: bool = True) -> list[str]:
    """The command line that runs a guest."""
    if not paths.QEMU_BIN.exists():
        raise SetupError("QEMU is not built, run scripts/setup qemu")
    one = kernel(guest.series)
    stale = image_stale(one) if check_image else None
    if stale:
        raise SetupError(stale)
    if guest.memory < MIN_MEMORY:
        raise SetupError(f"guest {guest.name}: {guest.memory} MiB of memory "
                         f"is less than the {MIN_MEMORY} it boots with")
    for path in (guest.console_socket, guest.agent_socket, guest.qmp_socket):
        if len(os.fsencode(path)) > SOCKET_PATH_MAX:
            raise SetupError(
                f"{path}: a socket's path may have {SOCKET_PATH_MAX} bytes; "
                "use a shorter run directory or a relative one")
    words = [*CMDLINE, f"lab.node={guest.name}"]
    if guest.autoload:
        words.append("lab.autoload=1")
    words += guest.append
    argv = [
        str(paths.QEMU_BIN), "-L", str(paths.QEMU_DATA),
        "-name", f"{guest.name},debug-threads=on",
        "-M", MACHINE,
        "-accel", "tcg,thread=multi",
        "-smp", str(guest.cpus), "-m", str(guest.memory),
        "-nodefaults", "-display", "none", "-no-reboot",
        "-action", "panic=exit-failure",
        "-kernel", str(one.image), "-initrd", str(one.image_file),
        "-append", " ".join(words),
        "-chardev", f"socket,id=console,path={_q(guest.console_socket)},"
        f"server=on,wait=off,logfile={_q(guest.console_log)},logappend=off",
        "-serial", "chardev:console",
        "-chardev", f"socket,id=qmp,path={_q(guest.qmp_socket)},"
        "server=on,wait=off",
        "-mon", "chardev=qmp,mode=control",
        "-device", "virtio-serial-pci,disable-legacy=on,max_ports=2",
        "-chardev", f"socket,id=qga,path={_q(guest.agent_socket)},"
        "server=on,wait=off",
        "-device", f"virtserialport,chardev=qga,name={AGENT_PORT}",
    ]
    if guest.ssh_port is not None:
        argv += [
            "-netdev", "user,id=net0,restrict=off,"
            f"hostfwd=tcp:127.0.0.1:{guest.ssh_port}-:22",
            "-device", "virtio-net-pci,netdev=net0,disable-legacy=on,"
            "romfile=",
        ]
    argv += guest.extra
    return argv


def _q(path: Path) -> str:
    """A path inside one of QEMU's comma-separated options."""
    return str(path).replace(",", ",,")


def ssh_argv(ssh_port: int, *command: str) -> list[str]:
    """The command line that logs in to a guest."""
    return ["ssh", "-i", str(paths.SSH_KEY), "-p", str(ssh_port),
            "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
            "-o", f"UserKnownHostsFile={KNOWN_HOSTS}",
            "-o", f"HostKeyAlias={HOST_KEY_ALIAS}", "-o", "CheckHostIP=no",
            "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR",
            "root@127.0.0.1", *command]
