"""Which rank and run a raw file belongs to."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import SAMPLES, sql
from traces import kernel, write_run, write_trace

from analyze.errors import InputError
from analyze.ingestion.discover import discover
from analyze.store.file_digest import Digests
from schemas.manifest import read_manifest, write_manifest


def said(rank: int, world_size: int) -> dict[str, Any]:
    """What a rank of a job writes into its trace."""
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size}}


def one(path: Path, name: str = "k", **header: Any) -> Path:
    """A trace of one kernel."""
    return write_trace(path, [kernel(name, 0, 1)], **header)


def read(*paths: Path) -> list[tuple[list[int], int | None]]:
    """Ranks and world size of each run that is found."""
    runs = [([f.rank for f in run.files], run.columns["world_size"]) for run in discover(paths)]
    return sorted(runs, key=repr)


def test_unrelated_traces_in_a_folder_are_runs_of_their_own(tmp_path: Path) -> None:
    names = ["alexnet.json", "r2_cuda.json", "node1_814.1700000000001.pt.trace.json", "rank7.json", "gpu_3.json"]
    for name in names:
        one(tmp_path / name, name)
    assert read(tmp_path) == [([0], None)] * 5
    # Named by the shell they are the same.
    assert read(*tmp_path.glob("*.json")) == [([0], None)] * 5
    assert {(r["ranks"], r["world_size"]) for r in sql(tmp_path, "SELECT ranks, world_size FROM runs")} == {(1, None)}
    assert sql(tmp_path, "SELECT DISTINCT rank FROM kernels") == [{"rank": 0}]


def test_files_with_equal_job_metadata_are_one_run(tmp_path: Path) -> None:
    for rank in range(3):
        one(tmp_path / "job" / f"t{rank}.json", f"k{rank}", **said(2 - rank, 3))
    (tmp_path / "job" / "notes.json").write_text('{"not": "a trace"}')
    found = discover([tmp_path])
    assert [[f.rank for f in run.files] for run in found] == [[0, 1, 2]]
    assert len(found.warnings) == 1 and "notes.json: not a Chrome trace" in found.warnings[0]
    assert sql(tmp_path, "SELECT rank, name FROM kernels ORDER BY rank") == [
        {"rank": 0, "name": "k2"},
        {"rank": 1, "name": "k1"},
        {"rank": 2, "name": "k0"},
    ]
    assert sql(tmp_path, "SELECT ranks, world_size FROM runs") == [{"ranks": 3, "world_size": 3}]
    files = [tmp_path / "job" / f"t{rank}.json" for rank in range(3)]
    assert read(*files) == [([0, 1, 2], 3)]
    assert read(files[0]) == [([2], 3)]


def test_missing_ranks_are_a_warning(tmp_path: Path) -> None:
    for rank in (0, 1, 5):
        one(tmp_path / f"{rank}.json", **said(rank, 8))
    [run] = discover([tmp_path])
    assert run.warnings == ["of 8 ranks only 0–1, 5 are there; missing: 2–4, 6–7"]
    result = run_cli("ingest", tmp_path, "--store", tmp_path / "store")
    assert "read as: 1 run, ranks 0–1, 5 of 8\n" in result.stderr


def test_another_world_size_is_another_run(tmp_path: Path) -> None:
    one(tmp_path / "a.json", "a", **said(0, 2))
    one(tmp_path / "b.json", "b", **said(1, 2))
    one(tmp_path / "c.json", "c", **said(2, 4))
    one(tmp_path / "d.json", "d", **said(0, 1))
    one(tmp_path / "e.json", "e", distributedInfo={"rank": 3})
    one(tmp_path / "f.json", "f", **said(9, 4))  # which cannot be
    one(tmp_path / "g.json", "g", **said(2**40, 2**41))
    assert read(tmp_path) == [([0, 1], 2), ([0], 1), ([0], None), ([0], None), ([2], 4), ([3], None)]


def test_rank_in_a_file_name_needs_a_set(tmp_path: Path) -> None:
    one(tmp_path / "rank-0.json", "a", **said(0, 2))
    one(tmp_path / "rank-1.json", "b", distributedInfo={"world_size": 2})
    one(tmp_path / "rank-2.json", "c")
    assert read(tmp_path) == [([0, 1], 2), ([0], None)]


@pytest.mark.parametrize(
    "names",
    [
        ("step5_rank0", "step5_rank1", "step9_rank0", "step9_rank1"),
        # Epochs, not places of experts.
        ("ep1_rank0", "ep1_rank1", "ep2_rank0", "ep2_rank1"),
        # As tensorboard_trace_handler names them: host_pid.time. Rank 1 is a little later each time.
        ("n_70.1700000000000", "n_71.1700000000200", "n_70.1700000009000", "n_71.1700000009100"),
        # SGLang by stage, also with data-parallel attention. Replicas of vLLM.
        ("17.5-TP-0-EP-0-DECODE", "17.5-TP-1-EP-1-DECODE", "17.5-TP-0-EP-0-EXTEND", "17.5-TP-1-EP-1-EXTEND"),
        ("17.5-TP-0-DP-0-DECODE", "17.5-TP-1-DP-1-DECODE", "17.5-TP-0-DP-0-EXTEND", "17.5-TP-1-DP-1-EXTEND"),
        ("dp0_tp0_rank0", "dp0_tp1_rank1", "dp1_tp0_rank0", "dp1_tp1_rank1"),
    ],
)
def test_two_recordings_of_a_job_are_two_runs(tmp_path: Path, names: tuple[str, ...]) -> None:
    for at, name in enumerate(names):
        one(tmp_path / f"{name}.pt.trace.json", f"{at // 2}", **said(at % 2, 2))
    runs = discover([tmp_path])
    assert [[f.rank for f in run.files] for run in runs] == [[0, 1], [0, 1]]
    assert "2 files say that they are rank 0 of 2, so they are 2 recordings" in runs[0].warnings[0]
    rows = sql(tmp_path, "SELECT count(DISTINCT run_id) AS runs, count(*) AS n FROM kernels GROUP BY name")
    assert rows == [{"runs": 1, "n": 2}] * 2


def test_jobs_of_one_process_side_by_side_are_runs_of_their_own(tmp_path: Path) -> None:
    """Both are rank 0 of 1, and neither is a second recording of the other."""
    for name in "ab":
        one(tmp_path / f"{name}.json", name, **said(0, 1))
    assert [([f.rank for f in run.files], run.warnings) for run in discover([tmp_path])] == [([0], [])] * 2


def test_indistinguishable_recordings_are_one_run_per_file(tmp_path: Path) -> None:
    for at, rank in enumerate((0, 1, 0)):
        one(tmp_path / f"{'xyz'[at]}.json", f"{at}", **said(rank, 2))
    runs = discover([tmp_path])
    assert [[f.rank for f in run.files] for run in runs] == [[0], [1], [0]]
    assert all("nothing tells which files belong together" in run.warnings[0] for run in runs)


def test_ranks_in_several_folders(tmp_path: Path) -> None:
    for rank in range(4):
        one(tmp_path / "job" / f"node{rank // 2}" / f"{rank}.json", **said(rank, 4))
    assert read(tmp_path) == [([0, 1, 2, 3], 4)]
    # Half a job and half of another one: nothing says that they belong together.
    for folder, rank in (("a", 0), ("b", 1)):
        one(tmp_path / "halves" / folder / "t.json", folder, **said(rank, 3))
    assert read(tmp_path / "halves") == [([0], 3), ([1], 3)]
    # Who names the files themselves says so.
    assert read(tmp_path / "halves/a/t.json", tmp_path / "halves/b/t.json") == [([0, 1], 3)]


def test_user_can_declare_one_run(tmp_path: Path) -> None:
    for rank in (0, 1, 10):
        one(tmp_path / "job" / f"rank{rank}.json", f"k{rank}")
    found = discover([tmp_path / "job"])
    assert len(found) == 3 and "--as-one-run" in found.warnings[0]
    store = tmp_path / "store"
    result = run_cli("ingest", tmp_path / "job", "--store", store, "--as-one-run")
    assert "read as: 1 run, ranks 0–1, 10\n" in result.stderr
    assert sql(store, "SELECT rank, name FROM kernels ORDER BY rank") == [
        {"rank": r, "name": f"k{r}"} for r in (0, 1, 10)
    ]
    assert sql(store, "SELECT ranks, world_size FROM runs") == [{"ranks": 3, "world_size": None}]


@pytest.mark.parametrize(
    ("names", "told", "ranks"),
    [
        (["a", "b"], [1, 0], [0, 1]),
        (["trace_rank-3", "trace_rank-2"], [None] * 2, [2, 3]),
        (["r0_s5", "r1_s5"], [None] * 2, [0, 1]),
        (["trace_0", "trace_1", "trace_7"], [None] * 3, [0, 1, 7]),
        # Worker and time: two numbers differ, and neither is a rank.
        (["host_71.1690000001", "host_72.1690000002"], [None] * 2, None),
        # What the file says goes before its name, and nothing is left for the third.
        (["rank0", "rank1", "x"], [1, None, None], None),
        (["rank0", "rank1", "x"], [1, None, 2], None),
        (["rank0", "rank1"], [1, 1], None),
    ],
)
def test_ranks_of_one_run(tmp_path: Path, names: list[str], told: list[int | None], ranks: list[int] | None) -> None:
    for name, rank in zip(names, told, strict=True):
        one(tmp_path / f"{name}.json", name, **({} if rank is None else {"distributedInfo": {"rank": rank}}))
    if ranks is None:
        with pytest.raises(InputError, match=r"neither the file nor its name|cannot be one run"):
            discover([tmp_path], as_one=True)
    else:
        [run] = discover([tmp_path], as_one=True)
        assert [f.rank for f in run.files] == ranks


@pytest.mark.parametrize(
    ("names", "said", "ranks"),
    [
        # Engines of vLLM: each is the only rank of its own job, or there are several ranks in each.
        (["dp0_pp0_tp0_rank0.176", "dp1_pp0_tp0_rank0.177"], [(0, 1), (0, 1)], [0, 1]),
        (["dp0_tp1_rank1", "dp0_tp0_rank0", "dp1_tp0_rank0", "dp1_tp1_rank1"], [(1, 2), (0, 2), (0, 2), (1, 2)],
         [0, 1, 2, 3]),
        (["engine_0", "engine_1"], [(0, 1), (0, 1)], [0, 1]),
        (["a_rank0", "b_rank0"], [(0, 1), (0, 1)], None),
        (["x0", "x1"], [(0, 2), (0, 2)], None),
    ],
)  # fmt: skip
def test_replicas_numbering_ranks_from_0(
    tmp_path: Path, names: list[str], said: list[tuple[int, int]], ranks: list[int] | None
) -> None:
    for name, (rank, size) in zip(names, said, strict=True):
        one(tmp_path / f"{name}.json", name, distributedInfo={"rank": rank, "world_size": size})
    if ranks is None:
        with pytest.raises(InputError, match=r"neither the file nor its name|cannot be one run"):
            discover([tmp_path], as_one=True)
    else:
        [run] = discover([tmp_path], as_one=True)
        assert ([f.rank for f in run.files], run.columns["world_size"]) == (ranks, None)


def test_reports_of_one_job(tmp_path: Path) -> None:
    """Exports of `mpirun -n 2 nsys profile -o report.%q{RANK}`, which hold what the launcher told each process."""
    for folder, address, ranks in (("one", "a", (0, 1)), ("two", "b", (1,)), ("bare", None, (0, 1))):
        for rank in ranks:
            path = tmp_path / folder / f"report.{rank}.sqlite"
            path.parent.mkdir(exist_ok=True)
            told = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": address, "MASTER_PORT": 29500} if address else {}
            with closing(sqlite3.connect(path)) as export, export:
                export.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
                export.execute("INSERT INTO StringIds VALUES (1, ?)", [f"{folder} {rank}"])
                export.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
                lines = [("COMMON:ENVIRONMENT_VARIABLE", f"{k}={v}") for k, v in told.items()]
                export.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", lines)
    assert read(tmp_path) == [([0, 1], 2), ([0], None), ([0], None), ([1], 2)]


def test_run_id_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    a, b, c = (one(tmp_path / d / "t.json", name) for d, name in (("a", "k"), ("b", "k"), ("c", "l")))
    ids = [discover([p])[0].run_id for p in (a, b, c)]
    assert ids[0] == ids[1] != ids[2]
    found = discover([tmp_path])
    assert [r.run_id for r in found] == [ids[0], ids[2]]
    assert found.warnings == [f"{b}: a copy of {a}; left out"]


def test_files_that_differ_in_one_byte_far_from_their_ends_are_two_runs(tmp_path: Path) -> None:
    text = one(tmp_path / "t.json", "k").read_text()
    for folder, letter in (("a", "x"), ("b", "y")):
        # 64 KiB of spaces on both sides.
        (tmp_path / folder).mkdir()
        middle = text.replace('"k"', " " * 70_000 + f'"{letter}"' + " " * 70_000)
        (tmp_path / folder / "trace.json").write_text(middle)
    store = tmp_path / "store"
    for folder in "ab":
        assert run_cli("ingest", tmp_path / folder / "trace.json", "--store", store).returncode == 0
    assert {r["name"] for r in sql(store, "SELECT name FROM kernels")} == {"x", "y"}
    assert len(sql(tmp_path, "SELECT run_id FROM runs")) == 3


def test_digest_of_a_large_file_covers_all_segments(tmp_path: Path) -> None:
    """Segments of 32 MiB are hashed in parallel."""
    segment, path = 32 << 20, tmp_path / "large"
    with path.open("wb") as f:
        for at in range(0, 3 * segment, segment // 2):
            f.seek(at)
            f.write(str(at).encode())
    content = path.read_bytes()
    parts = [hashlib.sha256(content[start : start + segment]).digest() for start in (0, segment, 2 * segment)]
    assert Digests().of(path) == hashlib.sha256(b"".join(parts)).hexdigest()


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    one(folder / "run1" / "t.json")
    one(tmp_path / "secret" / "t.json", "secret")
    (folder / "a").symlink_to(".")
    (folder / "b").symlink_to(".")
    (folder / "latest").symlink_to("run1")
    (folder / "out").symlink_to(tmp_path / "secret")
    found = discover([folder])
    assert [str(f.path) for run in found for f in run.files] == [str(folder / "run1" / "t.json")]
    assert "4 symbolic links are not followed" in found.warnings[0]
    # A link that the user names is what it points to.
    assert len(discover([folder / "latest"])) == 1


def test_archives_in_a_folder_are_named(tmp_path: Path) -> None:
    one(tmp_path / "t.json")
    for name in ("a.zip", "b.tar.gz", "c.json.zst"):
        (tmp_path / name).write_bytes(b"PK")
    found = discover([tmp_path])
    names = ", ".join(f"{tmp_path}/{name}" for name in ("a.zip", "b.tar.gz", "c.json.zst"))
    assert (len(found), found.warnings) == (
        1,
        [f"{tmp_path}: 3 archives are not read, name or unpack them: {names}"],
    )
    (tmp_path / "t.json").unlink()
    with pytest.raises(InputError, match=r"3 archives are not read, name or unpack them: .*a\.zip"):
        discover([tmp_path])


def test_unreadable_files_are_skipped_with_a_warning(unprivileged: Path) -> None:
    folder = unprivileged
    one(folder / "good" / "t.json")
    for name in ("locked.json", "locked.log"):
        one(folder / name).chmod(0)
    (folder / "closed").mkdir(mode=0)
    os.mkfifo(folder / "pipe.json")
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{")
    found = discover([folder])
    assert [f.path.name for run in found for f in run.files] == ["t.json"]
    assert [w.removeprefix(f"{folder}/").partition(":")[0] for w in found.warnings] == [
        "locked.json", "locked.log", "closed", "broken/run.json",
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"broken/run\.json: not a run manifest"):
        discover([folder / "good", folder / "broken"])
    for name in ("locked.json", "closed"):
        with pytest.raises(InputError, match=f"{name}: cannot be read: Permission denied"):
            discover([folder / name])


def test_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.json"))
    one(path).write_text(path.read_text()[:-2])
    result = run_cli("query", "kernel-share", tmp_path, "-f", "csv")
    assert result.returncode == 0 and len(result.stdout.splitlines()) == 2
    assert r"warning: \udcff\udcfe.json: the file is truncated" in result.stderr
    assert sql(tmp_path, "SELECT source FROM runs")[0]["source"].endswith(r"\udcff\udcfe.json")


def run_folder(folder: Path, files: Sequence[tuple[str, str, int]] = (), **fields: Any) -> Path:
    """A run folder with a trace, and a manifest of these fields."""
    one(folder / "torch" / "rank-0.trace.json")
    return write_run(folder, files or [("torch/rank-0.trace.json", "chrome_trace", 0)], **fields)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../other/t.json", "is not a file below the run folder"),
        ("/etc/passwd", "is not a file below the run folder"),
        ("torch/\0.json", "is not a file below the run folder"),
        ("", "is not a file below the run folder"),
        ("torch/link.json", "is a link out of the run folder"),
        ("x" * 300, "File name too long"),
    ],
)
def test_manifest_cannot_name_files_outside_its_folder(tmp_path: Path, path: str, says: str) -> None:
    one(tmp_path / "other" / "t.json")
    folder = run_folder(tmp_path / "run", [(path, "chrome_trace", 0)])
    (folder / "torch" / "link.json").symlink_to(tmp_path / "other" / "t.json")
    with pytest.raises(InputError, match=f"run.json: .*{says}"):
        discover([folder])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"run_id": ""}, "run_id '' is empty"),
        ({"run_id": "a\0b"}, "has control characters"),
        ({"batch_size": 10**30}, "batch_size is 10{30}, which is not between 0 and 2147483647"),
        ({"batch_size": 1e30}, "not a run manifest"),
        ({"steps": -1}, "steps is -1"),
        ({"seed": 2**63}, "seed is"),
        ({"version": 2, "workload": {"workers": -1}}, "workers is -1"),
        ({"version": 2, "workload": {"compile": "yes"}}, r"not a run manifest: .*workload\.compile"),
        ({"passes": [{"profiler": "../x"}]}, r"'\.\./x' is not the name of a profiler"),
        ({"gpus": float("nan")}, "not a run manifest"),
        (
            {"passes": [{"profiler": "torch", "files": [{"path": "t", "kind": "chrome_trace", "rank": 2**40}]}]},
            "rank of 't' is 1099511627776",
        ),
    ],
)
def test_invalid_manifest_is_one_sentence(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=f"run.json: .*{says}"):
        discover([run_folder(tmp_path / "run", **fields)])


def test_two_files_of_one_rank_in_a_manifest(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [(f"torch/{n}.json", "chrome_trace", 0) for n in ("a", "b")])
    for name in ("a", "b"):
        one(folder / "torch" / f"{name}.json", name)
    with pytest.raises(InputError, match=r"a\.json and b\.json both have rank 0"):
        discover([folder])


def test_unknown_manifest_fields_are_null(tmp_path: Path) -> None:
    """A program of the user's own: how many processes and steps it has, the collector was not told."""
    run_folder(tmp_path / "own", program=["python", "train.py"], steps=5, gpus=4)
    counted = {"profiler": "torch", "counted_steps": 3}
    run_folder(tmp_path / "told", program=["torchrun"], world_size=2, steps=5, passes=[counted])
    run_folder(tmp_path / "ddp", parallelism="ddp", gpus=4, steps=5)
    run_folder(tmp_path / "dp", parallelism="dp", gpus=4, steps=5)
    rows = sql(tmp_path, "SELECT run_id, world_size, steps FROM runs ORDER BY run_id")
    assert [tuple(r.values()) for r in rows] == [("ddp", 4, 5), ("dp", 1, 5), ("own", None, None), ("told", 2, 3)]


