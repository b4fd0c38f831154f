# SPDX-License-Identifier: GPL-2.0-or-later
"""Plays a scenario in a lab and comes to a verdict.

An `expect` looks at events from the beginning of its step on and takes the
first that fits and that no earlier expect has taken; so the order of two
independent events does not matter, while each needs an event of its own.
Timeouts are there to end a hang, never to judge a speed.

Whatever ends a scenario early, an expectation that failed, trouble of the lab,
a fault of ours or a signal, ends up in the verdict: the reports are written
all the same.
"""
from __future__ import annotations

import errno
import os
import textwrap
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from .clean import clean, short
from .consumer import flat
from .eventlog import Event, EventLog
from .jsonsock import ControlError
from .lab import Lab
from .process import LabError
from .qga import StillRuns
from .scenario import Action, Condition, Scenario, Step
from .stop import Stopped

POLL = 0.1
RUN_TIMEOUT = 60.0
NEAR_MISSES = 3
# The event that says why a command was refused is on its way already.
REFUSAL_PATIENCE = 5.0
# Of a long output a failure shows so many lines at each end, and so many
# around a line that should not be there.
ENDS_SHOWN = 8
AROUND_SHOWN = 2
HITS_SHOWN = 3
LINE_SHOWN = 200
COLUMNS = 79


class Failed(Exception):
    """The scenario's expectation did not come true."""


@dataclass
class StepResult:
    """How one step went; a test case of the report."""

    step: Step
    seconds: float = 0.0
    failure: str = ""


@dataclass
class Verdict:
    """How the whole scenario went."""

    passed: bool = True
    # The lab itself failed, not what the scenario expects of it.
    trouble: bool = False
    steps: list[StepResult] = field(default_factory=list)
    failure: str = ""
    name: str = ""
    # The signal that ended it, or that came when all steps were played.
    stopped: Stopped | None = None
    interrupted: bool = False
    all_played: bool = False

    @property
    def word(self) -> str:
        """The verdict in a word."""
        if self.passed:
            return "PASSED"
        if self.interrupted:
            return "INTERRUPTED"
        return "TROUBLE" if self.trouble else "FAILED"

    def end(self, exc: BaseException, where: str) -> None:
        """Take in what ended it; the first that did counts."""
        if isinstance(exc, Stopped):
            self.stopped = self.stopped or exc
        if not self.passed or isinstance(exc, Stopped) and self.all_played:
            return
        self.passed = False
        self.interrupted = isinstance(exc, Stopped)
        self.trouble = not isinstance(exc, Failed)
        self.failure = f"{where}: {_what(exc)}"


def _what(exc: BaseException) -> str:
    """An exception in words for a person."""
    if isinstance(exc, Stopped):
        return f"stopped by {exc.signum.name}"
    if isinstance(exc, Failed | LabError | ControlError):
        return str(exc)
    if isinstance(exc, OSError):
        return (f"{exc.filename}: " if exc.filename else "") + (
            exc.strerror or str(exc))
    trace = "".join(traceback.format_exception(exc)).rstrip()
    return ("a fault of ehcalab itself, please report it:\n"
            + textwrap.indent(trace, "    "))


def in_words(data: dict[str, Any]) -> str:
    """An event's data, or a status, as key=value."""
    return " ".join(f"{key}={clean(value)}" for key, value in flat(data))


