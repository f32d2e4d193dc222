"""Baselines: runs that are kept under a name, and compared with."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import run_cli
from traces import kernel, step, write_run, write_trace

import analyze
from analyze.errors import InputError


def record(folder: Path, us: float) -> Path:
    """A run of one step with one kernel."""
    write_trace(folder / "torch/rank-0.trace.json", [step(1, 0, us), kernel("k", 0, us / 2)])
    return write_run(folder, [("torch/rank-0.trace.json", "chrome_trace", 0)])


def test_set_list_show_compare_rm(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    runs = [record(tmp_path / f"a{i}", us) for i, us in enumerate((100, 101, 102))]
    slow = [record(tmp_path / f"b{i}", us) for i, us in enumerate((110, 111, 112))]

    def cli(*arguments: str | Path) -> tuple[int, str]:
        result = run_cli(*arguments)
        return result.returncode, result.stdout + result.stderr

    assert cli("baseline", "list", "--folder", kept) == (0, "")
    assert cli("baseline", "set", "main", *runs, "--folder", kept) == (0, "baseline main: 3 run(s)\n")
    assert cli("baseline", "list", "--folder", kept) == (0, "main\n")
    code, shown = cli("baseline", "show", "main", "--folder", kept)
    assert code == 0 and all(f"a{i}" in shown for i in range(3))
    for run in runs:  # what is compared is what was kept
        (run / "torch/rank-0.trace.json").unlink()
    fails = ["--baseline", "main", "--baselines", kept, "--fail-if", "step_time > 5%"]
    # 110 us are 10 % more than 100 us.
    code, said = cli("compare", *slow, *fails)
    assert code == 1 and "failed: step_time > 5%: step_time changed by +9.9" in said
    [row] = [
        r
        for r in analyze.compare([*slow], baseline="main", baselines=kept).answer.dicts()
        if r["measure"] == "step_time"
    ]
    assert (row["runs_a"], row["runs_b"], row["verdict"]) == (3, 3, "slower")
    # It is replaced as a whole.
    assert cli("baseline", "set", "main", *slow, "--folder", kept) == (0, "baseline main: 3 run(s)\n")
    assert cli("compare", *slow, *fails)[0] == 0
    assert cli("baseline", "rm", "main", "--folder", kept) == (0, "baseline main: removed\n")
    assert analyze.baselines(kept) == [] and list(kept.iterdir()) == []


def test_bad_names_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEQUARRY_BASELINES", str(tmp_path))
    run = record(tmp_path / "run", 10)
    for name in ("../x", "a/b", "", "a b"):
        with pytest.raises(InputError, match="a name has letters"):
            analyze.set_baseline(name, run)
    with pytest.raises(InputError, match=r"there is no baseline 'x' .*there are: none"):
        analyze.open_baseline("x")
    with pytest.raises(InputError, match="there is no baseline 'run'"):  # a folder that is no store stays
        analyze.remove_baseline("run")
    assert (run / "run.json").exists()
    # Runs that cannot be read leave the older baseline.
    analyze.set_baseline("x", run)
    with pytest.raises(InputError):
        analyze.set_baseline("x", tmp_path / "none")
    assert analyze.baselines() == ["x"] and analyze.open_baseline("x").query("runs").dicts()
    assert run_cli("compare", run, "--baseline", "x", "--with", run).returncode == 2


def test_baselines_on_object_storage(bucket: str, tmp_path: Path) -> None:
    folder = f"{bucket}/baselines"
    assert analyze.baselines(folder) == []
    analyze.set_baseline("main", record(tmp_path / "a", 10), folder=folder)
    analyze.set_baseline("main", record(tmp_path / "b", 10), folder=folder)
    assert analyze.baselines(folder) == ["main"]
    assert [r["run_id"] for r in analyze.open_baseline("main", folder).query("runs").dicts()] == ["b"]
    # Runs that cannot be read leave the older baseline.
    lost = record(tmp_path / "c", 10)
    (lost / "torch/rank-0.trace.json").write_text("{}")
    with pytest.raises(InputError):
        analyze.set_baseline("main", lost, folder=folder)
    assert [r["run_id"] for r in analyze.open_baseline("main", folder).query("runs").dicts()] == ["b"]
    assert analyze.open_baseline("main", folder).query("kernel-share").dicts()
    analyze.remove_baseline("main", folder)
    assert analyze.baselines(folder) == []
