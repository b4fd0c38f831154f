# SPDX-License-Identifier: GPL-2.0-or-later
"""The scenario language: reading and checking a scenario file.

docs/scenarios.md describes the language for its users.  A file is read whole
and every word is checked against the topology before anything is started;
all errors are reported at once, each as FILE:LINE: what is wrong; what would
be right.
"""
from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .events import names_of

REPEAT_MAX = 1000
# Faults of a cable and the greatest value of each (docs/fabric.md).
FAULTS = {"drop": 1.0, "duplicate": 1.0, "corrupt": 1.0, "delay": 1.0,
          "delay-ms": 10000.0}
# Lines played, each as often as it is repeated; repeats within repeats.
LINES_MAX = 100_000
REPEAT_DEPTH_MAX = 8
# What `-device ehca` can have; simulated hosts have up to 8.
GUEST_PORTS_MAX = 2
LID_MAX = 0xbfff                     # the last unicast LID
SECONDS_MAX = 3600
SWEEP_MAX = 86400
DEFAULT_WITHIN = 30.0
KERNELS = ("6.1", "6.12")
PORT_STATES = ("down", "init", "armed", "active")
CONDITION = re.compile(r"^([A-Za-z_][\w.]*)(!=|>=|<=|=)(.*)$")


class ScenarioError(Exception):
    """What is wrong with a scenario or topology file; a line per error."""


@dataclass
class Condition:
    """key=value, key!=value, key>=number or key<=number."""

    key: str
    op: str
    value: str

    def holds(self, data: dict[str, Any]) -> bool:
        """Whether a JSON object satisfies it; the key may be a dotted path."""
        found: Any = data
        for part in self.key.split("."):
            if not isinstance(found, dict) or part not in found:
                return False
            found = found[part]
        if self.op in (">=", "<="):
            try:
                left, right = float(found), float(self.value)
            except (TypeError, ValueError):
                return False
            return left >= right if self.op == ">=" else left <= right
        same = str(found).lower() == self.value.lower()
        return same if self.op == "=" else not same

    def __str__(self) -> str:
        return f"{self.key}{self.op}{self.value}"


@dataclass
class Action:
    """One line of a step."""

    line: int
    verb: str
    words: list[str]
    nodes: list[str] = field(default_factory=list)
    target: str = ""                 # cable, event, file, text, ...
    conditions: list[Condition] = field(default_factory=list)
    within: float = DEFAULT_WITHIN
    text: str = ""
    check: str = ""                  # run: "contains", "lacks" or ""

    def __str__(self) -> str:
        return " ".join([self.verb, *self.words])


@dataclass
class Step:
    """A titled group of actions; a test case of the report."""

    line: int
    title: str
    actions: list[Action] = field(default_factory=list)


@dataclass
class Topology:
    """What `ehca-fabric --check --json` says of a topology file."""

    path: Path
    hosts: dict[str, int]            # name -> number of ports
    switches: list[str]
    cables: dict[str, tuple[str, ...]]    # its two ends, NODE/PORT

    @property
    def guests(self) -> list[str]:
        """Hosts that a guest can be booted for: all but the SM's."""
        return [h for h in self.hosts if h != SM_NODE]


SM_NODE = "sm"


def too_many_ports(topology: Topology, nodes: list[str]) -> list[str]:
    """Of these hosts, those that no guest can be; each in words."""
    return [f"host {node} has {topology.hosts[node]} ports; a guest has 1 "
            f"to {GUEST_PORTS_MAX}" for node in nodes
            if topology.hosts.get(node, 0) > GUEST_PORTS_MAX]


@dataclass
class Scenario:
    """A scenario that was read and found good."""

    path: Path
    title: str
    topology: Topology
    kernel: str
    memory: int
    steps: list[Step]
    never: list[tuple[int, list[str], str]]   # line, sources, event
    options: dict[str, str]


def guess(word: str, known: list[str]) -> str:
    """A hint for a word that is not known."""
    near = difflib.get_close_matches(word, known, 1)
    if near:
        return f"did you mean '{near[0]}'?"
    return "known: " + ", ".join(known)


