"""What was built into a recorded program comes back from its GPU-only and full blocks.

The programs are in tests/data; sample_traces/README.md says how they were recorded, on two H100s.
"""

from __future__ import annotations

import pytest
from support import SAMPLES, ask

import analyze

STEPS = 3
LATE_NS = 5_000_000
"""tests/data/late_ddp.py: how long rank 1 sleeps in each step."""
LOAD_NS = 20_000_000
"""tests/data/slow_loader.py: how long the loader sleeps for each batch."""


@pytest.mark.parametrize("sample", ["late-ddp", "host-bound", "slow-loader"])
def test_each_piece_of_gpu_work_has_its_twin(sample: str) -> None:
    [blocks] = [r for r in ask(SAMPLES / sample, "health", profiler="gpu") if r["fact"] == "twins in the full block"]
    assert (blocks["verdict"], blocks["value"].split(" %")[0]) == ("ok", "100.00")


def test_rank_that_sleeps_is_last_in_every_collective() -> None:
    """Three steps of four gradient buckets of 8 MB: 8 layers of 4 MB."""
    ranks = {r["rank"]: r for r in ask(SAMPLES / "late-ddp", "stragglers")}
    assert ranks[1]["run_id"].endswith(".gpu")
    assert (ranks[1]["times_last"], ranks[0]["times_last"], ranks[1]["calls"]) == (12, 0, 12)
    assert STEPS * LATE_NS <= ranks[0]["wait_ns"] < 2 * STEPS * LATE_NS


def test_ranks_with_the_same_work_do_not_wait_for_each_other() -> None:
    """Nothing is injected: no finding about a slow rank above 5 % of the run."""
    with analyze.open(SAMPLES / "even-ddp") as traces:
        [found] = {r["run_id"] for r in traces.query("stragglers").dicts()}
        assert found.endswith(".gpu")
        assert not [a for a in traces.advise(min_pct=5).dicts() if a["finding"] == "stragglers"]


def test_host_bound_program_waits_for_the_host() -> None:
    """Nearly all idle time is the host's, and an undisturbed step is idle for what it lasts less what the GPU works."""
    causes = {r["cause"]: r for r in ask(SAMPLES / "host-bound", "idle-causes")}
    assert causes["host_wait"]["idle_pct"] > 99
    [whole] = ask(SAMPLES / "host-bound", "breakdown")
    steps = [r for r in ask(SAMPLES / "host-bound", "steps", profiler="gpu") if r["undisturbed_step_ns"]]
    busy = whole["span_ns"] - whole["idle_ns"]
    assert whole["undisturbed_idle_ns"] == whole["undisturbed_ns"] - busy
    assert whole["undisturbed_ns"] == pytest.approx(STEPS * steps[0]["undisturbed_step_ns"], rel=1e-6)


def test_loader_that_sleeps_is_what_steps_wait_for() -> None:
    [loader] = ask(SAMPLES / "slow-loader", "dataloader")
    assert loader["bound"] and LOAD_NS <= loader["wait_p50_ns"] < 1.1 * LOAD_NS
    gaps = sorted((r["gap_ns"] for r in ask(SAMPLES / "slow-loader", "gaps")), reverse=True)
    assert all(gap > LOAD_NS for gap in gaps[: STEPS - 1]) and gaps[STEPS - 1] < LOAD_NS
