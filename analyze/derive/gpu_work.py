"""The launch call, operator, outermost operator and phase of each kernel, copy and fill of a rank.

Those of a GPU-only block come from the twins in the full block (`analyze/derive/twins.py`).
`docs/definitions.md`, "Which operator launched GPU work", states the rules. Each lookup is a sorted search: by
correlation id, by External id, or by thread and time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from analyze.derive import launching_events, launching_operators
from analyze.derive.graph_replays import Replayed, captures_added, is_graph_launch, replayed
from analyze.derive.interface import Derived
from analyze.derive.interval_nesting import firsts
from analyze.derive.launch_calls import Calls, launch_calls
from analyze.derive.launching_operators import LaunchingOperators, without_id
from analyze.derive.numpy_columns import BATCH_ROWS, NULL, Ints, ints, nullable, text_codes, texts, values_at
from analyze.derive.phases import PhaseAt, phase_calls
from analyze.derive.sized_calls import calls_at
from analyze.derive.threads import distinct, find
from analyze.derive.twins import FULL_WORK_READS, with_twins
from analyze.derive.work_names import work_names
from schemas.table_declaration import GPU, INTERVAL, LINK, declare_table, row_schema

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {"kernel": "kernels", "memcpy": "memcpys", "memset": "memsets"}
"""The table of each kind of GPU work."""

_WORK = ("device", "stream", "start_ns", "dur_ns", "correlation_id", "op_id", "graph_node_id", "annotation")
READS = {
    "kernels": (*_WORK, "name"),
    "memcpys": (*_WORK, "kind", "src_memory", "dst_memory"),
    "memsets": (*_WORK, "dst_memory"),
    "cuda_calls": ("pid", "tid", "api", "name", "start_ns", "dur_ns", "correlation_id"),
    "cpu_ops": launching_operators.READS,
    "ranges": ("origin", *launching_events.COLUMNS),
    "call_ops": ("correlation_id", "op_id"),
    "phase_calls": ("tid", "phase", "start_ns", "dur_ns", "call_start_ns"),
    "sized_calls": ("call", "tid", "start_ns", "dur_ns", "counts_flops", "counts_bytes"),
    "captured_ops": launching_operators.READS,
    "captured_ranges": ("origin", *launching_events.COLUMNS),
    "graph_launches": ("graph", "kind", "name", "tid", "start_ns"),
    "twins": ("device", "full_stream", "full_start_ns", "full_correlation_id"),
    "full.gpu_work": FULL_WORK_READS,
}
"""Columns that gpu_work is computed from."""
_FIRST: dict[str, tuple[str, ...]] = {"first_of_call": (), "first_on_stream": ("device", "stream")}
"""Columns that say which work is the first of its call, on each of these."""


def gpu_work(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of gpu_work, from the columns READS of a rank's tables."""
    import pyarrow as pa

    schema = row_schema(_TABLE)
    work = pa.Table.from_batches(_batches(tables), pa.schema([c for c in schema if c.name not in (*_FIRST, "alone")]))
    for name, column in (*_first_of_calls(work).items(), ("alone", _alone(work))):
        work = work.append_column(name, column)
    return with_twins(work, tables["twins"], tables["full.gpu_work"]) if tables["twins"].num_rows else work


