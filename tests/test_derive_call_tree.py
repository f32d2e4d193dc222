"""The call tree of a rank and its sums, from tables of a few rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import recorded_tables, with_derived
from traces import event, write_trace

import analyze
from analyze.derive import call_sums
from analyze.derive.call_paths import number_paths
from analyze.derive.interval_nesting import dense, last_below, nest
from analyze.errors import InputError

Row = dict[str, Any]
Interval = tuple[int, int, int]


def naive(intervals: list[Interval]) -> list[int]:
    """EventList._populate_cpu_children of torch 2.11: a stack for each thread."""
    parents = []
    stack: list[int] = []
    for i, (thread, start, end) in enumerate(intervals):
        if i and intervals[i - 1][0] != thread:
            stack = []
        while stack and (start >= intervals[stack[-1]][2] or end > intervals[stack[-1]][2]):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(i)
    return parents


def nested(intervals: list[Interval]) -> tuple[list[int], list[int], list[int]]:
    thread, start, end = (np.array(c, dtype=np.int64) for c in zip(*intervals, strict=True))
    parent, last, depth = nest(thread, start, end)
    assert last_below(parent, depth).tolist() == last.tolist()
    return parent.tolist(), last.tolist(), depth.tolist()


def chain(parent: list[int], node: int) -> list[int]:
    """A node and all above it."""
    found = [node]
    while parent[found[-1]] >= 0:
        found.append(parent[found[-1]])
    return found


def test_nesting_by_hand() -> None:
    # 0 [0, 10) holds 1 [1, 4) and 3 [5, 9); 1 holds 2 [2, 3); 4 [8, 12) overlaps 0 in part and stands alone;
    # 5 is empty at the end of 4 and so not inside it; 6 is on another thread.
    intervals = [(0, 0, 10), (0, 1, 4), (0, 2, 3), (0, 5, 9), (0, 8, 12), (0, 12, 12), (1, 2, 3)]
    parent, last, depth = nested(intervals)
    assert parent == [-1, 0, 1, 0, -1, -1, -1]
    assert last == [3, 2, 2, 3, 4, 5, 6]
    assert depth == [0, 1, 2, 1, 0, 0, 0]


intervals_strategy = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=60
).map(lambda rows: [(t, s, s + d) for t, s, d in sorted(rows, key=lambda r: (r[0], r[1], -r[2]))])


@given(intervals_strategy)
def test_nesting_equals_torchs_tree(intervals: list[Interval]) -> None:
    parent, last, depth = nested(intervals)
    assert parent == naive(intervals)
    for i in range(len(intervals)):
        assert last[i] == max(j for j in range(len(intervals)) if i in chain(parent, j))
        assert depth[i] == len(chain(parent, i)) - 1


def test_absolute_times_do_not_overflow() -> None:
    # ns since 1970, an hour long, on many threads: the arithmetic must stay inside 64 bits.
    base, hour = 1_790_000_000 * 10**9, 3600 * 10**9
    intervals = [
        (t, base, base + hour) if k == 0 else (t, base + k, base + k + 1) for t in range(3000) for k in range(3)
    ]
    assert nested(intervals)[0] == naive(intervals)


def test_paths_by_hand() -> None:
    # Calls a > b, a > (b > c, c), d: paths a, a > b, a > b > c, a > c, d. The last node is on no path.
    a, b, c, d = range(4)
    parent = np.array([-1, 0, -1, 2, 3, 2, -1, -1])
    of = number_paths(parent, np.array([0, 1, 0, 1, 2, 1, 0, -1]), np.array([a, b, a, b, c, c, d, a]))
    assert of.tolist() == [0, 1, 0, 1, 2, 3, 4, -1]


@given(intervals_strategy, st.data())
def test_paths_are_the_names_from_the_root_down(intervals: list[Interval], data: st.DataObject) -> None:
    n = len(intervals)
    labels = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    parent, _, depth = nested(intervals)
    of = number_paths(np.array(parent), np.array(depth), np.array(labels))
    names = [tuple(labels[j] for j in reversed(chain(parent, i))) for i in range(n)]
    name_of = dict(zip(of.tolist(), names, strict=True))
    assert [name_of[path] for path in of.tolist()] == names
    assert sorted(name_of) == list(range(len(set(names))))
    for path, name in name_of.items():  # in pre-order
        below = [p for p, other in name_of.items() if other[: len(name)] == name]
        assert sorted(below) == list(range(path, path + len(below)))


@given(st.lists(st.integers(-5, 5) | st.sampled_from([-(2**62), 2**63 - 1])))
def test_ids_become_dense_numbers(values: list[int]) -> None:
    number, known = dense(np.array(values, np.int64))
    assert known.tolist() == sorted(set(values)) or not values
    assert [int(known[i]) for i in number] == values


def op(name: str, start: int, end: int, op_id: int | None = None, tid: int | None = 1, **more: Any) -> Row:
    return {"pid": 1, "tid": tid, "name": name, "start_ns": start, "dur_ns": end - start, "op_id": op_id, **more}


def span(name: str, start: int, end: int, origin: str = "record_function", **more: Any) -> Row:
    return op(name, start, end, **more) | {"origin": origin}


def python(name: str, start: int, end: int) -> Row:
    return span(name, start, end, "python_function")


def call(name: str, start: int, end: int, op_id: int | None = None, correlation: int = 0, tid: int = 1) -> Row:
    return op(name, start, end, op_id, tid) | {"api": "runtime", "correlation_id": correlation}


def kernel(name: str, dur: int, op_id: int | None = None, correlation: int | None = None, start: int = 1000) -> Row:
    return {"name": name, "start_ns": start, "dur_ns": dur, "op_id": op_id, "correlation_id": correlation}


def derived(**rows: list[Row]) -> dict[str, pa.Table]:
    """The tables of a rank with these rows, and those that are derived from them."""
    return with_derived(recorded_tables(**rows))


def rows(table: pa.Table, *columns: str, **only: Any) -> list[tuple[Any, ...]]:
    """These columns of the rows that have these values."""
    found = [row for row in table.to_pylist() if all(row[c] == v for c, v in only.items())]
    return [tuple(row[c] for c in columns) for row in found]


STACKS: dict[str, list[Row]] = {
    # The module [0, 100) calls f [10, 60), that the operator a [20, 50), that b [30, 40). Both launch a kernel.
    "ranges": [python("nn.Module: Net_0", 0, 100), python("f", 10, 60)],
    "cpu_ops": [op("a", 20, 50, 2), op("b", 30, 40, 3)],
    "cuda_calls": [call("launch", 22, 25, 2, 1), call("launch", 31, 36, 3, 2), call("graph", 70, 80, None, 3)],
    "kernels": [kernel("k", 7, 2, 1), kernel("k2", 5, 3, 2), kernel("graph", 3, None, 3), kernel("lone", 1)],
}


def test_the_tree_of_calls_and_functions() -> None:
    tree = derived(**STACKS)["call_tree"]
    assert rows(tree, "name", "node", "parent", "last_node", "depth", "self_ns", "path") == [
        ("nn.Module: Net_0", 0, None, 6, 0, 50, 0),
        ("f", 1, 0, 5, 1, 20, 1),
        ("a", 2, 1, 5, 2, 20, 2),
        ("launch", 3, 2, 3, 3, 3, 2),
        ("b", 4, 2, 5, 3, 10, 3),
        ("launch", 5, 4, 5, 4, 5, 3),
        ("graph", 6, 0, 6, 1, 10, 0),
    ]


def test_threads_and_events_that_do_not_nest() -> None:
    # A call is where it begins, though it ends later. A range of a collective has no parent and no children. A step is
    # called by one name. The GPU's side of a synchronisation, and ranges of NVTX or of a GPU, are no events.
    tree = derived(
        cpu_ops=[op("a", 0, 10), op("b", 8, 20), op("c", 9, 20), op("other", 1, 2, tid=2)],
        ranges=[
            span("ProfilerStep#3", 0, 30, "profiler_step"), span("nccl:all_reduce", 1, 5), span("nvtx", 0, 50, "nvtx"),
            span("Runtime Triggered Module Loading", 12, 14, "overhead"), span("no length", 3, 3) | {"dur_ns": None},
        ],
        cuda_calls=[call("launch", 7, 12), call("sync", 1, 2) | {"api": "sync"}],
    )["call_tree"]  # fmt: skip
    assert rows(tree, "kind", "name", "parent", "depth", tid=1) == [
        ("range", "ProfilerStep*", None, 0),
        ("op", "a", 0, 1),
        ("call", "launch", 1, 2),
        ("op", "b", 0, 1),
        ("op", "c", 3, 2),
        ("overhead", "Runtime Triggered Module Loading", 4, 3),
        ("async", "nccl:all_reduce", None, 0),
    ]
    assert rows(tree, "name", "parent", "path", kind="op", tid=2) == [("other", None, 0)]
    assert rows(tree, "path", kind="async") == [(None,)]


def test_a_rank_without_events() -> None:
    tables = derived(kernels=[kernel("k", 5)])
    assert [tables[t].num_rows for t in ("call_tree", "call_paths", "op_sums")] == [0, 0, 0]
    assert rows(tables["call_work"], "tree", "path", "name", "total_ns") == [
        (tree, None, "k", 5) for tree in call_sums.TREES
    ]
    calls = derived(cuda_calls=[call("launch", 0, 5), call("launch", 7, 8)])
    assert rows(calls["call_tree"], "parent", "last_node", "depth", "path") == [(None, 0, 0, None), (None, 1, 0, None)]
    assert rows(calls["op_sums"], "name", "calls", "self_ns", python=False) == [("launch", 2, 6)]
    assert all(derived()[t].num_rows == 0 for t in ("call_tree", "call_paths", "call_work", "op_sums"))


def test_sums_by_path_of_each_tree() -> None:
    paths = derived(**STACKS)["call_paths"]
    columns = ("path", "parent", "last_path", "depth", "kind", "name", "calls", "total_ns", "self_ns", "first_ns")
    assert rows(paths, *columns, tree="op") == [
        (0, None, 1, 0, "op", "a", 1, 30, 20, 20), (1, 0, 1, 1, "op", "b", 1, 10, 10, 30),
    ]  # fmt: skip
    assert rows(paths, "path", "name", "self_ns", tree="module") == [
        (0, "nn.Module: Net_0", 70), (1, "a", 20), (2, "b", 10),
    ]  # fmt: skip
    assert rows(paths, "path", "name", "self_ns", tree="stack") == [
        (0, "nn.Module: Net_0", 50), (1, "f", 20), (2, "a", 20), (3, "b", 10),
    ]  # fmt: skip


def test_calls_of_equal_path_are_summed() -> None:
    twice = [op("a", 0, 10), op("b", 1, 3), op("b", 5, 6), op("a", 20, 27), op("b", 20, 27)]
    paths = derived(cpu_ops=[*twice, op("a", 40, 45, tid=2)])["call_paths"]
    assert rows(paths, "path", "name", "calls", "total_ns", "self_ns", "first_ns", tree="stack") == [
        (0, "a", 3, 22, 12, 0), (1, "b", 3, 10, 10, 1),
    ]  # fmt: skip


def test_gpu_work_of_each_path() -> None:
    # The graph's kernel has no External id: it is where its launch call lies, in the module. No call launched `lone`.
    work = derived(**STACKS)["call_work"]
    found = {tree: dict(rows(work, "name", "path", tree=tree)) for tree in call_sums.TREES}
    assert found == {
        "op": {"k": 0, "k2": 1, "graph": None, "lone": None},
        "module": {"k": 1, "k2": 2, "graph": 0, "lone": None},
        "stack": {"k": 2, "k2": 3, "graph": 0, "lone": None},
    }
    assert rows(work, "calls", "total_ns", "first_ns", "last_ns", name="k2", tree="op") == [(1, 5, 1000, 1000)]


def test_operators_of_one_external_id() -> None:
    # On one thread it is the last, of several threads that of the launch call, and without a call none.
    on_one = derived(cpu_ops=[op("a", 0, 10, 5), op("b", 2, 4, 5)], kernels=[kernel("k", 1, 5)])
    assert rows(on_one["call_work"], "path", tree="op") == [(1,)]
    two: dict[str, list[Row]] = {
        "cpu_ops": [op("a", 0, 10, 5), op("b", 2, 4, 5, tid=2)],
        "cuda_calls": [call("launch", 1, 2, 5, 1)],
    }
    assert rows(derived(kernels=[kernel("k", 1, 5, 1)], **two)["call_work"], "path", tree="op") == [(0,)]
    assert rows(derived(kernels=[kernel("k", 1, 5)], **two)["call_work"], "path", tree="op") == [(None,)]


def test_names_of_copies_and_fills() -> None:
    copy = {"kind": "HtoD", "src_memory": "Pageable", "dst_memory": "Device", "start_ns": 5, "dur_ns": 2}
    work = derived(
        memcpys=[copy, copy, {"kind": "Unknown", "start_ns": 1, "dur_ns": 1}],
        memsets=[{"dst_memory": "Device", "start_ns": 1, "dur_ns": 1}, {"start_ns": 1, "dur_ns": 4}],
    )["call_work"]
    assert sorted(rows(work, "kind", "name", "calls", "total_ns", tree="op")) == [
        ("memcpy", "Memcpy ", 1, 1), ("memcpy", "Memcpy HtoD (Pageable -> Device)", 2, 4),
        ("memset", "Memset", 1, 4), ("memset", "Memset (Device)", 1, 1),
    ]  # fmt: skip


def sums(**given: list[Row]) -> dict[tuple[str, bool], Row]:
    return {(row["name"], row["python"]): row for row in derived(**given)["op_sums"].to_pylist()}


def test_sums_by_name_equal_torchs() -> None:
    # CUDA calls take self time. Of two calls of one name, the only child is one with its parent.
    found = sums(
        cpu_ops=[op("a", 0, 10, 1), op("a", 1, 9, 2), op("b", 2, 8, 3)],
        cuda_calls=[call("launch", 3, 5, 3, 1)],
        kernels=[kernel("k", 7, 3, 1), kernel("k", 2, 1, 2)],
    )
    columns = ("calls", "total_ns", "self_ns", "gpu_ns", "total_gpu_ns")
    # What the outer `a` launched itself does not count: torch.profiler takes the kernels of the child in its place.
    assert [tuple(found[name, False][c] for c in columns) for name in ("a", "b", "launch")] == [
        (1, 10, 4, 0, 7), (1, 6, 4, 7, 7), (1, 2, 2, 0, 0),
    ]  # fmt: skip
    assert all(found[name, True] == {**found[name, False], "python": True} for name, _ in found)


def test_calls_without_an_operator_are_on_the_main_thread() -> None:
    # The main thread is 1, as the process. The call [2, 8) of thread 2 takes in `b`, and time of `a`.
    ops = [op("a", 0, 10, 1), op("b", 3, 5, 2)]
    stray = sums(cpu_ops=ops, cuda_calls=[call("launch", 2, 8, 77, 9, tid=2)])
    assert [stray[name, False]["self_ns"] for name in ("a", "b", "launch")] == [4, 2, 4]
    linked = sums(cpu_ops=ops, cuda_calls=[call("launch", 2, 8, 1, 9, tid=2)])
    assert [linked[name, False]["self_ns"] for name in ("a", "b", "launch")] == [8, 2, 6]


def test_python_functions_take_self_time() -> None:
    given: dict[str, list[Row]] = {"cpu_ops": [op("a", 0, 10), op("b", 4, 6)], "ranges": [python("f", 3, 7)]}
    assert [sums(**given)["a", is_python]["self_ns"] for is_python in (False, True)] == [8, 6]
    assert ("f", False) not in sums(**given) and sums(**given)["f", True]["self_ns"] == 2


def test_asynchronous_range_has_no_self_time() -> None:
    row = sums(ranges=[span("nccl:all_reduce", 0, 10)])["nccl:all_reduce", False]
    assert (row["kind"], row["calls"], row["total_ns"], row["self_ns"]) == ("async", 1, 10, 0)


def test_memory_is_allocated_minus_freed() -> None:
    events = [("cuda", 0, 100), ("cuda", 5, 10), ("cpu", 5, 3), ("cuda", 10, -20), ("cuda", 11, 1)]
    memory = [{"device_type": d, "start_ns": at, "bytes": size} for d, at, size in events]
    found = sums(cpu_ops=[op("a", 0, 10), op("b", 4, 6)], memory_events=memory)
    columns = ("self_device_bytes", "total_device_bytes", "self_cpu_bytes", "total_cpu_bytes")
    assert [tuple(found[name, False][c] for c in columns) for name in ("a", "b")] == [(80, 90, 0, 3), (10, 10, 3, 3)]
    assert sums(cpu_ops=[op("a", 0, 10)])["a", False]["self_device_bytes"] is None


@pytest.mark.parametrize("table", ["call_paths", "op_sums"])
def test_sums_beyond_64_bits(table: str) -> None:
    long = [op("a", 0, 2**62 - 1, tid=tid) for tid in (1, 2, 3)]
    found = derived(cpu_ops=long)[table]
    assert set(rows(found, "calls", "total_ns", "self_ns")) == {(3, None, None)}


@pytest.mark.parametrize("query", ["ops", "op-tree"])
def test_times_that_overflow_every_sum_are_an_error(query: str, tmp_path: Path) -> None:
    """Each duration is one that a file may have."""
    longest = (2**62 - 1) // 1000  # us
    trace = write_trace(tmp_path / "t.json", [event("cpu_op", "aten::mm", 0, longest, tid=tid) for tid in (1, 2, 3)])
    with analyze.open(trace) as traces, pytest.raises(InputError, match="2\\^62 ns"):
        traces.query(query).arrow()
