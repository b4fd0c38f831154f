# SPDX-License-Identifier: GPL-2.0-or-later
"""The link with the fabric, against a fabric made by hand (wire.py)."""
from __future__ import annotations

import ctypes
import os
import socket
import struct
import tempfile
import unittest
from pathlib import Path
from typing import Any

import abi
import wire
from adapter import Adapter
from qtest import Qemu, eventually


# Body of a good WELCOME.
WELCOME = struct.pack(">HBB", wire.VERSION, 2, 0)


class WithFabric(unittest.TestCase):
    """A listening fabric and a QEMU that connects to it."""

    properties: dict[str, Any] = {}
    reconnect = True
    extra: list[str] = []

    def setUp(self) -> None:
        self.dir = tempfile.TemporaryDirectory(prefix="ehca-link-")
        self.addCleanup(self.dir.cleanup)
        path = Path(self.dir.name) / "fabric.sock"
        self.fabric = wire.Fabric(path)
        self.addCleanup(self.fabric.close)
        chardev = f"socket,id=ib0,path={path}"
        if self.reconnect:
            chardev += ",reconnect-ms=50"
        self.qemu = Qemu([{"id": "hca0", "chardev": "ib0", "node": "alice",
                           **self.properties}],
                         ["-chardev", chardev, *self.extra])
        self.addCleanup(self.qemu.close)

    def connect(self, num_ports: int = 2) -> dict[str, Any]:
        """Up to WELCOME."""
        hello = self.fabric.accept()
        self.fabric.welcome(num_ports)
        return hello

    def connected(self) -> bool:
        """Whether the adapter says so, soon."""
        return eventually(lambda: self.qemu.qom_get("link") == "connected")

    def define_aqp1(self) -> Adapter:
        """What makes a port leave Disabled by default."""
        a = Adapter(self.qemu)
        a.eq = a.alloc_eq(abi.ALLOC_EQ, 512)
        a.neq = a.alloc_eq(abi.ALLOC_NEQ, 513)
        cq = a.alloc_cq(a.eq, 1)
        for port in (1, 2):
            a.ok(abi.H_DEFINE_AQP1,
                 a.alloc_qp(abi.ALLOC_UD, cq, a.eq, port).handle, port)
        return a


