"""Every command names a stored Parquet file that it cannot read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli, run_python
from support import SAMPLES, forget, outdated

import analyze
from analyze.errors import InputError
from analyze.query.engine import Engine
from analyze.traces import Traces

ASK: dict[str, Callable[[Traces, Path], Any]] = {
    "query": lambda t, _: t.query("kernel-share").arrow(),
    "blocks": lambda t, _: t.query("kernel-pace").arrow(),
    "sql": lambda t, _: t.sql("SELECT max(dur_ns) FROM kernels").arrow(),
    "trace": lambda t, out: t.trace(out / "trace.json"),
    "advise": lambda t, _: t.advise().arrow(),
    "info": lambda t, _: t.info(),
    "compare": lambda t, _: analyze.compare(t, t, level="kernel"),
    "report": lambda t, out: t.report(out / "report.html"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("unreadable") / "store"
    analyze.ingest(SAMPLES / "resnet18-ddp2", store=store)
    forget(store, "crc32")  # DuckDB is to find the damage
    return store


@pytest.fixture
def store(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(tmp_path / "cache"))
    shutil.copytree(whole, tmp_path / "store")
    return tmp_path / "store"


def damage(path: Path) -> None:
    """Make zeros of the first pages: the file is as long as it was, and what it says of itself is whole."""
    data = path.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little")
    pages = len(data) - 8 - footer - 4
    path.write_bytes(data[:4] + bytes(pages) + data[4 + pages :])


def test_every_damaged_file_is_named(store: Path) -> None:
    files = sorted(store.rglob("*.parquet"))
    assert {"rank-0.parquet", "rank-1.parquet"} < {f.name for f in files}
    for file in files:
        data = file.read_bytes()
        damage(file)
        with pytest.raises(InputError) as raised, analyze.open(store) as traces:
            Engine(traces.stores).rows(f"SELECT bit_xor(hash(t)) FROM {file.parent.parent.name} t")
        assert str(raised.value).startswith(f"{file}: damaged: "), raised.value
        assert str(raised.value).endswith("; ingest its run again with --again")
        file.write_bytes(data)


@pytest.mark.parametrize("ask", ASK)
def test_every_command_names_the_damaged_file(store: Path, tmp_path: Path, ask: str) -> None:
    [file] = (store / "kernels").rglob("rank-1.parquet")
    damage(file)
    with analyze.open(store) as traces, pytest.raises(InputError, match=r"TProtocolException") as raised:
        ASK[ask](traces, tmp_path)
    assert str(raised.value).startswith(f"{file}: damaged: "), raised.value
    assert not [p.name for p in tmp_path.iterdir() if p.is_file()]


@pytest.mark.parametrize("command", [["query", "kernel-share"], ["compact"]], ids=lambda command: command[0])
@pytest.mark.parametrize("has_checksums", [True, False])
def test_derive_again_names_the_damaged_file(tmp_path: Path, command: list[str], has_checksums: bool) -> None:
    store = tmp_path / "store"
    analyze.ingest(SAMPLES / "resnet18-ddp2", store=store)
    outdated(store)
    if not has_checksums:
        forget(store, "crc32")
    [file] = (store / "kernels").rglob("rank-1.parquet")
    damage(file)
    result = run_cli(*command, store)
    said = "damaged: its bytes are not those that were written" if has_checksums else "cannot be read: Couldn't"
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert result.stderr.startswith(f"analyze: {file}: {said}")


def test_other_files_stay_readable_and_the_advice_repairs(store: Path) -> None:
    [file] = (store / "kernels").rglob("rank-1.parquet")
    with analyze.open(store) as traces:
        first = traces.query("kernel-share", by="rank").arrow()
    damage(file)
    with analyze.open(store) as traces:
        assert traces.query("memory-peak").arrow().num_rows >= 0
        with pytest.raises(InputError, match="damaged"):
            traces.sql("SELECT sum(dur_ns) FROM kernels").arrow()
        assert traces.query("cuda-api").arrow().num_rows
        of_one = traces.where("rank = 0").query("kernel-share", by="rank").arrow()
    assert of_one.to_pylist() == [row for row in first.to_pylist() if row["rank"] == 0]
    assert analyze.ingest(SAMPLES / "resnet18-ddp2", store=store, again=True).ingested
    with analyze.open(store) as traces:
        assert traces.query("kernel-share", by="rank").arrow() == first


def test_other_errors_do_not_mention_damage(store: Path) -> None:
    with analyze.open(store) as traces:
        for sql, said in (
            ("SELECT error('no ' || name) FROM kernels", r"SQL: Invalid Input Error: no \w"),
            ("SELECT name::INTEGER FROM kernels", "SQL: Conversion Error: "),
            ("SELECT nothing FROM kernels", "SQL: Binder Error: "),
        ):
            with pytest.raises(InputError, match=f"^{said}"):
                traces.sql(sql).arrow()


def test_damaged_cache_file_of_raw_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(cache))
    # In processes of their own: what holds a store ends with its process.
    command = ["-m", "analyze"]
    question = [*command, "query", "kernel-share", SAMPLES / "resnet18-ddp2", "--format", "json"]
    first = run_python(*question)
    assert json.loads(first.stdout)
    [file] = cache.rglob("kernels/*/rank-1.parquet")
    damage(file)
    result = run_python(*question)
    assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.stderr
    assert str(file) in result.stderr and "`analyze cache --clear`" in result.stderr
    assert run_python(*command, "cache", "--clear").returncode == 0
    assert run_python(*question).stdout == first.stdout
