# SPDX-License-Identifier: GPL-2.0-or-later
"""The scenario language: reading and checking a scenario file.

docs/scenarios.md describes the language for its users.  A file is read whole
and every word is checked, against the topology and against the tables of
events, consumer commands and module parameters, before anything is started;
all errors are reported at once, each as FILE:LINE: what is wrong; what would
be right.

Doors: _text() for the file, Parser._substitute() for {...}, values.Kind for
every value, Parser._conditions() for every condition, consumer.check_command()
for the consumer's commands, order.Order for what cannot be at its place.
"""
from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from . import consumer, events, values
from .events import Fields
from .model import (DEFAULT_WITHIN, GID_PLACE, GUEST_PORTS_MAX, SM_NODE,
                    Action, Condition, Scenario, ScenarioError, Step, Topology,
                    too_many_ports)
from .order import Order
from .values import Kind, Where, guess, shown, whole

__all__ = ["DEFAULT_WITHIN", "GUEST_PORTS_MAX", "KERNELS", "SM_NODE",
           "Action", "Condition", "Parser", "Scenario", "ScenarioError",
           "Step", "Topology", "guess", "read", "too_many_ports"]

FILE_MAX = 1 << 20
ERRORS_SHOWN = 20
# So many, and reading ends: each is looked up among all names.
ERRORS_MAX = 100
REPEAT_MAX = 1000
# Lines played, each as often as it is repeated; repeats within repeats.
LINES_MAX = 100_000
REPEAT_DEPTH_MAX = 8
LID_MAX = 0xbfff                     # the last unicast LID
SECONDS = values.fraction(0, 3600)
SWEEP = values.fraction(0.1, 86400)
KERNELS = ("6.1", "6.12")
PORT_STATE = values.exactly("down", "init", "armed", "active")
CONDITION = re.compile(r"^([A-Za-z_][\w.]*)(!=|>=|<=|=)(.*)$")
# {NAME} or {NAME:...}; ${...} is the shell's.
PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)(:[^{}]*)?\}")

# Faults of a cable (docs/fabric.md).
FAULTS = {"drop": values.fraction(0, 1), "duplicate": values.fraction(0, 1),
          "corrupt": values.fraction(0, 1), "delay": values.fraction(0, 1),
          "delay-ms": values.fraction(0, 10000)}
# Parameters of the module that `load` gives them to.
PARAMETERS = {"port_act_wait": values.number(0, 2 ** 32 - 1)}
# option KEY=VALUE lines; what they mean is the lab's business (lab.py).
OPTIONS = {
    "port-activation": values.exactly("aqp1", "qp0", "always"),
    "capture": values.exactly("on", "off"),
    "sm-sweep": Kind(lambda text, where: text == "0" or
                     SWEEP.fits(text, where),
                     "seconds from 0.1 to 86400, or 0 for never"),
}
# Virtual CPUs of a guest, at the most
CPUS_MAX = 8
HEAD = ("title", "topology", "kernel", "memory", "cpus", "never", "option")
# Names of hosts and cables that mean something else in a scenario.
RESERVED_HOSTS = {"all": "each guest", "fabric": "the fabric's events",
                  "lab": "the runner's own events"}
RESERVED_CABLES = {"none": "no fault"}
# How the verbs that wait say how long.
CLAUSES = {"wait": "within", "expect": "within", "expect-none": "for"}
# Verbs in which {gid:NODE/PORT} is put in.
GID_VERBS = {"on", "run", "wait", "expect", "expect-none"}


class TooMany(Exception):
    """So many errors that no more need be found."""


