"""No command overwrites its input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import complaints, run_cli, run_python
from traces import kernel, write_trace

COMMANDS: dict[str, Callable[[Path, Path], list[str | Path]]] = {
    "query": lambda path, out: ["query", "kernel-share", path, "-f", "json", "-o", out],
    "sql": lambda path, out: ["sql", "SELECT 1 AS a", path, "-f", "json", "-o", out],
    "trace": lambda path, out: ["trace", path, "-o", out],
    "flame": lambda path, out: ["compare", path, path, "--flame", out],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_output_over_the_input_is_rejected(command: str, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("a", 1, 1)])
    (tmp_path / "link.json").symlink_to("t.json")
    (tmp_path / "link.folded").symlink_to("t.json")
    before = path.read_bytes()
    for out in [tmp_path / "link.folded"] if command == "flame" else [path, tmp_path / "link.json"]:
        done = run_cli(*COMMANDS[command](path, out))
        said = f"analyze: {out}: cannot be written: the command reads it"
        assert done.returncode == 2 and complaints(done)[-1] == said
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.folded", "link.json", "t.json"]


def test_output_into_a_store_is_rejected(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("a", 1, 1)])
    store = tmp_path / "store"
    assert run_cli("ingest", path, "--store", store).returncode == 0
    before = (store / "store.json").read_bytes()
    for out in (store / "store.json", store / "new.json"):
        done = run_cli("query", "kernel-share", store, "-o", out)
        assert (done.returncode, complaints(done)) == (
            2, [f"analyze: {out}: cannot be written: it is in a store that the command reads"],
        )  # fmt: skip
    assert (store / "store.json").read_bytes() == before and not (store / "new.json").exists()


def test_characters_missing_in_the_output_encoding(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("a", 1, 1)])
    done = run_python("-m", "analyze", "query", "kernel-share", path, PYTHONIOENCODING="ascii")
    said = "analyze: the output has characters that ascii cannot encode; set PYTHONIOENCODING=utf-8"
    assert done.returncode == 2 and complaints(done)[-1] == said
