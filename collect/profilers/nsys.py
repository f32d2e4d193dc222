"""Nsight Systems: one report per node that holds all ranks, and its SQLite export.

What a version of nsys knows is asked of its own help text, so that one module serves 2021 to 2026.
"""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from collect.errors import ToolError
from collect.new_files import private_folder
from collect.options import RunOptions
from collect.profilers.base import Profiler, Recorder, ask_tool, need_tool, run_tool
from collect.profilers.cuda_range import CudaRangeRecorder
from collect.profilers.nsys_scrub import scrub_export
from schemas.options import Option
from schemas.tools import NSYS

PANEL = "Nsight Systems"
GPU_TRACES = ("cuda", "nvtx", "cudnn", "cublas", "nccl")
CPU_TRACES = ("nvtx", "osrt")
REPORT = "node-0"
KEPT_NOTE = (
    "nsys: the report that is kept (.nsys-rep) holds the whole environment, the command line, what the program prints "
    "and the names of all processes of this node; the .sqlite beside it does not"
)


class NsysOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to trace, and when."""

    nsys_trace: Annotated[
        str | None,
        Option("APIs to trace, with commas; by default cuda,nvtx,cudnn,cublas, and nccl where known.", PANEL),
    ] = None
    nsys_capture_range: Annotated[
        Literal["none", "cudaProfilerApi"] | None,
        Option("{choices}; by default the profiled steps, or all of a program of your own.", PANEL),
    ] = None


def known_traces(help_text: str) -> set[str]:
    """The values that this nsys takes for --trace, from `nsys profile --help`; empty if it does not say."""
    section = re.search(r"^\s*-t, --trace=(.*?)^\s*-\w, --|^\s*-t, --trace=(.*)", help_text, re.S | re.M)
    if section is None:
        return set()
    text = (section[1] or section[2] or "").partition("Select the API")[0]
    return set(re.findall(r"'([\w-]+)'", text))


def profile_arguments(nsys: str, help_text: str, traces: list[str], capture: str, output: Path) -> list[str]:
    """The command line up to the program's own: `nsys profile ...`.

    `capture` is the capture range. Options that this nsys does not name in its help are left out.
    """
    wanted = {
        "--trace": ",".join(traces) or "none",
        "--sample": "none",
        "--cpuctxsw": "none",
        # Otherwise a report carries the symbols of all of PyTorch's libraries: gigabytes.
        "--resolve-symbols": "false",
        "--capture-range": capture,
        "--force-overwrite": "true",
    }
    if "cuda" in traces:
        wanted["--cuda-memory-usage"] = "true"
        wanted["--cuda-graph-trace"] = "node"
    if capture != "none":
        # `stop` ends the recording and leaves the program alone, which the default (stop-shutdown) would end.
        # The workers wait for each other before the first of them stops it.
        wanted["--capture-range-end"] = "stop"
    known = set(re.findall(r"(--[\w-]+)", help_text))
    arguments = [f"{name}={value}" for name, value in wanted.items() if name in known or not known]
    return [nsys, "profile", *arguments, f"--output={output}"]


def import_error(log: str) -> str | None:
    """What nsys could not make sense of in its own recording (an nsys older than the program's CUDA), or None.

    The report is there, but events are missing from it.
    """
    if "non-fatal errors" not in log and "Errors occurred while processing the raw events" not in log:
        return None
    said = re.search(r"tag_message\*\] = (.+?)(?:\\n|\n|\")", log)
    return said[1].strip() if said else "nsys reported errors while importing its recording"


class NsysProfiler(Profiler[NsysOptions]):
    """Wraps the whole launcher, so that the report holds every rank of the node."""

    name = "nsys"
    Options = NsysOptions
    tool = NSYS
    kinds: ClassVar = {".nsys-rep": "nsys_report", ".sqlite": "nsys_sqlite"}

    def __init__(self, options: RunOptions) -> None:
        """Take the options; prepare() looks up the tool."""
        super().__init__(options)
        self._nsys = "nsys"
        self._help = ""
        self._traces: list[str] = []
        self._import_error: str | None = None

    @property
    def capture_range(self) -> str:
        """The profiled steps of a model; all of a program of the user's own, which marks none; all on the CPU."""
        if self.own.nsys_capture_range:
            return self.own.nsys_capture_range
        return "none" if self.options.program or self.options.device == "cpu" else "cudaProfilerApi"

    def prepare(self) -> list[str]:
        """Find nsys and choose the traces that it knows."""
        self._nsys = need_tool(NSYS)
        self._help = ask_tool([self._nsys, "profile", "--help"])
        notes = [KEPT_NOTE] if self.options.keep_report else []
        known = known_traces(self._help)
        default = GPU_TRACES if self.options.device == "cuda" else CPU_TRACES
        if self.own.nsys_trace is None:
            self._traces = [t for t in default if t in known or (not known and t != "nccl")]
            return notes
        asked = [t.strip() for t in self.own.nsys_trace.split(",") if t.strip() and t.strip() != "none"]
        self._traces = [t for t in asked if t in known or not known]
        unknown = [t for t in asked if t not in self._traces]
        if unknown:
            notes.append(f"nsys: this version cannot trace {', '.join(unknown)}; going on without")
        return notes

    def wrap(self, argv: list[str], folder: Path) -> list[str]:
        """`nsys profile ... argv`."""
        return profile_arguments(self._nsys, self._help, self._traces, self.capture_range, folder / REPORT) + argv

    def recorder(self, folder: Path, rank: int) -> Recorder:
        """Opens the capture range; without a GPU there is no cudaProfilerStart to call."""
        if self.options.device != "cuda":
            return Recorder()
        return CudaRangeRecorder(self.options)

    def finish(self, folder: Path, log: str) -> None:
        """Export the report to SQLite, take out what must not leave the node, and remove the report.

        A report that cannot be exported stays: it is all there is of the pass.
        """
        folder = folder.absolute()
        report = folder / f"{REPORT}.nsys-rep"
        if not report.exists():
            hint = ""
            if self.capture_range != "none":
                hint = f"; the program never opened the capture range ({self.capture_range})"
            raise ToolError(f"nsys wrote no report{hint}; its output is in {folder / 'log.txt'}")
        with private_folder(folder) as work:
            raw, clean = work / f"{REPORT}.sqlite", work / f"{REPORT}.clean.sqlite"
            argv = [self._nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={raw}", str(report)]
            run_tool(argv, "the export of the nsys report to SQLite")
            try:
                scrub_export(raw, clean, os.environ)
            except sqlite3.Error as e:
                raise ToolError(f"the environment could not be taken out of the nsys export: {e}") from e
            clean.replace(folder / f"{REPORT}.sqlite")
        if not self.options.keep_report:
            report.unlink()
        self._import_error = import_error(log)

    def record(self) -> dict[str, Any]:
        """What was traced."""
        return {
            "trace": self._traces,
            "capture_range": self.capture_range,
            "import_error": self._import_error,
            "keep_report": self.options.keep_report,
        }


PROFILER = NsysProfiler