class Handshake(WithFabric):
    """HELLO, WELCOME, REFUSE."""

    properties = {"node-guid": "0x0002550011223300"}

    def test_hello(self) -> None:
        hello = self.connect()
        self.assertEqual(hello, {
            "version": wire.VERSION, "num_ports": 2, "node_type": 1,
            "node_guid": 0x0002550011223300,
            "port_guids": [0x0002550011223301, 0x0002550011223302] + [0] * 6,
            "name": "alice"})
        self.assertTrue(self.connected())

    def test_in_pieces(self) -> None:
        """A byte at a time; descriptors come with the first."""
        self.fabric.accept()
        self.fabric.ports = {p: wire.Port() for p in (1, 2)}
        fds = self.fabric.fds(*self.fabric.ports.values())
        data = wire.message(wire.WELCOME, 0, WELCOME)
        data += wire.message(wire.LINK, 1, bytes([1, 1, 2, 0]))
        for i, byte in enumerate(data):
            self.fabric.send(bytes([byte]), fds if i == 0 else None)
        self.assertTrue(self.connected())

    def test_refuse(self) -> None:
        for _ in range(3):
            self.fabric.accept()
            self.fabric.send(wire.message(
                wire.REFUSE, 0, b"no host 'alice' in the topology\x1b[31m"))
            self.assertTrue(self.fabric.hung_up())
            self.fabric.hang_up()
        log = self.qemu.log()
        # Which properties said what the fabric does not like.
        self.assertIn("node=alice,node-guid=0x0002550011223300,ports=2:", log)
        self.assertEqual(log.count("no host 'alice' in the topology"), 1,
                         "said once, however often it tries")
        self.assertNotIn("\x1b", log)
        self.assertIn("no host", self.qemu.qom_get("link"))
        self.connect()
        self.assertTrue(self.connected())

    def test_bad_welcomes(self) -> None:
        """Each is refused; descriptors must not leak."""
        def fds() -> int:
            assert self.qemu.process is not None
            return len(os.listdir(f"/proc/{self.qemu.process.pid}/fd"))

        good = [wire.Port(), wire.Port()]
        short = wire.Port(size=wire.MEMORY_SIZE - 4096)
        unsealed = wire.Port(seals=0)
        null = os.open("/dev/null", os.O_RDWR)
        event = os.eventfd(0, os.EFD_CLOEXEC)
        wake, first, second = all_good = self.fabric.fds(*good)
        cases: list[tuple[str, bytes, list[int]]] = [
            ("version", struct.pack(">HBB", wire.VERSION + 1, 2, 0),
             all_good),
            ("three ports", struct.pack(">HBB", wire.VERSION, 3, 0),
             all_good),
            ("one port", struct.pack(">HBB", wire.VERSION, 1, 0),
             [wake, first]),
            ("no descriptors", WELCOME, []),
            ("too few", WELCOME, [wake, first]),
            ("too many", WELCOME, [*all_good, second]),
            ("far too many", WELCOME, [*all_good] * 5),
            ("short memory", WELCOME, [wake, first, short.memfd]),
            ("short memory first", WELCOME, [wake, short.memfd, second]),
            ("unsealed", WELCOME, [wake, unsealed.memfd, second]),
            ("no memory", WELCOME, [wake, null, null]),
            ("wrong order", WELCOME, [first, second, wake]),
            ("wake by nothing", WELCOME, [null, first, second]),
            ("wake by eventfd", WELCOME, [event, first, second]),
            ("short body", WELCOME[:3], all_good),
        ]
        self.fabric.accept()
        before = fds()
        self.fabric.hang_up()
        for name, welcome, passed in cases:
            with self.subTest(name):
                self.fabric.accept()
                self.fabric.send(wire.message(wire.WELCOME, 0, welcome),
                                 passed)
                self.assertTrue(self.fabric.hung_up())
                self.fabric.hang_up()
        self.fabric.accept()
        self.assertTrue(eventually(lambda: fds() <= before), "leak")
        self.fabric.hang_up()
        for port in [*good, short, unsealed]:
            port.close()
        os.close(null)
        os.close(event)
        self.connect()
        self.assertTrue(self.connected())

    def test_bad_messages(self) -> None:
        cases = [
            ("LINK before WELCOME", False,
             wire.message(wire.LINK, 1, bytes(4))),
            ("HELLO", True, wire.message(wire.HELLO, 0, bytes(140))),
            ("PHYS", True, wire.message(wire.PHYS, 1, bytes(4))),
            ("port 3", True, wire.message(wire.LINK, 3, bytes([1, 1, 2, 0]))),
            ("port 0", True, wire.message(wire.LINK, 0, bytes([1, 1, 2, 0]))),
            ("up 7", True, wire.message(wire.LINK, 1, bytes([7, 1, 2, 0]))),
            ("type", True, wire.message(99, 0, b"x")),
            ("length", True, struct.pack(">HHI", wire.LINK, 1, 0xffffffff)),
            ("garbage", True, os.urandom(4096) + b"\xff" * 8),
        ]
        for name, welcomed, data in cases:
            with self.subTest(name):
                self.fabric.accept()
                if welcomed:
                    self.fabric.welcome()
                self.fabric.send(data)
                self.assertTrue(self.fabric.hung_up())
                self.fabric.hang_up()
        self.connect()
        self.assertTrue(self.connected())

    def test_second_welcome(self) -> None:
        self.connect()
        first = self.fabric.ports
        self.fabric.welcome()
        self.assertTrue(self.fabric.hung_up())
        for port in first.values():
            port.close()


