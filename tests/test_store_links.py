"""Links in a store or in the cache are never followed."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_cli, run_python
from support import ROOT
from traces import kernel, write_ranks, write_trace

import analyze
from analyze.errors import InputError
from analyze.store.safe_folder import Folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need a right of their own there")

CANARY = "canary"
PLACES = (
    ".shards", ".shards/*", ".shards/*/plan.json", ".shards/*/0-of-2.*.json", ".shards/*/9-of-9.*.work",
    "kernels", "kernels/run_id=*", "kernels/run_id=*/rank-0.parquet", "kernels/run_id=*/rank-9.parquet",
    "runs", "runs/run_id=*", "runs/run_id=*/rank-0.parquet",
    "store.json", ".lock", ".readers", ".part-0123", ".store.json.0123.part",
)  # fmt: skip
"""Where a store has files and folders, or removes what an ingest left that was killed."""
COMMANDS = {
    "query": ["query", "kernel-share", "store", "-f", "csv"],
    "info": ["info", "store"],
    "ingest": ["ingest", "other.json", "-s", "store"],
    "again": ["ingest", "job", "-s", "store", "--again"],
    "shard": ["ingest", "waiting", "-s", "store", "--shard", "0/2"],
    "commit": ["commit", "store"],
    "compact": ["compact", "store"],
}


def old(path: Path) -> Path:
    """A file or folder as an ingest left it that was killed long ago."""
    past = time.time() - 200_000
    os.utime(path, (past, past))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a job of two ranks, with shards that wait for their commit and what killed ingests left."""
    base = tmp_path_factory.mktemp("made")
    job = write_ranks(base / "job", [kernel(CANARY, 0, 1)], [kernel(CANARY, 0, 2)])
    waiting = write_ranks(base / "waiting", [kernel("w0", 0, 1)], [kernel("w1", 0, 1)])
    write_trace(base / "other.json", [kernel("other", 0, 1)])
    store = base / "store"
    analyze.ingest(job, store=store, jobs=1)
    for number in (0, 1):
        analyze.ingest(waiting, store=store, shard=f"{number}/2", jobs=1)
    [plan] = (store / ".shards").iterdir()
    work = plan / "9-of-9.dead0000.work"
    work.mkdir()
    (work / ".lock").touch()
    old(work)
    [run] = (store / "kernels").glob("run_id=*/rank-0.parquet")
    (run.parent / "rank-9.parquet").write_bytes(b"half")
    (store / ".part-0123").mkdir()
    (store / ".part-0123" / "half").touch()
    (store / ".store.json.0123.part").touch()
    return base


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder, with its time of change and its bytes."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def with_link(made: Path, folder: Path, place: str) -> tuple[Path, Path]:
    """A copy of the store in which a place is a link to the same place of another copy, the victim."""
    for name in ("job", "waiting"):
        shutil.copytree(made / name, folder / name)
    shutil.copy2(made / "other.json", folder)
    store, victim = (Path(shutil.copytree(made / "store", folder / name)) for name in ("store", "victim"))
    path = min(store.glob(place), key=lambda p: (not (p / "rank-0.parquet").exists(), p))  # not of a waiting shard
    target = victim / path.relative_to(store)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(target, target_is_directory=target.is_dir())
    return store, victim


@pytest.mark.parametrize("place", PLACES)
def test_links_inside_a_store_are_not_followed(made: Path, tmp_path: Path, place: str) -> None:
    for name, command in COMMANDS.items():
        folder = tmp_path / name
        folder.mkdir()
        store, victim = with_link(made, folder, place)
        before, catalogue = contents(victim), (store / "store.json").read_bytes()
        done = run_cli(*command, cwd=folder)
        assert contents(victim) == before, name
        said = [line for line in done.stderr.splitlines() if line.startswith("analyze: ")]
        assert (done.returncode, len(said)) in ((0, 0), (2, 1)), (name, done.stderr)
        if done.returncode:
            refused = r"store/\S+: is a link; links inside store are not followed"
            left_out = "commit" if place.startswith(".shards/*") else None  # as if there were none
            assert re.search(refused, done.stderr) or name == left_out, done.stderr
            assert (store / "store.json").read_bytes() == catalogue
        if name == "query" and place.startswith(("kernels", "store.json")) and "rank-9" not in place:
            assert done.returncode == 2 and CANARY not in done.stdout


def test_the_path_of_a_store_may_be_a_link(made: Path, tmp_path: Path) -> None:
    store = shutil.copytree(made / "store", tmp_path / "store")
    (tmp_path / "link").symlink_to(store)
    analyze.ingest(made / "other.json", store=tmp_path / "link", jobs=1)
    with analyze.open(tmp_path / "link") as traces:
        assert {r["name"] for r in traces.sql("SELECT name FROM kernels").dicts()} == {CANARY, "other"}