def _batches(tables: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    ids = {kind: ints(tables[table], "correlation_id") for kind, table in KINDS.items()}
    of_ops = {
        kind: op_ids(ints(tables[table], "op_id"), ids[kind], tables["call_ops"]) for kind, table in KINDS.items()
    }
    calls, call_names = launch_calls(tables["cuda_calls"], distinct(np.concatenate(list(ids.values()))))
    called = {kind: find(calls.id, own) for kind, own in ids.items()}
    alone = [calls.tid[called[kind][(called[kind] >= 0) & without_id(of_ops[kind])]] for kind in KINDS]
    calls = Calls(*(np.append(c, np.array(-1 if c is calls.name else NULL, c.dtype)) for c in calls))
    captured = _captured(tables, ids, calls, called, call_names)
    tables = captures_added(tables)
    alone += [part.tid[part.tid != NULL] for part in captured.values()]
    operators = LaunchingOperators(tables, *(distinct(np.concatenate(of)) for of in (list(of_ops.values()), alone)))
    phases = PhaseAt(pa.concat_tables([tables["phase_calls"], _captured_phases(tables)], promote_options="default"))
    flop_call_at, sized_call_at = (calls_at(tables["sized_calls"], c) for c in ("counts_flops", "counts_bytes"))
    for kind, table in KINDS.items():
        for first in range(0, tables[table].num_rows, BATCH_ROWS):
            rows = tables[table].slice(first, BATCH_ROWS)
            [annotation], annotations = text_codes([rows.column("annotation")])
            own, op_id, call = (of[kind][first : first + BATCH_ROWS] for of in (ids, of_ops, called))
            tid, start = calls.tid[call], calls.start[call]
            capture = Replayed(*(column[first : first + BATCH_ROWS] for column in captured[kind]))
            # The operator of a replayed kernel ran when its graph was captured.
            is_captured = capture.start != NULL
            op_id = np.where(is_captured, NULL, op_id)
            by_tid, by_start = np.where(is_captured, capture.tid, tid), np.where(is_captured, capture.start, start)
            of_op = operators.columns(op_id, by_tid, by_start)
            from_op = op_id > 0
            from_tid, from_ns = (
                np.where(from_op, of_op[op_column].fill_null(NULL), of_call)
                for op_column, of_call in (("op_tid", by_tid), ("op_start_ns", by_start))
            )
            yield pa.RecordBatch.from_pydict(
                {
                    "kind": texts(np.zeros(len(own), np.int32), pa.array([kind])),
                    "name": work_names(kind, rows),
                    **{c: rows.column(c).combine_chunks() for c in ("device", "stream", "start_ns", "dur_ns")},
                    "correlation_id": rows.column("correlation_id").combine_chunks(),
                    "op_id": nullable(op_id),
                    "call_name": texts(calls.name[call], call_names),
                    "call_tid": nullable(tid),
                    "call_start_ns": nullable(start),
                    "call_dur_ns": nullable(calls.dur[call]),
                    "graph": nullable(capture.graph, pa.int32()),
                    "capture_tid": nullable(capture.tid),
                    "capture_start_ns": nullable(capture.start),
                    "annotation": texts(annotation, annotations),
                    **of_op,
                    **phases.columns(tid, start, capture.tid, capture.start),
                    "flop_call": nullable(flop_call_at(from_tid, from_ns), pa.int32()),
                    "sized_call": nullable(sized_call_at(from_tid, from_ns), pa.int32()),
                }
            )


def _captured_phases(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the phases in which CUDA graphs were captured."""
    found = phase_calls({"ranges": tables["captured_ranges"], "cpu_ops": tables["captured_ops"]})
    return found.select(READS["phase_calls"])


def _captured(
    tables: Mapping[str, pa.Table], ids: dict[str, Ints], calls: Calls, called: dict[str, Ints], call_names: pa.Array
) -> dict[str, Replayed]:
    """Return the captured launch of each piece of work of a replayed CUDA graph, by kind."""
    launches_graph = np.array([*map(is_graph_launch, call_names.to_pylist()), False])
    place = np.concatenate(list(called.values()))
    found = replayed(
        tables["graph_launches"],
        tables["ranges"],
        {kind: tables[table] for kind, table in KINDS.items()},
        np.concatenate(list(ids.values())),
        calls.tid[place],
        calls.start[place],
        launches_graph[calls.name[place]],
    )
    ends = np.cumsum([len(own) for own in ids.values()])
    return {
        kind: Replayed(*(column[end - len(ids[kind]) : end] for column in found))
        for kind, end in zip(KINDS, ends, strict=True)
    }


def _first_of_calls(work: pa.Table) -> dict[str, pa.Array]:
    """Return the columns _FIRST: NULL without a launch call."""
    import pyarrow as pa

    ids = ints(work, "correlation_id")
    order = np.argsort(ids, kind="stable")
    again = ~firsts(ids[order])
    # Few calls launch several pieces: only these are sorted.
    shared = np.flatnonzero(np.isin(ids, ids[order[again]])) if again.any() else np.empty(0, np.int64)
    unknown = work.column("call_start_ns").is_null().to_numpy()
    found = {}
    for name, lanes in _FIRST.items():
        keys = [ints(work, column)[shared] for column in ("correlation_id", *lanes)]
        by_start = np.lexsort((ints(work, "start_ns")[shared], *keys[::-1]))
        first = np.ones(len(ids), bool)
        first[shared[by_start]] = firsts(*(key[by_start] for key in keys))
        found[name] = pa.array(first, mask=unknown)
    return found


def _alone(work: pa.Table) -> pa.Array:
    """Return the column `alone`. Work without a length overlaps nothing."""
    import pyarrow as pa

    device, start, dur = (ints(work, column) for column in ("device", "start_ns", "dur_ns"))
    alone = np.ones(len(device), bool)
    for number in np.unique(device):
        rows = np.flatnonzero((device == number) & (dur > 0))
        rows = rows[np.argsort(start[rows], kind="stable")]
        # Whether all work before has ended at the start of each but the first.
        ended = start[rows[1:]] >= np.maximum.accumulate(start[rows] + dur[rows])[:-1]
        alone[rows] = np.append(True, ended)[: len(rows)] & np.append(ended, True)[: len(rows)]
    return pa.array(alone)


def op_ids(op_id: Ints, ids: Ints, call_ops: pa.Table) -> Ints:
    """Return the External ids of GPU work, given with its correlation ids, or what call_ops has instead."""
    if not call_ops.num_rows:
        return op_id
    place = np.where(ids == NULL, -1, find(ints(call_ops, "correlation_id"), ids))
    return np.where(place >= 0, values_at(ints(call_ops, "op_id"), place), op_id)


_TABLE = declare_table(
    "gpu_work",
    "a kernel, memcpy or memset, with what launched it",
    ("kind", "string", "", "kernel, memcpy or memset"),
    (
        "name",
        "string",
        "",
        "kernel name; of a memcpy or memset, as torch.profiler calls it: Memcpy HtoD (Pinned -> Device)",
    ),
    *GPU[1:],
    *INTERVAL,
    LINK[0],
    ("op_id", "int64", "", "External id of the operator that launched it: kernels.op_id, or as call_ops has it"),
    (
        "call_name",
        "string",
        "",
        "its launch call: the runtime call with its correlation id, else the driver call; NULL if unknown",
    ),
    ("call_tid", "int64", "", "thread of the launch call"),
    ("call_start_ns", "int64", "ns", "start of the launch call"),
    ("call_dur_ns", "int64", "ns", "length of the launch call"),
    ("graph", "int32", "", "CUDA graph that it is a replay of, as in graph_launches; NULL if its capture is not known"),
    (
        "capture_tid",
        "int64",
        "",
        "of a replay: thread of the launch call in the capture, to which the columns on operators and phases refer",
    ),
    ("capture_start_ns", "int64", "ns", "start of that call"),
    ("annotation", "string", "", "what the program calls the node of the graph, as in kernels"),
    (
        "op_name",
        "string",
        "",
        "operator or range with its op_id; without op_id the innermost one around the start of the launch call",
    ),
    ("op_tid", "int64", "", "thread of the operator"),
    ("op_start_ns", "int64", "ns", "start of the operator"),
    ("op_dur_ns", "int64", "ns", "length of the operator"),
    (
        "outer_name",
        "string",
        "",
        "outermost operator around the start of the operator (or of the launch call); without one the range",
    ),
    ("outer_start_ns", "int64", "ns", "start of that operator or range"),
    (
        "forward_tid",
        "int64",
        "",
        "of work of the backward pass: thread of the forward operator whose gradient it computes; else NULL",
    ),
    ("forward_start_ns", "int64", "ns", "start of that operator"),
    (
        "forward_op",
        "string",
        "",
        "outermost operator around that operator; of other work, around its own (as outer_name, but no range)",
    ),
    ("phase", "string", "", "innermost phase that the launch call begins in: on its thread, else on any"),
    ("phase_start_ns", "int64", "ns", "start of the call of that phase; if it was captured, of the replay"),
    (
        "flop_call",
        "int32",
        "",
        "call in sized_calls (counts_flops) that its operator, or without op_id its launch call, begins in",
    ),
    ("sized_call", "int32", "", "the same of calls with counts_bytes"),
    ("first_of_call", "bool", "", "first work of its launch call; NULL if the call is unknown"),
    ("first_on_stream", "bool", "", "first work of its launch call on its stream; NULL if the call is unknown"),
    ("alone", "bool", "", "no other work runs on its GPU at the same time"),
)

DERIVED = (Derived(_TABLE, version=13, reads=READS, compute=gpu_work),)
