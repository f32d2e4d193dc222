"""Nesting of CPU events against torch.profiler's own algorithm, written out naively; paths, likewise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import SAMPLES, event, require_compiled, write_trace

import analyze
from analyze.errors import InputError
from analyze.query.computed import call_tree, name_sums, nesting, path_sums
from analyze.query.computed.call_paths import dense, number_paths
from analyze.query.computed.launched import Launched
from analyze.query.computed.nesting import nest
from analyze.query.engine import Engine

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


def run(intervals: list[Interval]) -> tuple[list[int], list[int], list[int]]:
    thread, start, end = (np.array(c, dtype=np.int64) for c in zip(*intervals, strict=True))
    parent, last, depth = nest(thread, start, end)
    return parent.tolist(), last.tolist(), depth.tolist()


def test_by_hand() -> None:
    # 0 [0, 10) holds 1 [1, 4) and 3 [5, 9); 1 holds 2 [2, 3); 4 [8, 12) overlaps 0 in part and stands alone;
    # 5 is empty at the end of 4 and so not inside it; 6 is on another thread.
    intervals = [(0, 0, 10), (0, 1, 4), (0, 2, 3), (0, 5, 9), (0, 8, 12), (0, 12, 12), (1, 2, 3)]
    parent, last, depth = run(intervals)
    assert parent == [-1, 0, 1, 0, -1, -1, -1]
    assert last == [3, 2, 2, 3, 4, 5, 6]
    assert depth == [0, 1, 2, 1, 0, 0, 0]


intervals_strategy = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=60
).map(lambda rows: [(t, s, s + d) for t, s, d in sorted(rows, key=lambda r: (r[0], r[1], -r[2]))])


@given(intervals_strategy)
def test_equals_the_stack(intervals: list[Interval]) -> None:
    parent, last, depth = run(intervals)
    assert parent == naive(intervals)
    for i in range(len(intervals)):
        descendants = [j for j in range(len(intervals)) if i in chain(parent, j)]
        assert last[i] == max(descendants)
        assert depth[i] == len(chain(parent, i)) - 1


Event = tuple[int, int, int, int, int | None, int | None, int, int, int]

events_strategy = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 5), st.integers(0, 2), st.sampled_from([0, 7, -1]),
        st.none() | st.integers(-1, 2), st.none() | st.sampled_from([-1, 0, 1, 2, 3, 2**62]), st.integers(0, 30),
        st.integers(0, 12), st.integers(0, 9),
    ),
    max_size=60,
)  # fmt: skip


def columns(events: list[Event], tree: str) -> dict[str, Any]:
    """As call_tree has them from DuckDB: a tree of places has no calls and no overhead."""
    events = [e for e in events if tree == "torch_tree" or e[1] not in (nesting.CALL, nesting.OVERHEAD)]
    process, kind, name, owner, tid, op, start, length, launched = zip(*events, strict=True) if events else [()] * 9

    def known(values: tuple[int | None, ...]) -> Any:
        return np.array([nesting.UNKNOWN if v is None else v for v in values], np.int64)

    numbers = {"process": (process, np.int32), "kind": (kind, np.int8), "name": (name, np.int32)}
    numbers |= {c: (v, np.int64) for c, v in (("start_ns", start), ("dur_ns", length), ("launched_ns", launched))}
    numbers |= {"owner" if tree == "call_tree" else "stray": (owner, np.int64)}
    return {c: np.array(v, t) for c, (v, t) in numbers.items()} | {"tid": known(tid), "op_id": known(op)}


def test_the_compiled_tree_is_there() -> None:
    require_compiled(nesting.compiled, "_nesting")


@pytest.mark.skipif(nesting.compiled is None, reason="test_the_compiled_tree_is_there says why")
@pytest.mark.parametrize("tree", ["call_tree", "torch_tree"])
@given(events=events_strategy)
# A parent whose children overlap each other for longer than it is; a range of a collective between operators; a call of
# no operator, on the main thread.
@example([(0, 4, 0, 0, 1, None, 0, 10, 0)] + [(0, 4, n, 0, 1, None, 1 + n, 6, 0) for n in range(3)])
@example([(0, 2, 0, 0, 1, 1, 0, 10, 4), (0, 0, 1, 0, 1, None, 1, 5, 0), (0, 5, 0, 0, 1, 2, 2, 5, 3)])
@example([(0, 2, 0, 7, 7, 1, 0, 10, 4), (0, 1, 1, 7, 1, 3, 1, 5, 0), (0, 1, 1, 7, 1, 1, 2, 5, 3)])
def test_the_compiled_tree_is_that_of_numpy(tree: str, events: list[Event]) -> None:
    room = nesting.Room(3)
    # What a room holds of other events has no effect.
    nesting.event_by_event(columns([(0, 2, 0, 0, 1, 1, 0, 10, 4)] * 2, tree), room)
    found = nesting.event_by_event(columns(events, tree), room)
    expected = nesting.level_by_level(columns(events, tree))
    for name, one, other in zip(nesting.Tree._fields, found, expected, strict=True):
        assert one.tolist() == other.tolist(), name


@pytest.mark.skipif(nesting.compiled is None, reason="test_the_compiled_tree_is_there says why")
def test_the_compiled_tree_refuses_columns_that_are_too_short() -> None:
    given = columns([(0, 2, 0, 0, 1, 1, 0, 10, 4)], "call_tree")
    with pytest.raises(ValueError, match="not as long"):
        nesting.event_by_event(given | {"process": np.array([0, 0], np.int32)}, nesting.Room(2))
    assert nesting.compiled is not None
    for n in (-1, 2**31):
        with pytest.raises(ValueError, match="32 bits"):
            nesting.compiled.tree(n, *[b""] * 18)
    with pytest.raises(BufferError):
        nesting.compiled.tree(0, *[b""] * 18)
    with pytest.raises(TypeError, match="19 arguments"):
        nesting.compiled.tree(0)


def test_a_room_keeps_what_it_holds() -> None:
    room = nesting.Room(2)
    for n in range(1, 9):
        room.array("a", np.int64, n)[n - 1 :] = n
    assert room.array("a", np.int64, 8).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    first = room.array("b", np.int8, 2)
    assert np.shares_memory(first, room.array("b", np.int8, 1))


def chain(parent: list[int], node: int) -> list[int]:
    """A node and all above it."""
    found = [node]
    while parent[found[-1]] >= 0:
        found.append(parent[found[-1]])
    return found


def test_times_of_day_do_not_overflow() -> None:
    # Absolute ns since 1970, an hour long, on many threads: the arithmetic must stay inside 64 bits.
    base, hour = 1_790_000_000 * 10**9, 3600 * 10**9
    intervals = [
        (t, base, base + hour) if k == 0 else (t, base + k, base + k + 1) for t in range(3000) for k in range(3)
    ]
    parent, _, _ = run(intervals)
    assert parent == naive(intervals)


def test_paths_by_hand() -> None:
    # Calls a > b, a > (b > c, c), d of one owner, then a of another: paths a, a > b, a > b > c, a > c, d; a.
    a, b, c, d = range(4)
    parent = np.array([-1, 0, -1, 2, 3, 2, -1, -1])
    depth = np.array([0, 1, 0, 1, 2, 1, 0, 0])
    of, paths = number_paths(np.array([0, 0, 0, 0, 0, 0, 0, 1]), parent, depth, np.array([a, b, a, b, c, c, d, a]))
    assert of.tolist() == [0, 1, 0, 1, 2, 3, 4, 5]
    assert paths.parent.tolist() == [-1, 0, 1, 0, -1, -1]
    assert paths.last.tolist() == [3, 2, 2, 3, 4, 5]
    assert paths.depth.tolist() == [0, 1, 2, 1, 0, 0]


@given(intervals_strategy, st.data())
def test_paths_are_the_names_from_the_root_down(intervals: list[Interval], data: st.DataObject) -> None:
    n = len(intervals)
    labels = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    thread = np.array([t for t, _, _ in intervals], np.int64)
    parent, _, depth = run(intervals)
    alone = {i for i in range(n) if depth[i] == 0 and i not in parent and labels[i] == 0}
    levels = np.array([-1 if i in alone else d for i, d in enumerate(depth)], np.int64)
    of, paths = number_paths(thread, np.array(parent, np.int64), levels, np.array(labels, np.int64))
    names = {i: (int(thread[i]), *(labels[j] for j in reversed(chain(parent, i)))) for i in range(n)}
    assert [of[i] == -1 for i in range(n)] == [i in alone for i in range(n)]
    assert len(paths.parent) == len({names[i] for i in range(n) if i not in alone})
    name_of = {int(of[i]): names[i] for i in range(n) if i not in alone}
    assert all(name_of[int(of[i])] == names[i] for i in range(n) if i not in alone)
    for path, name in name_of.items():
        below = [p for p, other in name_of.items() if other[: len(name)] == name]
        assert sorted(below) == list(range(path, paths.last[path] + 1))
        assert paths.depth[path] == len(name) - 2
        assert name_of.get(int(paths.parent[path])) == (name[:-1] if len(name) > 2 else None)


def test_the_compiled_paths_are_there() -> None:
    require_compiled(path_sums.compiled, "_paths")


@pytest.mark.skipif(path_sums.compiled is None, reason="test_the_compiled_paths_are_there says why")
@given(events=events_strategy)
# Two names from the root down in two processes, and one of no name.
@example([(p, 2, n, 7, 1, None, n, 10 - 2 * n, 0) for p in (0, 1) for n in (0, 1, 1, -1)])
def test_the_compiled_paths_are_those_of_numpy(events: list[Event]) -> None:
    given = columns(events, "call_tree")
    tree = nesting.level_by_level(given)
    tree = tree._replace(parent=tree.parent.astype(np.int32))
    room = nesting.Room(0)
    found, sums = path_sums.node_by_node(tree, given, room)
    expected, expected_sums = path_sums.level_by_level(tree, given)
    assert found.tolist() == expected.tolist()
    for name, one, other in zip(path_sums.PathSums._fields, sums, expected_sums, strict=True):
        assert one.tolist() == other.tolist(), name


@pytest.mark.skipif(path_sums.compiled is None, reason="test_the_compiled_paths_are_there says why")
def test_the_compiled_paths_refuse_columns_that_are_too_short() -> None:
    assert path_sums.compiled is not None
    with pytest.raises(ValueError, match="not as long"):
        path_sums.compiled.number(1, *[bytearray(4)] * 9)
    with pytest.raises(ValueError, match="32 bits"):
        path_sums.compiled.number(-1, *[bytearray(4)] * 9)
    with pytest.raises(BufferError):
        path_sums.compiled.number(0, *[b""] * 9)
    with pytest.raises(TypeError, match="10 arguments"):
        path_sums.compiled.number(0)


def test_the_compiled_sums_are_there() -> None:
    require_compiled(name_sums.compiled, "_name_sums")


FORMS = [name_sums.as_columns] + [name_sums.node_by_node] * (name_sums.compiled is not None)


@pytest.mark.parametrize("form", FORMS)
@given(events=events_strategy)
# Ranges of one name inside each other, which are folded, in two processes; and one of no name.
@example([(p, 2, n, 7, 1, None, at, 10 - 2 * at, 3) for p in (0, 1) for at, n in enumerate((1, 1, 1, -1))])
@example([])
def test_sums_by_name_are_those_of_all_nodes(form: Callable[..., name_sums.NameSums], events: list[Event]) -> None:
    """Expected: summed node by node here, in a dict."""
    given = columns(events, "torch_tree")
    tree = nesting.level_by_level(given)
    expected: dict[tuple[int, ...], list[int]] = {}
    for node, at in enumerate(tree.order):
        key = (*(int(given[c][at]) for c in ("process", "name", "kind")), int(tree.folded[node]))
        sums = expected.setdefault(key, [0] * 5)
        for i, more in enumerate(
            (1, given["dur_ns"][at], *(c[node] for c in (tree.self_ns, tree.gpu_ns, tree.total_gpu_ns)))
        ):
            sums[i] += int(more)
    found = zip(*(column.tolist() for column in form(tree, given)), strict=True)
    assert sorted(found) == sorted((*key, *sums) for key, sums in expected.items())


@pytest.mark.skipif(name_sums.compiled is None, reason="test_the_compiled_sums_are_there says why")
def test_the_compiled_sums_refuse_columns_that_are_too_short() -> None:
    assert name_sums.compiled is not None
    with pytest.raises(ValueError, match="not as long"):
        name_sums.compiled.sums(1, *[bytearray(4)] * 9)
    with pytest.raises(ValueError, match="32 bits"):
        name_sums.compiled.sums(-1, *[bytearray(4)] * 9)
    with pytest.raises(TypeError, match="10 arguments"):
        name_sums.compiled.sums(0)


@pytest.mark.parametrize("query", ["ops", "op-tree"])
def test_times_that_no_sum_holds_are_an_error(query: str, tmp_path: Path) -> None:
    """Each duration is one that a file may have; before, the sums of paths were of 64 bits and wrong."""
    longest = (2**62 - 1) // 1000  # us
    trace = write_trace(tmp_path / "t.json", [event("cpu_op", "aten::mm", 0, longest, tid=tid) for tid in (1, 2, 3)])
    with analyze.open(trace) as traces, pytest.raises(InputError, match="2\\^62 ns"):
        traces.query(query)


@given(st.lists(st.integers(-5, 5) | st.sampled_from([-(2**62), 2**63 - 1])))
def test_dense_numbers(values: list[int]) -> None:
    number, known = dense(np.array(values, np.int64))
    assert known.tolist() == sorted(set(values)) or not values
    assert [int(known[i]) for i in number] == values


ids = st.integers(1, 40) | st.sampled_from([2**40, 2**63 - 2])


@given(st.lists(st.tuples(st.integers(3, 6), ids, st.integers(0, 2**50)), max_size=40), st.data())
def test_launched_work_is_found_by_process_and_id(work: list[tuple[int, int, int]], data: st.DataObject) -> None:
    # Ids in rows are an array, scattered ones are not.
    others = st.sampled_from([-(2**63), -1, 0, nesting.UNKNOWN]) | ids
    asked = data.draw(st.lists(st.tuples(st.integers(0, 9), others), min_size=1)) + [w[:2] for w in work]
    sums = {key: sum(ns for process, op, ns in work if (process, op) == key) for key in asked}
    columns = np.array(work, np.int64).reshape(-1, 3).T
    process, op = np.array(asked, np.int64).T
    launched = Launched(*map(np.ascontiguousarray, columns), nesting.Room(0))
    process = process.astype(np.int32)
    assert launched.of(process, op.copy()).tolist() == [sums[key] for key in asked]
    for of_one in (process == number for number in np.unique(process)):
        expected = [sums[key] for key, of_it in zip(asked, of_one, strict=True) if of_it]
        assert launched.of(process[of_one], op[of_one]).tolist() == expected


@pytest.mark.parametrize(("sample", "times"), [("resnet18-1gpu", 1), ("train-stacks", 3)])
def test_trees_with_the_same_python_functions_are_nested_once(
    sample: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Python stacks all three are one; train-stacks has functions that are modules and others."""
    nested: list[int] = []
    make = call_tree._nested
    monkeypatch.setattr(call_tree, "_nested", lambda *given: (nested.append(len(given[0]["kind"])), make(*given))[1])
    engine = Engine(analyze.open(SAMPLES / sample).stores)
    trees = ("no", "module", "stack")
    calls = [engine.rows(f"SELECT count(*) FROM call_tree_{t}", [f"call_tree_{t}"]) for t in trees]
    assert len(nested) == times
    assert [n for ((n,),) in calls] == (nested * 3)[:3]
    paths = [engine.rows(f"SELECT sum(calls) FROM call_paths_{t}", [f"call_tree_sums_{t}"]) for t in trees]
    assert len(nested) == times
    assert paths == [engine.rows(f"SELECT count(path) FROM call_tree_{t}") for t in trees]


