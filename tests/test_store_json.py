"""Damage to the JSON files of a store and of the cache: one sentence, bounded memory, and nothing stored is lost.

Every value of a file is replaced, removed or doubled. Some of this is tried here, all of it by
`python tests/test_store_json.py`.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from traces import kernel, write_ranks, write_trace

import analyze
from analyze.errors import InputError
from analyze.ingestion import cached_stores
from analyze.query.engine import Engine
from analyze.store.cache_location import cache_folder

TRIED = 4
"""Damages of each file that are tried here."""
VALUES: list[Any] = [
    None, True, -1, 0, 1.5, 10**9, 2**31, 2**62, 2**63, 2**64, 10**30, 1e300, "", "x", "a\0b", "../x.parquet",
    "/etc/passwd", "kernels/../../x.parquet", "C:\\x", "\ud800", "9" * 5000, "x" * 100_000, [], [[]], [10**9] * 3, {},
    {"a": {"b": []}},
]  # fmt: skip
TEXTS = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b"\xff",
    b"\xef\xbb\xbf{}",
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b"\0" * 1000,
    b'{"version": 1e400}',
]


def nodes(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value."""
    yield path
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield from nodes(child, (*path, key))


def damages(data: bytes) -> Iterator[bytes]:
    """A JSON file damaged in every way."""
    tree = json.loads(data)
    yield from TEXTS
    for end in range(1, len(data), max(1, len(data) // 20)):
        yield data[:end]
    for path in list(nodes(tree))[1:]:
        *above, last = path

        def changed(change: Callable[[Any, Any], None], above: list[Any] = above, last: Any = last) -> bytes:
            damaged = copy.deepcopy(tree)
            parent = damaged
            for key in above:
                parent = parent[key]
            change(parent, last)
            return json.dumps(damaged).encode()

        for value in VALUES:
            yield changed(lambda parent, key, value=value: parent.__setitem__(key, value))
        yield changed(lambda parent, key: parent.__delitem__(key))
        if isinstance(last, int):
            yield changed(lambda parent, key: parent.append(parent[key]))
        else:
            for name in ("", "x", "a\0b", "../x", "runs", "kernels"):
                yield changed(lambda parent, key, name=name: parent.__setitem__(name, parent.pop(key)))


def chosen(data: bytes, seed: str, tried: int | None) -> list[bytes]:
    found = list(damages(data))
    return found if tried is None else TEXTS + random.Random(seed).sample(found, min(tried, len(found)))


@contextmanager
def little_memory() -> Iterator[None]:
    """2 GB more than this process has."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 30), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def refused(step: Callable[[], Any]) -> bool:
    """Whether a step ends with a sentence. Any other exception fails the test."""
    try:
        step()
    except InputError as e:
        assert str(e) and "\n" not in str(e) and "out of memory" not in str(e), e
        return True
    return False


def ask(place: object) -> None:
    with analyze.open(place) as traces:  # type: ignore[arg-type]
        for table in ("runs", "kernels", "kernel_names"):
            Engine(traces.stores).rows(f"SELECT * FROM {table}")
        traces.query("kernel-share").dicts()


def made(folder: Path) -> Path:
    """Traces, and a store of them in which shards wait for their commit."""
    job = write_ranks(folder / "job", [kernel("k0", 0, 1)], [kernel("k1", 0, 1)])
    waiting = write_ranks(folder / "waiting", [kernel("w0", 0, 1)], [kernel("w1", 0, 1)])
    write_trace(folder / "other.json", [kernel("other", 0, 1)])
    analyze.ingest(job, store=folder / "store", jobs=1)
    for number in (0, 1):
        analyze.ingest(waiting, store=folder / "store", shard=f"{number}/2", jobs=1)
    return folder


def try_store(folder: Path, name: str, tried: int | None) -> None:
    """Damage one file of a store, and use the store."""
    original = folder / "store"
    [path] = original.glob(name) if "*" not in name else [min(original.glob(name))]
    relative = path.relative_to(original)
    steps: dict[str, Callable[[Path], Any]] = {
        "query": ask,
        "ingest": lambda store: analyze.ingest(folder / "other.json", folder / "job", store=store, jobs=1),
        "compact": lambda store: analyze.compact(store, jobs=1),
        "commit": analyze.commit,
    }
    if name != "store.json":
        del steps["query"], steps["compact"]
    for number, data in enumerate(chosen(path.read_bytes(), name, tried)):
        for what, step in steps.items():
            store = folder / f"{number}-{what}"
            shutil.copytree(original, store)
            (store / relative).write_bytes(data)
            before = (store / "store.json").read_bytes()
            try:
                with little_memory():
                    if refused(lambda step=step, store=store: step(store)):
                        assert what == "commit" or (store / "store.json").read_bytes() == before
                    elif name != "store.json":
                        ask(store)
                    else:
                        refused(lambda store=store: ask(store))
            except Exception as e:
                raise AssertionError(f"{what} of {relative} as {data[:2000]!r}") from e
            shutil.rmtree(store)


@pytest.mark.skipif(sys.platform != "linux", reason="limits its memory as Linux does")
@pytest.mark.parametrize("name", ["store.json", ".shards/*/plan.json", ".shards/*/0-of-2.*.json"])
def test_damaged_json_of_a_store_is_one_sentence(tmp_path: Path, name: str) -> None:
    try_store(made(tmp_path), name, TRIED)


def test_too_many_shards_are_rejected(tmp_path: Path) -> None:
    """Which took memory for each of them."""
    store = made(tmp_path) / "store"
    [plan] = store.glob(".shards/*/plan.json")
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"of": 10**9}))
    done = run_cli("commit", store)
    said = f"analyze: {plan}: not what a shard of an ingest writes: Expected `int` <= 999999 - at `$.of`\n"
    assert (done.returncode, done.stderr) == (2, said)
    done = run_cli("ingest", tmp_path / "job", "-s", store, "--launcher", "local", "--shards", "1000000000")
    assert done.returncode == 2 and "--shards 1000000000: must be from 1 to 999999" in done.stderr


def test_a_shard_names_only_its_own_files(tmp_path: Path) -> None:
    """And not those of a run that is there, which its commit would make its own, and a later one would remove."""
    store = made(tmp_path) / "store"
    [other] = (
        p.relative_to(store).as_posix() for p in store.glob("kernels/run_id=job*/*.parquet") if "rank-0" in p.name
    )
    part = min(store.glob(".shards/*/0-of-2.*.json"))
    content = json.loads(part.read_text())
    [tables] = content["tables"].values()
    tables["kernels"][0]["path"] = other
    part.write_text(json.dumps(content))
    with pytest.raises(
        InputError, match=r"0-of-2\.\w+\.json: not what .*: a Parquet file of run '.*' is not one of this"
    ):
        analyze.commit(store)


@pytest.mark.parametrize("cut", [True, False])
def test_a_file_of_a_shard_that_is_damaged_is_not_committed(tmp_path: Path, cut: bool) -> None:
    """It would make the whole store one that cannot be read."""
    store = made(tmp_path) / "store"
    file = min(store.glob("kernels/run_id=waiting*/*.parquet"))
    file.write_bytes(file.read_bytes()[:100]) if cut else file.unlink()
    with pytest.raises(InputError, match=r"rank-0\.\w+\.parquet: .*; ingest its shard again"):
        analyze.commit(store)
    ask(store)


# --- Object storage ---


def try_remote(folder: Path, tried: int | None) -> None:
    """Damage the newest catalogue of a store at a URL."""
    fsspec = pytest.importorskip("fsspec")
    trace = write_trace(folder / "t.json", [kernel("k", 0, 1)])
    system = fsspec.filesystem("memory")
    root = f"/{os.getpid()}-damaged"
    analyze.ingest(trace, store=f"memory:/{root}", jobs=1)
    newest = max(system.find(f"{root}/catalogue"))
    kept = {name: system.cat_file(name) for name in system.find(root)}
    for data in chosen(kept[newest], "catalogue", tried):
        for step in (ask, lambda url: analyze.ingest(trace, store=url, jobs=1, again=True)):
            system.rm(root, recursive=True)
            for name, content in kept.items():
                system.pipe_file(name, data if name == newest else content)
            with little_memory():
                try:
                    refused(lambda step=step: step(f"memory:/{root}"))
                except Exception as e:
                    raise AssertionError(f"{data[:2000]!r}") from e
    system.rm(root, recursive=True)


@pytest.mark.skipif(sys.platform != "linux", reason="limits its memory as Linux does")
def test_damaged_remote_catalogue_is_one_sentence(tmp_path: Path) -> None:
    try_remote(tmp_path, TRIED // 2)


def test_other_objects_in_the_catalogue_folder_are_ignored(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://{os.getpid()}/strange"
    trace = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    analyze.ingest(trace, store=url, jobs=1)
    system, root = fsspec.core.url_to_fs(url)
    for name in (
        "catalogue/zzz.json", "catalogue/-1.json", "catalogue/²²²²²²²².json", f"catalogue/{'9' * 5000}.json",
        "catalogue/00000099.json/x", ".shards/a.b.c/x", ".shards//x.json", ".shards/x/y/0-of-1.ab.json",
        "kernels/run_id=x/.parquet",
    ):  # fmt: skip
        system.pipe_file(f"{root}/{name}", b"x")
    ask(url)
    assert analyze.ingest(trace, store=url, jobs=1, again=True).ingested
    with pytest.raises(InputError, match="there is no shard to commit"):
        analyze.commit(url)


def test_missing_object_is_named(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://{os.getpid()}/gone"
    analyze.ingest(write_ranks(tmp_path, [kernel("k", 0, 1)], [kernel("k", 0, 1)]), store=url, jobs=1)
    system, root = fsspec.core.url_to_fs(url)
    [gone] = [name for name in system.find(root) if "/kernels/" in name and "rank-0" in name]
    system.rm_file(gone)
    sentence = r"^memory://\S+/gone/kernels/run_id=\S+/rank-0\.\w+\.parquet: does not exist any more$"
    with pytest.raises(InputError, match=sentence):
        ask(url)
    with pytest.raises(InputError, match=rf"^{url}/kernels/run_id=\S+/rank-0\.\w+\.parquet: does not exist any more$"):
        analyze.compact(url, jobs=1)


# --- The cache ---


def try_cache(folder: Path, name: str, tried: int | None) -> None:
    """Damage one file of the cache; an entry that is not what it was is made again."""
    trace = write_trace(folder / "t.json", [kernel("k", 0, 1)])
    ask(trace)
    [path] = cache_folder().glob(name)
    original = path.read_bytes()
    for data in chosen(original, name, tried):
        path.write_bytes(data)
        with little_memory():
            try:
                cached_stores.contents()
                refused(lambda: ask(trace))
                cached_stores.evict(10**9)
            except Exception as e:
                raise AssertionError(f"{data[:2000]!r}") from e
        with suppress(FileNotFoundError):
            path.write_bytes(original)


@pytest.mark.skipif(sys.platform != "linux", reason="limits its memory as Linux does")
@pytest.mark.parametrize("name", ["*/source.json", "*/store.json"])
def test_damaged_cache_file_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(tmp_path / "cache"))
    try_cache(tmp_path, name, TRIED)


if __name__ == "__main__":
    import tempfile

    for file in sys.argv[1:] or ("store.json", ".shards/*/plan.json", ".shards/*/0-of-2.*.json"):
        with tempfile.TemporaryDirectory() as place:
            try_store(made(Path(place)), file, None)
        print(file, "done")
    with tempfile.TemporaryDirectory() as place:
        try_remote(Path(place), None)
        for file in ("*/source.json", "*/store.json"):
            os.environ["TRACEQUARRY_CACHE"] = f"{place}/{file.replace('/', '-').replace('*', '')}"
            try_cache(Path(place), file, None)