class Parser:
    """Reads one scenario file."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.errors: list[str] = []
        self.lines = self._split(text)
        self.title = path.stem
        self.topology_word: tuple[int, str] | None = None
        self.kernel = "6.12"
        self.memory = 512
        self.never: list[tuple[int, list[str], str]] = []
        self.options: dict[str, str] = {}
        self.topology: Topology | None = None
        self.unrolled = 0
        self.gave_up = False

    def error(self, line: int, wrong: str, right: str) -> None:
        """Note an error; reading goes on."""
        self.errors.append(f"{self.path}:{line}: {wrong}; {right}")

    def _split(self, text: str) -> list[tuple[int, list[str]]]:
        lines = []
        for number, raw in enumerate(text.splitlines(), 1):
            lexer = shlex.shlex(raw, posix=True, punctuation_chars=False)
            lexer.whitespace_split = True
            lexer.commenters = "#"
            try:
                words = list(lexer)
            except ValueError as exc:
                self.error(number, f"cannot split the line: {exc}",
                           'close every quote: step "Pull the cable"')
                continue
            if words:
                lines.append((number, words))
        return lines

    # -- first pass: what stands before the first step ------------------

    def header(self) -> None:
        """Read title, topology, kernel, memory."""
        seen_step = False
        for number, words in self.lines:
            if words[0] == "step":
                seen_step = True
            if words[0] not in ("title", "topology", "kernel", "memory",
                                "never", "option"):
                continue
            if seen_step:
                self.error(number, f"'{words[0]}' stands after a step",
                           "put it above the first 'step'")
            if words[0] == "title":
                self.title = " ".join(words[1:])
            elif words[0] == "topology" and len(words) == 2:
                self.topology_word = (number, words[1])
            elif words[0] == "kernel":
                if len(words) != 2 or words[1] not in KERNELS:
                    self.error(number, f"no kernel '{' '.join(words[1:])}'",
                               "write one of: kernel " +
                               ", kernel ".join(KERNELS))
                else:
                    self.kernel = words[1]
            elif words[0] == "memory":
                if (len(words) != 2 or not words[1].isdigit()
                        or not 256 <= int(words[1]) <= 65536
                        or int(words[1]) % 256):
                    self.error(number, f"bad memory size "
                               f"'{' '.join(words[1:])}'",
                               "write MiB of each guest, a multiple of 256 "
                               "up to 65536: memory 512")
                else:
                    self.memory = int(words[1])
            elif words[0] == "option":
                for word in words[1:]:
                    key, sep, value = word.partition("=")
                    if not sep or key not in OPTIONS:
                        self.error(number, f"no option '{word}'",
                                   guess(key, sorted(OPTIONS)))
                    elif not OPTIONS[key][0](value):
                        self.error(number, f"bad value '{value}' of option "
                                   f"{key}", f"write {OPTIONS[key][1]}")
                    else:
                        self.options[key] = value
            elif words[0] == "topology":
                self.error(number, "'topology' takes one file",
                           "write: topology topologies/two-rails.topo")
        if self.topology_word is None:
            self.error(1, "no 'topology' line",
                       "add one, for example: "
                       "topology topologies/two-rails.topo")

    # -- second pass: the steps ------------------------------------------

    def body(self, topology: Topology) -> list[Step]:
        """Read the steps, unrolling repeats."""
        self.topology = topology
        steps: list[Step] = []
        self._block(0, steps, {}, depth=0)
        if not steps and not self.errors:
            self.error(1, "no 'step' in the file",
                       'add one: step "Boot", then its actions')
        return steps

    def _block(self, at: int, steps: list[Step], variables: dict[str, str],
               depth: int) -> int:
        while at < len(self.lines):
            number, words = self.lines[at]
            self.unrolled += 1
            if self.unrolled > LINES_MAX:
                self.error(number, f"more than {LINES_MAX} lines, each "
                           "counted as often as it is repeated",
                           "repeat less often")
                self.gave_up = True
                return len(self.lines)
            words = [self._substitute(number, w, variables) for w in words]
            verb = words[0]
            at += 1
            if verb in ("title", "topology", "kernel", "memory", "option"):
                continue
            if verb == "end":
                if depth == 0:
                    self.error(number, "'end' without 'repeat'",
                               "remove it or add the 'repeat'")
                    continue
                return at
            if verb == "never":
                self._never(number, words)
                continue
            if verb == "repeat":
                at = self._repeat(number, words, at, steps, variables, depth)
                continue
            if verb == "step":
                if len(words) < 2:
                    self.error(number, "a step without a title",
                               'write: step "Pull the first cable"')
                steps.append(Step(number, " ".join(words[1:])))
                continue
            if not steps:
                self.error(number, f"'{verb}' stands before the first step",
                           'open one above it: step "Boot"')
                steps.append(Step(number, "(no title)"))
            action = self._action(number, words)
            if action is not None:
                steps[-1].actions.append(action)
        if depth and not self.gave_up:
            self.error(self.lines[-1][0], "'repeat' without 'end'",
                       "add 'end' where the repetition stops")
        return at

    def _substitute(self, number: int, word: str,
                    variables: dict[str, str]) -> str:
        return re.sub(r"\{(\w+)\}",
                      lambda m: variables.get(m.group(1), m.group(0)), word)

    def _repeat(self, number: int, words: list[str], at: int,
                steps: list[Step], variables: dict[str, str],
                depth: int) -> int:
        count, name = 1, "i"
        if depth == REPEAT_DEPTH_MAX:
            self.error(number, f"more than {REPEAT_DEPTH_MAX} repeats within "
                       "one another", "nest them less deeply")
            self.gave_up = True
            return len(self.lines)
        ok = len(words) == 2 or (len(words) == 4 and words[2] == "as")
        if ok and words[1].isdigit() and 1 <= int(words[1]) <= REPEAT_MAX:
            count = int(words[1])
            name = words[3] if len(words) == 4 else "i"
        else:
            self.error(number, f"cannot read '{' '.join(words)}'",
                       f"write: repeat N as i, N from 1 to {REPEAT_MAX}")
        end = at
        for i in range(1, count + 1):
            before = len(self.errors)
            end = self._block(at, steps, {**variables, name: str(i)},
                              depth + 1)
            if len(self.errors) > before:
                break
        return end

    def _never(self, number: int, words: list[str]) -> None:
        if len(words) < 3:
            self.error(number, "'never' needs a node and an event",
                       "write: never alice message_error")
            return
        sources = self._sources(number, words[1])
        for event in words[2:]:
            self._event(number, sources, event)
            self.never.append((number, sources, event))

    def _event(self, number: int, sources: list[str], name: str) -> None:
        """Refuse an event that the sources can never have."""
        for source in sources[:1]:
            known = names_of(source)
            if name not in known:
                self.error(number, f"no event '{name}' of {source}",
                           guess(name, sorted(known)))

    def _sources(self, number: int, word: str) -> list[str]:
        """A word that says whose events: NODE, NODE/hca, all, fabric, sm."""
        assert self.topology is not None
        guests = self.topology.guests
        if word == "all":
            return list(guests)
        known = [*guests, *[f"{g}/hca" for g in guests], "fabric", SM_NODE]
        if word not in known:
            self.error(number, f"nobody is called '{word}'",
                       guess(word, ["all", *known]))
        return [word]

    def _nodes(self, number: int, words: list[str],
               ) -> list[str]:
        assert self.topology is not None
        guests = self.topology.guests
        if words == ["all"]:
            return list(guests)
        for word in words:
            if word not in guests:
                self.error(number, f"the topology has no guest '{word}'",
                           guess(word, guests))
        return words

    def _seconds(self, number: int, word: str, example: str) -> float:
        """A time; 0 and an error noted if it is none."""
        try:
            seconds = float(word)
        except ValueError:
            seconds = -1
        if not 0 <= seconds <= SECONDS_MAX:
            self.error(number, f"bad time '{word}'",
                       f"write seconds, up to {SECONDS_MAX}: {example}")
            return 0
        return seconds

    def _within(self, number: int, words: list[str], action: Action
                ) -> list[str]:
        """Take 'within SECONDS' off the end."""
        if len(words) >= 2 and words[-2] == "within":
            action.within = self._seconds(number, words[-1], "within 30")
            return words[:-2]
        return words

    def _conditions(self, number: int, words: list[str]
                    ) -> list[Condition]:
        found = []
        for word in words:
            match = CONDITION.match(word)
            if match is None:
                self.error(number, f"'{word}' is no condition",
                           "write key=value, key!=value, key>=number or "
                           "key<=number")
            else:
                found.append(Condition(*match.groups()))
        return found

    def _action(self, number: int, words: list[str]) -> Action | None:
        verb = words[0]
        handler = VERBS.get(verb)
        if handler is None:
            self.error(number, f"no action '{verb}'",
                       guess(verb, sorted([*VERBS, "step", "repeat",
                                           "end", "never"])))
            return None
        action = Action(number, verb, words[1:])
        rest = words[1:]
        if verb in ("wait", "expect"):
            rest = self._within(number, rest, action)
        handler(self, action, rest)
        return action

    def need(self, action: Action, rest: list[str], least: int, form: str
             ) -> bool:
        """Check the number of words."""
        if len(rest) < least:
            self.error(action.line, f"'{action}' is incomplete",
                       f"write: {form}")
            return False
        return True

    # -- one function per verb -------------------------------------------

    def v_start(self, action: Action, rest: list[str]) -> None:
        """start sm / stop sm / kill sm."""
        if rest != [SM_NODE]:
            self.error(action.line, f"cannot {action.verb} "
                       f"'{' '.join(rest)}'",
                       f"write: {action.verb} sm (guests: boot, shutdown, "
                       "kill-guest)")
        elif self.topology and SM_NODE not in self.topology.hosts:
            self.error(action.line, "the topology has no host 'sm'",
                       "add to it: host sm ports=1, and a cable")
        action.target = SM_NODE

    def v_nodes(self, action: Action, rest: list[str]) -> None:
        """boot / shutdown / kill-guest / explain NODE..."""
        if self.need(action, rest, 1, f"{action.verb} alice bob"):
            action.nodes = self._nodes(action.line, rest)
        if action.verb == "boot" and self.topology:
            for wrong in too_many_ports(self.topology, action.nodes):
                self.error(action.line, wrong, "change the topology")

    def v_load(self, action: Action, rest: list[str]) -> None:
        """load NODE... [PARAMETER=VALUE]."""
        action.conditions = self._conditions(
            action.line, [w for w in rest if "=" in w])
        names = [w for w in rest if "=" not in w]
        if self.need(action, names, 1, "load alice bob"):
            action.nodes = self._nodes(action.line, names)

    def v_cable(self, action: Action, rest: list[str]) -> None:
        """pull / restore CABLE..."""
        if not self.need(action, rest, 1, f"{action.verb} CABLE"):
            return
        assert self.topology is not None
        cables = sorted(self.topology.cables)
        for word in rest:
            if word not in cables:
                self.error(action.line, f"the topology has no cable "
                           f"'{word}'", guess(word, cables))
        action.nodes = rest

    def v_fault(self, action: Action, rest: list[str]) -> None:
        """fault CABLE... KIND=VALUE... | fault CABLE... none."""
        form = "fault CABLE drop=0.1, or: fault CABLE none"
        cables = [w for w in rest if "=" not in w and w != "none"]
        faults = [w for w in rest if "=" in w]
        if not cables or bool(faults) == ("none" in rest):
            self.error(action.line, f"'{action}' is incomplete",
                       f"write: {form}")
            return
        self.v_cable(action, cables)
        action.conditions = []
        for word in faults:
            kind, _, value = word.partition("=")
            if kind not in FAULTS:
                self.error(action.line, f"no fault '{kind}'",
                           guess(kind, sorted(FAULTS)))
                continue
            try:
                if not 0 <= float(value) <= FAULTS[kind]:
                    raise ValueError
            except ValueError:
                self.error(action.line, f"bad value '{word}'",
                           f"write a number from 0 to {FAULTS[kind]:g}: "
                           f"{kind}=0.5")
                continue
            action.conditions.append(Condition(kind, "=", value))

    def v_lid(self, action: Action, rest: list[str]) -> None:
        """lid NODE/PORT LID."""
        if not self.need(action, rest, 2, "lid alice/1 77"):
            return
        self._port(action.line, rest[0])
        if (len(rest) != 2 or not rest[1].isdigit()
                or not 1 <= int(rest[1]) <= LID_MAX):
            self.error(action.line, f"bad LID '{' '.join(rest[1:])}'",
                       f"write a number from 1 to {LID_MAX}: lid alice/1 77")
        action.nodes, action.text = rest[:1], rest[1]

    def v_on(self, action: Action, rest: list[str]) -> None:
        """on NODE COMMAND: a command of the consumer."""
        if self.need(action, rest, 2, "on alice traffic start"):
            action.nodes = self._nodes(action.line, rest[:1])
            self._text(action, rest[1:])

    def v_run(self, action: Action, rest: list[str]) -> None:
        """run NODE COMMAND [contains TEXT]: a program in the guest."""
        if not self.need(action, rest, 2, 'run alice "ibstat" '
                         '[contains "Active"]'):
            return
        action.nodes = self._nodes(action.line, rest[:1])
        rest = rest[1:]
        if len(rest) >= 3 and rest[-2] in ("contains", "lacks"):
            action.check, action.target = rest[-2:]
            rest = rest[:-2]
        self._text(action, rest)

    def _text(self, action: Action, words: list[str]) -> None:
        """A command for a guest; each {gid:NODE/PORT} in it must exist."""
        action.text = " ".join(words)
        for place in re.findall(r"\{gid:([^}]*)\}", action.text):
            self._port(action.line, place)

    def _port(self, number: int, word: str) -> None:
        assert self.topology is not None
        node, _, port = word.partition("/")
        if node not in self.topology.guests:
            self.error(number, f"the topology has no guest '{node}'",
                       guess(node, self.topology.guests))
        elif (not port.isdigit()
              or not 1 <= int(port) <= self.topology.hosts[node]):
            self.error(number, f"'{node}' has no port '{port}'",
                       f"write {node}/1 to "
                       f"{node}/{self.topology.hosts[node]}")

    def v_wait(self, action: Action, rest: list[str]) -> None:
        """wait port NODE/PORT STATE | wait status NODE CONDITION..."""
        forms = ("wait port alice/1 active, or: wait status alice "
                 "qp.mig=ARMED")
        if not self.need(action, rest, 3, forms):
            return
        if rest[0] == "port":
            for word in rest[1:-1]:
                self._port(action.line, word)
            if rest[-1] not in PORT_STATES:
                self.error(action.line, f"no port state '{rest[-1]}'",
                           guess(rest[-1], list(PORT_STATES)))
            action.target = "port"
            action.nodes, action.text = rest[1:-1], rest[-1]
        elif rest[0] == "status":
            action.target = "status"
            action.nodes = self._nodes(action.line, rest[1:2])
            action.conditions = self._conditions(action.line, rest[2:])
        else:
            self.error(action.line, f"cannot wait for '{rest[0]}'",
                       f"write: {forms}")

    def v_expect(self, action: Action, rest: list[str]) -> None:
        """expect SOURCE EVENT [CONDITION...] [within SECONDS]."""
        if self.need(action, rest, 2, "expect alice path_mig"):
            action.nodes = self._sources(action.line, rest[0])
            action.target = rest[1]
            self._event(action.line, action.nodes, rest[1])
            action.conditions = self._conditions(action.line, rest[2:])

    def v_quiet(self, action: Action, rest: list[str]) -> None:
        """expect-none SOURCE EVENT [CONDITION...] for SECONDS."""
        action.within = 0.0
        if len(rest) >= 4 and rest[-2] == "for":
            action.within = self._seconds(action.line, rest[-1], "for 3")
            rest = rest[:-2]
        self.v_expect(action, rest)

    def v_seconds(self, action: Action, rest: list[str]) -> None:
        """sleep SECONDS."""
        action.within = self._seconds(action.line, " ".join(rest), "sleep 2")

    def v_text(self, action: Action, rest: list[str]) -> None:
        """note TEXT."""
        action.text = " ".join(rest)


VERBS: dict[str, Callable[[Parser, Action, list[str]], None]] = {
    "start": Parser.v_start, "stop": Parser.v_start, "kill": Parser.v_start,
    "boot": Parser.v_nodes, "shutdown": Parser.v_nodes,
    "kill-guest": Parser.v_nodes, "explain": Parser.v_nodes,
    "load": Parser.v_load, "unload": Parser.v_nodes,
    "pull": Parser.v_cable, "restore": Parser.v_cable,
    "fault": Parser.v_fault, "lid": Parser.v_lid,
    "on": Parser.v_on, "run": Parser.v_run, "wait": Parser.v_wait,
    "expect": Parser.v_expect, "expect-none": Parser.v_quiet,
    "sleep": Parser.v_seconds, "note": Parser.v_text,
}


def _is_sweep(text: str) -> bool:
    """What ehca-sm takes for --sweep."""
    try:
        seconds = float(text)
    except ValueError:
        return False
    return seconds == 0 or 0.1 <= seconds <= SWEEP_MAX


# option KEY=VALUE lines: what is allowed, and that in words.  What they mean
# is the lab's business (lab.py).
OPTIONS: dict[str, tuple[Callable[[str], bool], str]] = {
    "port-activation": (("aqp1", "qp0", "always").__contains__,
                        "aqp1, qp0 or always"),
    "capture": (("on", "off").__contains__, "on or off"),
    "sm-sweep": (_is_sweep, f"seconds from 0.1 to {SWEEP_MAX}, or 0 for "
                 "never"),
}


def read(path: Path, load_topology: Callable[[Path], Topology]) -> Scenario:
    """Read a scenario; ScenarioError names every fault found."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise ScenarioError(f"{path}: cannot be read: {exc}") from exc
    parser = Parser(path, text)
    parser.header()
    if parser.topology_word is None:
        raise ScenarioError("\n".join(parser.errors))
    number, word = parser.topology_word
    try:
        where = (path.parent / word).resolve()
        found = where.is_file()
    except (OSError, ValueError):      # too long, or a NUL in it
        found = False
    if not found:
        parser.error(number, f"no topology file '{word}'",
                     "name it relative to the scenario file")
        raise ScenarioError("\n".join(parser.errors))
    topology = load_topology(where)
    steps = parser.body(topology)
    if parser.errors:
        raise ScenarioError("\n".join(parser.errors))
    return Scenario(path, parser.title, topology, parser.kernel, parser.memory,
                    steps, parser.never, parser.options)
