"""Run folders after Ctrl-C, a killed rank and a full disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote

import pytest
from collect_support import CPU, Collect, descendants, environment, interrupt, read_trace, start, wait_for

from collect import doctor
from collect.failure import diagnose, sentence
from collect.option_checks import make_options
from collect.rank_reports import RankReport
from collect.run_folder import RunFolder
from schemas.errors import InputError, MachineError
from schemas.manifest import read_manifest

LONG = [*CPU, "--steps", "100000", "--profiler", "none"]


def steps_done(temporary: Path) -> bool:
    """Whether rank 0 has finished a step: its progress file lies in the run's folder for temporary files."""
    return any(p.stat().st_size > 2 for p in temporary.rglob("progress"))


def test_kill_during_shutdown_leaves_an_interrupted_manifest(tmp_path: Path) -> None:
    """As Slurm does: SIGTERM, and soon SIGKILL, while a program that does not listen is waited for."""
    began = tmp_path / "began"
    deaf = f"trap '' INT TERM; touch {began}; while :; do sleep 0.1; done"
    child = start("run", "-o", str(tmp_path / "out"), "--profiler", "none", "--", "sh", "-c", deaf)
    wait_for(began.exists, "the program")
    [folder] = (tmp_path / "out").iterdir()
    assert read_manifest(folder).status == "running"
    left = descendants(child.pid)
    child.send_signal(signal.SIGTERM)
    wait_for(lambda: read_manifest(folder).status != "running", "run.json")
    assert any(Path(f"/proc/{pid}").exists() for pid in left)  # it is said before the program has ended
    child.kill()
    child.wait()
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    manifest = read_manifest(folder)
    said = [(manifest.status, manifest.reason), *((p.status, p.reason) for p in manifest.passes)]
    assert said == 2 * [("failed", "interrupted")]


@pytest.mark.parametrize("ignored", [False, True])
def test_sighup_ends_a_recording_except_under_nohup(tmp_path: Path, ignored: bool) -> None:
    began, may_end = tmp_path / "began", tmp_path / "may end"
    waits = f"touch {quote(str(began))}; while ! test -e {quote(str(may_end))}; do sleep 0.1; done"
    command = [sys.executable, "-m", "collect", "run", "-o", str(tmp_path / "out"), "--profiler", "none", "--"]
    with subprocess.Popen(
        [*["nohup"] * ignored, *command, "sh", "-c", waits], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=environment(),
    ) as child:  # fmt: skip
        wait_for(began.exists, "the program")
        child.send_signal(signal.SIGHUP)
        if ignored:
            may_end.touch()
        _, said = child.communicate(timeout=90)
    [folder] = (tmp_path / "out").iterdir()
    assert (child.returncode, read_manifest(folder).status) == ((0, "done") if ignored else (130, "failed")), said


