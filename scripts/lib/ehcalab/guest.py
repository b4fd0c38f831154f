# SPDX-License-Identifier: GPL-2.0-or-later
"""How a guest is run: the QEMU command line that is known to work.

Theory of operation
  A guest is the pseries machine under TCG, started with VOF (the firmware
  inside QEMU, much faster than SLOF), a Debian kernel and our initramfs; no
  disk.  Beside the ehca device it has
    - a console (hvc0) on the spapr-vty, kept in a log file and reachable
      over a socket;
    - the QEMU guest agent on a virtio-serial port;
    - a second such port on which the consumer module's events leave;
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

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .setup_kernels import DEFAULT_SERIES, kernel
from .setup_image import HOST_KEY_ALIAS, KNOWN_HOSTS, image_wrong
from .ui import SetupError

AGENT_PORT = "org.qemu.guest_agent.0"
EVENTS_PORT = "org.ehcalab.events"
MACHINE = ("pseries,x-vof=on,cap-cfpc=broken,cap-sbbc=broken,"
           "cap-ibs=broken,cap-ccf-assist=off")
DEFAULT_MEMORY = 512
# The pseries machine's memory comes in blocks of this many MiB.
MEMORY_STEP = 256
MIN_MEMORY = MEMORY_STEP
MAX_MEMORY = 65536
MEMORY_RULE = (f"MiB, a multiple of {MEMORY_STEP} from {MIN_MEMORY} to "
               f"{MAX_MEMORY}")
# Seconds until a guest that does not answer is given up.
SSH_PATIENCE = 10
# The longest path a unix socket may have (struct sockaddr_un).
SOCKET_PATH_MAX = 107

# Start-up work of distribution kernels that no guest of ours has a use for
# and that costs most of a second under TCG: self-tests, certificates, BPF
# congestion control, self-encrypting disks.
SKIPPED_INITCALLS = (
    "crypto_kdf108_init", "jent_mod_init", "load_system_certificate_list",
    "init_encrypted", "bpf_tcp_ca_kfunc_init", "bpf_dummy_struct_ops_init",
    "sed_opal_init", "init_kprobe_trace",
)
# panic and oops: a guest with a broken kernel ends, and its QEMU with it.
CMDLINE = ("console=hvc0", "quiet", "panic=-1", "oops=panic",
           "rcupdate.rcu_expedited=1", "mitigations=off", "audit=0",
           "lsm=capability", "cryptomgr.notests",
           "initcall_blacklist=" + ",".join(SKIPPED_INITCALLS))


@dataclass(frozen=True)
class Guest:
    """What one guest is to be like."""
    name: str
    # Its sockets are put here (a short path: see SOCKET_PATH_MAX) ...
    run_dir: Path
    # ... and its console log here; None: there too.
    log_dir: Path | None = None
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
        return (self.log_dir or self.run_dir) / f"{self.name}.console.log"

    @property
    def console_socket(self) -> Path:
        """The console, to type into."""
        return self.run_dir / f"{self.name}.console.sock"

    @property
    def agent_socket(self) -> Path:
        """The guest agent."""
        return self.run_dir / f"{self.name}.qga.sock"

    @property
    def events_socket(self) -> Path:
        """The consumer's events."""
        return self.run_dir / f"{self.name}.events.sock"

    @property
    def qmp_socket(self) -> Path:
        """QEMU's monitor."""
        return self.run_dir / f"{self.name}.qmp.sock"

    @property
    def sockets(self) -> tuple[Path, ...]:
        """All of them."""
        return (self.console_socket, self.agent_socket, self.events_socket,
                self.qmp_socket)


# Programs by their paths: what they are called, and set-up's target.
PROGRAMS = {
    paths.QEMU_BIN: ("QEMU", "qemu"),
    paths.FABRIC_BIN: ("the fabric", "host"),
    paths.SM_BIN: ("the subnet manager", "host"),
    paths.SIM_BIN: ("the simulator", "host"),
}
LAB_PROGRAMS = (paths.QEMU_BIN, paths.FABRIC_BIN, paths.SM_BIN)


def check_built(series: str = "",
                programs: Iterable[Path] = LAB_PROGRAMS) -> None:
    """SetupError that names all of it that cannot be used, and the way out.

    series: that of the guests' kernel, if there are any.
    """
    missing: list[str] = []
    targets: list[str] = []
    for path in programs:
        name, target = PROGRAMS[path]
        if not path.exists():
            missing.append(f"{name} is not built")
            targets.append(target)
    wrong = image_wrong(series) if series else ""
    if wrong:
        missing.append(f"the guest image for kernel {series} {wrong}")
        targets.append("image")
    if missing:
        raise SetupError(
            "; ".join(missing) + "; run: "
            + paths.script("setup", *sorted(set(targets), reverse=True)))


def good_memory(mib: int) -> bool:
    """What QEMU takes for the pseries machine, and a guest boots with."""
    return MIN_MEMORY <= mib <= MAX_MEMORY and mib % MEMORY_STEP == 0


def qemu_argv(guest: Guest) -> list[str]:
    """The command line that runs a guest; check_built() comes first."""
    one = kernel(guest.series)
    if not good_memory(guest.memory):
        raise SetupError(f"guest {guest.name}: {guest.memory} MiB of memory: "
                         f"must be {MEMORY_RULE}")
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
        "-device", "virtio-serial-pci,disable-legacy=on,max_ports=4",
        "-chardev", f"socket,id=qga,path={_q(guest.agent_socket)},"
        "server=on,wait=off",
        "-device", f"virtserialport,chardev=qga,name={AGENT_PORT}",
        "-chardev", f"socket,id=events,path={_q(guest.events_socket)},"
        "server=on,wait=off",
        "-device", f"virtserialport,chardev=events,name={EVENTS_PORT}",
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


def ehca_argv(node: str, link: Path,
              properties: Mapping[str, str] | None = None) -> list[str]:
    """The adapter, joined to a fabric's link socket under the node's name."""
    more = "".join(f",{k}={v}" for k, v in (properties or {}).items())
    return ["-chardev", f"socket,id=ib0,path={_q(link)},reconnect-ms=500",
            "-device", f"ehca,id=hca0,chardev=ib0,node={node}{more}"]


def free_port() -> int:
    """A free port on the loopback, for a guest's ssh."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
            "-o", f"ConnectTimeout={SSH_PATIENCE}",
            "root@127.0.0.1", *command]
