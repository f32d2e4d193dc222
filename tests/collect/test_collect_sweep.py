"""`collect sweep`: killed and resumed, past a failed cell, invalid plans."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from collect_support import ROOT, descendants, interrupt, refused, start, wait_for

from collect import doctor
from collect.signals import Signals
from collect.sweep.plan import read_plan
from schemas.errors import InputError
from schemas.manifest import read_manifest

OPTIONS = """
[options]
model = "squeezenet1_1"
image_size = 32
steps = 1
warmup = 1
device = "cpu"
profiler = "none"
"""


def sweep(plan: Path, output: Path, *more: str) -> tuple[int, str]:
    child = start("sweep", str(plan), "-o", str(output), *more)
    _, stderr = child.communicate(timeout=180)
    assert "Traceback" not in stderr, stderr
    return child.wait(), stderr


def cells(output: Path) -> list[dict[str, Any]]:
    path = output / "sweep.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"] if path.exists() else []
    return found


def test_killed_sweep_resumes(tmp_path: Path) -> None:
    plan, output, may_end = tmp_path / "plan.toml", tmp_path / "out", tmp_path / "may end"
    programs = [["true"], ["sh", "-c", f"test -e '{may_end}' || exec sleep 600"]]
    plan.write_text(f"[options]\nprofiler = 'none'\n[grid]\nprogram = {json.dumps(programs)}\n")
    child = start("sweep", str(plan), "-o", str(output))
    wait_for(lambda: [c["status"] for c in cells(output)] == ["done", "running"], "the second cell")
    wait_for(lambda: any("sleep" in command for command in descendants(child.pid).values()), "its program")
    left = descendants(child.pid)
    child.kill()
    child.wait()
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    first = cells(output)[0]
    may_end.touch()
    code, stderr = sweep(plan, output)
    assert code == 0, stderr
    after = cells(output)
    assert [c["status"] for c in after] == ["done", "done"]
    # The cell that was done is not run again; the one that was killed is, in a folder of its own.
    assert after[0] == first
    assert [read_manifest(output / c["run"]).program for c in after] == programs
    assert "2 done, 0 failed" in stderr


def test_interrupted_sweep_resumes(tmp_path: Path) -> None:
    plan, output = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text("[options]\nprofiler = 'none'\n[grid]\nprogram = [['sleep', '600'], ['sleep', '601']]\n")
    child = start("sweep", str(plan), "-o", str(output))
    wait_for(lambda: [c["status"] for c in cells(output)][:1] == ["running"], "the first cell")
    code, _, stderr = interrupt(child)
    assert code == 130 and "2 not run" in stderr
    assert [c["status"] for c in cells(output)] == ["interrupted", "pending"]


def test_sweep_continues_after_a_failed_cell(tmp_path: Path) -> None:
    plan, output = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text("[options]\nprofiler = 'none'\nwarmup = 1\n[grid]\nprogram = [['false'], ['true']]\n")
    code, stderr = sweep(plan, output)
    assert code == 1 and "1 done, 1 failed" in stderr
    failed, done = cells(output)
    assert (failed["status"], done["status"]) == ("failed", "done")
    assert "the program exited with code 1" in failed["reason"]
    # Again: the failed cell is left alone ...
    assert sweep(plan, output)[0] == 1
    assert cells(output) == [failed, done]
    # ... unless it is asked for.
    assert sweep(plan, output, "--retry-failed")[0] == 1
    assert cells(output)[0]["run"] != failed["run"] and cells(output)[1] == done
    # Other fixed options under the same output would mix two studies.
    plan.write_text(plan.read_text().replace("warmup = 1", "warmup = 2"))
    code, stderr = sweep(plan, output)
    assert code == 2 and "other [options]" in stderr


def test_grid_order_and_excludes(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(OPTIONS + "[grid]\nbatch_size = [2, 4]\nseed = [0, 1]\n[[exclude]]\nbatch_size = 4\nseed = 1\n")
    # The last line varies fastest; 4 x 1 is excluded.
    assert [tuple(c.values()) for c in read_plan(plan).cells] == [(2, 0), (2, 1), (4, 0)]


def test_repeat_runs_all_cells_then_all_again(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text("repeat = 2\n" + OPTIONS + "[grid]\nbatch_size = [2, 4]\n")
    cells = [(c["batch_size"], c["repetition"]) for c in read_plan(plan).cells]
    assert cells == [(2, 1), (4, 1), (2, 2), (4, 2)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("repeat = 0\n" + OPTIONS, "repeat: invalid value 0; expected a whole number from 1"),
        (OPTIONS + "[grid]\nbatchsize = [2]\n", "grid.batchsize: unknown option; did you mean 'batch_size'?"),
        (OPTIONS + 'colour = "red"\n', "options.colour: unknown option"),
        (OPTIONS + '[grid]\nbatch_size = ["two"]\n', "grid.batch_size: invalid value 'two'; expected a whole number"),
        (OPTIONS + "[grid]\nbatch_size = 2\n", "grid.batch_size: expected a list of values, not 2"),
        (OPTIONS + "[grid]\nsteps = [1]\n", "grid.steps: also set in options"),
        (
            "[options]\nsteps = 1\nmodel = 'vgg16'\nbatch_size = 2\ngpus = 1\nwarmup = 1\nimage_size = 32\n"
            "[grid]\ngpus = [1]\nsteps = [1]\nimage_size = [32]\nmodel = ['vgg16']\nwarmup = [1]\nbatch_size = [2]\n",
            "grid.gpus: also set in options",
        ),
        ('[options]\nprogram = "train.py"\n', "options.program: invalid value 'train.py'; expected a list of text"),
        (OPTIONS + "[[exclude]]\nseed = 1\n", "exclude.seed: not a key of the grid"),
        ("[grid\n", "not TOML"),
    ],
)
def test_bad_plan_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    code, stderr = refused("sweep", str(plan), "-o", str(tmp_path / "out"))
    assert code == 2
    assert stderr.startswith(f"collect: {plan}") and sentence in stderr and len(stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_doctor_on_this_machine() -> None:
    child = start("doctor", "--format", "json")
    stdout, stderr = child.communicate(timeout=240)
    checks = {c["name"]: c for c in json.loads(stdout)}
    assert child.returncode == 0, stderr
    assert checks["torch"]["status"] == "ok" and checks["output"]["found"]
    assert {"nsys", "ncu", "driver"} <= set(checks)
    assert (checks["attaching"]["status"], checks["attaching"]["found"]) == ("ok", "3 of 10 steps on 2 ranks")
    # Whatever is not ok names its fix.
    assert all(c["fix"] for c in checks.values() if c["status"] != "ok")


def test_interrupted_doctor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Signals):
        def __enter__(self) -> Signals:
            entered = super().__enter__()
            signal.raise_signal(signal.SIGINT)
            return entered

    monkeypatch.setattr("collect.signals.Signals", Interrupted)
    check = doctor._attaching()
    assert (check.status, check.found) == ("warn", "a training of 10 steps: interrupted")


def test_grids_and_cell_selection(tmp_path: Path) -> None:
    plan, output = tmp_path / "plan.toml", tmp_path / "out"
    own = "[options]\nprogram = ['true']\nprofiler = 'none'\n"
    plan.write_text(own + "[[grid]]\nsteps = [2, 3]\n[[grid]]\nsteps = [3]\n[[grid]]\nundisturbed = [1, 2]\n")
    # The third cell stands in two grids.
    assert read_plan(plan).cells == [{"steps": 2}, {"steps": 3}, {"undisturbed": 1}, {"undisturbed": 2}]
    code, stderr = sweep(plan, output, "--only", "steps=3")
    assert code == 0 and "1 done, 0 failed, 3 not run" in stderr
    assert [c["status"] for c in cells(output)] == ["pending", "done", "pending", "pending"]
    code, stderr = refused("sweep", str(plan), "-o", str(output), "--only", "steps=4")
    assert code == 2 and stderr == "collect: --only steps=4: matches no cell; the plan has 2, 3\n"
    assert refused("sweep", str(plan), "-o", str(output), "--only", "steps")[0] == 2


@pytest.mark.parametrize("grid", ["grid = 3", "grid = []", "grid = [3]", "[[grid]]\nseed = []"])
def test_bad_grid_is_one_sentence(tmp_path: Path, grid: str) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(grid)
    with pytest.raises(InputError, match="grid"):
        read_plan(plan)


PLANS = sorted(p for p in (ROOT / "studies").glob("*/*.toml") if p.name != "report.toml")


@pytest.mark.parametrize("plan", PLANS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_study_plans_are_valid(plan: Path) -> None:
    read = read_plan(plan)
    assert len(read.cells) == len({tuple(sorted(c.items())) for c in read.cells}) >= 2


def test_study_plans_exist() -> None:
    assert {p.parent.name for p in PLANS} == {
        "efficientnet-scaling", "nvprof-imagenet", "resnet152-ddp", "roofline-imagenet"
    }  # fmt: skip


def test_cells_as_tasks_of_submitit(tmp_path: Path) -> None:
    """What runs on Slurm, by submitit's executor for this machine."""
    pytest.importorskip("submitit")
    plan, output = tmp_path / "plan.toml", tmp_path / "out"
    python = [sys.executable, "-c"]
    programs = [[*python, "print('well')"], [*python, "raise SystemExit(3)"]]
    plan.write_text(f"[options]\nprofiler = 'none'\n[grid]\nprogram = {json.dumps(programs)}\n")
    code, stderr = sweep(plan, output, "--launcher", "local")
    assert code == 1 and "1 done, 1 failed" in stderr
    done, failed = cells(output)
    assert (done["status"], failed["status"]) == ("done", "failed")
    assert failed["reason"].startswith("the program exited with code 3") and done["seconds"] > 0
    assert (output / done["run"] / "none/log.txt").read_text() == "well\n"
    assert sorted(p.name for p in output.iterdir()) == sorted([done["run"], failed["run"], "sweep.json"])
    # It is the same sweep, and goes on as any other.
    plan.write_text(plan.read_text().replace("SystemExit(3)", "SystemExit(0)"))
    code, stderr = sweep(plan, output, "--launcher", "local")
    assert code == 0 and [c["status"] for c in cells(output)] == ["done", "done"] and cells(output)[0] == done


