"""What CPU threads do: hand-computed gaps, and a recording of a program with known waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run_cli
from tests.support import SAMPLES, ask
from tests.test_nsys_jobs import report
from tests.test_nsys_layouts import Row, thread

MAIN, OTHER = thread(1, 1), thread(1, 9)


def _us(*rows: Row) -> list[Row]:
    """Rows whose first two columns are times in us."""
    return [(start * 1000, end * 1000, *rest) for start, end, *rest in rows]


def _idle_gpu(path: Path, switched: bool = True) -> Path:
    """A GPU that is idle in [200, 1200) us; the main thread launches at 1150 us. Another thread polls throughout.

    us        200   300   350   400 420 450   500   600    1000  1150
    on core   =============                ===============       ======
    calls           read.........write..read........ sem_wait....
    """
    calls = _us((300, 500, MAIN, 10), (400, 420, MAIN, 11), (600, 1000, MAIN, 12), (100, 1500, OTHER, 13))
    switches = [(50, 1), (350, 0), (450, 1), (600, 0), (1000, 1), (1200, 0)]
    samples = [(250, 1), (460, 2), (550, 1), (1100, 3), (1190, 3)]
    more: dict[str, tuple[str, list[Row]]] = {
        "StringIds": (
            "id value",
            [(10, "read"), (11, "write"), (12, "sem_wait"), (13, "poll"), (21, "compute"), (22, "copy"), (23, "parse")],
        ),
        "OSRT_API": ("start end globalTid nameId", calls),
        "COMPOSITE_EVENTS": ("id start cpu globalTid", [(n, at * 1000, 0, MAIN) for n, (at, _) in enumerate(samples)]),
        "SAMPLING_CALLCHAINS": (
            "id symbol module stackDepth",
            [(n, 20 + f, 10, 0) for n, (_, f) in enumerate(samples)],
        ),
    }
    if switched:
        rows: list[Row] = [(at * 1000, 0, is_in, MAIN) for at, is_in in switches]
        more["SCHED_EVENTS"] = ("start cpu isSchedIn globalTid", rows)
    return report(path, [(1, 0, 100, 200), (1, 0, 1200, 1300)], more=more)


def _times(rows: list[dict[str, Any]], tid: int = 1) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    return {(r["state"], r["os_call"]): (r["total_ns"], r["function"], r["samples"]) for r in rows if r["tid"] == tid}


# The window is [200, 1150). On a core: read [300, 350) + [450, 500), none [200, 300) + [500, 600) + [1000, 1150).
# Waiting: read [350, 400) + [420, 450), write [400, 420), sem_wait [600, 1000). Together 950 us. The sample at 1190 us
# is after the launch; compute has two of the three samples outside calls.
_IN_THE_GAP = {
    ("on a core", None): (350_000, "compute", 2),
    ("on a core", "read"): (100_000, "copy", 1),
    ("waiting", "read"): (80_000, None, None),
    ("waiting", "write"): (20_000, None, None),
    ("waiting", "sem_wait"): (400_000, None, None),
}


@pytest.mark.parametrize("during", ["idle", "gap"])
def test_the_launching_thread_in_a_gap(tmp_path: Path, during: str) -> None:
    rows = ask(_idle_gpu(tmp_path / "idle.sqlite"), "thread-time", params={"during": during})
    assert _times(rows) == _IN_THE_GAP
    assert {(r["tid"], r["device"]) for r in rows} == {(1, 0)}
    # The first event of the run is the launch call at 50 us.
    assert {r["start_ns"] for r in rows} == {150_000 if during == "gap" else None}
    assert {r["os_call"]: r["share_pct"] for r in rows}["sem_wait"] == pytest.approx(100 * 400 / 950)


def test_trace_has_the_calls_on_their_threads(tmp_path: Path) -> None:
    """In us since the first launch call, at 50 us; a call inside another is nested in it."""
    out = tmp_path / "out.json"
    done = run_cli("trace", str(_idle_gpu(tmp_path / "idle.sqlite")), "-o", str(out))
    assert done.returncode == 0, done.stderr
    events = json.loads(out.read_text())["traceEvents"]
    calls = [(e["tid"], e["name"], e["ts"], e["dur"]) for e in events if e.get("cat") == "os_call"]
    assert sorted(calls) == [
        (1, "read", 250, 200), (1, "sem_wait", 550, 400), (1, "write", 350, 20), (9, "poll", 50, 1400),
    ]  # fmt: skip


def test_a_thread_is_on_a_core_from_before_its_first_switch_and_until_after_its_last(tmp_path: Path) -> None:
    """us: a call [0, 10), off the core at 20, on it at 50, a call [60, 100). It waits for 30 of 100 us."""
    more: dict[str, tuple[str, list[Row]]] = {
        "StringIds": ("id value", [(10, "read")]),
        "OSRT_API": ("start end globalTid nameId", _us((0, 10, MAIN, 10), (60, 100, MAIN, 10))),
        "SCHED_EVENTS": ("start cpu isSchedIn globalTid", [(20_000, 0, 0, MAIN), (50_000, 0, 1, MAIN)]),
    }
    path = report(tmp_path / "t.sqlite", [(1, 0, 100, 110)], more=more)
    assert _times(ask(path, "thread-time")) == {
        ("on a core", None): (20_000, None, None),
        ("on a core", "read"): (50_000, None, None),
        ("waiting", None): (30_000, None, None),
    }


def test_no_rows_for_no_gaps(tmp_path: Path) -> None:
    assert ask(_idle_gpu(tmp_path / "idle.sqlite"), "thread-time", params={"during": "gap", "top": 0}) == []


def test_all_threads(tmp_path: Path) -> None:
    rows = ask(_idle_gpu(tmp_path / "idle.sqlite"), "thread-time")
    # No context switch of the other thread is recorded, so it never came onto a core.
    assert _times(rows, 9) == {("waiting", "poll"): (1_400_000, None, None)}
    # From the first switch at 50 us to the last at 1200 us.
    assert sum(r["total_ns"] for r in rows if r["tid"] == 1) == 1_150_000


def test_without_context_switches_no_state_is_known(tmp_path: Path) -> None:
    rows = ask(_idle_gpu(tmp_path / "idle.sqlite", switched=False), "thread-time", params={"during": "idle"})
    assert _times(rows) == {
        (None, None): (350_000, "compute", 2),
        (None, "read"): (180_000, "copy", 1),
        (None, "write"): (20_000, None, None),
        (None, "sem_wait"): (400_000, None, None),
    }


def test_a_recording_of_known_waits() -> None:
    """The program computes 50 ms, waits for a lock that another thread holds for 100 ms, and sleeps 60 ms."""
    rows = ask(SAMPLES / "cpu-threads", "thread-time")
    main = min(r["tid"] for r in rows)
    ms = {key: total / 1e6 for key, (total, _, _) in _times(rows, main).items()}
    assert ms["waiting", "sem_wait"] == pytest.approx(100, abs=5)
    assert ms["waiting", "clock_nanosleep"] == pytest.approx(60, abs=1)
    assert ms["on a core", None] > 50