@pytest.mark.parametrize("sample", ["train-stacks", "pipeline-4gpu", "cuda-graph", "lm-compiled"])
@pytest.mark.parametrize("table", ["call_paths_module", "call_work_module"])
def test_paths_are_those_of_the_rows(table: str, sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made rank by rank, and of the rows of a tree that is there."""
    stores = analyze.open(SAMPLES / sample).stores
    alone, beside = Engine(stores), Engine(stores)
    monkeypatch.setattr(call_tree, "_BATCH", 1)
    assert beside.rows("SELECT count(*) FROM call_tree_module", ["call_tree_module"]) != [(0,)]
    found, expected = (
        e.rows(f"SELECT * FROM {table} ORDER BY ALL", ["call_tree_sums_module"]) for e in (alone, beside)
    )
    assert len(found) > 2
    assert found == expected


@pytest.mark.parametrize("functions", ["no", "yes"])
def test_sums_are_those_of_the_rows(functions: str) -> None:
    engine = Engine(analyze.open(SAMPLES / "train-stacks").stores)
    columns = "run_id, rank, run_group, kind, name, folded"
    added = engine.rows(
        f"SELECT {columns}, count(*), sum(dur_ns), sum(self_ns), sum(gpu_ns), sum(total_gpu_ns)"
        f" FROM torch_tree_{functions} GROUP BY ALL ORDER BY ALL",
        [f"torch_tree_{functions}"],
    )
    assert len(added) > 50
    sums = f"SELECT {columns}, calls, total_ns, self_ns, gpu_ns, total_gpu_ns FROM torch_sums_{functions} ORDER BY ALL"
    assert engine.rows(sums, [f"torch_sums_{functions}"]) == added


@pytest.mark.parametrize("table", ["call_tree_no", "call_paths_no", "call_work_no", "torch_sums_no"])
def test_batches_of_ranks_make_the_same_tree(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = analyze.open(SAMPLES / "pipeline-4gpu").stores
    block = "call_tree_sums_no" if table in ("call_paths_no", "call_work_no") else table
    whole = Engine(stores).rows(f"SELECT * FROM {table} ORDER BY ALL", [block])
    monkeypatch.setattr(call_tree, "_BATCH", 1)
    assert Engine(stores).rows(f"SELECT * FROM {table} ORDER BY ALL", [block]) == whole


@pytest.mark.parametrize(
    ("module", "size", "table"),
    [
        (call_tree, "_EVENT_BYTES", "call_tree_no"),
        (call_tree, "_SUMMED_BYTES", "torch_sums_no"),
    ],
)
def test_a_rank_that_does_not_fit_into_memory(
    module: ModuleType, size: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence in place of a process that the system ends; the engine can be asked on."""
    engine = Engine(analyze.open(SAMPLES / "resnet18-1gpu").stores)
    with monkeypatch.context() as patch:
        patch.setattr(module, size, 1 << 40)
        if hasattr(module, "_ALONE_BYTES"):
            patch.setattr(module, "_ALONE_BYTES", 1 << 40)
        with pytest.raises(InputError, match=r", rank 0: out of memory: its [\d,]+ events take [\d.]+ GB at once"):
            engine.rows(f"SELECT * FROM {table}", [table])
    assert len(engine.rows(f"SELECT * FROM {table}", [table])) > 30
