#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Our packets in front of an independent reader: Wireshark's dissector.

Runs write_pcap, which writes a capture and says what must be found in it, and
asks tshark.  Fails when tshark calls a packet malformed, or finds another
value than we put in.  Exit 77: tshark is not installed.
"""

import ipaddress
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77


def known_fields(tshark: str) -> set[str]:
    """Field names that this version of tshark has."""
    text = subprocess.run([tshark, "-G", "fields"], check=True, text=True,
                          stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout
    return {line.split("\t")[2] for line in text.splitlines()
            if line.startswith("F\t")}


def value(text: str) -> object:
    """A field's text as what it means, so that 0x10 equals 16."""
    if text in ("True", "False"):
        return int(text == "True")
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return text.replace(":", "").lower()


def wanted(writer: str, pcap: Path) -> dict[int, dict[str, str]]:
    """Packet number to the fields that must be found in it."""
    lines = subprocess.run([writer, str(pcap)], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    packets = {}
    for line in lines:
        number, *fields = line.split()
        packets[int(number)] = dict(f.split("=", 1) for f in fields)
    return packets


def dissected(tshark: str, pcap: Path,
              fields: list[str]) -> dict[int, dict[str, str]]:
    """Packet number to what tshark found."""
    command = [tshark, "-r", str(pcap), "-T", "fields", "-E", "separator=/t",
               "-E", "occurrence=f",
               # Guesses that our payload is RPC, and finds it wanting.
               "--disable-protocol", "rpcordma"]
    names = ["frame.number", "_ws.expert.severity", "_ws.expert.message",
             "_ws.malformed", *fields]
    for name in names:
        command += ["-e", name]
    out = subprocess.run(command, check=True, text=True,
                         stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL).stdout
    packets = {}
    for line in out.splitlines():
        found = dict(zip(names, line.split("\t")))
        packets[int(found["frame.number"])] = found
    return packets


def main() -> int:
    tshark = shutil.which("tshark")
    if not tshark:
        print("tshark is not installed: skipped")
        return SKIPPED
    bad = 0
    with tempfile.TemporaryDirectory() as directory:
        pcap = Path(directory) / "packets.pcap"
        want = wanted(sys.argv[1], pcap)
        fields = sorted({f for packet in want.values() for f in packet})
        have = known_fields(tshark)
        for name in [f for f in fields if f not in have]:
            print(f"note: this tshark does not know {name}")
        found = dissected(tshark, pcap, [f for f in fields if f in have])
    compared = 0
    for number, packet in want.items():
        got = found.get(number)
        if got is None:
            print(f"packet {number}: tshark does not show it")
            bad += 1
            continue
        if got["_ws.malformed"] or got["_ws.expert.severity"]:
            print(f"packet {number}: tshark complains: "
                  f"{got['_ws.malformed']} {got['_ws.expert.message']}")
            bad += 1
        for name, text in packet.items():
            if name not in have:
                continue
            # Behind some MADs tshark loses its place and shows no CRCs.
            if name.endswith(".crc") and not got[name] and \
                    got.get("infiniband.mad.mgmtclass"):
                continue
            compared += 1
            if value(got[name]) != value(text):
                print(f"packet {number}: {name} is {got[name]!r}, "
                      f"we wrote {text}")
                bad += 1
    print(f"{len(want)} packets, {compared} fields compared, {bad} wrong")
    return 1 if bad or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