def test_a_manifest_of_version_1_is_still_read(tmp_path: Path) -> None:
    old = SAMPLES / "alexnet-dp2"
    assert json.loads((old / "run.json").read_text())["version"] == 1
    manifest = read_manifest(old)
    w = manifest.workload
    # What the file says, under the names of the options: parallelism, dataset and compiled were columns.
    assert (w.model, w.batch_size, w.gpus, w.parallel, w.data, w.steps, w.warmup) == (
        "alexnet", 16, 2, "dp", "synthetic", 2, 3,
    )  # fmt: skip
    assert (w.compile, w.freeze_features, w.workers, w.device) == (False, False, 4, "cuda")
    write_manifest(tmp_path, manifest)
    new = json.loads((tmp_path / "run.json").read_text())
    assert new["version"] == 2 and "parallelism" not in new and new["workload"]["parallel"] == "dp"
    assert read_manifest(tmp_path) == manifest


def test_a_copy_of_a_run_folder_is_a_warning(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        run_folder(tmp_path / folder, run_id="same")
    found = discover([tmp_path])
    assert [r.run_id for r in found] == ["same"]
    assert found.warnings == [f"{tmp_path / 'b'}: run same was already found in {tmp_path / 'a'}; left out"]


def test_folder_without_input_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no run folder and no file"):
        discover([tmp_path / "empty"])
    (tmp_path / "x.docx").write_bytes(b"PK")
    with pytest.raises(InputError, match="unknown format"):
        discover([tmp_path / "x.docx"])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json: not a run manifest"):
        discover([tmp_path])
    with pytest.raises(InputError, match="not a file or folder"):
        discover([Path("/dev/null")])
    (tmp_path / "run.json").write_text('{"version": 99, "run_id": "x", "start": "", "command": []}')
    with pytest.raises(InputError, match="version 99 is newer"):
        discover([tmp_path])
