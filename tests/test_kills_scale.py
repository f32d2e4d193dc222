"""A shard, a commit and a compaction that are killed between any two of their writes leave whole runs, and can go on.

`python tests/test_kills_scale.py 200` kills so often, at random ones of their writes.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from traces import kernel, write_ranks

import analyze
from analyze.errors import InputError
from analyze.query.engine import Engine

WRITES = {"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir"}
RANKS = 2


def job(folder: Path, version: str) -> list[Path]:
    """Two jobs whose kernels are named after the version."""
    ranks = {name: RANKS * [[kernel(f"{name} {version}", i, 1) for i in range(3)]] for name in ("a", "b")}
    return [write_ranks(folder / name, *events) for name, events in ranks.items()]


class Bucket(LocalFileSystem):  # type: ignore[misc]
    """bucket://FOLDER/NAME: a disk as object storage, where an object is there whole or not at all.

    It outlives a process that is killed, as `memory://` does not, and needs no server that could answer one that is.
    """

    protocol = "bucket"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("bucket://").strip("/")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: object) -> None:
        """Write an object; raises FileExistsError if one has to be created, and is there."""
        target = Path(self._strip_protocol(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{random.random()}")
        part.write_bytes(value)
        if mode == "create":
            os.link(part, target)
            part.unlink()
        else:
            part.rename(target)

    def put_file(self, lpath: str, rpath: str, **_: object) -> None:
        """Upload a file."""
        self.pipe_file(rpath, Path(lpath).read_bytes())


def held(store: Path | str) -> dict[str, int]:
    """Kernels of a store by name."""
    with analyze.open(store) as traces:
        return dict(Engine(traces.stores).rows("SELECT name, count(*) FROM kernels GROUP BY name"))


def killed_at(number: int, task: Callable[[], object]) -> bool:
    """Do a task in a process that is killed before its write of this number; whether it came to that."""
    child = os.fork()
    if not child:
        count = 0

        def hook(event: str, arguments: Any) -> None:
            nonlocal count
            if event in WRITES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            task()
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


class Place:
    """A store with two runs, and shards of another two, which wait for their commit."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.inputs = job(folder / "new", "new")
        self.old = {f"{name} old": 3 * RANKS for name in ("a", "b")}
        self.new = self.old | {f"{name} new": 3 * RANKS for name in ("a", "b")}
        analyze.ingest(*job(folder / "old", "old"), store=folder / "ingested", jobs=1)
        shutil.copytree(folder / "ingested", folder / "sharded")
        fsspec.register_implementation("bucket", Bucket, clobber=True)
        analyze.ingest(folder / "old", store=f"bucket:/{folder}/bucket", jobs=1)
        for number in (0, 1):
            self.shard(folder / "sharded", number)
            self.shard(f"bucket:/{folder}/bucket", number)

    def shard(self, store: Path | str, number: int) -> None:
        analyze.ingest(*self.inputs, store=store, shard=f"{number}/2", jobs=1)

    def fresh(self, name: str) -> Path:
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        return Path(shutil.copytree(self.folder / name, self.folder / "store"))


def kill_shard(place: Place, number: int) -> bool:
    store = place.fresh("ingested")
    killed = killed_at(number, lambda: place.shard(store, 0))
    assert held(store) == place.old
    for shard in (0, 1):
        place.shard(store, shard)
    analyze.commit(store)
    assert held(store) == place.new
    return killed


def kill_commit(place: Place, number: int) -> bool:
    store = place.fresh("sharded")
    killed = killed_at(number, lambda: analyze.commit(store))
    assert held(store) in (place.old, place.new)  # both runs or neither
    try:
        analyze.commit(store)
    except InputError as e:
        assert "there is no shard to commit" in str(e)
    assert held(store) == place.new and not list(store.glob(".shards/*"))
    return killed


def kill_remote_commit(place: Place, number: int) -> bool:
    """On object storage, where nothing can be renamed or locked."""
    folder = place.fresh("bucket")
    store = f"bucket:/{folder}"
    killed = killed_at(number, lambda: analyze.commit(store))
    assert held(store) in (place.old, place.new)
    try:
        analyze.commit(store)
    except InputError as e:
        assert "there is no shard to commit" in str(e)
    assert held(store) == place.new and not list(folder.glob(".shards/*/[!.]*"))
    return killed


def kill_compaction(place: Place, number: int) -> bool:
    store = place.fresh("ingested")
    killed = killed_at(number, lambda: analyze.compact(store))
    assert held(store) == place.old
    analyze.compact(store)
    assert held(store) == place.old and not list(store.glob(".part*"))
    # Neither what was put together nor what a killed one wrote is left beside the rest.
    assert len(list(store.glob("kernels/*/*.parquet"))) == 2
    return killed


KILLS = (kill_shard, kill_commit, kill_remote_commit, kill_compaction)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("kills"))


@pytest.mark.parametrize("kill", KILLS)
def test_store_stays_valid_after_kills_between_writes(place: Place, kill: Callable[[Place, int], bool]) -> None:
    """At the first write, the second, the fourth, ... until there is none."""
    number, killed = 1, 0
    while kill(place, number):
        number, killed = 2 * number, killed + 1
    assert killed > 2


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    done = 0
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TRACEQUARRY_CACHE"] = scratch
        here = Place(Path(scratch) / "place")
        for _ in range(count):
            done += random.choice(KILLS)(here, random.randint(1, 40))
    print(f"{done} of {count} were killed before their end; every run was whole each time")