class Parser:
    """Reads one scenario file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors: list[tuple[int, str]] = []
        self.lines: list[tuple[int, list[str]]] = []
        self.title = path.stem
        self.topology_word: tuple[int, str] | None = None
        self.kernel = "6.12"
        self.memory = 512
        self.cpus = 1
        self.never: list[tuple[int, list[str], str]] = []
        self.options: dict[str, str] = {}
        self.use(Topology(path, {}, [], {}))
        self.unrolled = 0
        self.gave_up = False

    def error(self, line: int, wrong: str, right: str) -> None:
        """Note an error; reading goes on, unless there are too many."""
        self.errors.append((line, f"{self.path}:{line}: {wrong}; {right}"))
        if len(self.errors) == ERRORS_MAX:
            raise TooMany

    def check(self) -> None:
        """ScenarioError if there were errors, in the order of lines."""
        more = len(self.errors) - ERRORS_SHOWN
        self.errors.sort(key=lambda error: error[0])
        if self.errors:
            raise ScenarioError("\n".join(
                [text for _, text in self.errors[:ERRORS_SHOWN]]
                + ([f"{self.path}: and {more} more errors"
                    + (", or even more" if len(self.errors) == ERRORS_MAX
                       else "")] if more > 0 else [])))

    def split(self, text: str) -> None:
        """Split a file into lines of words."""
        for number, raw in enumerate(text.split("\n"), 1):
            lexer = shlex.shlex(raw.removesuffix("\r"), posix=True,
                                punctuation_chars=False)
            lexer.whitespace = " \t"
            lexer.whitespace_split = True
            lexer.commenters = "#"
            try:
                words = list(lexer)
            except ValueError as exc:
                self.error(number, f"cannot split the line: {exc}",
                           'close every quote: step "Pull the cable"')
                continue
            odd = next((c for w in words for c in w if not c.isprintable()),
                       None)
            if odd is not None:
                self.error(number, "there is a character in the line that "
                           f"cannot be seen, U+{ord(odd):04X}",
                           "replace it, by a blank perhaps")
            elif words:
                self.lines.append((number, words))

    # -- first pass: what stands before the first step ------------------

    def header(self) -> None:
        """Read title, topology, kernel, memory, options."""
        begun = ""
        seen: dict[str, int] = {}
        for number, words in self.lines:
            word = words[0]
            if word in ("step", "repeat"):
                begun = begun or word
            if word not in HEAD:
                continue
            if begun:
                self.error(number, f"'{word}' stands after a '{begun}'",
                           "put it above the first 'step' or 'repeat'")
            if word in seen and word not in ("never", "option"):
                self.error(number, f"'{word}' stands in line {seen[word]} "
                           "already", "leave one")
            seen.setdefault(word, number)
            rest = [self._substitute(number, w, {}) for w in words[1:]]
            if word != "never":
                getattr(self, f"h_{word}")(number, rest)
        if "topology" not in seen:
            self.error(1, "no 'topology' line",
                       "add one, for example: "
                       "topology topologies/two-rails.topo")

    def h_title(self, number: int, rest: list[str]) -> None:
        """title TEXT."""
        self.title = " ".join(rest)
        if not self.title.strip():
            self.error(number, "'title' without a text",
                       "write: title Two cables fail in turn")

    def h_topology(self, number: int, rest: list[str]) -> None:
        """topology FILE."""
        if len(rest) == 1:
            self.topology_word = (number, rest[0])
        else:
            self.error(number, "'topology' takes one file",
                       "write: topology topologies/two-rails.topo")

    def h_kernel(self, number: int, rest: list[str]) -> None:
        """kernel SERIES."""
        if len(rest) == 1 and rest[0] in KERNELS:
            self.kernel = rest[0]
        else:
            self.error(number, f"no kernel '{shown(' '.join(rest))}'",
                       "write one of: kernel " + ", kernel ".join(KERNELS))

    def h_memory(self, number: int, rest: list[str]) -> None:
        """memory MIB."""
        size = whole(" ".join(rest), 256, 65536)
        if size is None or size % 256:
            self.error(number, f"bad memory size '{shown(' '.join(rest))}'",
                       "write MiB of each guest, a multiple of 256 up to "
                       "65536: memory 512")
        else:
            self.memory = size

    def h_cpus(self, number: int, rest: list[str]) -> None:
        """cpus COUNT."""
        count = whole(" ".join(rest), 1, CPUS_MAX)
        if count is None:
            self.error(number, f"bad number of CPUs '{shown(' '.join(rest))}'",
                       f"write those of each guest, 1 to {CPUS_MAX}: cpus 2")
        else:
            self.cpus = count

    def h_option(self, number: int, rest: list[str]) -> None:
        """option KEY=VALUE..."""
        if not rest:
            self.error(number, "'option' without KEY=VALUE",
                       "write: option capture=off")
        for key, value in self._pairs(number, "option", rest, OPTIONS):
            if key in self.options:
                self.error(number, f"option {key} is given twice",
                           "leave one")
            self.options[key] = value

    def _pairs(self, number: int, what: str, words: list[str],
               table: Fields) -> list[tuple[str, str]]:
        """Words KEY=VALUE, checked against a table."""
        found: dict[str, str] = {}
        for word in words:
            key, sep, value = word.partition("=")
            if key not in table:
                self.error(number, f"no {what} '{shown(key)}'",
                           guess(key, table))
            elif not sep:
                self.error(number, f"{what} '{key}' without a value",
                           f"write {key}=VALUE")
            elif right := table[key].wrong(value, Where()):
                self.error(number, f"bad value '{shown(value)}' of {what} "
                           f"{key}", right)
            elif key in found:
                self.error(number, f"{what} {key} is given twice",
                           "leave one")
            else:
                found[key] = value
        return list(found.items())

    # -- second pass: the steps ------------------------------------------

    def use(self, topology: Topology) -> None:
        """Take names from this topology; it may be large."""
        self.topology = topology
        self.guests = dict.fromkeys(topology.guests)
        self.names = Where(nodes=(*topology.hosts, *topology.switches),
                           cables=tuple(topology.cables))

    def body(self, topology: Topology) -> list[Step]:
        """Read the steps, unrolling repeats."""
        self.use(topology)
        if self.topology_word:
            self._reserved(self.topology_word[0])
        for number, words in self.lines:
            if words[0] == "never":
                self._never(number, words[1:])
        steps: list[Step] = []
        self._block(0, steps, {}, ())
        if not steps and not self.errors:
            self.error(1, "no 'step' in the file",
                       'add one: step "Boot", then its actions')
        if not self.errors:
            Order(self.error).follow(steps)
        return steps

    def _reserved(self, number: int) -> None:
        topology = self.topology
        for what, names, reserved in (
                ("host", [*topology.hosts], RESERVED_HOSTS),
                ("cable", [*topology.cables], RESERVED_CABLES)):
            for name in names:
                if name in reserved:
                    self.error(number, f"the topology has a {what} '{name}', "
                               f"which in a scenario means {reserved[name]}",
                               f"give the {what} another name")

    def _block(self, at: int, steps: list[Step], variables: dict[str, str],
               opened: tuple[int, ...]) -> int:
        """Read up to the 'end' of the innermost repeat, or of the file.

        opened: the lines of the repeats around.
        """
        while at < len(self.lines):
            number, words = self.lines[at]
            self.unrolled += 1
            if self.unrolled > LINES_MAX:
                self.error(number, f"more than {LINES_MAX} lines, each "
                           "counted as often as it is repeated",
                           "repeat less often")
                self.gave_up = True
                return len(self.lines)
            at += 1
            verb = words[0]
            if verb in HEAD:
                continue
            rest = [self._substitute(number, w, variables) for w in words[1:]]
            if verb == "end":
                if rest:
                    self.error(number, "'end' takes no words",
                               "write: end")
                if opened:
                    return at
                self.error(number, "'end' without 'repeat'",
                           "remove it or add the 'repeat'")
            elif verb == "repeat":
                at = self._repeat(number, rest, at, steps, variables, opened)
            elif verb == "step":
                if not " ".join(rest).strip():
                    self.error(number, "a step without a title",
                               'write: step "Pull the first cable"')
                self._no_gid(number, verb, rest)
                steps.append(Step(number, " ".join(rest)))
            elif verb not in VERBS:
                self.error(number, f"no action '{shown(verb)}'",
                           guess(verb, KNOWN))
            else:
                if not steps:
                    self.error(number, f"'{verb}' stands before the first "
                               "step", 'open one above it: step "Boot"')
                    steps.append(Step(number, "(no title)"))
                steps[-1].actions.append(self._action(number, verb, rest))
        if opened and not self.gave_up:
            self.error(opened[-1], "'repeat' without 'end'",
                       "add 'end' where the repetition stops")
        return at

    def _repeat(self, number: int, rest: list[str], at: int,
                steps: list[Step], variables: dict[str, str],
                opened: tuple[int, ...]) -> int:
        if len(opened) == REPEAT_DEPTH_MAX:
            self.error(number, f"more than {REPEAT_DEPTH_MAX} repeats within "
                       "one another", "nest them less deeply")
            self.gave_up = True
            return len(self.lines)
        count = whole(rest[0], 1, REPEAT_MAX) if rest else None
        name = rest[2] if len(rest) == 3 and rest[1] == "as" else None
        if count is None or (name is None and len(rest) != 1):
            self.error(number, f"cannot read 'repeat "
                       f"{shown(' '.join(rest))}'",
                       f"write: repeat N as i, N from 1 to {REPEAT_MAX}")
        elif name is not None and (
                not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
                or name == "gid"):
            self.error(number, f"'{shown(name)}' is no name for the round's "
                       "number", f"write: repeat {count} as i")
        elif name in variables:
            self.error(number, f"'{name}' is the name of a repeat around "
                       "this one", "take another name, as j")
        end = at
        for i in range(1, (count or 1) + 1):
            before = len(self.errors)
            end = self._block(
                at, steps, {**variables, **({name: str(i)} if name else {})},
                (*opened, number))
            if len(self.errors) > before:
                break
        return end

    def _substitute(self, number: int, word: str,
                    variables: dict[str, str]) -> str:
        """Put rounds' numbers in; {gid:...} stays, nothing else may."""
        def one(match: re.Match[str]) -> str:
            name, more = match.groups()
            if more is None and name in variables:
                return variables[name]
            if name != "gid" or more is None:
                known = ["{gid:NODE/PORT}", *(f"{{{v}}}" for v in variables)]
                self.error(number, f"'{shown(match.group(0))}' stands for "
                           "nothing here", "known: " + ", ".join(known)
                           + " (a brace that is to stay a brace wants a "
                           "blank behind it)")
            return match.group(0)

        return PLACEHOLDER.sub(one, word)

    def _no_gid(self, number: int, verb: str, words: list[str]) -> None:
        if GID_PLACE.search(" ".join(words)):
            self.error(number, f"no GID is put in at '{verb}'",
                       "{gid:NODE/PORT} can be used at: "
                       + ", ".join(sorted(GID_VERBS)))

    def _never(self, number: int, rest: list[str]) -> None:
        if len(rest) < 2:
            self.error(number, "'never' needs a node and an event",
                       "write: never alice message_error")
            return
        sources = self._sources(number, rest[0])
        for event in rest[1:]:
            self._event(number, sources, event)
            self.never.append((number, sources, event))

    def _event(self, number: int, sources: list[str], name: str
               ) -> Fields | None:
        """The fields of an event; an error if the sources never have it."""
        if not sources:
            return None
        known = events.events_of(sources[0])
        if name not in known:
            self.error(number, f"no event '{shown(name)}' of {sources[0]}",
                       guess(name, sorted(known)))
        return known.get(name)

    def _sources(self, number: int, word: str) -> list[str]:
        """A word that says whose events: NODE, NODE/hca, all, fabric, sm."""
        guests = self.guests
        if word == "all":
            return self._all(number)
        if word.removesuffix("/hca") in self.topology.hosts and \
                word != f"{SM_NODE}/hca" or word == "fabric":
            return [word]
        known = [*guests, *[f"{g}/hca" for g in guests], "fabric",
                 *([SM_NODE] if SM_NODE in self.topology.hosts else [])]
        self.error(number, f"nobody is called '{shown(word)}'",
                   guess(word, ["all", *known]))
        return []

    def _all(self, number: int) -> list[str]:
        if not self.guests:
            self.error(number, "the topology has no guest at all",
                       "add to it: host alice ports=2, and cables")
        return list(self.guests)

    def _nodes(self, number: int, words: list[str]) -> list[str]:
        """Guests of the topology; those that are none are left out."""
        guests = self.guests
        if words == ["all"]:
            return self._all(number)
        for word in words:
            if word not in guests:
                self.error(number, "'all' stands alone" if word == "all" else
                           f"the topology has no guest '{shown(word)}'",
                           guess(word, guests))
        return [word for word in words if word in guests]

    def _where(self, sources: list[str]) -> Where:
        """What the values of these sources' events can be."""
        hosts = self.topology.hosts
        ports = [hosts[s.removesuffix("/hca")] for s in sources
                 if s not in ("fabric", SM_NODE)]
        return replace(self.names, ports=max(ports, default=255))

    def _seconds(self, number: int, word: str, example: str) -> float:
        """A time; 0 and an error noted if it is none."""
        right = SECONDS.wrong(word, Where())
        if right:
            self.error(number, f"bad time '{shown(word)}'",
                       f"{right}, in seconds: {example}")
        return 0.0 if right else float(word)

    def _clause(self, action: Action, rest: list[str]) -> list[str]:
        """Take 'within SECONDS', or 'for SECONDS', off the end."""
        mine = CLAUSES.get(action.verb)
        for word in {*CLAUSES.values()}:
            if word not in rest[-2:]:
                continue
            if word != mine:
                verbs = [v for v, c in CLAUSES.items() if c == word]
                self.error(action.line, f"'{action.verb}' takes no '{word}'",
                           f"it goes with {', '.join(verbs)}"
                           + (f"; {action.verb} takes '{mine}'" if mine
                              else ""))
                return rest[:rest.index(word)]
            if rest[-1] == word:
                self.error(action.line, f"'{word}' without a time",
                           f"write: {word} 5")
                return rest[:-1]
            action.within = self._seconds(action.line, rest[-1],
                                          f"{word} 5")
            return rest[:-2]
        return rest

    def _conditions(self, number: int, words: list[str], of: str,
                    fields: Fields, where: Where) -> list[Condition]:
        """Conditions on an object with these fields."""
        found: list[Condition] = []
        for word in words:
            match = CONDITION.match(word)
            if match is None:
                self.error(number, f"'{shown(word)}' is no condition",
                           "write key=value, key!=value, key>=number or "
                           "key<=number, without blanks")
                continue
            one = Condition(*match.groups())
            kind = fields.get(one.key)
            if kind is None:
                self._no_field(number, one.key, of, fields)
            elif one.op in (">=", "<=") and not kind.ordered:
                self.error(number, f"'{one.key}' of {of} is no number, "
                           f"'{shown(word)}' cannot be compared",
                           f"write {one.key}=... or {one.key}!=...")
            elif right := kind.wrong(
                    GID_PLACE.sub(consumer.GID_MAX, one.value), where):
                self.error(number, f"bad value '{shown(one.value)}' of "
                           f"{one.key} in '{shown(word)}'", right)
            elif one.op == "=" and any(c.key == one.key and c.op == "="
                                       for c in found):
                self.error(number, f"'{one.key}=' stands twice", "leave one")
            else:
                found.append(one)
        return found

    def _no_field(self, number: int, key: str, of: str, fields: Fields
                  ) -> None:
        inside = [f for f in fields if f.startswith(f"{key}.")]
        if inside:
            self.error(number, f"'{key}' of {of} is an object",
                       f"name a field of it: {', '.join(inside[:12])}")
        elif of == "status" and key.partition(".")[0] == "ports":
            self.error(number, "'ports' of status is a list",
                       "write: wait port alice/1 active")
        else:
            self.error(number, f"{of} has no field '{shown(key)}'",
                       guess(key, fields) if fields else "it has no fields")

    def _action(self, number: int, verb: str, rest: list[str]) -> Action:
        action = Action(number, verb, rest)
        if verb in GID_VERBS:
            for word in rest:
                for place in GID_PLACE.findall(word):
                    self._port(number, place)
                if "{gid:" in GID_PLACE.sub("", word):
                    self.error(number, f"'{shown(word)}' has '{{gid:' "
                               "without '}'", "write {gid:NODE/PORT}")
        else:
            self._no_gid(number, verb, rest)
        if verb not in ("on", "note", "run"):    # whose text is free
            rest = self._clause(action, rest)
        VERBS[verb](self, action, rest)
        return action

    def need(self, action: Action, rest: list[str], least: int, form: str
             ) -> bool:
        """Check the number of words."""
        if len(rest) < least:
            self.error(action.line, f"'{shown(str(action))}' is incomplete",
                       f"write: {form}")
            return False
        return True

    # -- one function per verb -------------------------------------------

    def v_start(self, action: Action, rest: list[str]) -> None:
        """start sm / stop sm / kill sm."""
        if rest != [SM_NODE]:
            self.error(action.line, f"cannot {action.verb} "
                       f"'{shown(' '.join(rest))}'",
                       f"write: {action.verb} sm (guests: boot, shutdown, "
                       "kill-guest)")
        elif SM_NODE not in self.topology.hosts:
            self.error(action.line, "the topology has no host 'sm'",
                       "add to it: host sm ports=1, and a cable")
        action.target = SM_NODE

    def v_nodes(self, action: Action, rest: list[str]) -> None:
        """boot / shutdown / kill-guest / explain NODE..."""
        if self.need(action, rest, 1, f"{action.verb} alice bob"):
            action.nodes = self._nodes(action.line, rest)
        if action.verb == "boot":
            for wrong in too_many_ports(self.topology, action.nodes):
                self.error(action.line, wrong, "change the topology")

    def v_load(self, action: Action, rest: list[str]) -> None:
        """load NODE... [PARAMETER=VALUE]."""
        names = [w for w in rest if "=" not in w]
        if self.need(action, names, 1, "load alice bob"):
            action.nodes = self._nodes(action.line, names)
        action.conditions = [
            Condition(key, "=", value) for key, value in self._pairs(
                action.line, "parameter of ib_ehca",
                [w for w in rest if "=" in w], PARAMETERS)]

    def v_cable(self, action: Action, rest: list[str]) -> None:
        """pull / restore CABLE..."""
        if not self.need(action, rest, 1, f"{action.verb} CABLE"):
            return
        for word in rest:
            if word not in self.topology.cables:
                self.error(action.line, f"the topology has no cable "
                           f"'{shown(word)}'",
                           guess(word, sorted(self.topology.cables)))
        action.nodes = rest

    def v_fault(self, action: Action, rest: list[str]) -> None:
        """fault CABLE... KIND=VALUE... | fault CABLE... none."""
        cables = [w for w in rest if "=" not in w and w != "none"]
        faults = [w for w in rest if "=" in w]
        if not cables or bool(faults) == ("none" in rest):
            self.error(action.line, f"'{shown(str(action))}' is incomplete",
                       "write: fault CABLE drop=0.1, or: fault CABLE none")
            return
        self.v_cable(action, cables)
        pairs = dict(self._pairs(action.line, "fault", faults, FAULTS))
        if float(pairs.get("delay", 0)) and not \
                float(pairs.get("delay-ms", 0)):
            self.error(action.line, "delay= without delay-ms=",
                       "add how long: delay-ms=5")
        action.conditions = [Condition(k, "=", v) for k, v in pairs.items()]

    def v_lid(self, action: Action, rest: list[str]) -> None:
        """lid NODE/PORT LID."""
        if not self.need(action, rest, 2, "lid alice/1 77"):
            return
        self._port(action.line, rest[0])
        if whole(" ".join(rest[1:]), 1, LID_MAX) is None:
            self.error(action.line, f"bad LID '{shown(' '.join(rest[1:]))}'",
                       f"write a number from 1 to {LID_MAX}: lid alice/1 77")
        action.nodes, action.text = rest[:1], rest[1]

    def v_on(self, action: Action, rest: list[str]) -> None:
        """on NODE COMMAND: a command of the consumer."""
        if not self.need(action, rest, 2, "on alice traffic start"):
            return
        action.nodes = self._nodes(action.line, rest[:1])
        action.text = " ".join(rest[1:])
        if action.nodes:
            # Of several guests each must be able to do it.
            ports = min(self.topology.hosts[n] for n in action.nodes)
            wrong = consumer.check_command(action.text, Where(ports))
            if wrong:
                self.error(action.line, *wrong)

    def v_run(self, action: Action, rest: list[str]) -> None:
        """run NODE COMMAND [contains|lacks TEXT]: a program in the guest."""
        form = 'run alice "ibstat" contains "Active"'
        if not self.need(action, rest, 2, form):
            return
        action.nodes = self._nodes(action.line, rest[:1])
        action.text = rest[1]
        if not action.text.strip():
            self.error(action.line, "the command is empty", f"write: {form}")
        if len(rest) == 2:
            return
        if rest[2] not in ("contains", "lacks"):
            self.error(action.line, f"'{shown(rest[2])}' stands behind the "
                       "command", guess(rest[2], ("contains", "lacks"))
                       + " (a command of several words is put in quotes: "
                       + form + ")")
        elif len(rest) != 4 or not rest[3]:
            self.error(action.line, f"'{rest[2]}' takes one text",
                       f"put it in quotes: {form}")
        else:
            action.check, action.target = rest[2:]

    def _port(self, number: int, word: str) -> None:
        """Check NODE/PORT."""
        node, _, port = word.partition("/")
        if node not in self.guests:
            self.error(number, f"the topology has no guest '{shown(node)}'",
                       guess(node, self.guests))
        elif whole(port, 1, self.topology.hosts[node]) is None:
            self.error(number, f"'{node}' has no port '{shown(port)}'",
                       f"write {node}/1"
                       + (f" to {node}/{self.topology.hosts[node]}"
                          if self.topology.hosts[node] > 1 else ""))

    def v_wait(self, action: Action, rest: list[str]) -> None:
        """wait port NODE/PORT STATE | wait status NODE CONDITION..."""
        forms = ("wait port alice/1 active, or: wait status alice "
                 "qp.mig=ARMED")
        if rest and rest[0] not in ("port", "status"):
            self.error(action.line, f"cannot wait for '{shown(rest[0])}'",
                       f"{guess(rest[0], ('port', 'status'))} ({forms})")
        elif not self.need(action, rest, 3, forms):
            return
        elif rest[0] == "port":
            for word in rest[1:-1]:
                self._port(action.line, word)
            if right := PORT_STATE.wrong(rest[-1], Where()):
                self.error(action.line, f"no port state '{shown(rest[-1])}'",
                           right)
            action.nodes, action.text = rest[1:-1], rest[-1]
        else:
            action.nodes = self._nodes(action.line, rest[1:2])
            action.conditions = self._conditions(
                action.line, rest[2:], "status", consumer.STATUS,
                self._where(action.nodes))
        action.target = rest[0] if rest else ""

    def v_expect(self, action: Action, rest: list[str]) -> None:
        """expect SOURCE EVENT [CONDITION...] [within SECONDS]."""
        if not self.need(action, rest, 2, f"{action.verb} alice path_mig"):
            return
        action.nodes = self._sources(action.line, rest[0])
        action.target = rest[1]
        fields = self._event(action.line, action.nodes, rest[1])
        if fields is not None:
            action.conditions = self._conditions(
                action.line, rest[2:], rest[1], fields,
                self._where(action.nodes))

    def v_quiet(self, action: Action, rest: list[str]) -> None:
        """expect-none SOURCE EVENT [CONDITION...] [for SECONDS]."""
        if action.words == rest:
            action.within = 0.0
        self.v_expect(action, rest)

    def v_seconds(self, action: Action, rest: list[str]) -> None:
        """sleep SECONDS."""
        if rest or action.words == rest:
            action.within = self._seconds(action.line, " ".join(rest),
                                          "sleep 2")

    def v_text(self, action: Action, rest: list[str]) -> None:
        """note TEXT."""
        if self.need(action, rest, 1, "note what is seen here"):
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
KNOWN = sorted([*VERBS, *HEAD, "step", "repeat", "end"])


