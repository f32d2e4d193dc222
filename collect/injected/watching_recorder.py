"""Record repeatedly while a long job runs: on demand, and when a rule of steps applies.

Nothing is recorded until then; each step is timed. Each recording has a folder of its own (collect/watch.py). The ranks
of a job begin it at the same step: who wants it first says so in the store of the process group, a thread of each rank
reads that, and once all know it, the first one names the step. A process without a group records by itself. Where no
optimizer has stepped when a recording is triggered, outermost calls of modules are its steps.

A trigger may say for how many seconds to record: one process records until a step ends after them. Several ranks must
end together, so they record the number of steps that took so long before.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import math
import os
import socket
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .attached_recorder import AttachedRecorder
from .cuda import is_capturing
from .function_steps import MODULE_CALL, FunctionSteps
from .job import process_group, store_of_ranks
from .python_profilers import hide_from_cprofile
from .session import NotRecordable
from .step_blocks import FULL, UNDISTURBED, Block, plan
from .step_clock import StepClock
from .step_rules import RecordingRequest, StepRules

POLL_S = 0.25
"""How often to look for a trigger, and for what other ranks want."""
TRIGGER = "trigger"
"""The file in the job's folder whose change triggers a recording. It is empty, or has `steps` or `seconds` as JSON."""
ENDLESS = 1_000_000_000
"""Steps of a recording that ends after seconds."""


