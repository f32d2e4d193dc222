"""Nsight Compute: hardware counters of each kernel of the profiled steps, or of one phase of them.

Replays every kernel, so nothing that it records says how long a step takes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from collect.errors import ToolError
from collect.new_files import new_file
from collect.options import RunOptions
from collect.profilers.base import Profiler, Recorder, ask_tool, need_tool, run_tool
from collect.profilers.cuda_range import CudaRangeRecorder
from collect.profilers.ncu_metrics import SECONDS_PER_KERNEL, choose_metrics, estimate_passes, known_metrics
from schemas.options import Option
from schemas.tools import NCU

PANEL = "Nsight Compute"
REPORT = "rank-0"
KEPT_NOTE = "ncu: the report that is kept (.ncu-rep) may hold the command line and the environment; the CSV does not"
PERMISSION_FIX = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM); run as root or with CAP_SYS_ADMIN, or "
    "have the administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0 "
    "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
)


class NcuOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to count, and of which kernels."""

    ncu_metrics: Annotated[
        Literal["flops", "roofline", "full"],
        Option("flops, roofline (plus L1, L2, peaks and clocks) or full (slow).", PANEL),
    ] = "flops"
    ncu_phase: Annotated[
        Literal["forward", "loss", "backward", "optimizer"] | None,
        Option("Only one phase of each step: {choices}.", PANEL),
    ] = None
    ncu_kernel: Annotated[str | None, Option("Only kernels whose name matches this regular expression.", PANEL)] = None
    ncu_launches: Annotated[int | None, Option("At most so many kernel launches.", PANEL, least=1)] = None


def profile_arguments(ncu: str, own: NcuOptions, program: bool, metrics: list[str], output: Path) -> list[str]:
    """The command line up to the profiled one's own: `ncu ...`. `metrics` is ignored for the full set.

    `program`: it is one of the user's own.
    """
    argv = [ncu, "--clock-control", "none", "--target-processes", "all", "--force-overwrite"]
    # A program of the user's own marks no range, so all of it is profiled.
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

    def refuses(self) -> str | None:
        """Several GPUs, and none."""
        if self.options.gpus > 1:
            return "ncu replays kernels one at a time, which deadlocks collectives between GPUs; use it with --gpus 1"
        if self.options.device == "cpu":
            return "ncu counts GPU kernels and needs --device cuda"
        return None

    def prepare(self) -> list[str]:
        """Find ncu, choose the metrics that it and the chip know, and say what the pass will cost."""
        found = self._ncu = need_tool(NCU)
        notes = [KEPT_NOTE] if self.options.keep_report else []
        # By default, newer ones take options from a config.ncu-cfg in the current directory.
        if "--config-file " in ask_tool([found, "--help"]):
            self._no_config = ["--config-file", "off"]
        purpose = self.own.ncu_metrics
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
        own = profile_arguments(self._ncu, self.own, bool(self.options.program), self._metrics, folder / REPORT)
        return [own[0], *self._no_config, *own[1:], *argv]

    def recorder(self, folder: Path, rank: int) -> Recorder:
        """Opens the range around the profiled steps, or the phase that was asked for."""
        return CudaRangeRecorder(self.options, self.own.ncu_phase, distorts_time=True)

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
        folder = folder.absolute()
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
