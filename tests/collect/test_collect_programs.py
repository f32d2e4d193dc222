"""Programs as people write them end under `collect run` as without: exit code, output and loss, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from collect_support import NO_GPU, environment

from schemas.manifest import read_manifest

PROGRAMS = sorted(Path(__file__).with_name("programs").glob("*.py"))
NOT_RECORDED = {"own_profiler": "the program runs a torch.profiler of its own"}
"""Programs that `collect` cannot record, and why."""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_ends_as_without_collect(program: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(program)]
    options = ["--steps", "2", "--warmup", "2", "--undisturbed", "1", "-o", str(tmp_path)]
    pipe = subprocess.PIPE
    plain, recorded = (
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, env=environment(**NO_GPU)
        )
        for argv in (command, [sys.executable, "-m", "collect", "run", *options, "--", *command])
    )
    expected, _ = plain.communicate(timeout=120)
    stdout, stderr = recorded.communicate(timeout=120)
    assert stdout == expected, stderr
    manifest = read_manifest(next(p.parent for p in sorted(tmp_path.glob("*/run.json"))))
    [done] = manifest.passes
    assert done.exit_code == plain.returncode, stderr
    if program.stem in NOT_RECORDED:
        assert recorded.returncode == 1 and NOT_RECORDED[program.stem] in (done.reason or "")
    else:
        assert recorded.returncode == (plain.returncode if plain.returncode >= 0 else 128 - plain.returncode), stderr
        assert any(file.kind == "chrome_trace" for file in done.files), stderr
