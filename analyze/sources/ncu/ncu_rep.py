"""Read reports of Nsight Compute (.ncu-rep) with `ncu --import`."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from analyze.errors import InputError
from analyze.sources.interface import FileReport, TableBatch
from analyze.sources.ncu import reader as ncu
from schemas.isolation import run_tool
from schemas.tools import NCU


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the metrics of the raw page of a report.

    Raises InputError if there is no ncu, or ncu cannot read the file.
    """
    tool = NCU.find()
    if tool is None:
        raise InputError(
            f"{path}: reading a .ncu-rep needs ncu on PATH or in {NCU.variable}; or export it where ncu is: "
            f"ncu --import {path.name} --csv --page raw > {path.stem}.ncu.csv"
        )
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
        command = [tool, "--import", str(path.absolute()), "--csv", "--page", "raw"]
        try:
            done = run_tool(command, stdout=out, stderr=subprocess.STDOUT)
        except OSError as e:
            raise InputError(f"{path}: {tool} does not run: {e.strerror}") from e
        out.seek(0)
        if done.returncode:
            said = [line.strip() for line in out if line.strip()]
            why = next((s.removeprefix("==ERROR==").strip() for s in said if s.startswith("==ERROR==")), None)
            raise InputError(
                f"{path}: ncu could not read it: {why or (said or [f'it ended with code {done.returncode}'])[-1]}"
            )
        yield from ncu.read_lines(out, str(path), report)
