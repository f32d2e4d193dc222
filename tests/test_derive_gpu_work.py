"""The launch call and operator of each kernel, copy and fill."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support import recorded_tables, with_derived

from analyze.derive.call_ops import call_ops
from analyze.derive.numpy_columns import BATCH_ROWS
from analyze.derive.threads import OpenIntervals, outermost

Row = dict[str, Any]


def kernel(name: str, correlation: int | None, op_id: int | None = None, start: int = 1000, **more: Any) -> Row:
    return {"name": name, "device": 0, "stream": 7, "start_ns": start, "dur_ns": 5, "correlation_id": correlation} | {
        "op_id": op_id, **more
    }  # fmt: skip


def call(correlation: int, start: int, tid: int | None = 1, dur: int = 5, **more: Any) -> Row:
    return {
        "pid": 9, "tid": tid, "api": "runtime", "name": "cudaLaunchKernel", "start_ns": start, "dur_ns": dur,
        "correlation_id": correlation, **more,
    }  # fmt: skip


def op(name: str, start: int, end: int, op_id: int | None = None, tid: int | None = 1) -> Row:
    return {"name": name, "tid": tid, "start_ns": start, "dur_ns": end - start, "op_id": op_id}


def span(name: str, start: int, end: int, op_id: int | None = None, origin: str = "record_function") -> Row:
    return op(name, start, end, op_id) | {"origin": origin}


def links(*columns: str, **rows: list[Row]) -> list[tuple[Any, ...]]:
    """These columns of gpu_work, in the order of its rows."""
    work = with_derived(recorded_tables(**rows), "gpu_work")["gpu_work"]
    return list(zip(*(work.column(c).to_pylist() for c in columns), strict=True))


CALL = ("name", "call_name", "call_tid", "call_start_ns", "call_dur_ns")
OP = ("name", "op_name", "op_tid", "op_start_ns", "op_dur_ns")
OUTER = ("name", "outer_name", "outer_start_ns")


def test_kernels_copies_and_fills_are_rows() -> None:
    copy = kernel("", 2, start=20) | {"kind": "HtoD", "src_memory": "Pinned", "dst_memory": "Device"}
    fill = kernel("", None, start=30, device=1)
    assert links(
        "kind", "name", "device", "stream", "start_ns", "dur_ns", "correlation_id", "call_start_ns",
        kernels=[kernel("k", 1, start=10)], memcpys=[copy], memsets=[fill], cuda_calls=[call(1, 3), call(2, 4)],
    ) == [
        ("kernel", "k", 0, 7, 10, 5, 1, 3), ("memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 7, 20, 5, 2, 4),
        ("memset", "Memset", 1, 7, 30, 5, None, None),
    ]  # fmt: skip


def test_the_runtime_call_around_a_driver_call() -> None:
    driver: Row = {"api": "driver", "name": "cuLaunchKernel"}
    calls = [call(1, 12, dur=2, **driver), call(1, 10), call(2, 20, **driver), call(3, 30, api="sync")]
    assert links(*CALL, kernels=[kernel("a", 1), kernel("b", 2), kernel("c", 3)], cuda_calls=calls) == [
        ("a", "cudaLaunchKernel", 1, 10, 5), ("b", "cuLaunchKernel", 1, 20, 5), ("c", None, None, None, None)
    ]  # fmt: skip


def test_ids_that_are_not_unique() -> None:
    # 1: one call, written twice. 2: two calls. 3: two processes. 4: one process, which one of the rows does not say.
    # 5: two processes and a row that says none.
    calls = [
        call(1, 10, dur=3), call(1, 10, dur=4), call(2, 20), call(2, 21), call(3, 30), call(3, 30, pid=8),
        call(4, 40, pid=None), call(4, 40), call(5, 50, pid=None), call(5, 50), call(5, 50, pid=8),
    ]  # fmt: skip
    kernels = [kernel("k", i) for i in (1, 2, 3, 4, 5, 1)]
    assert links("correlation_id", "call_start_ns", "call_dur_ns", kernels=kernels, cuda_calls=calls) == [
        (1, 10, 4), (2, None, None), (3, None, None), (4, 40, 5), (5, None, None), (1, 10, 4)
    ]  # fmt: skip


def test_the_operator_of_an_external_id() -> None:
    # 5 is a range and the operator inside of it: the last to begin. Nothing is 6.
    ops = [op("aten::mm", 10, 30, 5), op("aten::add", 40, 50, 8)]
    assert links(
        *OP, kernels=[kernel("k", 1, 5), kernel("l", 2, 6)], cpu_ops=ops, ranges=[span("forward", 0, 100, 5)],
        cuda_calls=[call(1, 15), call(2, 45)],
    ) == [("k", "aten::mm", 1, 10, 20), ("l", None, None, None, None)]  # fmt: skip


def test_an_external_id_of_several_threads_is_that_of_the_launching_one() -> None:
    ops = [op("one", 0, 100, 5), op("inner", 5, 90, 5), op("two", 10, 50, 5, tid=2), op("none", 12, 50, 5, tid=None)]
    kernels = [kernel("k", 1, 5), kernel("l", 2, 5), kernel("m", 3, 5), kernel("n", 4, 5), kernel("o", 5, 5)]
    calls = [call(1, 20), call(2, 20, tid=2), call(3, 20, tid=3), call(5, 20, tid=None)]
    assert links("name", "op_name", kernels=kernels, cpu_ops=ops, cuda_calls=calls) == [
        ("k", "inner"), ("l", "two"), ("m", None), ("n", None), ("o", "none")
    ]  # fmt: skip


def test_without_an_external_id_the_innermost_at_the_launch_call() -> None:
    # Ranges of NVTX and of asynchronous collectives do not count.
    ops = [op("outer", 0, 100), op("ended", 5, 10), op("inner", 20, 40), op("later", 30, 50)]
    ranges = [span("nvtx", 22, 25, origin="nvtx"), span("nccl:all_reduce", 22, 25)]
    kernels = [kernel("a", 1), kernel("b", 2, 0), kernel("c", 3), kernel("d", 4), kernel("e", 5)]
    calls = [call(1, 10), call(2, 23), call(3, 45), call(4, 60), call(5, 100)]
    assert links("name", "op_id", "op_name", kernels=kernels, cpu_ops=ops, ranges=ranges, cuda_calls=calls) == [
        ("a", None, "outer"), ("b", 0, "inner"), ("c", None, "later"), ("d", None, "outer"), ("e", None, None)
    ]  # fmt: skip


def test_the_outermost_operator() -> None:
    ops = [op("module", 0, 100, 1), op("aten::mm", 10, 20, 2), op("aten::add", 200, 210, 3)]
    ranges = [span("ProfilerStep#4", 0, 400, 4, "profiler_step"), span("forward", 200, 300, 5)]
    kernels = [
        kernel("k", 1, 2),
        kernel("l", 2, 3),
        kernel("m", 3, 4),
        kernel("n", 4, 5),
        kernel("o", 5),
        kernel("p", 6),
    ]
    calls = [call(1, 12), call(2, 205), call(3, 350), call(4, 250), call(5, 15), call(6, 380)]
    assert links(*OUTER, kernels=kernels, cpu_ops=ops, ranges=ranges, cuda_calls=calls) == [
        ("k", "module", 0), ("l", "aten::add", 200),
        # The step began with the first operator and holds it. No operator holds forward, which began with add.
        ("m", "ProfilerStep*", 0), ("n", "forward", 200),
        # Found by the call: no External id.
        ("o", "module", 0), ("p", "ProfilerStep*", 0),
    ]  # fmt: skip


def test_the_operator_of_the_forward_pass() -> None:
    # The node [200, 230) on thread 2 computes the gradient of linear [10, 40), which module [0, 90) contains, as does
    # relu. The range [100, 110) begins with add and ends after it, so add does not launch its work. The last call is
    # in no operator.
    node = op("autograd::engine::evaluate_function: AddmmBackward0", 200, 230, 4, 2)
    ops = [
        op("module", 0, 90, 1), op("linear", 10, 40, 2) | {"sequence_number": 7}, op("relu", 45, 48, 3),
        node | {"sequence_number": 7, "fwd_thread": 1}, op("mm", 205, 220, 5, 2), op("add", 100, 105, 6),
    ]  # fmt: skip
    kernels = [kernel("r", 1, 3), kernel("b", 2, 5), kernel("n", 3), kernel("s", 4, 7), kernel("o", 5)]
    calls = [call(1, 46), call(2, 210, tid=2), call(3, 225, tid=2), call(4, 102), call(5, 150)]
    ranges = [span("step", 100, 110, 7)]
    columns = ("name", "forward_tid", "forward_start_ns", "forward_op")
    assert links(*columns, kernels=kernels, cpu_ops=ops, ranges=ranges, cuda_calls=calls) == [
        ("r", None, None, "module"), ("b", 1, 10, "module"), ("n", 1, 10, "module"), ("s", None, None, None),
        ("o", None, None, None),
    ]  # fmt: skip


OPS = [op("outer", 0, 100, 10), op("inner", 40, 80, 11), op("view", 200, 210, 2), op("other", 45, 90, 12, tid=2)]


def test_external_ids_that_are_correlation_ids() -> None:
    # As torch 1.12 to 2.2 wrote them: the call at 50 lies in inner, whatever operator 2 is; that at 150 in none.
    kernels, calls = [kernel("k", 2, 2), kernel("m", 4, 4)], [call(2, 50, op_id=2), call(4, 150, op_id=4)]
    assert links("name", "op_id", "op_name", kernels=kernels, cpu_ops=OPS, cuda_calls=calls) == [
        ("k", 11, "inner"), ("m", None, None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("op_ids", "calls", "old"),
    [
        ([2, 3], True, True),
        ([2, 11], True, False),
        ([2, None], True, True),
        ([None, 0], False, False),
        ([2, 3], False, False),
        (range(2, 17), False, False),
        (range(2, 18), False, True),
    ],
)
def test_correlation_ids_used_as_external_ids_are_detected(op_ids: list[int | None], calls: bool, old: bool) -> None:
    kernels = [kernel("k", correlation, op_id) for correlation, op_id in enumerate(op_ids, 2)]
    given = recorded_tables(kernels=kernels, cpu_ops=OPS, cuda_calls=[call(2, 50, op_id=2)] if calls else [])
    found = call_ops(given).to_pylist()
    ops = {2: 11} if calls else {}
    expected = [{"correlation_id": i, "op_id": ops.get(i)} for i in range(2, 2 + len(op_ids))]
    assert found == (expected if old else [])


def test_more_rows_than_a_batch_holds() -> None:
    """Seven kernels again and again, each time with later times and other ids."""
    times = BATCH_ROWS // 7 + 2
    kernels = [kernel(f"k{i}", i, i, start=10 * i) for i in range(1, 8)]
    ops = [op(f"op{i}", 10 * i, 10 * i + 9, i) for i in range(1, 8)]
    given = recorded_tables(kernels=kernels, cpu_ops=ops, cuda_calls=[call(i, 10 * i + 1) for i in range(1, 8)])
    for name in ("kernels", "cpu_ops", "cuda_calls"):
        rows = given[name].take(np.tile(np.arange(7), times))
        for column in {"start_ns", "correlation_id", "op_id"} & set(rows.column_names):
            later = pc.add(rows.column(column), np.repeat(np.arange(times) * 1000, 7))
            rows = rows.set_column(rows.column_names.index(column), rows.schema.field(column), later)
        given[name] = rows
    work = with_derived(given, "gpu_work")["gpu_work"]
    assert work.num_rows == 7 * times > BATCH_ROWS
    again = np.tile(np.arange(7), times)
    for column in ("name", "op_name", "outer_name"):
        found = work.column(column).cast(pa.string())
        assert found.null_count == 0 and found.equals(found.take(again)), column
    for column, most in {"call_start_ns": -1, "op_start_ns": 0, "outer_start_ns": 0}.items():
        delays = pc.min_max(pc.subtract(work.column("start_ns"), work.column(column))).as_py()
        assert delays == {"min": most, "max": most}, column


def test_first_work_of_a_call_and_on_each_stream() -> None:
    # Call 1, a CUDA graph, launches three kernels on stream 7 (in the file, the earliest stands last), one on stream 8
    # and a copy on stream 7 between them; of call 2 the file has no call.
    kernels = [
        kernel("b", 1, start=30), kernel("c", 1, start=40), kernel("d", 1, start=50, stream=8),
        kernel("a", 1, start=10), kernel("e", 2, start=60),
    ]  # fmt: skip
    copy = kernel("", 1, start=20) | {"kind": "DtoD"}
    columns = ("start_ns", "first_of_call", "first_on_stream")
    found = links(*columns, kernels=kernels, memcpys=[copy], cuda_calls=[call(1, 5)])
    assert sorted(found) == [
        (10, True, True), (20, False, False), (30, False, False), (40, False, False), (50, False, True),
        (60, None, None),
    ]  # fmt: skip


def test_work_alone_on_its_gpu() -> None:
    # On GPU 0: a [0, 10) and b [10, 20) touch. c [30, 60) contains d [40, 45) and ends after e [55, 58) has begun.
    # f begins inside of c, but on GPU 1. z and y have no length. g and the copy begin together.
    times = {"a": (0, 10), "b": (10, 20), "c": (30, 60), "d": (40, 45), "e": (55, 58), "z": (5, 5), "g": (70, 71)}
    kernels = [kernel(name, None, start=start, dur_ns=end - start) for name, (start, end) in times.items()]
    kernels += [kernel("f", None, start=50, device=1), kernel("y", None, start=57, dur_ns=None)]
    copy = kernel("", None, start=70) | {"kind": "DtoD"}
    assert dict(links("name", "alone", kernels=kernels, memcpys=[copy])) == {
        "a": True, "b": True, "c": False, "d": False, "e": False, "z": True, "g": False, "f": True, "y": True,
        "Memcpy DtoD": False,
    }  # fmt: skip


def test_communication_kernels_with_their_launch_calls() -> None:
    # The first is known by its name, the last by what PyTorch wrote.
    nccl = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", 2)
    own = kernel("my_kernel", 3) | {"collective": "allreduce", "group_name": "0"}
    tables = recorded_tables(
        kernels=[kernel("gemm", 1), nccl, own], cuda_calls=[call(1, 10), call(2, 20, tid=4)],
        kernel_names=[{"name": nccl["name"], "family": "communication"}],
    )  # fmt: skip
    found = with_derived(tables, "comm_kernels")["comm_kernels"].to_pylist()
    assert [(row["correlation_id"], row["collective"], row["call_tid"], row["call_start_ns"]) for row in found] == [
        (2, None, 4, 20), (3, "allreduce", None, None)
    ]  # fmt: skip


def test_launches_without_work() -> None:
    # Calls 2 and 3 lost their kernels: of 3, the driver's call lies inside the runtime's. 4 launches nothing, and two
    # calls have the id 5.
    calls = [
        call(1, 10), call(2, 20), call(3, 30), call(3, 31, dur=2, api="driver", name="cuLaunchKernel"),
        call(4, 40, name="cudaMemsetAsync"), call(5, 50), call(5, 60), call(0, 70),
    ]  # fmt: skip
    tables = recorded_tables(kernels=[kernel("k", 1)], cuda_calls=calls)
    found = with_derived(tables, "launches_without_work")["launches_without_work"]
    launch = {"tid": 1, "name": "cudaLaunchKernel", "dur_ns": 5}
    assert found.to_pylist() == [{"correlation_id": n, "start_ns": 10 * n, **launch} for n in (2, 3)]


def test_profiler_overhead_with_operators() -> None:
    # Thread 1 runs operators: two contain [22, 28), one contains [22, 45). Thread 3 only calls CUDA, and thread -3 is
    # CUPTI's number of one: the operators of all threads count.
    ops = [op("outer", 0, 100), op("inner", 20, 40), op("other", 24, 60, tid=2)]
    ranges = [
        span(name, start, end, origin="overhead") | {"tid": tid}
        for name, start, end, tid in (
            ("a", 22, 28, 1), ("b", 22, 45, 1), ("c", 25, 28, 3), ("d", 25, 70, -3), ("e", 90, 110, 1)
        )
    ]  # fmt: skip
    tables = recorded_tables(ranges=ranges, cpu_ops=ops, cuda_calls=[call(1, 10, tid=3)])
    found = with_derived(tables, "profiler_overhead")["profiler_overhead"].to_pylist()
    assert [(row["name"], row["tid"], row["op_name"]) for row in found] == [
        ("a", 1, "inner"), ("b", 1, "outer"), ("c", 3, "other"), ("d", None, "outer"), ("e", 1, None)
    ]  # fmt: skip


def test_sized_calls_of_work() -> None:
    # On thread 1 a grouped product [0, 90) calls two products [10, 20) and [30, 40), an addition [100, 110) and a view;
    # thread 2 has none. FLOPs count in the inner products, bytes in the outer calls. Without an External id, the
    # launch call says where work is from.
    ops = [
        op("aten::_grouped_mm", 0, 90, 1), op("aten::mm", 10, 20, 2), op("aten::mm", 30, 40, 3),
        op("aten::add", 100, 110, 4), op("aten::view", 120, 130, 5),
    ]  # fmt: skip
    kernels = [
        kernel("outer", 1, 1), kernel("first", 2, 2), kernel("second", 3), kernel("add", 4, 4), kernel("view", 5, 5),
        kernel("elsewhere", 6),
    ]  # fmt: skip
    calls = [call(i, at) for i, at in enumerate((5, 15, 35, 105, 125), 1)] + [call(6, 15, tid=2)]
    found = with_derived(recorded_tables(kernels=kernels, cpu_ops=ops, cuda_calls=calls))
    rows = {row["call"]: row for row in found["sized_calls"].to_pylist()}
    assert [(r["name"], r["output"], r["counts_flops"], r["counts_bytes"]) for r in rows.values()] == [
        ("aten::_grouped_mm", "grouped_matmul", False, True), ("aten::mm", "matmul", True, False),
        ("aten::mm", "matmul", True, False), ("aten::add", "broadcast", False, True),
    ]  # fmt: skip
    starts = {call: row["start_ns"] for call, row in rows.items()} | {None: None}
    work = found["gpu_work"].select(["name", "flop_call", "sized_call"]).to_pylist()
    assert {w["name"]: (starts[w["flop_call"]], starts[w["sized_call"]]) for w in work} == {
        "outer": (None, 0), "first": (10, 0), "second": (30, 0), "add": (None, 100), "view": (None, None),
        "elsewhere": (None, None),
    }  # fmt: skip


def test_rank_without_gpu_work() -> None:
    found = with_derived(recorded_tables(cpu_ops=OPS))
    assert found["call_ops"].num_rows == 0 and found["gpu_work"].num_rows == 0


def intervals() -> Iterator[tuple[np.ndarray, ...]]:
    """Intervals of three threads that overlap in any way."""
    for seed in range(30):
        chance = random.Random(seed)
        rows = [(chance.randrange(3), s := chance.randrange(40), s + chance.randrange(20)) for _ in range(seed)]
        yield tuple(np.array(c, np.int64) for c in zip(*rows, strict=True)) or (np.empty(0, np.int64),) * 3


def test_the_innermost_of_random_intervals() -> None:
    for tid, start, end in intervals():
        found = OpenIntervals(tid, start, end)
        for thread in range(4):
            at = found.at(np.full(62, thread), np.arange(62)).tolist()
            for time in range(62):
                there = [i for i in range(len(tid)) if tid[i] == thread and start[i] <= time < end[i]]
                assert at[time] == max(there, key=lambda i: (start[i], -end[i], i), default=-1)


def test_the_outermost_of_random_intervals() -> None:
    for tid, start, end in intervals():
        order = sorted(range(len(tid)), key=lambda i: (start[i], -end[i]))
        expected = {
            i for n, i in enumerate(order) if all(end[j] < end[i] for j in order[:n] if tid[j] == tid[i])
        }  # fmt: skip
        assert set(outermost(tid, start, end).tolist()) == expected
