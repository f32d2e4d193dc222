"""Runs inputs through a worker and judges the answers."""

from __future__ import annotations

import json
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz import cases, laws

WALL_SECONDS = 120.0
"""After which a worker is ended that does not even notice its limit of CPU time."""
PEAK_BYTES = 1 << 30
"""Of an input, beyond what the worker had before; the files of the corpus are under 1 MB."""
_MOST_WARNINGS = 60


@dataclass
class Failure:
    """An input that broke a law."""

    source: str
    seed: int
    number: int
    kind: str
    """traceback, hang, died, memory, silent loss or wordy."""
    said: str

    @property
    def again(self) -> str:
        """The command that makes it again."""
        return f"python -m tests.fuzz --source {self.source} --seed {self.seed} --only {self.number}"

    @property
    def place(self) -> str:
        """Where it broke, to tell failures of one cause from others."""
        frames = re.findall(r'File ".*?/((?:analyze|schemas)/[^"]+)", line (\d+)', self.said)
        if not frames:
            return f"{self.kind} {re.sub('[0-9]+', 'N', self.said[:90])}"
        raised = re.findall(r"^([\w.]*[A-Z]\w+)(?:: |$)", self.said, re.MULTILINE)
        return f"{self.kind} {raised[-1] if raised else ''} at {':'.join(frames[-1])}"


@dataclass
class Tally:
    """What came of a series of inputs."""

    inputs: int = 0
    refused: int = 0
    with_loss: int = 0
    failures: list[Failure] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    """What refused inputs were told, without names and numbers."""


class Worker:
    """A worker process, started anew when it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._peak = 0

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """Its answer; `died` or `hang` where there is none."""
        process = self._started()
        assert process.stdin and process.stdout
        print(json.dumps(task), file=process.stdin, flush=True)
        if not select.select([process.stdout], [], [], WALL_SECONDS)[0]:
            self.close()
            return {"hang": f"no answer in {WALL_SECONDS:.0f} s"}
        line = process.stdout.readline()
        if not line:
            code = process.wait()
            self._process = None
            return {"died": f"the process ended with code {code}"}
        found: dict[str, Any] = json.loads(line)
        before, self._peak = self._peak, found["peak"]
        if before and self._peak > before + PEAK_BYTES:
            found["memory"] = f"{(self._peak - before) >> 20} MB"
            self.close()
        return found

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                cwd=Path(__file__).parents[2],
            )  # fmt: skip
            self._peak = 0
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def judge(given: cases.Input, found: dict[str, Any]) -> tuple[str, str] | None:
    """Kind and text of what an answer breaks; None if it breaks nothing."""
    for kind in ("traceback", "hang", "died", "memory"):
        if kind in found:
            return kind, found[kind]
    if "error" in found:
        lines = found["error"].splitlines()
        return ("wordy", found["error"]) if len(lines) != 1 or len(lines[0]) > 2000 else None
    said = found["warnings"]
    if len(said) > _MOST_WARNINGS:
        return "wordy", f"{len(said)} warnings, such as {said[-1]}"
    if given.there is None:
        return None
    # Traces report what they lost in words.
    events = sum(int(n) for w in said for n in re.findall(r"(\d+) events? could not be read", w))
    unread = [w.partition("categories that are not read: ")[2].partition(";")[0] for w in said]
    events += sum(int(n) for counts in unread for n in re.findall(r"(?:^|, )(\d+) ", counts))
    if any("truncated" in w or "stopped early" in w for w in said):
        return None
    broken = laws.break_of_law(given.there, given.kept(found["kept"]), found["lost"] + events, given.exact)
    return ("silent loss", f"{broken}; warnings: {said}") if broken else None


def run_case(worker: Worker, tally: Tally, source: str, seed: int, number: int, keep: Path | None = None) -> None:
    """Make an input, give it to the worker and judge the answer; a failing input is kept in a folder."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        given = cases.make(source, seed, number, folder)
        found = worker.ask({"path": str(given.path), "do": given.do})
        tally.inputs += 1
        if "error" in found:
            tally.refused += 1
            tally.refusals[re.sub(r"[0-9]+", "N", found["error"].partition(": ")[2])[:80]] += 1
        tally.with_loss += bool(found.get("lost"))
        if broken := judge(given, found):
            failure = Failure(source, seed, number, *broken)
            tally.failures.append(failure)
            if keep is not None:
                to = keep / f"{source}-{seed}-{number}"
                shutil.rmtree(to, ignore_errors=True)
                shutil.copytree(folder, to)
                (to / "failure.json").write_text(json.dumps(asdict(failure) | {"again": failure.again}, indent=1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