class Ports(WithFabric):
    """Cables: PHYS and LINK."""

    def test_activation_at_aqp1(self) -> None:
        self.connect()
        self.assertTrue(self.connected())
        with self.assertRaises(TimeoutError):
            self.fabric.expect(wire.PHYS, 0.3)
        a = self.define_aqp1()
        got = {self.fabric.expect(wire.PHYS) for _ in range(2)}
        self.assertEqual(got, {(1, bytes([1, 0, 0, 0])),
                               (2, bytes([1, 0, 0, 0]))})
        self.assertEqual(a.port(1)["state"], abi.PORT_DOWN)
        self.fabric.link(1, True)
        self.assertTrue(eventually(
            lambda: a.port(1)["state"] == abi.PORT_INIT))
        self.assertEqual(a.port(1)["phys"], 5)
        self.assertEqual(a.port(2)["state"], abi.PORT_DOWN)
        self.fabric.link(1, False)
        self.assertTrue(eventually(
            lambda: a.port(1)["state"] == abi.PORT_DOWN))

    def test_events(self) -> None:
        self.connect()
        self.define_aqp1()
        self.assertEqual({self.fabric.expect_event("aqp1_defined")["port"]
                          for _ in range(2)}, {1, 2})
        self.fabric.link(2, True)
        event = self.fabric.expect_event("port_state")
        self.assertEqual(event["port"], 2)

    def test_events_wait_for_the_fabric(self) -> None:
        self.define_aqp1()
        self.connect()
        self.assertEqual({self.fabric.expect_event("aqp1_defined")["port"]
                          for _ in range(2)}, {1, 2})

    def test_events_are_bounded(self) -> None:
        """Without a fabric the newest are kept and the rest counted."""
        a = self.define_aqp1()
        cq = a.alloc_cq(a.eq, 9)
        qp = a.alloc_qp(abi.ALLOC_RC, cq, a.eq, 9)
        for _ in range(1500):
            self.assertEqual(a.modify_qp(qp, state=abi.INIT, port=1), 0)
            self.assertEqual(a.modify_qp(qp, state=abi.RESET), 0)
        self.connect()
        lost = self.fabric.expect_event("events_lost")
        self.assertGreater(lost["count"], 2000)
        self.fabric.expect_event("qp_state")

    def test_fabric_dies(self) -> None:
        """Both ports down; all comes back by itself."""
        self.connect()
        a = self.define_aqp1()
        for round_ in range(5):
            self.assertEqual({self.fabric.expect(wire.PHYS)[0]
                              for _ in range(2)}, {1, 2})
            self.fabric.link(1, True)
            self.fabric.link(2, True)
            self.assertTrue(eventually(
                lambda: a.port(1)["state"] == abi.PORT_INIT and
                a.port(2)["state"] == abi.PORT_INIT), round_)
            self.fabric.hang_up()
            self.assertTrue(eventually(
                lambda: a.port(1)["state"] == abi.PORT_DOWN and
                a.port(2)["state"] == abi.PORT_DOWN), round_)
            self.connect()

    def test_reset_keeps_the_link(self) -> None:
        self.connect()
        self.define_aqp1()
        for _ in range(2):
            self.fabric.expect(wire.PHYS)
        self.qemu.reset()
        # aqp1: back to Disabled until the next boot defines QP1.
        got = {self.fabric.expect(wire.PHYS) for _ in range(2)}
        self.assertEqual(got, {(1, bytes(4)), (2, bytes(4))})
        self.assertEqual(self.qemu.qom_get("link"), "connected")
        self.qemu.next_page = 16 << 20
        self.define_aqp1()
        for _ in range(2):
            self.assertEqual(self.fabric.expect(wire.PHYS)[1][0], 1)


class Always(WithFabric):
    """port-activation=always."""

    properties = {"port-activation": "always"}

    def test_enabled_from_the_start(self) -> None:
        self.connect()
        for _ in range(2):
            self.assertEqual(self.fabric.expect(wire.PHYS)[1][0], 1)
        self.fabric.link(1, True)
        a = Adapter(self.qemu)
        self.assertTrue(eventually(
            lambda: a.port(1)["state"] == abi.PORT_INIT))
        self.qemu.reset()
        self.assertTrue(eventually(
            lambda: a.port(1)["state"] == abi.PORT_INIT))


class StartStopped(WithFabric):
    """-S: the fabric's welcome waits until the machine runs."""

    properties = {"port-activation": "always"}
    extra = ["-S"]

    def test_start_stopped(self) -> None:
        self.connect()
        with self.assertRaises(TimeoutError):
            self.fabric.expect(wire.PHYS, 0.3)
        self.assertIn("waiting", self.qemu.qom_get("link"))
        self.qemu.qmp("cont")
        self.assertTrue(self.connected())
        for _ in range(2):
            self.assertEqual(self.fabric.expect(wire.PHYS)[1][0], 1)


