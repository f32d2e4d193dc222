"""What is recorded while a CUDA graph is captured. A stand-in for CUDAGraph, which needs a GPU, captures nothing."""

from __future__ import annotations

import contextlib
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyze.ingestion.graph_captures import CAPTURES  # noqa: E402
from collect.injected import graph_captures, torch_internals  # noqa: E402
from collect.injected.function_steps import FunctionSteps  # noqa: E402
from collect.injected.graph_captures import GraphCaptures  # noqa: E402


@pytest.fixture
def graph_class(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    class CUDAGraph:
        def capture_begin(self, pool: Any = None) -> None:
            self.pool = pool

        def capture_end(self) -> None: ...

        def replay(self) -> str:
            return "replayed"

    monkeypatch.setattr(torch.cuda, "CUDAGraph", CUDAGraph)
    nodes = [("kernel", "void gemm()"), ("memcpy", None)]
    monkeypatch.setattr(graph_captures, "_nodes", lambda: nodes)
    torch_internals.find.cache_clear()
    yield CUDAGraph
    torch_internals.find.cache_clear()
    torch.nn.modules.module._global_forward_pre_hooks.clear()


def captures(folder: Path, is_recording: bool = False) -> GraphCaptures:
    return GraphCaptures(folder, contextlib.nullcontext, lambda: is_recording, lambda: False)


def written(recorder: GraphCaptures, folder: Path) -> dict[str, Any]:
    recorder.write(folder, "rank-0")
    [path] = folder.iterdir()
    assert path.name == f"rank-0{CAPTURES}"
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def test_modules_and_operators_of_a_capture_are_recorded(
    graph_class: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    exported: list[str] = []
    export = torch.profiler.profile.export_chrome_trace

    def note(profile: Any, path: str) -> None:
        exported.append(path)
        export(profile, path)

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", note)
    recorder = captures(tmp_path)
    model, x = torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.ones(1, 2)
    model(x)
    graph = graph_class()
    graph.capture_begin(pool=7)
    model(x)
    graph.capture_end()
    model(x)
    assert graph.pool == 7
    assert not recwarn.list
    found = written(recorder, tmp_path)
    [own] = found["cudaGraphs"]
    assert (own["graph"], own["nodes"]) == (1, [["kernel", "void gemm()"], ["memcpy", None]])
    events = found["traceEvents"]
    names = [e["name"] for e in events]
    assert names.count("nn.Module: Linear_0") == names.count("aten::linear") == 1
    assert not any(name.startswith("torch/") for name in names)
    base = found.get("baseTimeNanoseconds", 0)
    [linear] = [e for e in events if e["name"] == "aten::linear"]
    assert own["begin_ns"] < base + linear["ts"] * 1000 < own["end_ns"]
    # The system's temporary folder is small on many nodes.
    assert [Path(path).parent.parent for path in exported] == [tmp_path]


def test_captures_within_a_recording_only_note_their_nodes(graph_class: Any, tmp_path: Path) -> None:
    recorder = captures(tmp_path, is_recording=True)
    for _ in range(2):
        graph = graph_class()
        graph.capture_begin()
        torch.ones(2).sum()
        graph.capture_end()
    found = written(recorder, tmp_path)
    assert [g["graph"] for g in found["cudaGraphs"]] == [1, 2]
    assert found["traceEvents"] == []


def test_captures_before_the_first_step_are_kept(graph_class: Any, tmp_path: Path) -> None:
    """The recording of what a program does before its first step is dropped."""
    recorder = captures(tmp_path, is_recording=True)
    with torch.profiler.profile() as dropped:
        torch.ones(2).sin()
        graph = graph_class()
        graph.capture_begin()
        torch.ones(2).cos()
        graph.capture_end()
        torch.ones(2).exp()
    recorder.keep(SimpleNamespace(profile=dropped))
    names = {e["name"] for e in written(recorder, tmp_path)["traceEvents"]}
    assert "aten::cos" in names and not names & {"aten::sin", "aten::exp"}


def test_the_step_function_of_a_loop_of_replays_is_found(graph_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No module is called after the function is defined."""
    steps: list[int] = []
    FunctionSteps(f"{__name__}:decode", lambda: steps.append(1), lambda: False)
    graph, original = graph_class(), graph_class.replay.__wrapped__
    graph.replay()
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "decode", lambda: graph.replay(), raising=False)
    for _ in range(3):
        module.decode()
    assert len(steps) == 2  # the first call finds it
    assert graph_class.replay is original


def test_marking_replays_keeps_the_search_for_the_step_function(
    graph_class: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full recording before the steps marks replays while the function is looked for, and not found."""
    steps: list[int] = []
    recorder = captures(tmp_path)
    FunctionSteps(f"{__name__}:decode", lambda: steps.append(1), lambda: False)
    graph = graph_class()
    recorder.mark_replays()
    graph.replay()
    recorder.unmark_replays()
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "decode", lambda: graph.replay(), raising=False)
    for _ in range(3):
        module.decode()
    assert len(steps) == 2  # the first call finds it


def test_replays_have_a_range_only_while_they_are_marked(graph_class: Any, tmp_path: Path) -> None:
    recorder = captures(tmp_path)
    first, second, unknown = graph_class(), graph_class(), graph_class()
    original = graph_class.replay
    for graph in (first, second):
        graph.capture_begin()
        graph.capture_end()
    with torch.profiler.profile() as profile:
        first.replay()
        recorder.mark_replays()
        assert second.replay() == first.replay() == unknown.replay() == "replayed"
        recorder.unmark_replays()
        first.replay()
    assert graph_class.replay is original
    ranges = [e.name for e in profile.events() if "replay" in e.name]
    assert ranges == ["CUDAGraph.replay#2", "CUDAGraph.replay#1", "CUDAGraph.replay#0"]


def test_a_capture_that_fails_stays_the_program_s_failure(graph_class: Any, tmp_path: Path) -> None:
    def capture_end(graph: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    graph_class.capture_end = capture_end
    recorder = captures(tmp_path)
    graph = graph_class()
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="not permitted"):
        graph.capture_end()
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="not permitted"):
        graph.capture_end()
    assert [g["graph"] for g in written(recorder, tmp_path)["cudaGraphs"]] == [1, 2]
