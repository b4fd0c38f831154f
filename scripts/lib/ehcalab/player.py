# SPDX-License-Identifier: GPL-2.0-or-later
"""Plays a scenario in a lab and comes to a verdict.

An `expect` looks at events from the beginning of its step on and takes the
first that fits and that no earlier expect has taken; so the order of two
independent events does not matter, while each needs an event of its own.
Timeouts are there to end a hang, never to judge a speed.
"""
from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .eventlog import Event, EventLog
from .jsonsock import ControlError
from .lab import Lab
from .process import LabError
from .scenario import Action, Scenario, Step

POLL = 0.1
NEAR_MISSES = 3


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

    passed: bool
    # The lab itself failed, not what the scenario expects of it.
    trouble: bool = False
    steps: list[StepResult] = field(default_factory=list)
    failure: str = ""


class Player:
    """Plays one scenario."""

    def __init__(self, scenario: Scenario, lab: Lab, log: EventLog,
                 explain: Callable[[str], list[str]]) -> None:
        self.scenario = scenario
        self.lab = lab
        self.log = log
        self.explain = explain
        self.step_start = 0
        self.never_checked = 0

    def play(self) -> Verdict:
        """Play to the end or to the first failure."""
        verdict = Verdict(True)
        for step in self.scenario.steps:
            result = StepResult(step)
            verdict.steps.append(result)
            began = time.monotonic()
            self.step_start = self.log.position()
            self.log.add("lab", "step", {"title": step.title})
            try:
                for action in step.actions:
                    self.lab.check()
                    self._play(action)
                self._check_never()
            except (Failed, LabError, ControlError) as exc:
                line = self._current.line if self._current else step.line
                try:
                    if isinstance(exc, ControlError):
                        exc = self.lab.guest_trouble(exc)
                except LabError as better:
                    exc = better
                verdict.trouble = isinstance(exc, LabError)
                result.failure = f"{self.scenario.path}:{line}: {exc}"
                verdict.failure = result.failure
                verdict.passed = False
                self.log.add("lab", "failed", {"why": result.failure})
                self._explain_all()
            result.seconds = time.monotonic() - began
            if not verdict.passed:
                break
        return verdict

    _current: Action | None = None

    def _play(self, action: Action) -> None:
        self._current = action
        getattr(self, "p_" + action.verb.replace("-", "_"))(action)
        self._current = None

    def _explain_all(self) -> None:
        for node in list(self.lab.guests):
            try:
                self._explain(node)
            except (LabError, ControlError, ValueError) as exc:
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
                    self._current = Action(line, "never", [])
                    raise Failed(f"{event.source} had '{name}', which this "
                                 f"scenario never allows: {event.data}")

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
            self.lab.consumer(node, action.text)

    def p_run(self, action: Action) -> None:
        """run NODE COMMAND [contains|lacks TEXT]."""
        for node in action.nodes:
            self._run(action, node)

    def _run(self, action: Action, node: str) -> None:
        command = self.lab.with_gids(action.text)
        done = self.lab.guest(node).agent.shell(command)
        output = (done.out + done.err).strip()
        self.log.add("lab", "ran", {"node": node, "command": command,
                                    "code": done.code, "output": output})
        if done.code != 0:
            raise Failed(f"{node}: '{action.text}' ended with status "
                         f"{done.code}: {output[-500:]}")
        if action.check == "contains" and action.target not in output:
            raise Failed(f"{node}: the output of '{action.text}' does not "
                         f"contain '{action.target}': {output[-500:]}")
        if action.check == "lacks" and action.target in output:
            raise Failed(f"{node}: the output of '{action.text}' contains "
                         f"'{action.target}': {output[-500:]}")

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
                missing = [c for c in action.conditions if not c.holds(data)]
                if not missing:
                    return None
                return (f"{node}: not {' '.join(map(str, missing))}; its "
                        f"status is {data}")
            self._until(action, status)
            self.log.add("lab", "status_is", {
                "node": node,
                "conditions": " ".join(map(str, action.conditions))})

    def p_expect(self, action: Action) -> None:
        """expect SOURCE EVENT [CONDITION...] [within SECONDS]."""
        for source in action.nodes:
            near: list[Event] = []

            def fits(event: Event) -> bool:
                if event.source != source or event.name != action.target:
                    return False
                if event.taken:
                    return False
                if all(c.holds(event.data) for c in action.conditions):
                    return True
                near.append(event)
                return False

            event = self.log.wait(fits, self.step_start, action.within,
                                  self.lab.check)
            if event is None:
                raise Failed(self._missing(action, source, near))
            event.taken = True

    def _missing(self, action: Action, source: str, near: list[Event]) -> str:
        want = " ".join([action.target, *map(str, action.conditions)])
        text = (f"{source} did not have '{want}' within {action.within:g} s "
                "of this step")
        if near:
            text += "; it had " + "; ".join(
                f"{e.name} {e.data}" for e in near[-NEAR_MISSES:])
        else:
            names = [e.name for e in self.log.since(self.step_start)
                     if e.source == source]
            text += "; its events in this step: " + (
                ", ".join(dict.fromkeys(names)) or "none")
        return text

    def p_expect_none(self, action: Action) -> None:
        """expect-none SOURCE EVENT [CONDITION...] [for SECONDS]."""
        def unwanted(event: Event) -> bool:
            return (event.source in action.nodes
                    and event.name == action.target
                    and all(c.holds(event.data) for c in action.conditions))

        event = self.log.wait(unwanted, self.step_start, action.within,
                              self.lab.check)
        if event is not None:
            raise Failed(f"{event.source} had '{event.name}' {event.data}, "
                         "which must not happen in this step")

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