def _text(path: Path) -> str:
    """What is in a scenario file; ScenarioError says why it is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ScenarioError(f"{path}: is no regular file; name a "
                                "scenario file, NAME.scn")
        with path.open("rb") as file:
            data = file.read(FILE_MAX + 1)
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise ScenarioError(f"{path}: cannot be read: {why}; name a scenario "
                            "file that can") from exc
    if len(data) > FILE_MAX:
        raise ScenarioError(f"{path}: longer than {FILE_MAX} bytes; is this "
                            "a scenario file?")
    if b"\0" in data:
        line = data[:data.index(b"\0")].count(b"\n") + 1
        raise ScenarioError(f"{path}:{line}: the line has a zero byte in it; "
                            "is this a scenario file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data[:exc.start].count(b"\n") + 1
        raise ScenarioError(
            f"{path}:{line}: not UTF-8 text, byte {data[exc.start]:#04x}; "
            "save the file as UTF-8") from exc
    if not text.strip():
        raise ScenarioError(f"{path}: there is nothing in it; write a "
                            "'topology' line and a 'step', docs/scenarios.md "
                            "has an example")
    return text


def _topology_path(parser: Parser, number: int, word: str) -> Path | None:
    """The topology file; None and an error noted if it is none."""
    try:
        where = (parser.path.parent / word).resolve()
        if where.is_file():
            return where
        folder = where.is_dir()
        near = sorted(str(p.relative_to(parser.path.parent)) for p in
                      [*parser.path.parent.glob("*.topo"),
                       *parser.path.parent.glob("topologies/*.topo")])
    except (OSError, ValueError):      # too long, for example
        folder, near = False, []
    hint = "name it relative to the scenario file"
    parser.error(number, f"'{shown(word)}' is a directory" if folder else
                 f"no topology file '{shown(word)}'",
                 f"{hint}; {guess(word, near)}" if near else hint)
    return None


def read(path: Path, load_topology: Callable[[Path], Topology]) -> Scenario:
    """Read a scenario; ScenarioError names every fault found."""
    parser = Parser(path)
    steps: list[Step] = []
    try:
        parser.split(_text(path))
        parser.header()
        where = (_topology_path(parser, *parser.topology_word)
                 if parser.topology_word else None)
        if where is not None:
            steps = parser.body(load_topology(where))
    except TooMany:
        pass
    except ScenarioError as exc:
        # Of the topology; or of the file, when nothing else was found yet.
        number = parser.topology_word[0] if parser.topology_word else 0
        parser.errors.append((number, str(exc)))
    parser.check()
    return Scenario(path, parser.title, parser.topology, parser.kernel,
                    parser.memory, steps, parser.never, parser.options,
                    parser.cpus)
