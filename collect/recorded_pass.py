"""What the passes of a recording recorded of the ranks: written into the manifest once its processes have reported."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from collect.injected.step_blocks import UNDISTURBED
from collect.profilers.base import Profiler, list_files
from collect.profilers.gpu import GpuProfiler
from collect.rank_reports import AttachedReport, BlockReport, RankReport
from collect.ranks import Assigned, assign_ranks, move_files
from collect.run_folder import RunFolder, make_private, remove_access_of_others, remove_unfinished, utc_now
from collect.sampler import write_rank_samples
from schemas.manifest import Gpu, Manifest, Pass, RankRecording
from schemas.workload import OPTIONS


@dataclass
class RecordedPass:
    """A pass, its profiler and its folder."""

    profiler: Profiler[Any]
    done: Pass
    path: Path

    @classmethod
    def of(cls, profiler: Profiler[Any], folder: RunFolder) -> RecordedPass:
        """Begin a pass."""
        return cls(profiler, Pass(profiler=profiler.name, start=utc_now()), folder.path / profiler.name)

    def finish(self, run_folder: Path) -> None:
        """Describe the pass once it has ended."""
        self.done.options = {**self.profiler.record(), **self.done.options}
        self.done.end = utc_now()
        if self.path.is_dir():
            remove_unfinished(self.path)
            remove_access_of_others(self.path)
            self.done.files = list_files(run_folder, self.path, self.profiler.kinds)


class RecordedPasses:
    """The passes that one recording writes: those of its other blocks (GPU-only), then the profiler's own."""

    def __init__(self, profiler: Profiler[Any], folder: RunFolder) -> None:
        """Begin to record into a run folder."""
        self.folder = folder
        self.by_kind = {one.kind: RecordedPass.of(one, folder) for one in [*profiler.other_passes(), profiler]}
        self.own = self.by_kind[profiler.kind]

    def assign_ranks(self, reports: list[RankReport]) -> Assigned:
        """Find the ranks among the processes, and note what was discarded or not recorded. Raises OSError."""
        assigned = assign_ranks(reports, {kind: one.path for kind, one in self.by_kind.items()})
        self.own.done.note = assigned.note
        return assigned

    def write_separate(self, report: AttachedReport, number: int, samples: Path) -> RunFolder:
        """Write the run of an independent process, with the samples since it began. Raises CollectError and OSError."""
        other = self.folder.sibling(number)
        _merge_facts(other.manifest, report.facts)
        written = []
        for kind, one in self.by_kind.items():
            if report.block(kind) is None:
                continue
            target = other.path / one.profiler.name
            make_private(target)
            move_files(report, kind, one.path, target)
            write_rank_samples(samples, [report], target, int(report.began_s * 1e9))
            done = msgspec.structs.replace(one.done, status="done", reason=None)
            _describe_ranks(other.manifest, done, kind, [report])
            RecordedPass(one.profiler, done, target).finish(other.path)
            written.append(done)
        other.manifest = msgspec.structs.replace(other.manifest, status="done", end=utc_now(), passes=written)
        other.save()
        return other

    def describe(self, reports: list[RankReport], samples: Path, since_ns: int = 0) -> None:
        """Write into the manifest what the ranks reported, and the samples since then into files. Raises OSError."""
        for report in reports:
            _merge_facts(self.folder.manifest, report.facts)
        for kind, one in self.by_kind.items():
            _describe_ranks(self.folder.manifest, one.done, kind, reports)
            if one is self.own or one.done.ranks:
                write_rank_samples(samples, reports, one.path, since_ns)

    def finish(self) -> None:
        """End the passes, whose own one has its status. Of the others, those that recorded something come before it."""
        own, manifest = self.own.done, self.folder.manifest
        manifest.passes = [done for done in manifest.passes if done is not own]
        for one in self.by_kind.values():
            if one is not self.own and not one.done.ranks:
                shutil.rmtree(one.path, ignore_errors=True)
                continue
            if one is not self.own:
                one.done.status, one.done.command, one.done.exit_code = "done", own.command, own.exit_code
            one.finish(self.folder.path)
            manifest.passes.append(one.done)


def _describe_ranks(manifest: Manifest, done: Pass, kind: str, reports: list[RankReport]) -> None:
    """Write into the manifest what the processes counted and measured in their block of this kind."""
    blocks = [(report, report.block(kind)) for report in reports]
    done.counted_steps = _common([block.counted_steps if block else None for _, block in blocks])
    # A process that failed later may have recorded this block before.
    done.ranks = [_recording(r, block) for r, block in blocks if block and (r.ok or kind == GpuProfiler.kind)]
    if recorders := {block.recorder for _, block in blocks if block and block.recorder}:
        done.options = {"recorder": "; ".join(sorted(recorders))}
    if manifest.program and (size := _common([r.world_size for r in reports if r.ok])) is not None:
        manifest.world_size = size


def _recording(report: RankReport, block: BlockReport) -> RankRecording:
    undisturbed = report.block(UNDISTURBED)
    is_recorded = block.kind != UNDISTURBED
    unlike = [undisturbed.unlike_step if undisturbed and is_recorded else None, block.unlike_step]
    return RankRecording(
        rank=report.rank,
        host=report.host,
        counted_steps=block.counted_steps,
        warmed_up=block.warmed_up,
        aligned=block.aligned,
        note=block.note,
        ended_after=block.ended_after,
        undisturbed_step_ns=undisturbed.step_ns if undisturbed else None,
        recorded_step_ns=block.step_ns if is_recorded else None,
        unlike_step="; ".join(filter(None, unlike)) or None,
    )


def _common(values: list[int | None]) -> int | None:
    """The value that all have in common, or None."""
    return values[0] if values and all(v == values[0] for v in values) else None


def _merge_facts(manifest: Manifest, facts: dict[str, object]) -> None:
    """Copy a worker's facts into the manifest; GPUs arrive as plain objects."""
    for key, value in facts.items():
        if value is None:
            continue
        if key in OPTIONS:  # the default of an option, once it is known
            setattr(manifest.workload, key, value)
        elif key in Manifest.__struct_fields__:
            setattr(manifest, key, msgspec.convert(value, list[Gpu]) if key == "gpu_devices" else value)
