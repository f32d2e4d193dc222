"""The training loop of a worker: warm-up, undisturbed and profiled steps, each divided into phases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from collect.injected.step_blocks import GPU, UNDISTURBED
from collect.injected.torch_facts import torch_facts, used_gpus
from collect.options import RunOptions
from collect.profilers import make_profiler
from collect.profilers.base import WorkerRecorder
from collect.rank_reports import BlockReport, RankReport
from collect.workload.data import open_source
from collect.workload.model import Workload, build, check_model, default_image_size, seed_everything
from collect.workload.spec import WorkerSpec
from collect.workload.step_timer import StepTimer, median_step_ns, write_step_metrics
from schemas.errors import InputError

COLLECTIVE_TIMEOUT = timedelta(minutes=10)


def train(spec: WorkerSpec, report: RankReport) -> None:
    """Train the workload of the spec under its profiler, as the rank of `report`, whose fields it fills in.

    After a failure it writes what was recorded up to then. Raises ReportedError for what the user can fix.
    """
    options, rank = spec.options, report.rank
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device, gpus = _devices(options, local_rank)
    check_model(options.model or "")
    image_size = options.image_size or default_image_size(options.model or "")
    report.facts = {**torch_facts(), "image_size": image_size}
    profiler = make_profiler(spec.profiler, options)
    folders = profiler.folders(Path(spec.folder))
    own = BlockReport(kind=profiler.kind, counted_steps=0)
    report.blocks.append(own)
    with _process_group(options, device) as barrier:
        recorder = profiler.recorder(Path(spec.folder), rank, barrier)
        timer = StepTimer(gpus, recorder.phase)
        seed_everything(options.seed)
        scratch = Path(spec.scratch) / f"data-{rank}"
        source = open_source(options, image_size, device.type, rank, scratch)
        workload = build(options, source.classes, image_size, device, local_rank)
        progress = Path(spec.scratch) / "progress" if rank == 0 else None
        try:
            fence = _Fence(gpus, barrier)
            _loop(spec, workload, source.batches, device, timer, recorder, fence, own, progress)
        except BaseException:
            # The first failure counts, not what follows from it in the profiler.
            for save in (recorder.stop, lambda: _write_steps(folders, timer, recorder, report), recorder.write):
                with suppress(Exception):
                    save()
            raise
        # The small file first, in case the disk is too full for the trace.
        _write_steps(folders, timer, recorder, report)
        recorder.write()


def _write_steps(folders: dict[str, Path], timer: StepTimer, recorder: WorkerRecorder, report: RankReport) -> None:
    """Write the times of the steps of each recorded block, and report how long they took."""
    if recorder.distorts_time:
        return
    report.gpus = used_gpus()
    undisturbed = BlockReport(kind=UNDISTURBED)
    report.blocks.insert(0, undisturbed)
    for kind, folder in folders.items():
        block = report.block(kind)
        if block is None:
            if kind not in recorder.recorded:
                continue
            block = BlockReport(kind=kind)
            report.blocks.append(block)
        rows = timer.rows(report.rank, kind)
        recorded = recorder.recorded.get(kind)
        if recorded and recorded.session:
            block.recorder, block.ended_after = recorded.session.recorder, recorded.session.ended_after
            # A bound may have ended the recording before the last step.
            rows = [row for row in rows if row["step"] < recorded.first + (recorded.counted_steps or 0)]
        undisturbed.step_ns = median_step_ns(rows, undisturbed=True)
        block.step_ns = median_step_ns(rows, undisturbed=False)
        block.counted_steps = sum(row["warmup"] == "false" for row in rows)
        write_step_metrics(folder / f"rank-{report.rank}.step_metrics.csv", rows)


def _devices(options: RunOptions, local_rank: int) -> tuple[Any, list[int]]:
    """Return this process's device and the indices of all GPUs it uses."""
    import torch

    if options.device == "cpu":
        return torch.device("cpu"), []
    if not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no usable GPU; `collect doctor` checks the driver")
    found = torch.cuda.device_count()
    if options.gpus > found:
        raise InputError(f"--gpus {options.gpus}: this node has {found} GPU{'s' * (found != 1)}")
    gpus = list(range(options.gpus)) if options.parallel == "dp" else [local_rank]
    torch.cuda.set_device(gpus[0])
    return torch.device("cuda", gpus[0]), gpus