def test_interrupted_run_keeps_its_trace(tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    child = start("run", "-o", str(tmp_path), *CPU, "--steps", "100000", TMPDIR=str(temporary))
    wait_for(lambda: steps_done(temporary), "some steps")
    below = set(descendants(child.pid))
    code, stdout, stderr = interrupt(child, signal.SIGTERM)  # goes the way of Ctrl-C
    assert code == 130 and stderr.splitlines()[-1] == "collect: interrupted" and "Traceback" not in stderr
    folder = Path(stdout.strip())
    manifest = read_manifest(folder)
    assert (manifest.status, manifest.reason, manifest.passes[0].reason) == ("failed", "interrupted", "interrupted")
    # The steps up to the signal are there, as a whole trace and as metrics, and counted: one is the warm-up.
    rows = (folder / "torch/rank-0.step_metrics.csv").read_text().splitlines()
    assert len(rows) > 2 and manifest.passes[0].counted_steps == len(rows) - 2
    assert read_trace(folder / "torch/rank-0.trace.json.gz")["traceEvents"]
    assert not any(Path(f"/proc/{p}").exists() for p in below)


def test_killed_rank_fails_the_run_and_keeps_the_other_trace(tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    child = start("run", "-o", str(tmp_path), *LONG, "--parallel", "ddp", "--gpus", "2", TMPDIR=str(temporary))
    try:
        wait_for(lambda: steps_done(temporary), "some steps")
        # The launcher, which starts rank 0 first; a process's name is cut off after 15 characters.
        _, _, rank1 = (pid for pid, name in descendants(child.pid).items() if "collect.workloa" in name)
        os.kill(rank1, signal.SIGKILL)
        stdout, stderr = child.communicate(timeout=120)
    finally:
        child.kill()
    assert child.wait() == 1 and "Traceback" not in stderr
    manifest = read_manifest(Path(stdout.strip()))
    assert manifest.status == "failed"
    assert "rank 1 was killed by signal 9 (SIGKILL)" in (manifest.reason or "")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB; only root may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small disk can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk_is_reported_in_one_sentence(collect: Collect, small_disk: Path) -> None:
    # 8 steps of resnet18 make a trace of about 2.5 MB before compression: more than the disk has.
    ran = collect(*CPU, "--model", "resnet18", "--steps", "8", output=small_disk)
    assert ran.code == 1
    manifest = json.loads((ran.folder / "run.json").read_text())
    assert manifest["status"] == "failed" and "the disk" in manifest["reason"] and "is full" in manifest["reason"]
    assert len((ran.folder / "torch/rank-0.step_metrics.csv").read_text().splitlines()) == 1 + 9
    assert not list(ran.folder.rglob("*.part")) and not list(ran.folder.rglob("*.trace.json.gz"))


def test_program_survives_a_full_disk(collect: Collect, small_disk: Path) -> None:
    program = "import torch\nfor _ in range(3000): torch.ones(1) + 1\n"
    ran = collect("--", sys.executable, "-c", program, output=small_disk)
    assert ran.code == 1
    assert "No space left on device" in (ran.manifest.reason or "")
    assert ran.manifest.passes[0].exit_code == 0


def test_unwritable_output_is_reported_in_one_sentence(collect: Collect, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file/runs", "loop", "x" * 300):
        ran = collect(*CPU, output=tmp_path / name)
        assert ran.code == 2 and f"collect: --output: cannot write to {tmp_path / name}" in ran.stderr


def test_folders_without_permission(unprivileged: Path) -> None:
    closed = unprivileged / "closed"
    closed.mkdir(mode=0)
    with pytest.raises(MachineError, match=r"--output: cannot write to .*closed/runs/.*: Permission denied"):
        RunFolder.create(make_options({"output": str(closed / "runs"), "model": "resnet18"}), ["collect"])
    for data in (f"imagefolder:{closed}/images", f"food101:{closed}", f"cifar100:{closed}"):
        with pytest.raises(InputError, match=r"--data: .*closed(/images)?: cannot be read: Permission denied"):
            make_options({"data": data, "model": "resnet18"})
    # Not by run_checks: it would import torch, as a user for whom that may fail half-way, into the tests' process.
    assert str(closed) in doctor.check_output(closed / "runs").found


def test_sentences() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    # The text of torch 2.11's exception, shortened.
    text = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which ..."
    assert sentence(OutOfMemoryError(text)) == (
        "out of GPU memory (a request of 20.00 GiB failed); use a smaller --batch-size or --image-size"
    )
    assert sentence(ValueError("Bad value.\nSee the docs.")) == "ValueError: Bad value."
    assert "out of host memory" in sentence(MemoryError())
    assert sentence(OSError(28, "No space left on device", "x")).startswith("the disk that holds x is full")


def test_first_failure_is_reported_as_the_reason(tmp_path: Path) -> None:
    first = RankReport(rank=1, reason="out of GPU memory", when=1.0)
    then = RankReport(rank=0, reason="RuntimeError: Connection closed by peer", when=2.0)

    def say(code: int, reports: list[RankReport], codes: dict[int, int]) -> str:
        return diagnose(code, reports, codes, tmp_path, ranks=2, program=False) or "all went well"

    assert say(1, [then, first], {0: 1, 1: 1}) == "rank 1: out of GPU memory"
    # A rank that died without a word was first; one that the launcher ended by SIGTERM was not.
    assert say(1, [then], {0: 1, 1: -11}).startswith("rank 1 was killed by signal 11 (SIGSEGV)")
    assert say(1, [first], {0: -15, 1: 1}) == "rank 1: out of GPU memory"
    assert say(0, [RankReport(rank=0, ok=True)], {}) == "all went well"
    assert say(137, [], {}).startswith("the training process was killed by signal 9")
