"""An ingest in shards: after the commit the rows of one ingest, before it nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from commands import run_cli, run_cli_under
from support import SAMPLES, sql, stored_rows
from traces import kernel, write_ranks, write_run, write_trace

import analyze
from analyze.errors import InputError
from analyze.ingestion.commit import commit
from analyze.ingestion.discover import discover
from analyze.ingestion.ingest import ingest
from analyze.ingestion.shards import Share, ingest_shard, parse_share
from analyze.store.store import Store


def job(folder: Path, ranks: int = 4, name: str = "k") -> Path:
    """Traces of a job with one kernel for each rank."""
    return write_ranks(folder, *([kernel(f"{name}{rank}", 0, 1)] for rank in range(ranks)))


def shards(store: Path, *numbers: int, of: int = 4, paths: Path) -> None:
    """Ingest some shards."""
    for number in numbers:
        analyze.ingest(paths, store=store, shard=f"{number}/{of}", jobs=1)


def files(store: Path) -> set[Path]:
    return set(store.rglob("*.parquet"))


def test_samples_have_the_same_rows_as_by_one_ingest(tmp_path: Path) -> None:
    """Runs of several ranks, of several passes, Nsight Systems among them, and a rank that is late."""
    paths = [SAMPLES / n for n in ("resnet18-ddp2", "alexnet-dp2", "late-rank")]
    one, many = tmp_path / "one", tmp_path / "many"
    analyze.ingest(*paths, store=one)
    for number in (2, 0, 1):
        analyze.ingest(*paths, store=many, shard=f"{number}/3", jobs=1)
        assert not Store(many).snapshot.runs
    assert run_cli("commit", many).returncode == 0
    expected = stored_rows(one)
    assert stored_rows(many) == expected and len(expected["kernels"]) > 1000 and len(expected["runs"]) > 3
    assert not list(many.glob(".shards/*")) and not list(many.glob(".part*"))
    # Of what is there already no shard reads anything.
    before = files(many)
    for number in (0, 1):
        assert analyze.ingest(*paths, store=many, shard=f"{number}/2").ingested == []
    assert len(analyze.commit(many).unchanged) == len(expected["runs"]) and files(many) == before


def test_shards_of_one_run_take_neighbouring_ranks(tmp_path: Path) -> None:
    folder, store = job(tmp_path / "job", 8), tmp_path / "store"
    shards(store, 0, 1, 2, 3, paths=folder)
    result = analyze.commit(store)
    assert result.read_as == "1 run, ranks 0–7 of 8" and result.warnings == []
    assert sorted(p.name.split(".")[0] for p in store.glob("kernels/*/*")) == [
        f"ranks-{r}-{r + 1}" for r in (0, 2, 4, 6)
    ]
    assert sql(store, "SELECT rank, name FROM kernels ORDER BY rank") == [
        {"rank": r, "name": f"k{r}"} for r in range(8)
    ]
    analyze.compact(store)
    assert [p.name for p in store.glob("kernels/*/*")] == ["ranks-0-7.g2.parquet"]


@pytest.mark.parametrize("text", ["", "1", "4/4", "-1/4", "1/0", "a/b", "1/4/5"])
def test_invalid_shard_is_rejected(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="must be I/N, with I from 0 to N - 1"):
        analyze.ingest(job(tmp_path / "job"), store=tmp_path / "store", shard=text)
    assert not (tmp_path / "store").exists() and parse_share("3/4") == (3, 4)


def test_missing_shards_are_named(tmp_path: Path) -> None:
    folder, store = job(tmp_path / "job"), tmp_path / "store"
    shards(store, 0, 3, paths=folder)
    result = run_cli("commit", store)
    assert result.returncode == 2 and result.stderr == (
        f"analyze: {store}: shards 1–2 of 4 are missing, and with that 2 of 4 raw files; "
        "ingest what is missing, or commit the rest with --allow-missing\n"
    )
    assert not Store(store).snapshot.runs
    warnings = analyze.commit(store, allow_missing=True).warnings
    assert warnings[0] == "shards 1–2 of 4 are missing: 2 of 4 raw files are not in the store"
    [said] = [r["warnings"] for r in sql(store, "SELECT warnings FROM runs")]
    assert said == "2 of 4 raw files were not read: shards 1–2 of 4 are missing" and said in warnings
    assert [r["rank"] for r in sql(store, "SELECT rank FROM kernels ORDER BY rank")] == [0, 3]
    # The rest is not taken for read: an ingest of all brings it.
    assert len(analyze.ingest(folder, store=store).ingested) == 1
    assert len(sql(store, "SELECT rank FROM kernels")) == 4
    result = run_cli("commit", store)
    assert result.returncode == 2 and "there is no shard to commit" in result.stderr


def test_repeated_shard_counts_once(tmp_path: Path) -> None:
    folder, store = job(tmp_path / "job"), tmp_path / "store"
    shards(store, 0, 1, 1, 2, 3, 0, paths=folder)
    assert len(list(store.glob("kernels/*/*.parquet"))) == 6
    assert analyze.commit(store).warnings == ["shards 0–1 of 4 done more than once; the last attempt counts"]
    assert len(sql(store, "SELECT rank FROM kernels")) == 4 and len(list(store.glob("kernels/*/*.parquet"))) == 4


def test_shards_of_other_inputs_are_named(tmp_path: Path) -> None:
    folder, store = job(tmp_path / "job"), tmp_path / "store"
    shards(store, 0, 2, 3, paths=folder)
    changed = folder / "rank-1.json"
    os.utime(changed, ns=(1, 1))
    shards(store, 1, paths=folder)
    result = run_cli("commit", store, "--allow-missing")
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    assert "of different inputs" in result.stderr and f"{changed.resolve()} changed meanwhile" in result.stderr
    assert "shard 1 of 4" in result.stderr and "shards 0, 2–3 of 4" in result.stderr
    # Once all shards have seen the same, the others are of no use.
    shards(store, 0, 2, 3, paths=folder)
    [warning] = analyze.commit(store).warnings
    assert warning == "shards 0, 2–3 of 4 of an earlier state of the inputs: removed"
    assert len(sql(store, "SELECT rank FROM kernels")) == 4 and not list(store.glob(".shards/*"))
    assert len(list(store.glob("kernels/*/*.parquet"))) == 4


def test_two_ingests_in_shards_side_by_side(tmp_path: Path) -> None:
    store = tmp_path / "store"
    one, two = job(tmp_path / "one", 2, "a"), job(tmp_path / "two", 2, "b")
    shards(store, 0, 1, of=2, paths=one)
    shards(store, 0, of=2, paths=two)
    assert analyze.commit(store).warnings == ["shard 0 of 2 of other inputs: still waiting, shard 1 of 2 is missing"]
    shards(store, 1, of=2, paths=two)
    analyze.commit(store)
    assert {r["name"] for r in sql(store, "SELECT name FROM kernels")} == {"a0", "a1", "b0", "b1"}


def test_only_abandoned_shards_are_removed(tmp_path: Path) -> None:
    folder, store = job(tmp_path / "job"), tmp_path / "store"
    shards(store, 0, 1, 2, paths=folder)
    # One that was killed, and what it had in place; and one that is at work.
    dead, alive = (store / ".shards" / "0123456789abcdef" / f"0-of-9.{mark}.work" for mark in ("dead0000", "beef0000"))
    for work in (dead, alive):
        work.mkdir(parents=True)
        (work / ".lock").touch()
        mark = work.name.split(".")[1]
        (next(store.glob("kernels/*")) / f"rank-9.{mark}.parquet").write_bytes(b"half")
    old = time.time() - 100_000
    os.utime(dead, (old, old))
    other = write_trace(tmp_path / "t.json", [kernel("other", 0, 1)])
    ingest(discover([other]), Store(store), jobs=1)
    assert alive.exists() and not dead.exists()
    assert [p.name for p in store.glob("kernels/*/rank-9.*")] == ["rank-9.beef0000.parquet"]
    shards(store, 3, paths=folder)
    commit(Store(store))
    assert len(sql(store, "SELECT rank FROM kernels")) == 5


def run_folder(folder: Path, *names: str) -> Path:
    """A run folder with a trace of one kernel for each name, of ranks in their order."""
    for name in names:
        write_trace(folder / f"{name}.json", [kernel(name, 0, 1)])
    return write_run(folder, [(f"{name}.json", "chrome_trace", rank) for rank, name in enumerate(names)], run_id="r")


def test_duplicate_rank_of_two_shards_is_skipped(tmp_path: Path) -> None:
    """As an ingest of all does it, whichever files a shard has put together."""
    folder = run_folder(tmp_path / "run", "a", "b", "again", "c")
    found = [discover([folder]) for _ in range(3)]
    for [run] in found:  # the third is of the rank of the first, which a report itself may say
        file = run.files[2]
        run.files[2] = type(file)(file.path, file.kind, 0)
    one, two = Store(tmp_path / "one"), Store(tmp_path / "two")
    warnings = ingest(found[0], one, jobs=1).warnings
    for number in (0, 1):
        ingest_shard(found[1 + number], two, Share(number, 2), jobs=1)
    assert commit(two).warnings == warnings and "again.json: has kernels of rank 0, and so has" in warnings[0]
    assert stored_rows(two.folder) == stored_rows(one.folder)
    assert [r["name"] for r in sql(two.folder, "SELECT name FROM kernels ORDER BY name")] == ["a", "b", "c"]


def test_unreadable_file_is_a_warning_of_the_commit(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "a", "b", "c")
    (folder / "b.json").write_text("no trace")
    one, two = tmp_path / "one", tmp_path / "two"
    warnings = analyze.ingest(folder, store=one).warnings
    shards(two, 0, 1, of=2, paths=folder)
    assert analyze.commit(two).warnings == warnings and "b.json" in warnings[0]
    assert stored_rows(two) == stored_rows(one)


def killed_commit(store: Path, *options: str) -> None:
    """Commit shards in a process that is killed when their rows are visible and before it removes them."""
    hook = (
        "if event == 'os.rename' and os.path.basename(args[1]).startswith('.part'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert run_cli_under(hook, "commit", store, *options).returncode == -signal.SIGKILL


def test_committed_shards_are_not_committed_again(tmp_path: Path) -> None:
    """A commit was killed before it removed its shards; then the run was ingested again."""
    folder = job(tmp_path / "job", 2, "old")
    store = Store(tmp_path / "store")
    write_run(folder, [(f"rank-{rank}.json", "chrome_trace", rank) for rank in (0, 1)], run_id="r")

    def names() -> set[str]:
        with analyze.open(str(store)) as traces:
            return {r["name"] for r in traces.query("kernel-share").dicts()}

    for number in (0, 1):
        analyze.ingest(folder, store=str(store), shard=f"{number}/2", jobs=1)
    killed_commit(store.folder)
    assert names() == {"old0", "old1"} and store.read_shards()
    analyze.ingest(job(folder, 2, "new"), store=str(store), jobs=1)
    with pytest.raises(InputError, match="there is no shard to commit"):
        analyze.commit(str(store))
    assert names() == {"new0", "new1"} and not store.read_shards()
    # Shards of the same plan that are written after that are another commit.
    job(folder, 2, "newer")
    for number in (0, 1):
        analyze.ingest(folder, store=str(store), shard=f"{number}/2", jobs=1)
    analyze.commit(str(store))
    assert names() == {"newer0", "newer1"} and not store.read_shards()


def test_commit_after_two_killed_commits(tmp_path: Path) -> None:
    """Each left its shards, and they lie in one folder."""
    folder, store = job(tmp_path / "job", 2), tmp_path / "store"
    shards(store, 0, 1, of=2, paths=folder)
    for missing in (False, True):
        killed_commit(store, *(["--allow-missing"] if missing else []))
        if not missing:
            shards(store, 0, of=2, paths=folder)
    with pytest.raises(InputError, match="there is no shard to commit"):
        analyze.commit(store)
    assert not list(store.glob(".shards/*"))
