"""Wrong timelines: traces of right GPU work with false pieces at random places, and the laws for what is read of them.

A piece that is provably false is in no sum, a right one is in all of them, and the number of lost pieces is reported.
Right work has the difficulties of real traces: programmatic dependent launch, lengths of 0, CUDA graphs with branches,
several streams and devices, copies and fills, whole microseconds, starts slightly before the call, relative clocks,
graphs that start late on an idle GPU.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
_HOURS = 2 * 3_600_000_000
"""In us."""


@dataclass
class Timeline:
    """A trace, and what is right to read of it. Times in ns."""

    rng: random.Random
    whole_us: bool
    base_ns: int
    first_us: float
    right: list[Event] = field(default_factory=list)
    """GPU work."""
    false: list[Event] = field(default_factory=list)
    unknown: list[Event] = field(default_factory=list)
    """GPU work with a length below 0: NULL, and in no sum."""
    calls: list[Event] = field(default_factory=list)
    false_cpu: list[Event] = field(default_factory=list)
    """Events on the CPU that are false."""
    steps: list[Event] = field(default_factory=list)
    """The step that the recording began with, in some."""
    correlation: int = 0

    def launch(self, at: float, name: str = "cudaLaunchKernel") -> int:
        """Add a launch call; its correlation id."""
        self.correlation += 1
        args = {"correlation": self.correlation}
        self.calls.append({"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 4,
                           "args": args})  # fmt: skip
        return self.correlation

    def piece(self, kind: str, at: float, dur: float, device: int, stream: int, correlation: int | None) -> Event:
        """An event of GPU work."""
        name, more = {
            "kernel": (self.rng.choice(["gemm", "elementwise", "norm"]), {}),
            "gpu_memcpy": ("Memcpy HtoD (Pinned -> Device)", {"bytes": 64}),
            "gpu_memset": ("Memset (Device)", {"bytes": 64}),
        }[kind]
        args = {"device": device, "stream": stream, **more}
        if correlation is not None:
            args["correlation"] = correlation
        return {"ph": "X", "cat": kind, "name": name, "pid": device, "tid": stream, "ts": at, "dur": dur, "args": args}

    def text(self) -> str:
        """The trace; its events in any order, with times as Kineto prints them."""
        events = [*self.steps, *self.calls, *self.right, *self.false, *self.unknown, *self.false_cpu]
        self.rng.shuffle(events)
        header = {"baseTimeNanoseconds": self.base_ns} if self.base_ns else {}
        return json.dumps({**header, "traceEvents": events})


def make(seed: str) -> Timeline:
    """A timeline; the same seed makes the same one."""
    rng = random.Random(seed)
    relative = rng.random() < 0.5
    first = 0.0 if relative else float(_HOURS + rng.randrange(10**9))
    made = Timeline(rng, rng.random() < 0.2, rng.choice([0, 1_700_000_000_000_000_000]), first)
    for device in range(rng.choice([1, 1, 2])):
        for stream in rng.sample(range(1, 30), rng.choice([1, 2, 3])):
            _stream(made, device, stream)
    if rng.random() < 0.5:
        made.steps.append({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1,
                           "ts": made.first_us, "dur": 200_000})  # fmt: skip
    if rng.random() < 0.2:
        _late_graph(made)
    # Less than half of the launched work is false: if most of it is early, the clocks differ.
    for _ in range(min(rng.choice([0, 1, 1, 5, 20]), len([e for e in made.right if "correlation" in e["args"]]) // 2)):
        rng.choice(FAULTS)(made)
    return made


def _time(made: Timeline, low: float, high: float) -> float:
    us = made.rng.uniform(low, high)
    return float(round(us)) if made.whole_us else round(us, 3)


def _stream(made: Timeline, device: int, stream: int) -> None:
    """Right work of a stream. It ends before 100 ms, so that what lasts longer than the recording is known."""
    rng, now = made.rng, made.first_us
    for _ in range(rng.randint(2, 40)):
        now += _time(made, 0, rng.choice([1, 50, 1000]))
        dur = rng.choice([0.0, _time(made, 1, 30), _time(made, 1, 1000)])
        launched = max(now - _time(made, 0, 300), made.first_us) + (rng.random() < 0.1) * _time(made, 0, 200)
        how = rng.random()
        if how < 0.1:
            graph = made.launch(launched, "cudaGraphLaunch")
            lengths = [_time(made, 1, 500) for _ in range(rng.randint(1, 4))]
            made.right += [made.piece("kernel", now + i, n, device, stream, graph) for i, n in enumerate(lengths)]
            now += max(i + n for i, n in enumerate(lengths))
            continue
        kind = rng.choice(["kernel", "kernel", "kernel", "gpu_memcpy", "gpu_memset"])
        linked = made.launch(launched) if rng.random() < 0.9 else None
        made.right.append(made.piece(kind, now, dur, device, stream, linked))
        # With programmatic dependent launch, the next one starts earlier, and ends later.
        if kind == "kernel" and how > 0.8 and dur > 2:
            ahead = _time(made, 0, dur / 2)
            longer = ahead + _time(made, 1, 50)
            made.right.append(made.piece("kernel", now + dur - ahead, longer, device, stream, made.launch(launched)))
            dur += longer - ahead
        now += dur
    made.calls.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "pid": 1, "tid": 1,
                       "ts": now, "dur": 5, "args": {"correlation": 0}})  # fmt: skip


def _late_graph(made: Timeline) -> None:
    """A graph whose work is written more than 100 ms after its launch: doubtful, and right as far as one knows."""
    at = _far_end(made) + 150_000
    graph = made.launch(at - 150_000, "cudaGraphLaunch")
    made.right += [made.piece("kernel", at + 10 * i, 5.0, 0, 55, graph) for i in range(3)]


def _far_end(made: Timeline) -> float:
    return max(e["ts"] + e["dur"] for e in made.right)


def _past_next(made: Timeline) -> None:
    """A piece between two right ones that lasts past the second one, by 25 us or for seconds."""
    work = [e for e in made.right if e["dur"] > 0 and e["args"].get("correlation")]
    if not work:
        return
    following = made.rng.choice(work)
    at = following["ts"] - 5
    of_next = [e for e in made.right if e["args"] == following["args"]]
    end = max(e["ts"] + e["dur"] for e in of_next)
    track = (following["pid"], following["tid"])
    # It must not itself lie in the work before: that work would be the one that lasts past it.
    if any(
        (e["pid"], e["tid"]) == track and e["ts"] < following["ts"] and at <= e["ts"] + e["dur"] for e in made.right
    ):
        return
    dur = end - at + made.rng.choice([25.0, 5_000.0, 3_400_000.0]) + 1000
    made.false.append(made.piece("kernel", at, dur, *track, made.launch(at - 1)))


def _at_zero(made: Timeline) -> None:
    if made.first_us:
        made.false.append(made.piece("kernel", 0.0, made.rng.choice([0.0, 5.0]), 0, 7, made.launch(made.first_us)))


def _before_launch(made: Timeline) -> None:
    at = _far_end(made)
    earlier = made.rng.choice([1_100.0, 50_000.0, 45_000_000.0])
    made.false.append(made.piece("kernel", at - earlier, 1.0, 0, 77, made.launch(at)))


def _before_recording(made: Timeline) -> None:
    """Work of the warm-up, long before the first step, which begins with the recording."""
    if made.steps and made.first_us:
        earlier = made.rng.choice([2_000_000.0, 45_000_000.0])
        made.false.append(made.piece("kernel", made.first_us - earlier - len(made.false), 1.0, 0, 66, None))


def _cpu_at_zero(made: Timeline) -> None:
    if made.first_us:
        made.false_cpu.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 0,
                               "args": {}})  # fmt: skip


def _below_zero(made: Timeline) -> None:
    made.unknown.append(made.piece("kernel", _far_end(made), -_time(made, 1, 1000), 0, 7, made.launch(made.first_us)))


def _beyond(made: Timeline) -> None:
    """The last piece of a stream, longer than all calls by more than a second."""
    at = _far_end(made)
    made.false.append(made.piece("gpu_memcpy", at, 3_000_000.0, 0, 99, made.launch(made.first_us)))


def _twice(made: Timeline) -> None:
    piece = made.rng.choice(made.right)
    if piece["dur"] > 0 or piece["args"].get("correlation"):
        made.false.append(piece)


FAULTS: tuple[Callable[[Timeline], None], ...] = (
    _past_next, _at_zero, _before_launch, _before_recording, _below_zero, _beyond, _twice, _cpu_at_zero,
)  # fmt: skip


def read_times(made: Timeline) -> list[tuple[int, int | None]]:
    """Start and length in ns of all GPU work that is right to read."""
    work = [*made.right, *made.unknown]
    lengths = [round(e["dur"] * 1000) for e in work]
    starts = [made.base_ns + round(e["ts"] * 1000) for e in work]
    return [(start, dur if dur >= 0 else None) for start, dur in zip(starts, lengths, strict=True)]


def broken_laws(made: Timeline, kept: list[tuple[int, int | None]], reported: int, warnings: str) -> list[str]:
    """What is wrong with the pieces that were read, as (start_ns, dur_ns), and with what was reported lost."""

    right = Counter(read_times(made))
    broken = []
    if Counter(kept) != right:
        more, fewer = list((Counter(kept) - right).elements()), list((right - Counter(kept)).elements())
        broken.append(f"false and in the sums: {more[:5]}; right and lost: {fewer[:5]}; {len(kept)} pieces are there")
    in_words = re.findall(r"([\d,]+) (?:of [\d,]+ pieces of GPU work|CPU events of)", warnings)
    said = sum(int(n.replace(",", "")) for n in in_words)
    false = len(made.false) + len(made.false_cpu)
    if not reported == said == false:
        broken.append(f"{false} pieces are false, {reported} were counted lost, {said} in words")
    return broken
