"""The schedule of blocks of steps: which steps, in which order, and what each begins and ends with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from collect_support import read_trace

from collect.injected.session import BlockSession
from collect.injected.step_blocks import FULL, GPU, UNDISTURBED, Block, Blocks, plan
from collect.injected.trace_files import write_recording


class Noted(BlockSession):
    """A recorder that notes what it is told."""

    recorder = "noted 1.0"

    def __init__(self, notes: list[str], name: str) -> None:
        self._notes, self._name = notes, name
        self.reached: str | None = None
        notes.append(f"start {name}")

    def end_warmup(self) -> None:
        self._notes.append(f"keep {self._name}")

    def open_step(self, number: int) -> None:
        self.has_open_step = True
        self._notes.append(f"step {number}")

    def next_step(self) -> None:
        self._notes.append("next")

    def close_step(self) -> None:
        self.has_open_step = False

    def stop(self) -> None:
        self._notes.append(f"stop {self._name}")

    def write(self, folder: Path, stem: str, steps: list[tuple[int, int, int]], unfinished: int | None) -> bool:
        raise AssertionError

    @property
    def ended_after(self) -> str | None:
        return self.reached


class Scheduled:
    """Blocks whose recorders note what happens, and the notes of each step."""

    def __init__(self, *blocks: Block, waits_are_recorded: bool = False) -> None:
        self.notes: list[str] = []
        self.ended: list[Block] = []
        self.sessions: list[Noted] = []
        self.blocks = Blocks(self._open, self.ended.append, self._wait, waits_are_recorded)
        self.blocks.add(*blocks)

    def _open(self, block: Block, step: int) -> BlockSession:
        self.sessions.append(Noted(self.notes, block.kind))
        return self.sessions[-1]

    def _wait(self, barrier: str) -> str | None:
        self.notes.append(f"wait {barrier}")
        return None

    def step(self, done: int) -> list[str]:
        """What the end of a step leads to."""
        self.notes.clear()
        self.blocks.step_ended(done)
        return self.notes[:]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        # The defaults take 19 steps: 0 1 | 2 ... 6 | 7 | 8 ... 12 | 13 | 14 ... 18.
        ((3, 5, 5, 5), [(UNDISTURBED, 2, 7), (GPU, 8, 13), (FULL, 14, 19)]),
        ((3, 5, 0, 5), [(UNDISTURBED, 2, 7), (FULL, 8, 13)]),
        ((3, 5, 5, 0), [(UNDISTURBED, 2, 7), (GPU, 8, 13)]),
        ((1, 0, 2, 3), [(GPU, 1, 3), (FULL, 4, 7)]),
        ((0, 0, 0, 3), [(FULL, 0, 3)]),
        ((3, 4, 0, 0), [(UNDISTURBED, 2, 6)]),
    ],
)
def test_plan(lengths: tuple[int, int, int, int], expected: list[tuple[str, int, int]]) -> None:
    assert [(b.kind, b.first, b.end) for b in plan(*lengths)] == expected


def test_shortened_block() -> None:
    """A block that ends early ends as planned ones do, and the next recorder warms up in the step after it."""
    scheduled = Scheduled(*plan(2, 0, 100, 100))
    for done in (1, 2, 3, 4):
        scheduled.step(done)
    scheduled.blocks.shorten(5)
    assert scheduled.step(5) == ["stop gpu", "start full"]
    [gpu] = scheduled.ended
    assert gpu.counted_steps == 3 and gpu.clock and gpu.clock.complete and len(gpu.clock.steps) == 3
    assert scheduled.step(6) == ["wait full 6", "keep full", "wait full 6 started", "step 6"]


def test_blocks_follow_each_other() -> None:
    scheduled = Scheduled(*plan(2, 2, 2, 1))
    happened = {done: notes for done in range(1, 9) if (notes := scheduled.step(done))}
    assert happened == {
        1: ["wait undisturbed 1"],
        3: ["start gpu"],
        4: ["wait gpu 4", "keep gpu", "wait gpu 4 started", "step 4"],
        5: ["next"],
        6: ["stop gpu", "start full"],
        7: ["wait full 7", "keep full", "wait full 7 started", "step 7"],
        8: ["stop full"],
    }
    undisturbed, gpu, full = scheduled.ended
    assert [block.counted_steps for block in scheduled.ended] == [2, 2, 1]
    assert [[number for number, _ in block.clock.steps] for block in scheduled.ended if block.clock] == [
        [1, 2],
        [4, 5],
        [7],
    ]
    assert (undisturbed.warmed_up, gpu.warmed_up, full.warmed_up) == (None, True, True)
    assert not scheduled.blocks.waiting


def test_block_without_a_step_before_it_is_not_warmed_up() -> None:
    scheduled = Scheduled(*plan(1, 0, 0, 1))
    assert scheduled.step(1) == ["wait full 1", "start full", "wait full 1 started", "step 1"]
    scheduled.step(2)
    assert scheduled.ended[0].warmed_up is False


def test_ranks_wait_before_a_recording_that_would_contain_it() -> None:
    scheduled = Scheduled(*plan(1, 0, 0, 1), waits_are_recorded=True)
    assert scheduled.step(1) == ["wait full 1", "wait full 1 started", "start full", "step 1"]


def test_blocks_added_while_the_program_runs() -> None:
    scheduled = Scheduled()
    for first in (5, 10):
        scheduled.blocks.add(Block(FULL, first, 2))
        assert [done for done in range(first - 2, first + 3) if scheduled.step(done)] == [*range(first - 1, first + 3)]
    assert [(b.first, b.counted_steps) for b in scheduled.ended] == [(5, 2), (10, 2)]


def test_bound_within_a_step_ends_the_block() -> None:
    scheduled = Scheduled(*plan(1, 0, 0, 5))
    scheduled.step(1)
    scheduled.step(2)
    scheduled.sessions[0].reached = "1 s"
    scheduled.step(3)
    [block] = scheduled.ended
    assert (block.counted_steps, block.unfinished, block.outcome(False, False)["step_ns"]) == (1, 2, None)


def test_end_within_a_block() -> None:
    scheduled = Scheduled(*plan(1, 0, 0, 5))
    scheduled.step(1)
    scheduled.step(2)
    scheduled.blocks.end_early(2)
    [block] = scheduled.ended
    assert (block.counted_steps, block.unfinished) == (1, 2)


def test_end_before_the_first_step_of_a_block() -> None:
    scheduled = Scheduled(*plan(2, 0, 0, 5))
    assert scheduled.step(1) == ["start full"]
    scheduled.notes.clear()
    scheduled.blocks.end_early(1)
    assert scheduled.notes == ["stop full"] and not scheduled.ended and not scheduled.blocks.waiting


def test_steps_are_added_to_a_trace_without_them(tmp_path: Path) -> None:
    """As where torch.profiler records GPU work alone."""
    before = time.time_ns()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        between = time.time_ns()
        torch.ones(3)
        after = time.time_ns()
    steps = [(7, before, between), (8, between, after)]
    assert write_recording(profile, tmp_path, "rank-0", averages=False, steps=steps)
    assert [p.name for p in tmp_path.iterdir()] == ["rank-0.trace.json.gz"]
    events = read_trace(tmp_path / "rank-0.trace.json.gz")["traceEvents"]
    times = {e["name"]: (float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in events if e.get("ph") == "X"}
    (first, second), (third, fourth) = times["ProfilerStep#7"], times["ProfilerStep#8"]
    assert first < second == pytest.approx(third) and third < times["aten::ones"][0] < times["aten::ones"][1] < fourth