class Qp0(WithFabric):
    """port-activation=qp0."""

    properties = {"port-activation": "qp0"}

    def test_enabled_at_rtr(self) -> None:
        self.connect()
        a = Adapter(self.qemu)
        eq = a.alloc_eq(abi.ALLOC_EQ, 512)
        a.alloc_eq(abi.ALLOC_NEQ, 513)
        cq = a.alloc_cq(eq, 1)
        gsi = a.alloc_qp(abi.ALLOC_UD, cq, eq, 1)
        a.ok(abi.H_DEFINE_AQP1, gsi.handle, 1)
        smi = a.alloc_qp(abi.ALLOC_UD, cq, eq, 2)
        a.ok(abi.H_DEFINE_AQP0, smi.handle, 1)
        self.assertEqual(a.modify_qp(smi, state=abi.INIT, pkey_index=0,
                                     port=1, qkey=0), 0)
        with self.assertRaises(TimeoutError):
            self.fabric.expect(wire.PHYS, 0.3)
        self.assertEqual(a.modify_qp(smi, state=abi.RTR), 0)
        self.assertEqual(self.fabric.expect(wire.PHYS),
                         (1, bytes([1, 0, 0, 0])))


class Descriptors(WithFabric):
    """Descriptors that nobody asked for."""

    def test_no_leak(self) -> None:
        self.connect()
        self.assertTrue(self.connected())
        assert self.qemu.process is not None
        fds = Path(f"/proc/{self.qemu.process.pid}/fd")
        before = len(os.listdir(fds))
        for i in range(100):
            self.fabric.send(wire.message(wire.LINK, 1,
                                          bytes([i & 1, 1, 2, 0])),
                             self.fabric.fds(self.fabric.ports[1]))
        self.assertTrue(eventually(
            lambda: len(os.listdir(fds)) == before))
        self.assertEqual(self.qemu.qom_get("link"), "connected")


class OnePort(WithFabric):
    """ports=1."""

    properties = {"ports": 1}

    def test_one_port(self) -> None:
        hello = self.connect(1)
        self.assertEqual(hello["num_ports"], 1)
        self.assertTrue(self.connected())


