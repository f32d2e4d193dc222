"""Nsight Systems: one report per node with all ranks, and its SQLite export.

Which options a version has is read from its help text, so that this module works with 2021 to 2026.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from collect.injected.trace_files import private_folder
from collect.options import RunOptions
from collect.profilers.base import Profiler, WorkerRecorder, find_tool, run_tool, tool_output
from collect.profilers.cuda_range import CudaRangeRecorder
from collect.profilers.nsys_scrub import scrub_export
from schemas.errors import InternalError, MachineError
from schemas.option_declaration import Option
from schemas.tools import NSYS

PANEL = "Nsight Systems"
GPU_TRACES = ("cuda", "nvtx", "cudnn", "cublas", "nccl")
CPU_TRACES = ("nvtx", "osrt")
REPORT = "node-0"
KEEP_REPORT_NOTE = (
    "nsys: the .nsys-rep report contains the whole environment, the command line, the program's output and the names "
    "of all processes of this node; the .sqlite export does not"
)


class NsysOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to trace, and when."""

    nsys_trace: Annotated[
        str | None,
        Option("APIs to trace, separated by commas. Default: cuda,nvtx,cudnn,cublas, and nccl if supported.", PANEL),
    ] = None
    nsys_capture_range: Annotated[
        Literal["none", "cudaProfilerApi"] | None,
        Option("{choices}. Default: the profiled steps, or all of a program of your own.", PANEL),
    ] = None


def known_traces(help_text: str) -> set[str]:
    """Parse the values of --trace from `nsys profile --help`; empty if it does not list them."""
    section = re.search(r"^\s*-t, --trace=(.*?)^\s*-\w, --|^\s*-t, --trace=(.*)", help_text, re.S | re.M)
    if section is None:
        return set()
    text = (section[1] or section[2] or "").partition("Select the API")[0]
    return set(re.findall(r"'([\w-]+)'", text))


def profile_arguments(nsys: str, help_text: str, traces: list[str], capture: str, output: Path) -> list[str]:
    """Return the command line before the program: `nsys profile ...`.

    `capture` is the capture range. Options that the help text does not list are left out.
    """
    wanted = {
        "--trace": ",".join(traces) or "none",
        "--sample": "none",
        "--cpuctxsw": "none",
        # Otherwise the report contains the symbols of all PyTorch libraries: gigabytes.
        "--resolve-symbols": "false",
        "--capture-range": capture,
        "--force-overwrite": "true",
    }
    if "cuda" in traces:
        wanted["--cuda-memory-usage"] = "true"
        wanted["--cuda-graph-trace"] = "node"
    if capture != "none":
        # `stop` ends the recording only; the default (stop-shutdown) would end the program, too. The workers wait for
        # each other before the first one stops it.
        wanted["--capture-range-end"] = "stop"
    known = set(re.findall(r"(--[\w-]+)", help_text))
    arguments = [f"{name}={value}" for name, value in wanted.items() if name in known or not known]
    return [nsys, "profile", *arguments, f"--output={output}"]


def import_error(log: str) -> str | None:
    """Return the error that nsys printed while importing its recording (an nsys older than CUDA), or None.

    The report exists, but lacks events.
    """
    if "non-fatal errors" not in log and "Errors occurred while processing the raw events" not in log:
        return None
    message = re.search(r"tag_message\*\] = (.+?)(?:\\n|\n|\")", log)
    return message[1].strip() if message else "nsys reported errors while importing its recording"


class NsysProfiler(Profiler[NsysOptions]):
    """Wraps the launcher, so that the report contains all ranks of the node."""

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
        """The profiled steps of a model; everything on the CPU, and of the user's program, which opens no range."""
        if self.own.nsys_capture_range:
            return self.own.nsys_capture_range
        return "none" if self.options.program or self.options.device == "cpu" else "cudaProfilerApi"

    def prepare(self) -> list[str]:
        """Find nsys and choose the traces that it supports."""
        self._nsys = find_tool(NSYS)
        self._help = tool_output([self._nsys, "profile", "--help"])
        notes = [KEEP_REPORT_NOTE] if self.options.keep_report else []
        known = known_traces(self._help)
        default = GPU_TRACES if self.options.device == "cuda" else CPU_TRACES
        if self.own.nsys_trace is None:
            self._traces = [t for t in default if t in known or (not known and t != "nccl")]
            return notes
        requested = [t.strip() for t in self.own.nsys_trace.split(",") if t.strip() and t.strip() != "none"]
        self._traces = [t for t in requested if t in known or not known]
        unknown = [t for t in requested if t not in self._traces]
        if unknown:
            notes.append(f"nsys: this version cannot trace {', '.join(unknown)}; left out")
        return notes

    def wrap(self, argv: list[str], folder: Path) -> list[str]:
        """`nsys profile ... argv`."""
        return profile_arguments(self._nsys, self._help, self._traces, self.capture_range, folder / REPORT) + argv

    def recorder(self, folder: Path, rank: int, wait: Callable[[], object]) -> WorkerRecorder:
        """Return a recorder that opens the capture range; on the CPU there is no cudaProfilerStart to call."""
        if self.options.device != "cuda":
            return WorkerRecorder()
        return CudaRangeRecorder(self.options)

    def finish(self, folder: Path, log: str) -> None:
        """Export the report to SQLite, remove what must not leave the node, and delete the report.

        A report that cannot be exported stays.
        """
        folder = folder.absolute()
        report = folder / f"{REPORT}.nsys-rep"
        if not report.exists():
            hint = ""
            if self.capture_range != "none":
                hint = f"; the program never opened the capture range ({self.capture_range})"
            raise MachineError(f"nsys wrote no report{hint}; its output is in {folder / 'log.txt'}")
        with private_folder(folder) as temporary:
            work = Path(temporary)
            raw, clean = work / f"{REPORT}.sqlite", work / f"{REPORT}.clean.sqlite"
            argv = [self._nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={raw}", str(report)]
            run_tool(argv, "the export of the nsys report to SQLite")
            try:
                scrub_export(raw, clean, os.environ)
            except sqlite3.Error as e:
                raise InternalError(f"the environment could not be removed from the nsys export: {e}") from e
            clean.replace(folder / f"{REPORT}.sqlite")
        if not self.options.keep_report:
            report.unlink()
        self._import_error = import_error(log)

    def record(self) -> dict[str, Any]:
        """Return what was traced."""
        return {
            "trace": self._traces,
            "capture_range": self.capture_range,
            "import_error": self._import_error,
            "keep_report": self.options.keep_report,
        }


PROFILER = NsysProfiler
