"""Exported traces as Perfetto reads them: ids, names, nested slices, and arrows between slices."""

from __future__ import annotations

import gzip
import json
import pickle
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import SAMPLES, sql
from traces import event, kernel, launch, write_trace

import analyze
from analyze.trace.tracks import overflow_lanes
from schemas.files import part_file

ARROWS = {
    "resnet18-1gpu": 31, "alexnet-dp2 torch": 46, "alexnet-dp2 nsys": 97, "resnet18-ddp2": 14, "vgg16-fp32": 18,
    "alexnet-ncu torch": 2, "resnet18-ncu torch": 2,
}  # fmt: skip
"""Samples, and how often the critical paths of each change their place."""

Event = dict[str, Any]


class Drawn(NamedTuple):
    """Events of a trace with whole nanoseconds, and what Perfetto's importer makes of them."""

    events: list[Event]
    overlapping: list[Event]
    """Slices that end after one in which they began."""
    ends: dict[tuple[str, int], dict[str, tuple[Event, Event]]]
    """Flow events by category and id, then by ph, each with the slice that began last on its thread; if there is none,
    the flow event is missing."""

    def of(self, *phases: str) -> list[Event]:
        return [e for e in self.events if e["ph"] in phases]

    def names(self, kind: str) -> dict[tuple[int, int], str]:
        found = [((e["pid"], e["tid"]), e["args"]["name"]) for e in self.of("M") if e["name"] == kind]
        assert len(dict(found)) == len(found)
        return dict(found)


def draw(source: Path, target: Path, where: str | None = None) -> Drawn:
    analyze.open(source).where(where).trace(target, critical_path=True)
    trace = json.loads(gzip.decompress(target.read_bytes()), parse_float=lambda text: round(float(text) * 1000))
    events = trace["traceEvents"]
    open_slices: dict[tuple[int, int], list[Event]] = defaultdict(list)
    drawn = Drawn(events, [], defaultdict(dict))
    # At one time, the longest slice comes first and flows last.
    for e in sorted(drawn.of("X", "s", "f"), key=lambda e: (e["ts"], -e.get("dur", -1))):
        stack = open_slices[e["pid"], e["tid"]]
        if e["ph"] != "X":
            if stack:
                drawn.ends[e["cat"], e["id"]][e["ph"]] = (e, stack[-1])
            continue
        # What has ended is closed only when the next slice begins.
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= e["ts"]:
            stack.pop()
        if stack and stack[-1]["ts"] + stack[-1]["dur"] < e["ts"] + e["dur"]:
            drawn.overlapping.append(e)
        else:
            stack.append(e)
    return drawn


@pytest.fixture(scope="module")
def sample(own_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Drawn]:
    """Drawn once for all processes of the tests."""
    made = own_cache.parent / "drawn"
    made.mkdir(exist_ok=True)

    @cache
    def get(name: str) -> Drawn:
        kept = made / name
        if not kept.exists():
            folder, _, profiler = name.partition(" ")
            where = f"profiler = '{profiler}'" if profiler else None
            drawn = draw(SAMPLES / folder, tmp_path_factory.mktemp("trace") / "out.json.gz", where)
            with part_file(kept) as part:
                part.write_bytes(pickle.dumps(drawn))
        found: Drawn = pickle.loads(kept.read_bytes())
        return found

    return get


@pytest.mark.parametrize("name", ARROWS)
def test_slices_nest(sample: Callable[[str], Drawn], name: str) -> None:
    assert sample(name).overlapping == []


