"""Nsight Compute: hardware counters of each kernel of the profiled steps, or of one phase of them.

Replays every kernel, so nothing that it records says how long a step takes.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from collect.errors import ToolError
from collect.new_files import new_file
from collect.options import RunOptions
from collect.profilers.base import Profiler, Recorder, ask_tool, run_tool
from collect.profilers.cuda_range import CudaRangeRecorder
from collect.profilers.ncu_metrics import SECONDS_PER_KERNEL, choose_metrics, estimate_passes, known_metrics

TOOL_VARIABLE = "TRACEQUARRY_NCU"
"""Path of ncu, where it is not on PATH."""
USUAL_PLACES = ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")
"""Below /; the CUDA packages install ncu there without putting it on PATH."""
REPORT = "rank-0"
KEPT_NOTE = "ncu: the report that is kept (.ncu-rep) may hold the command line and the environment; the CSV does not"
PERMISSION_FIX = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM); run as root or with CAP_SYS_ADMIN, or "
    "have the administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0 "
    "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
)


def find_ncu() -> str | None:
    """Path of the ncu to use; None without one."""
    asked = os.environ.get(TOOL_VARIABLE)
    if asked:
        return shutil.which(asked)
    found = shutil.which("ncu")
    if found:
        return found
    usual = sorted((p for pattern in USUAL_PLACES for p in Path("/").glob(pattern)), reverse=True)
    return str(usual[0]) if usual else None


def profile_arguments(ncu: str, options: RunOptions, metrics: list[str], output: Path) -> list[str]:
    """The command line up to the program's own: `ncu ...`. `metrics` is ignored for the full set."""
    argv = [ncu, "--clock-control", "none", "--target-processes", "all", "--force-overwrite"]
    # A program of the user's own marks no range, so all of it is profiled.
    argv += ["--profile-from-start", "on" if options.program else "off"]
    if options.ncu_metrics == "full":
        argv += ["--set", "full"]
    else:
        argv += ["--metrics", ",".join(metrics)]
    if options.ncu_kernel:
        argv += ["--kernel-name", f"regex:{options.ncu_kernel}"]
    if options.ncu_launches:
        argv += ["--launch-count", str(options.ncu_launches)]
    return [*argv, "--export", str(output)]


class NcuProfiler(Profiler):
    """Wraps the training process."""

    name = "ncu"

    def __init__(self, options: RunOptions) -> None:
        """Take the options; prepare() looks up the tool."""
        super().__init__(options)
        self._ncu = "ncu"
        self._metrics: list[str] = []
        self._replays: int | None = None

    def prepare(self) -> list[str]:
        """Find ncu, choose the metrics that it and the chip know, and say what the pass will cost."""
        found = find_ncu()
        if found is None:
            raise ToolError(
                "ncu is not installed or not on PATH; install Nsight Compute "
                f"(https://developer.nvidia.com/nsight-compute) or set {TOOL_VARIABLE} to its path"
            )
        self._ncu = found
        notes = [KEPT_NOTE] if self.options.keep_report else []
        purpose = self.options.ncu_metrics
        if purpose != "full":
            known = known_metrics(ask_tool([found, "--query-metrics"]))
            self._metrics, missing = choose_metrics(purpose, known)
            if missing:
                notes.append(f"ncu: not known on this GPU, left out: {', '.join(missing)}")
        passes = estimate_passes(purpose, self._metrics)
        notes.append(
            f"ncu: about {passes} replays of each kernel and {SECONDS_PER_KERNEL[purpose]:g} s a kernel (an estimate); "
            "a step of hundreds of kernels takes minutes, see --ncu-phase, --ncu-kernel and --ncu-launches"
        )
        return notes

    def wrap(self, argv: list[str], folder: Path) -> list[str]:
        """`ncu ... argv`."""
        return profile_arguments(self._ncu, self.options, self._metrics, folder / REPORT) + argv

    def recorder(self, folder: Path, rank: int) -> Recorder:
        """Opens the range around the profiled steps, or the phase that was asked for."""
        return CudaRangeRecorder(self.options, self.options.ncu_phase, distorts_time=True)

    def explain(self, log: str) -> str | None:
        """The refused permission, or the first error that ncu printed."""
        if "ERR_NVGPUCTRPERM" in log:
            return PERMISSION_FIX
        error = re.search(r"^==ERROR== (.+)$", log, re.M)
        return f"ncu: {error[1].strip()}" if error else None

    def finish(self, folder: Path, log: str) -> None:
        """Write the raw page of the report as CSV, and remove the report.

        A report that cannot be exported stays: it is all there is of the pass.
        """
        replays = [int(n) for n in re.findall(r"^==PROF== Profiling .* (\d+) pass(?:es)?\s*$", log, re.M)]
        self._replays = max(replays, default=None)
        report = folder / f"{REPORT}.ncu-rep"
        if not report.exists():
            if "No kernels were profiled" in log:
                raise ToolError("ncu profiled no kernel; check --ncu-kernel, and that the program runs on the GPU")
            raise ToolError(f"ncu wrote no report; its output is in {folder / 'log.txt'}")
        text = run_tool([self._ncu, "--import", str(report), "--csv", "--page", "raw"], "the CSV of the ncu report")
        with new_file(folder / f"{REPORT}.ncu.csv") as f:
            f.write(text.encode())
        if not self.options.keep_report:
            report.unlink()

    def record(self) -> dict[str, Any]:
        """What was counted, and how often each kernel was replayed at most."""
        o = self.options
        return {
            "metrics": o.ncu_metrics,
            "metric_names": self._metrics,
            "phase": o.ncu_phase,
            "kernel": o.ncu_kernel,
            "launches": o.ncu_launches,
            "replays": self._replays,
            "keep_report": o.keep_report,
        }
