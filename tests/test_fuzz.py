"""A short run of the fuzzer (`python -m tests.fuzz` runs longer), and that its checks can fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import cases, laws
from tests.fuzz.run import Tally, Worker, judge, run_case

SEED = 20


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One process for all inputs."""
    worker = Worker()
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        ("ncu", 30), ("nvprof", 40), ("step_metrics", 25), ("nsys", 20), ("rocpd", 20), ("rocprof_json", 30),
        ("memory_snapshot", 30), ("flight_recorder", 30), ("nccl_inspector", 25), ("torch_trace", 30),
    ],
)  # fmt: skip
def test_damaged_files_are_read_or_rejected_with_all_losses_reported(
    worker: Worker, source: str, inputs: int, tmp_path: Path
) -> None:
    tally = Tally()
    for number in range(inputs):
        run_case(worker, tally, source, SEED, number, keep=tmp_path)
    assert not tally.failures, "\n\n".join(f"{f.again}\n{f.said}" for f in tally.failures)
    # It damages enough, and not all of it beyond use.
    assert tally.with_loss >= inputs / 10 and tally.refused < inputs / 2


# A store names the folder that its run was read from.
@pytest.mark.parametrize("source", sorted(cases.SOURCES.keys() - {"store"}))
def test_fuzz_inputs_are_reproducible(source: str, tmp_path: Path) -> None:
    made = []
    for name in "ab":
        (tmp_path / name).mkdir()
        path = cases.make(source, 1, 3, tmp_path / name).path
        made.append({p.name: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()})
    assert made[0] == made[1] and made[0]


def test_fuzz_checks_can_fail() -> None:
    assert laws.break_of_law(there=10, kept=8, lost=2, exact=False) is None
    assert laws.break_of_law(there=10, kept=8, lost=1, exact=False) is not None
    assert laws.break_of_law(there=10, kept=9, lost=1, exact=True) is not None
    given = cases.Input(Path("x"), there=3, exact=False)
    assert judge(given, {"kept": {"kernels": 3}, "lost": 0, "warnings": []}) is None
    assert judge(given, {"kept": {"kernels": 2}, "lost": 0, "warnings": []}) is not None
    for kind in ("traceback", "hang", "died", "memory"):
        assert judge(given, {kind: "why"}) == (kind, "why")
    assert judge(given, {"error": "one\ntwo"}) is not None