class WatchingRecorder(AttachedRecorder):
    """The recorder of one process."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Take the settings; start() begins."""
        super().__init__(config)
        self._rules = StepRules(config["rules"])
        self._bound_s: int = config["seconds"]
        """Bound of a recording, beyond the seconds that a trigger says."""
        self._for_ns = 0.0
        """How long to record each block; 0: by steps."""
        self._job_folder = Path(config["folders"][config["kind"]]).parent
        self._all_work = self.work
        self._agreed = 0
        """Number of recordings that ranks agreed on."""
        self._knows = False
        """Whether this rank knows that the next one is wanted."""
        self._first = False
        """Whether this rank was the first to want it."""
        self._due: tuple[int, RecordingRequest] | None = None
        """Before which step to begin which recording."""
        self._triggered: RecordingRequest | None = None
        """What the thread found, for the next step."""
        self._thread: int | None = None
        """The thread that is being recorded."""
        self._counts_calls = False
        """Whether calls of modules are steps."""
        self._last_ns = time.perf_counter_ns()
        self._recent: list[tuple[int, int]] = []
        """Number and time of the last steps."""

    def start(self) -> None:
        """Watch the steps. Nothing is recorded yet."""
        super().start()
        _thread.start_new_thread(self._poll, (self._trigger_time(),))

    @property
    def _dump_folder(self) -> Path:
        return self._job_folder

    def _record_whole_program(self) -> None:
        """Do nothing."""

    # --- When to record -----------------------------------------------------------------------------------------------

    def _trigger_time(self) -> int:
        try:
            return os.stat(self._job_folder / TRIGGER).st_mtime_ns  # noqa: PTH116 (each poll; faster)
        except OSError:
            return 0

    def _requested_length(self) -> dict[str, Any]:
        """Return the `steps` or the `seconds` that the trigger says, if any."""
        try:
            said = json.loads((self._job_folder / TRIGGER).read_bytes())
            return {name: type_(said[name]) for name, type_ in (("steps", int), ("seconds", float)) if name in said}
        except (OSError, ValueError, TypeError):
            return {}

    def _poll(self, seen: int) -> None:
        """Look for a trigger, and for what other ranks want."""
        while not self._inactive:
            time.sleep(POLL_S)
            with contextlib.suppress(Exception):  # the store of a group that was destroyed
                changed = self._trigger_time()
                if changed > seen:
                    seen = changed
                    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(changed / 1e9))
                    ms = changed // 1_000_000 % 1000
                    length = self._requested_length()
                    reason = " ".join(["collect trigger", *(f"--{name} {value:g}" for name, value in length.items())])
                    self._triggered = RecordingRequest(f"trigger-{stamp}-{ms:03}", reason, **length)
                    if not self.done_steps and not self.step_function and not self._counts_calls:
                        self._counts_calls = True
                        FunctionSteps(MODULE_CALL, self._on_any_step, lambda: self._inactive or not self._counts_calls)
                if not self._knows and (store := _store()) and store.check([f"{self._key} request"]):
                    store.add(f"{self._key} known", 1)
                    self._knows = True

    def _on_step(self) -> None:
        """Note that a step of the optimizer, or a call of the step function, has ended."""
        self._counts_calls = False
        self._on_any_step()

    @hide_from_cprofile
    def _on_any_step(self) -> None:
        if is_capturing():
            return
        if self.blocks.waiting:
            self._go_on()
            return
        self.done_steps += 1
        now = time.perf_counter_ns()
        ns, self._last_ns = now - self._last_ns, now
        self._recent.append((self.done_steps - 1, ns))
        if len(self._recent) > 2 * self.config["steps"]:
            del self._recent[: -self.config["steps"]]
        request = None
        if self.done_steps > self.config["warmup"]:
            request = self._rules.step_ended(self.done_steps - 1, ns)
        if request is None or not request.everywhere:
            request = self._triggered or request
        if request is not None and (self._due is None or request.everywhere):
            if request is self._triggered:
                self._triggered = None
            self._request(request)
        if self._knows:
            with contextlib.suppress(Exception):  # the other ranks have ended
                self._agree()
        if self._due is not None and self.done_steps >= self._due[0]:
            (due, request), self._due = self._due, None
            if due == self.done_steps:
                self._begin(request)

    def _request(self, request: RecordingRequest) -> None:
        """Begin a recording now, or request it from the other ranks."""
        store = None if request.everywhere else _store()
        if store is None:
            self._due = (self.done_steps, request)
            return
        if request.seconds:
            step_ns = sum(ns for _, ns in self._recent) / len(self._recent)
            request = replace(request, steps=max(1, round(request.seconds * 1e9 / step_ns)))
        with contextlib.suppress(Exception):  # the other ranks have ended
            if store.add(f"{self._key} wanted", 1) == 1:
                self._first = True
                store.set(f"{self._key} request", json.dumps(asdict(request)))

    def _agree(self) -> None:
        """Name the step that the wanted recording begins before, or read it.

        Until then ranks look at each step: no collective lets one be two steps ahead of another.
        """
        store, key = _store(), self._key
        if self._first and store.add(f"{key} known", 0) == process_group().get_world_size():
            self._first = False
            store.set(f"{key} begin", str(self.done_steps + 2))
        if store.check([f"{key} begin"]):
            self._due = (int(store.get(f"{key} begin")), RecordingRequest(**json.loads(store.get(f"{key} request"))))
            self._agreed += 1
            self._knows = False

    @property
    def _key(self) -> str:
        """Begins the keys of the next recording in the store."""
        return f"tracequarry/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/recording {self._agreed}"

    # --- A recording --------------------------------------------------------------------------------------------------

    def _begin(self, request: RecordingRequest) -> None:
        """Begin a recording: one step to warm up, then its blocks."""
        self.job.refresh()
        self._rules.accept(request)
        self._thread = threading.get_ident()
        self.unaligned_reason = None
        self.ended = [self._steps_before()]
        seconds = request.seconds or 0.0
        length = request.steps or (ENDLESS if seconds else 0)
        steps = length or self.config["steps"]
        gpu_steps = self._gpu_steps and (length or self._gpu_steps)
        self._for_ns = 0.0 if request.steps else seconds * 1e9
        self.config = {**self.config, "seconds": self._bound_s + math.ceil(seconds)}
        folder = self._job_folder / f"{self._job_folder.name}-{request.name}"
        self.folders = {kind: str(folder / Path(path).name) for kind, path in self.config["folders"].items()}
        self.work = self._all_work / f"recording-{request.name}"
        try:
            for path in (*map(Path, self.folders.values()), self.work):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            said = {"reason": request.reason, "step_ns": request.step_ns, "when": time.time()}
            (self.work / f"began-{socket.gethostname()}-{self.pid}").write_text(json.dumps(said), encoding="utf-8")
            self.blocks.add(*plan(self.done_steps + 1, 0, gpu_steps, steps))
            self.blocks.step_ended(self.done_steps)
        except Exception as e:
            self._fail(e)

    def _steps_before(self) -> Block:
        """The last steps before the recording, as its undisturbed block."""
        steps = self._recent[-self.config["steps"] :]
        block = Block(UNDISTURBED, steps[0][0], len(steps), clock=StepClock(), counted_steps=len(steps))
        assert block.clock is not None
        block.clock.steps = steps
        block.clock.end()
        return block

    def _go_on(self) -> None:
        """Note the end of a step within a recording."""
        if threading.get_ident() != self._thread:
            return  # torch.profiler records, and stops in, the thread that started it
        self.done_steps += 1
        try:
            if self._for_ns and self._is_long_enough():
                self.blocks.shorten(self.done_steps)
            self.blocks.step_ended(self.done_steps)
        except Exception as e:
            self._fail(e)
        if not self.blocks.waiting:
            self._last_ns = time.perf_counter_ns()

    def _is_long_enough(self) -> bool:
        """Whether the running block has its seconds, or has come to a bound before."""
        block = self.blocks.running
        if block is None or block.clock is None or block.session is None:
            return False
        return block.clock.age_ns() >= self._for_ns or block.session.ended_after is not None

    def _end(self) -> None:
        """Write the recording that is running, or report why it was not."""
        if not self.blocks.waiting:
            return
        self.blocks.end_early(self.done_steps)
        if not any(block.kind == FULL for block in self.ended):
            self._report_outcome("the program ended before the recording did")

    def _fail(self, error: Exception) -> None:
        """Report why this recording failed. The next one may succeed, unless a profiler could not be stopped."""
        super()._fail(error)
        self.finished = isinstance(error, NotRecordable) and self._session is not None
        self.blocks.waiting = []


def _store() -> Any:
    """The store of a process group of several ranks, or None."""
    group = process_group()
    if group is None or group.get_world_size() == 1:
        return None
    return store_of_ranks()