def test_cell_of_a_killed_task_is_failed(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    plan, output = tmp_path / "plan.toml", tmp_path / "out"
    programs = [["sh", "-c", f"kill -9 $PPID #{n}"] for n in range(2)]
    plan.write_text(f"[options]\nprofiler = 'none'\n[grid]\nprogram = {json.dumps(programs)}\n")
    jobs = tmp_path / "jobs"
    code, stderr = sweep(plan, output, "--launcher", "local", "--launcher-option", f"folder={jobs}")
    assert code == 1 and "2 failed" in stderr
    [logs] = jobs.iterdir()
    assert all(f"({logs}/" in cell["reason"] for cell in cells(output)) and not (output / ".submitit").exists()
    assert len({cell["run"] for cell in cells(output)}) == 2
    for cell, program in zip(cells(output), programs, strict=True):
        manifest = read_manifest(output / cell["run"])
        assert cell["reason"].startswith("its task was lost: ") and manifest.program == program
        said = [(manifest.status, manifest.reason), *((p.status, p.reason) for p in manifest.passes)]
        assert said == 2 * [("failed", cell["reason"])]
        assert manifest.end is None and not (output / cell["run"] / ".reserve").exists()


def test_interrupted_sweep_cancels_its_tasks(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    plan, output = tmp_path / "plan.toml", tmp_path / "out"
    program = [sys.executable, "-c", f"import time; open({str(tmp_path / 'began')!r}, 'w'); time.sleep(600)"]
    plan.write_text(f"[options]\nprofiler = 'none'\nprogram = {json.dumps(program)}\n[grid]\nsteps = [1, 2]\n")
    child = start("sweep", str(plan), "-o", str(output), "--launcher", "local")
    wait_for((tmp_path / "began").exists, "the first cell")
    code, _, stderr = interrupt(child)
    assert code == 130 and "2 not run" in stderr
    assert [c["status"] for c in cells(output)] == ["interrupted", "pending"]


def test_scripts_for_sbatch(tmp_path: Path) -> None:
    plan = tmp_path / "a plan.toml"
    plan.write_text(
        OPTIONS.replace('"cpu"', '"cuda"') + "parallel = 'ddp'\n[grid]\ngpus = [1, 4]\nbatch_size = [8, 16]\n"
    )
    asked = ["sweep", str(plan), "-o", "out", "--launcher", "slurm", "--print", "--launcher-option", "mem_gb=8"]
    child = start(*asked, "--launcher-option", "slurm_partition=long")
    printed, stderr = child.communicate()
    more = "#SBATCH --mem=8G\n#SBATCH --partition=long\n"
    command = f"collect sweep '{plan}' -o out/cell-$cell --only cell=$cell\n"
    assert (child.wait(), printed, stderr) == (0, "#!/bin/bash\n" + "".join(
        f"sbatch <<'END'\n#!/bin/bash\n#SBATCH --array=0-1\n#SBATCH --job-name=collect-sweep\n"
        f"#SBATCH --gpus-per-node={gpus}\n{more}cells=({cells})\ncell=${{cells[$SLURM_ARRAY_TASK_ID]}}\n{command}END\n"
        for gpus, cells in ((1, "1 2"), (4, "3 4"))
    ), "")  # fmt: skip
    plan.write_text("[options]\nprogram = ['true']\nprofiler = 'none'\n[grid]\nsteps = [2, 3]\n")
    code, _ = sweep(plan, tmp_path / "out", "--only", "cell=2")
    assert code == 0 and [c["status"] for c in cells(tmp_path / "out")] == ["pending", "done"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--launcher", "pbs"], "--launcher pbs: must be slurm or local"),
        (["--launcher", "slurm"], "--launcher slurm: Could not detect"),
        (["--launcher", "local", "--launcher-option", "mem"], "--launcher-option mem: expected name=value"),
        (["--launcher-option", "mem_gb=8"], "--launcher-option: needs --launcher"),
        (["--print"], "--print: needs --launcher slurm"),
        (["--only", "cell=3"], "--only cell=3: the plan has cells 1 to 2"),
    ],
)
def test_invalid_launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str) -> None:
    pytest.importorskip("submitit")
    plan = tmp_path / "plan.toml"
    plan.write_text(OPTIONS + "[grid]\nbatch_size = [2, 3]\n")
    # Without the programs of a Slurm that may be here.
    monkeypatch.setenv("PATH", "")
    code, stderr = refused("sweep", str(plan), "-o", str(tmp_path / "out"), *options)
    assert code == 2 and stderr.startswith(f"collect: {said}") and stderr.count("\n") == 1