class NotUnix(unittest.TestCase):
    """A chardev through which no descriptor passes."""

    def test_tcp(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with Qemu([{"id": "hca0", "chardev": "ib0", "node": "alice"}],
                      ["-chardev", f"socket,id=ib0,host=127.0.0.1,port={port}"
                       ",reconnect-ms=50"]) as qemu:
                self.assertTrue(eventually(
                    lambda: "must be a unix socket" in qemu.log()))
                qemu.report()


class NoReconnect(WithFabric):
    """A fabric that goes and a chardev that does not come back."""

    reconnect = False

    def test_gone(self) -> None:
        self.connect()
        self.assertTrue(self.connected())
        self.fabric.close()
        self.assertTrue(eventually(
            lambda: self.qemu.qom_get("link") == "disconnected"))
        self.qemu.reset()
        self.qemu.report()


class Hostile(WithFabric):
    """Shared memory written by an enemy."""

    properties = {"port-activation": "always"}

    def test_counters(self) -> None:
        """Impossible counters and lengths break the ring, nothing else."""
        a = Adapter(self.qemu)
        for field, value in (("head", 129), ("head", 0xffffffff),
                             ("length", 0), ("length", 0xffffffff),
                             ("length", 4289)):
            with self.subTest(f"{field} {value}"):
                self.connect()
                self.assertTrue(self.connected())
                self.fabric.link(1, True)
                self.assertTrue(eventually(
                    lambda: a.port(1)["state"] == abi.PORT_INIT))
                port = self.fabric.ports[1]
                if field == "length":
                    struct.pack_into("<I", port.map,
                                     wire.RING_SIZE + wire.OFFSET["slots"],
                                     value)
                    port.put(1, "head", 1)
                else:
                    port.put(1, field, value)
                self.fabric.kick()
                self.qemu.report()
                self.fabric.hang_up()
                self.assertTrue(eventually(
                    lambda: a.port(1)["state"] == abi.PORT_DOWN))

    def test_garbage_packets(self) -> None:
        """Packets of random bytes are dropped and counted."""
        self.connect()
        a = Adapter(self.qemu)
        self.fabric.link(1, True)
        self.assertTrue(eventually(
            lambda: a.port(1)["state"] == abi.PORT_INIT))
        port = self.fabric.ports[1]
        for i in range(2000):
            self.assertTrue(eventually(
                lambda: port.get(1, "head") - port.get(1, "tail") <
                wire.SLOTS))
            self.fabric.put_packet(1, os.urandom(1 + i * 37 % 4200))
        self.assertTrue(eventually(
            lambda: port.get(1, "tail") == port.get(1, "head")))
        self.qemu.report()

    def test_memory_taken(self) -> None:
        """The fabric's file has holes where the rings were: zeroes."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int,
                                   ctypes.c_int64, ctypes.c_int64]
        a = Adapter(self.qemu)
        self.connect()
        self.fabric.link(1, True)
        self.assertTrue(eventually(
            lambda: a.port(1)["state"] == abi.PORT_INIT))
        port = self.fabric.ports[1]
        for tid in range(3):
            self.fabric.put_packet(1, wire.mad_packet(wire.directed_smp(
                wire.METHOD_GET, wire.ATTR_NODE_INFO, 0, tid), 0xffff,
                0xffff, 15, 0))
            self.assertIsNotNone(port.receive())
        with self.assertRaises(PermissionError):
            os.ftruncate(port.memfd, 0)
        # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
        self.assertEqual(libc.fallocate(port.memfd, 3, 0, wire.MEMORY_SIZE),
                         0)
        for _ in range(3):
            self.fabric.kick()
            self.qemu.report()
        self.fabric.hang_up()
        self.assertTrue(eventually(
            lambda: a.port(1)["state"] == abi.PORT_DOWN))

    def test_wake_ups(self) -> None:
        """Wake-ups that nobody takes, and that come without end: a kick of
        QEMU waits for nothing, whatever the fabric does to the sockets."""
        self.connect()
        a = Adapter(self.qemu)
        self.fabric.link(1, True)
        self.assertTrue(eventually(
            lambda: a.port(1)["state"] == abi.PORT_INIT))
        port = self.fabric.ports[1]
        assert self.fabric.wake_node is not None
        for sock in (self.fabric.wake_end, self.fabric.wake_node):
            sock.setblocking(True)      # the file's flag, which QEMU shares
            with self.assertRaises(BlockingIOError):
                while True:
                    sock.send(bytes(4096), socket.MSG_DONTWAIT)
        for i in range(300):
            port.put(0, "consumer_waits", 1)
            self.fabric.put_packet(1, wire.mad_packet(wire.directed_smp(
                wire.METHOD_GET, wire.ATTR_NODE_INFO, 0, i), 0xffff, 0xffff,
                15, 0))
            self.assertIsNotNone(port.receive())
        self.qemu.report()
        # Without a chardev that comes back at once, it would be for good.
        self.fabric.wake_node.shutdown(socket.SHUT_RDWR)
        self.assertTrue(self.fabric.hung_up())
        self.assertIn("shut down the socket", self.qemu.log())
        self.fabric.hang_up()
        self.connect()
        self.assertTrue(self.connected())

    def test_no_kicks_no_reading(self) -> None:
        """A fabric that takes nothing: the adapter waits, QEMU lives."""
        self.connect()
        a = Adapter(self.qemu)
        self.fabric.link(1, True)
        self.assertTrue(eventually(
            lambda: a.port(1)["state"] == abi.PORT_INIT))
        port = self.fabric.ports[1]
        # Each wants an answer; the ring to the fabric holds 128.
        for i in range(400):
            eventually(lambda: port.get(1, "head") - port.get(1, "tail") <
                       wire.SLOTS, 0.2)
            self.fabric.put_packet(1, wire.mad_packet(wire.directed_smp(
                wire.METHOD_GET, wire.ATTR_NODE_INFO, 0, i), 0xffff, 0xffff,
                15, 0))
        self.qemu.report()
        self.assertEqual(a.port(1)["state"], abi.PORT_INIT)


if __name__ == "__main__":
    unittest.main()
