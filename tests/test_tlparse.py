"""Compilations, failures, graph breaks and recompilations of logs, as tlparse counts them.

The figures are of tlparse 0.4.3 (`pip install tlparse; tlparse LOG -o OUT`): the compile ids and the artifacts of each
in OUT/compile_directory.json, and the rows of OUT/failures_and_restarts.html.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import SAMPLES, sql


class Counts(NamedTuple):
    """What tlparse counts in a log.

    `ids`: compile ids; 1/0_1 is the second attempt at 1/0. `metrics`: compilation_metrics.
    """

    ids: str
    metrics: int
    failures: int = 0
    breaks: int = 0
    recompiles: int = 0


SAMPLE = {
    0: Counts("0/0 1/0 1/0_1 2/0", 3, failures=1, breaks=1),
    1: Counts("0/0 1/0 1/0_1 1/1 1/1_1 2/0 2/1", 5, failures=2, breaks=2, recompiles=2),
}
# Logs in tests/inputs of https://github.com/meta-pytorch/tlparse, commit e86baba41a078461bfaaaab0493a4ef3f3eacd81.
PUBLIC = {
    "artifacts.log": Counts("0/0", 1),
    "autotune_with_compile_id.log": Counts("0/0", 1),
    "cache_hit_miss.log": Counts("0/0 1/0", 6),
    "chromium_events.log": Counts("0/0", 1, failures=1),
    "comp_failure.log": Counts("0/0", 1, failures=1),
    "comp_metrics.log": Counts("0/0 0/0_1 1/0 1/0_1 2/0", 3, failures=2),
    "links.log": Counts("0/0", 1),
    "simple.log": Counts("0/0", 1),
    "multi_rank_runtime/dedicated_log_torch_trace_rank_0.log": Counts("0/0 0/1 0/2 0/3", 4, recompiles=3),
    "multi_rank_runtime/dedicated_log_torch_trace_rank_5.log": Counts("0/0 0/1", 2, recompiles=1),
    "multi_rank_schedule/dedicated_log_torch_trace_rank_1_n8zycf07.log": Counts("0/0 1/0", 2),
}
INPUTS = os.environ.get("TRACEQUARRY_TLPARSE_INPUTS")
"""Where these logs are."""


def _counted(path: Path, where: str) -> Counts:
    """Our counts of a log."""
    rows = sql(path, f"SELECT compile_id, attempt, pass, outcome FROM compilations WHERE {where}")
    forward = [r for r in rows if r["pass"] == "forward"]
    ids = {f"{r['compile_id']}_{r['attempt']}".removesuffix("_0") for r in forward}
    outcomes = [r["outcome"] for r in forward]
    return Counts(
        " ".join(sorted(ids)),
        sum(outcome in ("compiled", "skipped", "failed") for outcome in outcomes),
        sum(outcome in ("restarted", "failed") for outcome in outcomes),
        *(sql(path, f"SELECT count(*) AS n FROM {t} WHERE {where}")[0]["n"] for t in ("graph_breaks", "recompiles")),
    )


@pytest.mark.parametrize("rank", SAMPLE)
def test_recorded_log_as_tlparse_counts_it(rank: int) -> None:
    assert _counted(SAMPLES / "recompile-ddp", f"rank = {rank}") == SAMPLE[rank]


@pytest.mark.skipif(not INPUTS, reason="TRACEQUARRY_TLPARSE_INPUTS names no folder with the logs of tlparse's tests")
@pytest.mark.parametrize("name", PUBLIC)
def test_public_log_as_tlparse_counts_it(name: str) -> None:
    assert _counted(Path(INPUTS or "") / name, "true") == PUBLIC[name]