class Player:
    """Plays one scenario."""

    def __init__(self, scenario: Scenario, lab: Lab, log: EventLog,
                 explain: Callable[[str], list[str]],
                 verdict: Verdict | None = None) -> None:
        self.scenario = scenario
        self.lab = lab
        self.log = log
        self.explain = explain
        self.verdict = verdict or Verdict(name=scenario.name)
        self.step_start = 0
        self.never_checked = 0

    def play(self) -> Verdict:
        """Play to the end or to the first failure."""
        for step in self.scenario.steps:
            self._step(step)
            if not self.verdict.passed:
                return self.verdict
        self.verdict.all_played = True
        return self.verdict

    def _step(self, step: Step) -> None:
        result = StepResult(step)
        self.verdict.steps.append(result)
        began = time.monotonic()
        self._line = step.line
        try:
            self.step_start = self.log.position()
            self.log.add("lab", "step", {"title": step.title})
            for action in step.actions:
                self.lab.check()
                self._line = action.line
                getattr(self, "p_" + action.verb.replace("-", "_"))(action)
                self._line = step.line
            self._check_never()
        except (Exception, Stopped) as exc:  # pylint: disable=W0718
            try:
                self._ended(exc)
            except Stopped as late:
                self.verdict.end(late, self._where)
            result.failure = self.verdict.failure
        result.seconds = time.monotonic() - began

    _line = 1

    @property
    def _where(self) -> str:
        return f"{self.scenario.path}:{self._line}"

    def _ended(self, exc: BaseException) -> None:
        try:
            if isinstance(exc, ControlError):
                exc = self.lab.trouble(exc)
            elif isinstance(exc, Failed):
                # Of a fabric that hangs nothing can come.
                self.lab.check_fabric()
        except LabError as better:
            exc = better
        self.verdict.end(exc, self._where)
        why, _, details = self.verdict.failure.partition("\n")
        self.log.add("lab", "failed", {
            "why": why, **({"details": details} if details else {})})
        if not isinstance(exc, Stopped):
            self._explain_all()

    def _explain_all(self) -> None:
        for node in list(self.lab.guests):
            try:
                self._explain(node)
            except Exception as exc:  # pylint: disable=W0718
                # Whatever it is, the failure to be explained counts more.
                self.log.add("lab", "explained", {
                    "text": f"{node}: no explanation: {exc}"})

    def _explain(self, node: str) -> None:
        for line in self.explain(node):
            self.log.add("lab", "explained", {"text": line})

    def _check_never(self) -> None:
        # What earlier steps were checked against is not looked at again.
        fresh = self.log.since(self.never_checked)
        self.never_checked += len(fresh)
        for line, sources, name in self.scenario.never:
            for event in fresh:
                if event.source in sources and event.name == name:
                    self._line = line
                    raise Failed(f"{event.source} had '{name}', which this "
                                 f"scenario never allows: "
                                 f"{in_words(event.data)}")

    # -- one function per verb -------------------------------------------

    def p_start(self, _action: Action) -> None:
        """start sm."""
        self.lab.start_sm()

    def p_stop(self, _action: Action) -> None:
        """stop sm."""
        self.lab.stop_sm(kill=False)

    def p_kill(self, _action: Action) -> None:
        """kill sm."""
        self.lab.stop_sm(kill=True)

    def p_boot(self, action: Action) -> None:
        """boot NODE..."""
        self.lab.boot(action.nodes)

    def p_shutdown(self, action: Action) -> None:
        """shutdown NODE..."""
        for node in action.nodes:
            self.lab.shutdown(node, kill=False)

    def p_kill_guest(self, action: Action) -> None:
        """kill-guest NODE..."""
        for node in action.nodes:
            self.lab.shutdown(node, kill=True)

    def p_load(self, action: Action) -> None:
        """load NODE... [PARAMETER=VALUE]."""
        for node in action.nodes:
            self.lab.load(node, {c.key: c.value for c in action.conditions})

    def p_unload(self, action: Action) -> None:
        """unload NODE..."""
        for node in action.nodes:
            self.lab.unload(node)

    def p_pull(self, action: Action) -> None:
        """pull CABLE..."""
        for cable in action.nodes:
            self.log.add("lab", "pull", {"cable": cable})
            self.lab.command("pull", cable=cable)

    def p_restore(self, action: Action) -> None:
        """restore CABLE..."""
        for cable in action.nodes:
            self.log.add("lab", "restore", {"cable": cable})
            self.lab.command("restore", cable=cable)

    def p_fault(self, action: Action) -> None:
        """fault CABLE... KIND=VALUE... | none."""
        faults = {c.key: float(c.value) for c in action.conditions}
        for cable in action.nodes:
            self.log.add("lab", "fault", {"cable": cable, **faults})
            self.lab.command("fault", cable=cable, **faults)

    def p_lid(self, action: Action) -> None:
        """lid NODE/PORT LID."""
        self.lab.set_lid(action.nodes[0], int(action.text))

    def p_on(self, action: Action) -> None:
        """on NODE COMMAND."""
        for node in action.nodes:
            here = self.log.position()
            try:
                self.lab.consumer(node, action.text)
            except LabError as exc:
                refusal = self._refusal(node, here, action.text)
                if refusal is None:
                    raise
                raise refusal from exc

    def _refusal(self, node: str, here: int, command: str) -> Failed | None:
        """The consumer's own reason for not doing a command."""
        event = self.log.wait(
            lambda e: (e.source, e.name) == (node, "command")
            and bool(e.data.get("errno")), here, REFUSAL_PATIENCE,
            self.lab.check)
        if event is None:
            return None
        data = event.data
        number = int(data["errno"])
        text = (f"{node}: the consumer refused '{command}': "
                f"{errno.errorcode.get(number, number)}, "
                f"{os.strerror(number)}")
        if "word" in data:
            text += (f"; word '{data['word']}', value "
                     f"'{data.get('value', '')}', expected: "
                     f"{data.get('expected', '?')}")
        return Failed(clean(text))

    def p_run(self, action: Action) -> None:
        """run NODE COMMAND [contains|lacks TEXT]."""
        for node in action.nodes:
            self._run(action, node)

    def _run(self, action: Action, node: str) -> None:
        command = self.lab.with_gids(action.text)
        ran = f"{node}: '{action.text}'"
        try:
            done = self.lab.guest(node).agent.shell(command, RUN_TIMEOUT)
        except StillRuns as exc:
            raise Failed(f"{ran} did not end within {RUN_TIMEOUT:g} s") \
                from exc
        output = (done.out + done.err).strip()
        self.log.add("lab", "ran", {"node": node, "command": command,
                                    "code": done.code, "output": output})
        if done.code != 0:
            raise Failed(f"{ran} ended with status {done.code}"
                         + self._output(action, node, output))
        if action.check == "contains" and action.target not in output:
            raise Failed(f"{ran}: its output does not contain "
                         f"'{action.target}'"
                         + self._output(action, node, output))
        if action.check == "lacks" and action.target in output:
            raise Failed(f"{ran}: its output contains '{action.target}'"
                         + self._output(action, node, output, action.target))

    def _output(self, action: Action, node: str, output: str, hit: str = ""
                ) -> str:
        """A program's output for a message: both ends, or around the hits."""
        lines = output.splitlines()
        if not lines:
            return "; it has no output"
        path = self.lab.dir / f"{node}.line-{action.line}.txt"
        path.write_text(output + "\n", errors="backslashreplace")
        hits = [at for at, line in enumerate(lines) if hit and hit in line]
        if hits:
            show = {at + n for at in hits[:HITS_SHOWN]
                    for n in range(-AROUND_SHOWN, AROUND_SHOWN + 1)}
        else:
            show = {*range(ENDS_SHOWN), *range(len(lines) - ENDS_SHOWN,
                                               len(lines))}
        told, omitted = [], 0
        for at, line in enumerate(lines):
            if at in show:
                mark = ">" if at in hits else " "
                told.append(f"  {mark} {at + 1:>5}  "
                            f"{short(line, LINE_SHOWN)}")
            elif at - 1 in show or not told:
                omitted = next((n for n in range(at, len(lines))
                                if n in show), len(lines)) - at
                told.append(f"           ... {omitted} more lines ...")
        many = f"{len(lines)} line{'s' if len(lines) > 1 else ''}"
        return ((f", in {len(hits)} of {many}" if hits else f"; {many}")
                + f", all in {path}:\n" + "\n".join(told))

    def _until(self, action: Action, test: Callable[[], str | None]) -> None:
        """Ask until test() returns None; else its last words fail."""
        until = time.monotonic() + action.within
        while True:
            wrong = test()
            if wrong is None:
                return
            self.lab.check()
            if time.monotonic() > until:
                raise Failed(f"waited {action.within:g} s in vain: {wrong}")
            time.sleep(POLL)

    def _conditions(self, action: Action) -> list[Condition]:
        """An action's conditions, GIDs put in."""
        return [replace(c, value=self.lab.with_gids(c.value))
                if "{gid:" in c.value else c for c in action.conditions]

    def p_wait(self, action: Action) -> None:
        """wait port ... / wait status ..."""
        if action.target == "port":
            for place in action.nodes:
                def port() -> str | None:
                    state = self.lab.port_state(place)
                    return (None if state == action.text else
                            f"port {place} is {state or 'not there'}, not "
                            f"{action.text}")
                self._until(action, port)
                self.log.add("lab", "port_is", {"port": place,
                                                "state": action.text})
            return
        for node in action.nodes:
            def status() -> str | None:
                data = self.lab.consumer_status(node)
                missing = [c for c in self._conditions(action)
                           if not c.holds(data)]
                return _status_words(node, data, missing) or None
            self._until(action, status)
            self.log.add("lab", "status_is", {
                "node": node,
                "conditions": " ".join(map(str, action.conditions))})

    def p_expect(self, action: Action) -> None:
        """expect SOURCE EVENT [CONDITION...] [within SECONDS]."""
        conditions = self._conditions(action)
        for source in action.nodes:
            near: list[Event] = []
            taken: list[Event] = []

            def fits(event: Event) -> bool:
                if event.source != source or event.name != action.target:
                    return False
                if not all(c.holds(event.data) for c in conditions):
                    near.append(event)
                    return False
                if event.taken:
                    taken.append(event)
                return not event.taken

            event = self.log.wait(fits, self.step_start, action.within,
                                  self.lab.check)
            if event is None:
                raise Failed(self._missing(action, source, near, taken))
            event.taken = True

    def _missing(self, action: Action, source: str, near: list[Event],
                 taken: list[Event]) -> str:
        want = " ".join([action.target, *map(str, action.conditions)])
        text = (f"{source} did not have '{want}' within {action.within:g} s "
                "of this step")
        if taken:
            text += (f"; it had {len(taken)} such, but each was taken by an "
                     "earlier expect, and each expect needs its own")
        elif near:
            text += "; it had " + "; ".join(
                f"{e.name} {in_words(e.data)}" for e in near[-NEAR_MISSES:])
        else:
            names = [e.name for e in self.log.since(self.step_start)
                     if e.source == source]
            text += "; its events in this step: " + (
                ", ".join(dict.fromkeys(names)) or "none")
        return text

    def p_expect_none(self, action: Action) -> None:
        """expect-none SOURCE EVENT [CONDITION...] [for SECONDS]."""
        conditions = self._conditions(action)

        def unwanted(event: Event) -> bool:
            return (event.source in action.nodes
                    and event.name == action.target
                    and all(c.holds(event.data) for c in conditions))

        event = self.log.wait(unwanted, self.step_start, action.within,
                              self.lab.check)
        if event is not None:
            raise Failed(f"{event.source} had '{event.name}', which must not "
                         f"happen in this step: {in_words(event.data)}")

    def p_sleep(self, action: Action) -> None:
        """sleep SECONDS."""
        until = time.monotonic() + action.within
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(POLL, left))
            self.lab.check()

    def p_note(self, action: Action) -> None:
        """note TEXT."""
        self.log.add("lab", "note", {"text": action.text})

    def p_explain(self, action: Action) -> None:
        """explain NODE...: why a QP did, or did not, migrate."""
        for node in action.nodes:
            self._explain(node)


def _status_words(node: str, data: dict[str, Any], missing: list[Condition]
                  ) -> str:
    """Which conditions a status does not satisfy, and the rest of it."""
    if not missing:
        return ""
    lines = [f"the status of {node} is not that:"]
    for one in missing:
        found = one.find(data)
        lines.append(f"    {one.key}"
                     + (" is not there" if found is None else
                        f"={clean(found)}") + f", wanted {one}")
    told = {one.key for one in missing}
    rest = {key: value for key, value in flat(data) if key not in told
            and not key.startswith(("t_", "version"))
            and not (key.startswith("cm_counters.") and not value)}
    return "\n".join([*lines, *textwrap.wrap(
        "the rest: " + in_words(rest), COLUMNS, initial_indent="    ",
        subsequent_indent="      ", break_on_hyphens=False)])