@contextmanager
def _process_group(options: RunOptions, device: Any) -> Iterator[Any]:
    """Initialise the process group under ddp; yield a barrier that does not use the GPU."""
    if options.parallel != "ddp":
        yield lambda: None
        return
    import torch.distributed as dist

    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=COLLECTIVE_TIMEOUT)
    # An NCCL barrier is a kernel, which would be recorded.
    group = dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
    yield lambda: dist.barrier(group)
    # Not after a failure: it would wait for ranks that have exited.
    dist.destroy_process_group()


class _Fence:
    """Waits until all ranks have arrived and all GPUs are idle, before and after a block of steps, never inside.

    So a recording contains the kernels of whole steps only. Where all ranks share a recording (one Nsight Systems
    report per node), the first rank to start or stop it does not truncate the others' steps.
    """

    def __init__(self, gpus: list[int], barrier: Any) -> None:
        self._gpus = gpus
        self._barrier = barrier

    def wait(self, for_ranks: bool = True) -> None:
        """Wait for this process's GPUs and, with `for_ranks`, for all ranks."""
        import torch

        for gpu in self._gpus:
            torch.cuda.synchronize(gpu)
        if for_ranks:
            self._barrier()


def _loop(
    spec: WorkerSpec,
    workload: Workload,
    batches: Iterator[tuple[Any, Any]],
    device: Any,
    timer: StepTimer,
    recorder: WorkerRecorder,
    fence: _Fence,
    own: BlockReport,
    progress: Path | None,
) -> None:
    options = spec.options
    undisturbed, first = options.undisturbed_steps, options.first_profiled
    gpu_block = range(first - 1 - options.gpu_block_steps, first - 1)
    end = first + options.profiled_steps(spec.profiler)
    blocks = dict.fromkeys(undisturbed, UNDISTURBED) | dict.fromkeys(gpu_block, GPU)
    blocks |= dict.fromkeys(range(first, end), own.kind)
    for index in range(end):
        if index in (undisturbed.start, undisturbed.stop, first):
            fence.wait()
        recorder.before_step(index)
        with timer.step(index, blocks.get(index)):
            _step(options, workload, batches, device, timer)
        own.counted_steps = max(0, index + 1 - first)
        if progress:
            with progress.open("ab") as f:
                f.write(b".")
    recorder.after_steps()
    fence.wait(for_ranks=recorder.shared)
    recorder.stop()


def _step(
    options: RunOptions, workload: Workload, batches: Iterator[tuple[Any, Any]], device: Any, timer: StepTimer
) -> None:
    """Run one training step. Nothing waits for the GPU, except that fp16's GradScaler reads its overflow flag."""
    import torch

    with timer.phase("data"):
        images, labels = next(batches)
    with timer.phase("h2d"):
        layout = torch.channels_last if options.channels_last else torch.contiguous_format
        images = images.to(device, non_blocking=True, memory_format=layout)
        labels = labels.to(device, non_blocking=True)
    with timer.phase("forward"), workload.autocast():
        output = workload.model(images)
    with timer.phase("loss"), workload.autocast():
        loss = workload.loss(output, labels)
    with timer.phase("backward"):
        workload.scaler.scale(loss).backward()
    with timer.phase("optimizer"):
        workload.scaler.step(workload.optimizer)
        workload.scaler.update()
        workload.optimizer.zero_grad(set_to_none=True)
        workload.next_rate()
    timer.result(loss, int(labels.shape[0]))
