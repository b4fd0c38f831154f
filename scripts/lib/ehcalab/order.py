# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a scenario does things in an order that can be.

A scenario is a straight line: what runs at each action is known before it is
played, all but the modules in a guest where a `run` has been.
"""
from __future__ import annotations

from collections.abc import Callable

from .events import RUNNER
from .model import GID_PLACE, SM_NODE, Action, Step

NEEDS_GUEST = {"shutdown", "kill-guest", "load", "unload", "on", "run",
               "wait", "explain", "lid"}


class Order:
    """Follows the steps; tells error(line, what is wrong, what is right)."""

    def __init__(self, error: Callable[[int, str, str], None]) -> None:
        self.error = error
        self.told: set[tuple[int, str]] = set()
        self.up: dict[str, int] = {}          # guest -> line of its boot
        self.modules: set[str] = set()        # guests that may have them
        self.were: set[str] = set()           # guests that were ever up
        self.heard: set[str] = set()          # ... whose events came
        self.sm = self.sm_was = False

    def follow(self, steps: list[Step]) -> None:
        """Check all steps; in a repeat each error is told once."""
        for step in steps:
            for action in step.actions:
                self._one(action)

    def _tell(self, action: Action, wrong: str, right: str) -> None:
        if (action.line, wrong) not in self.told:
            self.told.add((action.line, wrong))
            self.error(action.line, wrong, right)

    def _one(self, action: Action) -> None:
        verb = action.verb
        places = [p.partition("/")[0] for w in action.words
                  for p in GID_PLACE.findall(w)]
        nodes = places + ([n.partition("/")[0] for n in action.nodes]
                          if verb in NEEDS_GUEST else [])
        for node in nodes:
            if node not in self.up:
                self._tell(action, f"guest {node} does not run here",
                           f"put above it: boot {node}")
        modules = places + ([n.partition("/")[0] for n in action.nodes]
                            if verb in ("on", "wait", "lid", "unload")
                            else [])
        for node in modules:
            if node in self.up and node not in self.modules:
                self._tell(action, f"guest {node} has no driver loaded here",
                           f"put above it: load {node}")
        if verb in ("start", "stop", "kill", "lid"):
            self._manager(action)
        elif verb == "boot":
            self._boot(action)
        elif verb in ("shutdown", "kill-guest"):
            for node in action.nodes:
                self.up.pop(node, None)
                self.modules.discard(node)
        elif verb in ("load", "run"):
            self.modules.update(action.nodes)
            self.heard.update(action.nodes if verb == "load" else ())
        elif verb == "unload":
            self.modules.difference_update(action.nodes)
        elif verb == "expect":
            for source in action.nodes:
                self._expect(action, source)

    def _manager(self, action: Action) -> None:
        verb = action.verb
        if verb == "lid":
            if self.sm:
                self._tell(action, "the subnet manager runs here and knows "
                           "its LIDs", "put above it: stop sm")
            elif not self.sm_was:
                self._tell(action, "no subnet manager has run yet, there is "
                           "nothing it could remember",
                           "put above it: start sm, and stop sm")
            return
        if verb == "start" and self.sm:
            self._tell(action, "the subnet manager runs already here",
                       "stop or kill it first, or remove the line")
        elif verb != "start" and not self.sm:
            self._tell(action, "the subnet manager does not run here",
                       "put above it: start sm, or remove the line")
        self.sm = verb == "start"
        self.sm_was = self.sm_was or self.sm

    def _boot(self, action: Action) -> None:
        for node in action.nodes:
            if node in self.up:
                self._tell(action, f"guest {node} runs already, booted in "
                           f"line {self.up[node]}",
                           "shutdown or kill-guest it first, or remove it "
                           "here")
            self.up[node] = action.line
            self.were.add(node)

    def _expect(self, action: Action, source: str) -> None:
        node = source.removesuffix("/hca")
        if node == SM_NODE:
            if not self.sm_was:
                self._tell(action, "the subnet manager was never started",
                           "put above it: start sm")
        elif node == "fabric":
            return
        elif node not in self.were:
            self._tell(action, f"guest {node} was never booted",
                       f"put above it: boot {node}")
        elif source == node and action.target not in RUNNER and \
                node not in self.heard:
            self._tell(action, f"the consumer of {node} was never loaded, "
                       "its events cannot come", f"put above it: load {node}")