@pytest.mark.parametrize("name", ARROWS)
def test_launch_arrows_meet_the_call_and_its_work(sample: Callable[[str], Drawn], name: str) -> None:
    drawn = sample(name)
    ids = {e["id"] for e in drawn.of("s", "f") if e["cat"] == "ac2g"}
    assert ids
    for number in ids:
        (at, call), (to, work) = (drawn.ends["ac2g", number][ph] for ph in "sf")
        assert call["args"]["correlation"] == work["args"]["correlation"]
        assert call["cat"].startswith("cuda_") and work["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
        assert (at["ts"], to["ts"]) == (call["ts"], work["ts"])


@pytest.mark.parametrize("name", ARROWS)
def test_arrows_of_the_critical_path_join_its_pieces(sample: Callable[[str], Drawn], name: str) -> None:
    drawn = sample(name)
    ids = {e["id"] for e in drawn.of("s", "f") if e["cat"] == "critical_path"}
    assert len(ids) == ARROWS[name]
    for number in ids:
        (at, before), (to, after) = (drawn.ends["critical_path", number][ph] for ph in "sf")
        assert before["cat"] == after["cat"] == "critical_path" and before["tid"] != after["tid"]
        assert before["ts"] + before["dur"] == after["ts"]
        assert (at["ts"], to["ts"]) == (before["ts"], after["ts"])


@pytest.mark.parametrize("name", ARROWS)
def test_every_track_has_a_name_and_a_valid_id(sample: Callable[[str], Drawn], name: str) -> None:
    drawn = sample(name)
    processes = {pid for pid, _ in drawn.names("process_name")}
    threads = drawn.names("thread_name")
    assert {e["pid"] for e in drawn.events} == processes
    for e in drawn.of("X", "i", "s", "f"):
        assert (e["pid"], e["tid"]) in threads and 0 < e["tid"] < 2**32 and 0 <= e["pid"] < 2**32
    # The UI shows the number behind the name: the place's own, or the first that was free.
    for (pid, _), process in drawn.names("process_name").items():
        assert process.endswith((" CPU process", " GPU")) or process == "critical path track"
        assert pid < 10 or process.endswith(" CPU process")
    for (_, tid), thread in threads.items():
        assert thread in ("thread", "stream") or (thread.endswith((" track", " overlap", " lane")) and tid < 40)


@pytest.mark.parametrize("name", ARROWS)
def test_no_event_is_before_time_0(sample: Callable[[str], Drawn], name: str) -> None:
    drawn = sample(name)
    assert min(e["ts"] for e in drawn.of("X", "i", "C")) == 0


def on(drawn: Drawn, process: str, thread: str) -> list[Event]:
    """Slices on the threads of that name."""
    pids = {pid for (pid, _), name in drawn.names("process_name").items() if name == process}
    places = {place for place, name in drawn.names("thread_name").items() if name == thread and place[0] in pids}
    return [e for e in drawn.of("X") if (e["pid"], e["tid"]) in places]


def test_ranks_are_in_order(sample: Callable[[str], Drawn]) -> None:
    drawn = sample("resnet18-ddp2")
    order = {e["pid"]: e["args"]["sort_index"] for e in drawn.of("M") if e["name"] == "process_sort_index"}
    names = {pid: name for (pid, _), name in drawn.names("process_name").items()}
    assert [names[pid] for pid in sorted(order, key=order.__getitem__)] == [
        "critical path track", "rank 0 CPU process", "rank 0 GPU", "rank 1 CPU process", "rank 1 GPU",
    ]  # fmt: skip
    assert {pid: name for pid, name in names.items() if pid < 10} == {
        0: "rank 0 GPU", 1: "rank 1 GPU", 2: "critical path track"
    }  # fmt: skip


def test_annotations_are_on_their_stream(sample: Callable[[str], Drawn]) -> None:
    for rank in (0, 1):
        slices = on(sample("resnet18-ddp2"), f"rank {rank} GPU", "stream")
        assert len([e for e in slices if e["cat"] == "gpu_user_annotation"]) == 20
    [row] = sql(
        SAMPLES / "resnet18-ddp2",
        "SELECT count(*) AS n FROM ranges r WHERE origin = 'gpu_annotation'"
        " AND EXISTS (FROM kernels k WHERE k.rank = r.rank AND k.device = r.device AND k.stream = r.stream"
        " AND k.start_ns >= r.start_ns AND k.start_ns + k.dur_ns <= r.start_ns + r.dur_ns)",
    )
    assert row["n"] > 20


def test_events_without_a_thread_get_their_own(sample: Callable[[str], Drawn]) -> None:
    overhead = on(sample("alexnet-dp2 torch"), "rank 0 CPU process", "profiler overhead track")
    assert {e["cat"] for e in overhead} == {"overhead"} and len(overhead) == 5
    waits = on(sample("alexnet-dp2 nsys"), "rank 0 CPU process", "synchronisation track")
    assert {e["cat"] for e in waits} == {"cuda_sync"} and len(waits) == 135


@pytest.mark.parametrize(("name", "count"), [("alexnet-ncu torch", 7), ("resnet18-ncu torch", 22)])
def test_kernels_that_overlap_on_a_stream(sample: Callable[[str], Drawn], name: str, count: int) -> None:
    beside = on(sample(name), "rank 0 GPU", "stream 7 overlap")
    assert len(beside) == count and {e["args"]["stream"] for e in beside} == {7}


def test_overlapping_slices_use_lanes() -> None:
    # On thread 2, [5, 15) overlaps [0, 10), and [9, 12) both. [5, 10) lies inside [0, 10), and [10, 20) touches it.
    first = [(1, 2, 0, 10), (1, 2, 5, 10), (1, 2, 5, 5), (1, 2, 9, 3), (1, 2, 10, 10)]
    # Thread 3 is another; what has no length fits anywhere, and two of the same time lie in one another.
    second = [(1, 3, 5, 10), (1, 3, 5, 10), (1, 3, 15, 0), (1, 3, 15, 0)]
    assert overflow_lanes(first + second) == {(1, 2, 5, 10): 1, (1, 2, 9, 3): 1}
    # Three at once.
    assert overflow_lanes([(1, 1, 0, 10), (1, 1, 1, 10), (1, 1, 2, 10)]) == {(1, 1, 1, 10): 1, (1, 1, 2, 10): 2}


def test_odd_numbers_by_hand(tmp_path: Path) -> None:
    events = [
        event("cpu_op", "negative", 0, 1, 5, -2),
        event("cpu_op", "none", 0, 1, 5, "text"),
        event("cpu_op", "beside", 2, 4, 5, 6),
        event("cpu_op", "overlaps", 4, 4, 5, 6),
        # torch says where a synchronisation waited, not who.
        event("cuda_sync", "Stream Sync", 0, 1, 1, 7),
        event("gpu_user_annotation", "range", 0, 9, 1, 0),
        kernel("k", 1, 2, device=1, stream=0),
        launch(9, 1),
    ]
    drawn = draw(write_trace(tmp_path / "t.json", events), tmp_path / "out.json.gz")
    assert drawn.overlapping == []
    processes, threads = drawn.names("process_name"), drawn.names("thread_name")
    found = {
        e["name"]: (e["pid"], processes[e["pid"], 0], threads[e["pid"], e["tid"]])
        for e in drawn.of("X")
        if e["cat"] != "critical_path"
    }
    assert found == {
        "negative": (5, "rank 0 CPU process", "thread"),
        "none": (5, "rank 0 CPU process", "unknown thread track"),
        "beside": (5, "rank 0 CPU process", "thread"),
        "overlaps": (5, "rank 0 CPU process", "thread 6 overlap"),
        "Stream Sync": (1, "rank 0 CPU process", "synchronisation track"),
        # Process 1 is on the CPU, and the critical path's is drawn before 2 is.
        "range": (2, "rank 0 GPU 1 track", "stream 0 track"),
        "k": (2, "rank 0 GPU 1 track", "stream 0 track"),
        "cudaLaunchKernel": (1, "rank 0 CPU process", "thread"),
    }
    [negative] = [e["tid"] for e in drawn.of("X") if e["name"] == "negative"]
    assert negative == 2**32 - 2
    rows = analyze.open(tmp_path / "out.json.gz").sql("SELECT device, stream FROM kernels").dicts()
    assert rows == [{"device": 1, "stream": 0}]