@pytest.mark.parametrize(
    ("name", "command"),
    [("store.json", "query"), ("kernels/run_id=*/rank-0.parquet", "query"), (".shards/*/plan.json", "commit")],
)
def test_pipe_inside_a_store_does_not_block(made: Path, tmp_path: Path, name: str, command: str) -> None:
    """Opening a pipe for reading waits until somebody writes into it."""
    store = Path(shutil.copytree(made / "store", tmp_path / "store"))
    [path] = store.glob(name)
    path.unlink()
    os.mkfifo(path)
    done = run_cli(*COMMANDS[command], cwd=tmp_path)
    said = "there is no shard to commit" if command == "commit" else f"{path.name}: not a regular file"
    assert done.returncode == 2 and said in done.stderr


# --- The cache ---


def link_to_a_folder(place: str) -> Callable[[Path, Path, Path], None]:
    def link(own: Path, entry: Path, victim: Path) -> None:
        path = own / place.replace("ENTRY", entry.name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.symlink_to(victim)

    return link


def cache_with_an_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A cache in a folder, and its entry, of the trace t.json next to it."""
    own = folder / "cache"
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(own))
    run_cli("query", "kernel-share", write_trace(folder / "t.json", [kernel("k", 0, 1)]))
    [entry] = (path for path in own.iterdir() if path.is_dir())
    return own, entry


@pytest.mark.parametrize("place", ["ENTRY", "ENTRY/kernels", "ENTRY/.part-0", ".removed-0", "fedcba9876543210"])
@pytest.mark.parametrize("command", [["cache", "--clear"], ["cache"], ["query", "kernel-share", "t.json"]])
def test_linked_cache_folder_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, command: list[str]
) -> None:
    own, entry = cache_with_an_entry(tmp_path, monkeypatch)
    victim = tmp_path / "victim"
    shutil.copytree(entry, victim)
    (victim / "own.txt").write_text("mine")
    for name in (".lock", ".readers"):
        (victim / name).unlink()
    before = contents(victim)
    link_to_a_folder(place)(own, entry, victim)
    done = run_cli(*command, cwd=tmp_path)
    assert contents(victim) == before
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr
    assert done.returncode == 0 or "is a link" in done.stderr


@pytest.mark.parametrize("place", ["source.json", "store.json"])
@pytest.mark.parametrize("command", [["cache", "--clear"], ["cache"], ["query", "kernel-share", "t.json"]])
def test_linked_cache_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, command: list[str]
) -> None:
    _, entry = cache_with_an_entry(tmp_path, monkeypatch)
    victim = tmp_path / "victim"
    path = entry / place
    victim.mkdir()
    shutil.copy2(path, victim / "file")
    path.unlink()
    path.symlink_to(victim / "file")
    before = contents(victim)
    write_trace(tmp_path / "t.json", [kernel("k2", 0, 1)])
    done = run_cli(*command, cwd=tmp_path)
    assert contents(victim) == before
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr


# --- analyze.store.safe_folder ---


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "a//b", "a\0b", ""])
def test_names_cannot_leave_a_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match="not the name of a file in the folder"):
        Folder(tmp_path).write(name, b"")


@pytest.mark.parametrize("without", ["", "import os; os.supports_dir_fd = set()"], ids=["POSIX", "as on Windows"])
def test_folder_operations_do_not_follow_links(tmp_path: Path, without: str) -> None:
    code = f"{without}\nimport sys\nfrom pathlib import Path\nfrom test_store_links import check_folder\n"
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    done = run_python("-c", f"{code}check_folder(Path({str(tmp_path)!r}))", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr


def check_folder(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "x").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    folder = Folder(root)
    folder.write("a/b/one", b"1")
    folder.rename("a/b/one", "a/two")
    (tmp_path / "three").write_bytes(b"3")
    folder.take(tmp_path / "three", "c/three")
    assert (folder.read("a/two"), folder.read("c/three")) == (b"1", b"3")
    assert (folder.folders(), folder.files("a"), folder.folders("a"), folder.files("no")) == (
        ["a", "c"], ["two"], ["b"], []
    )  # fmt: skip
    assert list(folder.sizes(["a/two", "c/three"])) == [1, 1]
    (root / "out").symlink_to(victim)
    (root / "a" / "x").symlink_to(victim / "x")
    for refused in (
        lambda: folder.read("out/x"),
        lambda: folder.read("a/x"),
        lambda: folder.write("out/y", b""),
        lambda: folder.make("out/y"),
        lambda: folder.unlink("out/x"),
        lambda: folder.files("out"),
        lambda: folder.rename("out/x", "x"),
        lambda: folder.rename("a/two", "out/two"),
        lambda: folder.remove_tree("out/x"),
        lambda: list(folder.sizes(["out/x"])),
        lambda: list(folder.sizes(["a/x"])),
    ):
        with pytest.raises(InputError, match=rf"(out|x): is a link; links inside {root} are not followed"):
            refused()
    folder.remove_tree("out")
    folder.write("a/x", b"own")
    assert folder.read("a/x") == b"own" and (victim / "x").read_text() == "secret"
    folder.remove_tree("a")
    folder.unlink("c/three")
    folder.remove_if_empty("c")
    assert folder.folders() == []
