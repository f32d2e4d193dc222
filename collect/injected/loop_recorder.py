"""Record a loop that calls step() at the end of each step: the injected part of collect.Recorder."""

from __future__ import annotations

import os

from .program_profilers import ProgramProfilers
from .step_recorder import StepRecorder

_recorders: list[LoopRecorder] = []
"""Those that record."""
_program_profilers: list[ProgramProfilers] = []
"""One for the process, once there is a recorder: each would patch torch again."""


class LoopRecorder(StepRecorder):
    """Records blocks of the steps whose ends step() notes."""

    step_name = "calls of step()"

    def start(self) -> None:
        """Wait for the first step."""
        if not _program_profilers:
            _program_profilers.append(ProgramProfilers(_yield_to_program))
        self.program_profilers = _program_profilers[0]
        _recorders.append(self)
        os.register_at_fork(after_in_child=self._in_forked_child)

    def step(self) -> None:
        """Note that a step has ended."""
        if not self._inactive:
            self._on_step()

    def end(self) -> None:
        """End the recording, unless it has ended."""
        super().end()
        if self in _recorders:
            _recorders.remove(self)


def _yield_to_program() -> None:
    for recorder in _recorders:
        recorder._yield_to_program()
