"""Nsight Compute: hardware counters of each kernel of the profiled steps, or of one phase of each.

It replays every kernel, so its recordings do not tell how long a step takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from collect.options import RunOptions
from collect.profilers.base import Profiler, WorkerRecorder, find_tool, run_tool, tool_output
from collect.profilers.cuda_range import CudaRangeRecorder
from collect.profilers.ncu_metrics import SECONDS_PER_KERNEL, choose_metrics, estimate_passes, known_metrics
from schemas.errors import MachineError
from schemas.files import part_file
from schemas.option_declaration import Option
from schemas.tools import NCU

PANEL = "Nsight Compute"
REPORT = "rank-0"
KEEP_REPORT_NOTE = "ncu: the .ncu-rep report may contain the command line and the environment; the CSV does not"
PERMISSION_FIX = (
    "this user may not use the GPU's performance counters (ERR_NVGPUCTRPERM); run as root or with CAP_SYS_ADMIN, or "
    "have the administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0 "
    "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
)


class NcuOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to count, and for which kernels."""

    ncu_metrics: Annotated[
        Literal["flops", "roofline", "full"],
        Option("Metrics: flops, roofline (adds L1, L2, peaks and clocks) or full (slow).", PANEL),
    ] = "flops"
    ncu_phase: Annotated[
        Literal["forward", "loss", "backward", "optimizer"] | None,
        Option("Profile only one phase of each step: {choices}.", PANEL),
    ] = None
    ncu_kernel: Annotated[
        str | None, Option("Profile only kernels with names that match this regular expression.", PANEL)
    ] = None
    ncu_launches: Annotated[int | None, Option("Profile at most this many kernel launches.", PANEL, least=1)] = None


def profile_arguments(ncu: str, own: NcuOptions, program: bool, metrics: list[str], output: Path) -> list[str]:
    """Return the command line before the profiled command: `ncu ...`. `metrics` is ignored for the full set.

    `program` says whether the command is the user's program.
    """
    argv = [ncu, "--clock-control", "none", "--target-processes", "all", "--force-overwrite"]
    # The user's program opens no capture range, so all of it is profiled.
    argv += ["--profile-from-start", "on" if program else "off"]
    if own.ncu_metrics == "full":
        argv += ["--set", "full"]
    else:
        argv += ["--metrics", ",".join(metrics)]
    if own.ncu_kernel:
        argv += ["--kernel-name", f"regex:{own.ncu_kernel}"]
    if own.ncu_launches:
        argv += ["--launch-count", str(own.ncu_launches)]
    return [*argv, "--export", str(output)]


class NcuProfiler(Profiler[NcuOptions]):
    """Wraps the training process."""

    name = "ncu"
    Options = NcuOptions
    tool = NCU
    kinds: ClassVar = {".ncu-rep": "ncu_report", ".ncu.csv": "ncu_csv"}

    def __init__(self, options: RunOptions) -> None:
        """Take the options; prepare() looks up the tool."""
        super().__init__(options)
        self._ncu = "ncu"
        self._metrics: list[str] = []
        self._no_config: list[str] = []
        self._replays: int | None = None

    def unsupported(self) -> str | None:
        """Say why it needs exactly one GPU."""
        if self.options.gpus > 1:
            return "ncu replays kernels one at a time, which deadlocks collectives between GPUs; use it with --gpus 1"
        if self.options.device == "cpu":
            return "ncu profiles GPU kernels and needs --device cuda"
        return None

    def prepare(self) -> list[str]:
        """Find ncu, choose metrics that it and the GPU have, and estimate the cost of the pass."""
        path = self._ncu = find_tool(NCU)
        notes = [KEEP_REPORT_NOTE] if self.options.keep_report else []
        # Newer versions read options from config.ncu-cfg in the current directory by default.
        if "--config-file " in tool_output([path, "--help"]):
            self._no_config = ["--config-file", "off"]
        purpose = self.own.ncu_metrics
        if purpose != "full":
            known = known_metrics(tool_output([path, "--query-metrics"]))
            self._metrics, missing = choose_metrics(purpose, known)
            if missing:
                notes.append(f"ncu: not available on this GPU, left out: {', '.join(missing)}")
        passes = estimate_passes(purpose, self._metrics)
        notes.append(
            f"ncu: about {passes} replays of each kernel and {SECONDS_PER_KERNEL[purpose]:g} s a kernel (an estimate); "
            "a step of hundreds of kernels takes minutes, see --ncu-phase, --ncu-kernel and --ncu-launches"
        )
        return notes

    def wrap(self, argv: list[str], folder: Path) -> list[str]:
        """`ncu ... argv`."""
        own = profile_arguments(self._ncu, self.own, bool(self.options.program), self._metrics, folder / REPORT)
        return [own[0], *self._no_config, *own[1:], *argv]

    def recorder(self, folder: Path, rank: int, wait: Callable[[], object]) -> WorkerRecorder:
        """Return a recorder that opens the capture range."""
        return CudaRangeRecorder(self.options, self.own.ncu_phase, distorts_time=True)

    def explain(self, log: str) -> str | None:
        """Describe the missing permission, or return the first error that ncu printed."""
        if "ERR_NVGPUCTRPERM" in log:
            return PERMISSION_FIX
        error = re.search(r"^==ERROR== (.+)$", log, re.M)
        return f"ncu: {error[1].strip()}" if error else None

    def finish(self, folder: Path, log: str) -> None:
        """Export the raw page of the report to CSV and remove the report.

        A report that cannot be exported stays.
        """
        replays = [int(n) for n in re.findall(r"^==PROF== Profiling .* (\d+) pass(?:es)?\s*$", log, re.M)]
        self._replays = max(replays, default=None)
        folder = folder.absolute()
        report = folder / f"{REPORT}.ncu-rep"
        if not report.exists():
            if "No kernels were profiled" in log:
                raise MachineError("ncu profiled no kernel; check --ncu-kernel, and that the program runs on the GPU")
            raise MachineError(f"ncu wrote no report; its output is in {folder / 'log.txt'}")
        text = run_tool([self._ncu, "--import", str(report), "--csv", "--page", "raw"], "the CSV of the ncu report")
        with part_file(folder / f"{REPORT}.ncu.csv") as part:
            part.write_text(text, encoding="utf-8")
        if not self.options.keep_report:
            report.unlink()

    def record(self) -> dict[str, Any]:
        """What was counted, and how often each kernel was replayed at most."""
        own = self.own
        return {
            "metrics": own.ncu_metrics,
            "metric_names": self._metrics,
            "phase": own.ncu_phase,
            "kernel": own.ncu_kernel,
            "launches": own.ncu_launches,
            "replays": self._replays,
            "keep_report": self.options.keep_report,
        }


PROFILER = NcuProfiler
