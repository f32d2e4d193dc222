"""Which collectives of ranks match: `hang` against torch's own analysis of flight recorder dumps (torchfrtrace).

The cases are from test/distributed/flight_recorder/test_fr_analysis.py in PyTorch's repository.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.support import ask

Row = dict[str, Any]
A, B, NONE = [[4, 4]], [[5, 4]], [[]]
GATHERED = [[4, 4], [4, 4]]


def _call(operation: str, inputs: Any = A, outputs: Any = A, state: str = "completed", **more: Any) -> Row:
    return {
        "profiling_name": f"nccl:{operation}", "state": state, "process_group": ("0", "default"),
        "input_sizes": inputs, "output_sizes": outputs, "input_dtypes": "float32", "output_dtypes": "float32",
        "collective_seq_id": 1, "p2p_seq_id": 0, "time_created_ns": 0, "frames": [], "is_p2p": False, **more,
    }  # fmt: skip


def _dumps(*ranks: list[Row]) -> list[Row]:
    """A dump for each rank. Groups: 0 of all ranks, 1 of each alone."""
    return [
        {
            "version": "2.8", "rank": rank, "pg_status": {},
            "pg_config": {
                "0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(len(ranks))))},
                "1": {"name": "1", "desc": "sub_pg", "ranks": f"[{rank}]"},
            },
            "entries": [call | {"record_id": n} for n, call in enumerate(calls)],
        }
        for rank, calls in enumerate(ranks)
    ]  # fmt: skip


def _statuses(folder: Path, dumps: list[Row]) -> dict[int, str]:
    for dump in dumps:
        (folder / f"nccl_trace_rank_{dump['rank']}").write_bytes(pickle.dumps(dump, protocol=2))
    return {row["rank"]: row["status"] for row in ask(folder, "hang")}


PAIRS = {
    "same": (_call("all_reduce"), _call("all_reduce")),
    "operation": (_call("all_reduce"), _call("all_gather")),
    "inputs": (_call("all_reduce"), _call("all_reduce", B)),
    "outputs": (_call("all_reduce"), _call("all_reduce", A, B)),
    "outputs of all_to_all": (_call("all_to_all"), _call("all_to_all", A, B)),
    "type": (_call("all_reduce"), _call("all_reduce", output_dtypes="float16")),
    "no outputs of gather": (_call("gather", A, GATHERED), _call("gather", A, NONE, output_dtypes="")),
    "no type of outputs of gather": (_call("gather", A, GATHERED), _call("gather", output_dtypes="")),
    "inputs of scatter": (_call("scatter", GATHERED), _call("scatter", NONE, input_dtypes="")),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_two_collectives_as_torch_matches_them(pair: str, tmp_path: Path) -> None:
    from torch.distributed.flight_recorder.components.utils import match_one_event

    one, other = PAIRS[pair]
    state = match_one_event(one, other, {"0": {0, 1}}, "0").state.name
    found = _statuses(tmp_path, _dumps([one], [other], [one]))
    assert ("differs" in found.values()) == state.endswith("_MISMATCH"), (found, state)
    assert found in ({}, {0: "completed", 1: "differs", 2: "completed"})


COALESCED = [_call("_reduce_oop"), _call("_reduce_oop"), _call("REDUCE_SCATTER_coalesced", NONE, NONE)]
UNEVEN = [_call("_broadcast_oop"), _call("_broadcast_oop", B, B), _call("ALLGATHER_coalesced", NONE, NONE)]
EVEN = [_call("_broadcast_oop"), _call("_broadcast_oop"), _call("ALLGATHER_coalesced", NONE, NONE)]
FIRST = _call("all_reduce", collective_seq_id=0)
JOBS = {
    "two groups": ([FIRST, _call("all_reduce", B, B, process_group=("1", "sub_pg"))],) * 2,
    "allreduce_coalesced": ([_call("allreduce_coalesced")],) * 2,
    "coalesced broadcasts": ([_call("broadcast"), _call("broadcast"), _call("coalesced", NONE, NONE)],) * 2,
    "coalesced reductions": (COALESCED,) * 2,
    "coalesced broadcasts of other sizes": (UNEVEN, EVEN),
    "coalesced reductions of one rank": ([FIRST], [FIRST, *COALESCED]),
}


@pytest.mark.parametrize("job", JOBS)
def test_jobs_as_torch_matches_them(job: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig

    dumps = _dumps(*JOBS[job])
    found = _statuses(tmp_path, dumps)
    # build_db removes what it has matched, and takes numbers as text.
    for entry in (entry for dump in dumps for entry in dump["entries"]):
        entry["collective_seq_id"] = str(entry["collective_seq_id"])
    matched = build_db({f"rank_{d['rank']}": d for d in dumps}, JobConfig().parse_args([]), "2.8").collectives
    said = caplog.text
    assert bool(found) == ("has errors" in said or "missing ranks" in said or not all(c.pass_check for c in matched))
    assert ("missing" in found.values()) == ("missing ranks" in said)


def test_a_buffer_that_begins_amid_coalesced_collectives(tmp_path: Path) -> None:
    """Rank 1 has forgotten the first of them; rank 0 has not called the next collective."""
    last = _call("all_reduce", state="started", collective_seq_id=2)
    assert _statuses(tmp_path, _dumps(COALESCED, [*COALESCED[1:], last])) == {0: "missing", 1: "waiting"}
