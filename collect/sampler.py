"""Samples the state of the node while a pass runs: of its host, and of its GPUs clocks, power, memory and GPM metrics.

A process of its own reads /proc and NVML, or AMD SMI (`python -m collect.sampler FILE HZ SCRATCH`), so that the program
is not disturbed. It ends when its stdin closes. Afterwards each rank gets the samples of the GPUs that it used, and the
lowest rank those of the host.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from collect.amd_gpu import AmdGpu, amd_gpus
from collect.host_state import HostState
from collect.program_processes import ProgramProcesses
from collect.rank_reports import RankReport
from schemas.files import part_file
from schemas.gpu_samples import GPM, GPU_SAMPLES_CSV, MIB, STATE
from schemas.isolation import python, python_variables

SAMPLES_NAME = "samples.csv"
"""The node's samples in the scratch folder: a row for each GPU, and one for each counter of the host."""
HOST = "host"
"""First cell of a row of the host, in place of a GPU's UUID."""
HOST_SAMPLES_CSV = ("rank", "start_ns", "name", "value")
"""Header of rank-N.host_samples.csv: the columns of the table `counters`."""
_FAST_S, _SLOW_S = 600, 1.0
"""After this many seconds, sample once in this many seconds: files of long jobs stay small."""
_STOP_S = 5.0


@contextlib.contextmanager
def sampling(path: Path, hz: float, scratch: Path, last_s: float | None = None) -> Iterator[None]:
    """Sample this node at this rate into a CSV within the `with` block.

    Processes of the program are those that descend from this one, or have the scratch folder in their environment. With
    `last_s`, older samples than that are dropped, at the latest after twice the time.
    """
    if not hz:
        yield
        return
    process = subprocess.Popen(
        python("-m", "collect.sampler", str(path), str(hz), str(scratch), *([] if last_s is None else [str(last_s)])),
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


def write_rank_samples(samples: Path, reports: list[RankReport], folder: Path, since_ns: int = 0) -> None:
    """Write the samples from `since_ns` on into files of ranks. Raises OSError.

    rank-N.gpu_samples.csv is for each rank that used a GPU that was sampled, rank-N.host_samples.csv for the lowest
    rank of this host.
    """
    rows = [row for row in _rows(samples) if int(row[1]) >= since_ns]
    for report in reports:
        own = [[report.rank, report.gpus[row[0]], *row[1:]] for row in rows if row[0] in report.gpus]
        _write(folder / f"rank-{report.rank}.gpu_samples.csv", GPU_SAMPLES_CSV, own)
    here = [report.rank for report in reports if report.ok and report.host in (None, socket.gethostname())]
    if here:
        of_host = [[min(here), *row[1:]] for row in rows if row[0] == HOST]
        _write(folder / f"rank-{min(here)}.host_samples.csv", HOST_SAMPLES_CSV, of_host)


def _rows(samples: Path) -> list[list[str]]:
    """Return the samples in order of time. A line is cut off if the sampler was killed."""
    # Between the two, the newer file may take the place of the older one.
    lines = [line for path in (samples, _older(samples)) if path.exists() for line in path.open(encoding="utf-8")]
    rows = csv.reader(dict.fromkeys(line for line in lines if line.endswith("\n")))
    return sorted(rows, key=lambda row: int(row[1]))


def _older(samples: Path) -> Path:
    return samples.with_suffix(".old")


def _write(path: Path, header: tuple[str, ...], rows: list[list[Any]]) -> None:
    if rows:
        with part_file(path) as part, part.open("w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)


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
    """Sample until stdin closes. Returns 1 where there is nothing to sample."""
    path, hz, scratch, *last_s = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3], *map(float, sys.argv[4:])
    gpus = _gpus(ProgramProcesses(os.getppid(), scratch))
    host = None
    with contextlib.suppress(OSError):
        host = HostState()
    if not gpus and host is None:
        return 1
    f = path.open("w", buffering=1, encoding="utf-8")
    start = due = time.monotonic()
    while True:
        interval = 1 / hz if last_s or due - start < _FAST_S else max(1 / hz, _SLOW_S)
        due = max(due + interval, time.monotonic())
        if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
            break
        out = csv.writer(f, lineterminator="\n")
        out.writerows(gpu.sample() for gpu in gpus)
        if host is not None:
            out.writerows((HOST, at, name, value) for name, at, value in host.sample())
        if last_s and due - start > last_s[0]:
            f.close()
            path.replace(_older(path))
            f, start = path.open("w", buffering=1, encoding="utf-8"), due
    f.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
