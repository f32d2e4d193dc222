"""Decide by the times of steps when to record in a long job."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from typing import Any

WINDOW = 200
"""Number of unrecorded steps in the median."""
LEAST = 20
"""Least number of steps for a median."""
REARM = 10
"""Usual steps in a row after which a rule may find the next anomaly."""
SLOWEST_FACTOR = 1.5
"""--slowest considers steps that are at least this many medians long."""
_WHEN = re.compile(
    r"\s*step\s*>\s*(?P<value>\d+(\.\d+)?)\s*(?P<unit>x\s*median|ms|s)(\s+for\s+(?P<steps>[1-9]\d*)\s+steps?)?\s*",
    re.ASCII,
)


@dataclass(frozen=True)
class RecordingRequest:
    """A recording that a rule or the user requests."""

    name: str
    """Last part of the name of its run folder."""
    reason: str
    steps: int | None = None
    """Steps to record; None: as the run says."""
    seconds: float | None = None
    """Duration to record instead of steps."""
    step_ns: int = 0
    """Time of the slow step."""
    everywhere: bool = False
    """Whether all ranks have the same request at the same step."""


def parse_when(text: str) -> tuple[float, float, int]:
    """Return the factor of the median, else the ns, that steps must exceed, and how many in a row."""
    found = _WHEN.fullmatch(text)
    if found is None:
        raise ValueError("expected 'step > 1.5 x median' or 'step > 200 ms', optionally followed by 'for 3 steps'")
    value, unit, steps = float(found["value"]), found["unit"], int(found["steps"] or 1)
    if unit.startswith("x"):
        return value, 0.0, steps
    return 0.0, value * (1e6 if unit == "ms" else 1e9), steps


class StepRules:
    """Looks at the time of each step. That takes a few microseconds, and a bounded amount of memory."""

    def __init__(self, rules: dict[str, Any]) -> None:
        """Take the options: when (see `parse_when`), every, slowest, at_step (first and last step)."""
        self._when = parse_when(rules["when"]) if rules["when"] else None
        self._every, self._slowest, self._at = rules["every"], rules["slowest"], rules["at_step"]
        self._times: deque[int] = deque()
        self._sorted: list[int] = []
        self._slow_steps = 0
        """Slow steps in a row."""
        self._usual_steps = 0
        """Usual steps in a row."""
        self._armed = True
        """Whether the next slow steps are a new anomaly."""
        self._knows_usual = not (self._when or self._slowest)
        self._top: list[int] = []
        """Times of the slowest recorded steps."""

    @property
    def median_ns(self) -> int | None:
        """Median time of the last steps; None of too few."""
        return self._sorted[len(self._sorted) // 2] if len(self._sorted) >= LEAST else None

    def step_ended(self, number: int, ns: int) -> RecordingRequest | None:
        """Note the time of a step that was not recorded. Return the recording to begin with the next steps, if any."""
        request = self._by_time(number, ns) if self._when or self._slowest else None
        self._times.append(ns)
        insort(self._sorted, ns)
        if len(self._times) > WINDOW:
            del self._sorted[bisect_left(self._sorted, self._times.popleft())]
        return self._by_number(number) or request

    def accept(self, request: RecordingRequest) -> None:
        """Note that a request is being recorded."""
        if request.name.startswith("usual"):
            self._knows_usual = True
        if request.name.startswith("at-"):
            self._at = None
        if self._slowest and request.step_ns:
            self._top = sorted([*self._top, request.step_ns])[-self._slowest :]

    def _by_number(self, number: int) -> RecordingRequest | None:
        # The next step is the last warm-up step of the recording.
        first = number + 2
        if self._at and first >= self._at[0]:  # later, if another recording ran
            return RecordingRequest(
                f"at-step-{first}",
                f"--at-step {self._at[0]}..{self._at[1]}",
                self._at[1] - self._at[0] + 1,
                everywhere=True,
            )
        if self._every and first % self._every == 0:
            return RecordingRequest(f"every-step-{first}", f"--every {self._every}", everywhere=True)
        return None

    def _by_time(self, number: int, ns: int) -> RecordingRequest | None:
        median = self.median_ns
        if median is None:
            return None
        factor, bound_ns, steps = self._when or (SLOWEST_FACTOR, 0.0, 1)
        if ns <= (factor * median or bound_ns):
            self._slow_steps, self._usual_steps = 0, self._usual_steps + 1
            self._armed = self._armed or self._usual_steps >= REARM
            if self._knows_usual:
                return None
            return RecordingRequest(f"usual-step-{number + 2}", "a usual step, to compare with")
        self._slow_steps, self._usual_steps = self._slow_steps + 1, 0
        if self._slow_steps < steps or not self._armed:
            return None
        self._armed = False
        if self._slowest and len(self._top) == self._slowest and ns <= self._top[0]:
            return None
        reason = f"step {number} took {ns / 1e6:,.3f} ms, {ns / median:.1f} x the median of {median / 1e6:,.3f} ms"
        return RecordingRequest(f"slow-step-{number}", reason, step_ns=ns)
