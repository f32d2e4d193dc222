"""Samples the state of the node's GPUs while a pass runs: clocks, power, memory, and GPM metrics if the GPU has them.

A process of its own reads NVML, or AMD SMI (`python -m collect.gpu_sampler FILE HZ SCRATCH`): the program is not
disturbed. It ends when its stdin closes. Afterwards each rank gets the samples of the GPUs that it used.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from collect.amd_gpu import AmdGpu, amd_gpus
from collect.program_processes import ProgramProcesses
from collect.rank_reports import RankReport
from schemas.files import part_file
from schemas.gpu_samples import GPM, GPU_SAMPLES_CSV, MIB, STATE
from schemas.isolation import python, python_variables

SAMPLES_NAME = "gpu-samples.csv"
"""The node's samples in the scratch folder."""
_FAST_S, _SLOW_S = 600, 1.0
"""After this many seconds, sample once in this many seconds: files of long jobs stay small."""
_FLUSH_S = 1.0
_STOP_S = 5.0


@contextlib.contextmanager
def sampling(path: Path, hz: float, scratch: Path) -> Iterator[None]:
    """Sample this node's GPUs at this rate into a CSV within the `with` block; without GPUs, write nothing.

    Processes of the program are those that descend from this one, or have the scratch folder in their environment.
    """
    if not hz:
        yield
        return
    process = subprocess.Popen(
        python("-m", "collect.gpu_sampler", str(path), str(hz), str(scratch)),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **python_variables()},
        start_new_session=True,
    )
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def write_rank_samples(samples: Path, reports: list[RankReport], folder: Path) -> None:
    """Write rank-N.gpu_samples.csv for each rank that used a GPU that was sampled. Raises OSError."""
    if not samples.exists():
        return
    with samples.open(newline="", encoding="utf-8") as f:
        # The last line is cut off if the sampler was killed.
        rows = [row for row in csv.reader(f) if len(row) == len(GPU_SAMPLES_CSV) - 1]
    for report in reports:
        own = [[report.rank, report.gpus[row[0]], *row[1:]] for row in rows if row[0] in report.gpus]
        if own:
            path = folder / f"rank-{report.rank}.gpu_samples.csv"
            with part_file(path) as part, part.open("w", newline="", encoding="utf-8") as out:
                writer = csv.writer(out, lineterminator="\n")
                writer.writerow(GPU_SAMPLES_CSV)
                writer.writerows(own)


class _Gpu:
    """One GPU, sampled by NVML."""

    def __init__(self, nvml: Any, index: int, program: ProgramProcesses) -> None:
        self._nvml, self._program = nvml, program
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.uuid = str(nvml.nvmlDeviceGetUUID(self._handle))
        self._gpm: list[Any] = []
        """The last GPM sample, and one to take the next into; empty if the GPU has none."""
        with contextlib.suppress(nvml.NVMLError):
            if nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                self._gpm = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
                nvml.nvmlGpmSampleGet(self._handle, self._gpm[0])

    def sample(self) -> list[Any]:
        """One row: the UUID, the time, and a value of each column; None where the GPU does not have it."""
        now = time.time_ns()
        values = self._state() | self._metrics()
        return [self.uuid, now, *(values.get(name) for name in (*STATE, *GPM))]

    def _state(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self._handle
        ask: dict[str, Callable[[], Any]] = {
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "clock_limits": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used,
            "gpu_util_pct": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        }
        found: dict[str, Any] = {}
        for name, value in ask.items():
            with contextlib.suppress(nvml.NVMLError):
                found[name] = value()
        with contextlib.suppress(nvml.NVMLError):
            pids = [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
            found |= {"processes": len(pids), "other_processes": self._program.count_others(pids)}
        return found

    def _metrics(self) -> dict[str, Any]:
        """GPM metrics, averaged since the last sample that had any.

        The driver counts ten times a second. Between, shares of what did not pass are NaN, and the rest is 0.
        """
        if not self._gpm:
            return {}
        nvml = self._nvml
        before, after = self._gpm
        try:
            nvml.nvmlGpmSampleGet(self._handle, after)
            asked = nvml.c_nvmlGpmMetricsGet_t()
            asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(GPM)
            asked.sample1, asked.sample2 = before, after
            for metric, (number, _) in zip(asked.metrics, GPM.values(), strict=False):
                metric.metricId = number
            nvml.nvmlGpmMetricsGet(asked)
        except nvml.NVMLError:
            return {}
        known = {n: m.value for n, m in zip(GPM, asked.metrics, strict=False) if m.nvmlReturn == nvml.NVML_SUCCESS}
        if any(map(math.isnan, known.values())):
            return {}
        self._gpm = [after, before]
        found = {}
        for name, value in known.items():
            found[name] = round(value * MIB) if name.endswith("_bytes_per_s") else round(value, 3)
        return found


def _gpus(program: ProgramProcesses) -> list[_Gpu] | list[AmdGpu]:
    """Return the GPUs of this node."""
    with contextlib.suppress(ImportError):
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            return [_Gpu(pynvml, index, program) for index in range(pynvml.nvmlDeviceGetCount())]
    return amd_gpus()


def main() -> int:
    """Sample all GPUs until stdin closes. Returns 1 without GPUs."""
    path, hz, scratch = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    gpus = _gpus(ProgramProcesses(os.getppid(), scratch))
    if not gpus:
        return 1
    with Path(path).open("w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        start = due = flushed = time.monotonic()
        while gpus:
            interval = 1 / hz if due - start < _FAST_S else max(1 / hz, _SLOW_S)
            due = max(due + interval, time.monotonic())
            if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
                break
            out.writerows(gpu.sample() for gpu in gpus)
            if due - flushed > _FLUSH_S:
                f.flush()
                flushed = due
    return 0


if __name__ == "__main__":
    sys.exit(main())
