"""What differs between the sides of a verdict: the work, how it was recorded, and the state of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from traces import op, step, write_run, write_trace

import analyze
from analyze.errors import InputError
from analyze.verdict.comparability import State, state_differences

FREE = State(1980, 1980, 0, 0, 1)


def run(folder: Path, step_ms: float, samples: Sequence[tuple[int, int, int, int]] = (), **fields: Any) -> Path:
    """A run timed without a profiler; `samples`: clock, its limits, share of the time with a kernel, processes."""
    rows = [f"0,{n},true,true,{step_ms / 1e3}" for n in range(3)]
    (folder / "none").mkdir(parents=True)
    (folder / "none/rank-0.step_metrics.csv").write_text("\n".join(["rank,step,warmup,undisturbed,step_s", *rows]))
    header = "rank,device,start_ns,sm_clock_mhz,memory_clock_mhz,power_w,temperature_c,clock_limits"
    lines = [f"{header},memory_used_bytes,gpu_util_pct,processes"]
    for n, (mhz, limits, util, processes) in enumerate(samples):
        lines.append(f"0,0,{n * 50_000_000},{mhz},1600,300,50,{limits},0,{util},{processes}")
    (folder / "none/rank-0.gpu_samples.csv").write_text("\n".join(lines) + "\n")
    files = [("none/rank-0.step_metrics.csv", "step_metrics", 0), ("none/rank-0.gpu_samples.csv", "gpu_samples", 0)]
    return write_run(folder, files, profiler="none", **fields)


def recorded(folder: Path, undisturbed: bool = False, ranks: int = 1, **fields: Any) -> Path:
    """A run whose recording has an operator, with shapes if `fields` has its dims."""
    dims = {"Input Dims": fields.pop("dims")} if "dims" in fields else {}
    files = []
    for rank in range(ranks):
        events = [step(1, 0, 100), op("aten::mm", 10, 20, 1, **dims)]
        about = {"rank": rank, "world_size": ranks}
        write_trace(folder / f"torch/rank-{rank}.trace.json", events, distributedInfo=about)
        rows = [
            "rank,step,warmup,undisturbed,step_s",
            *(f"{rank},{n},{undisturbed},{undisturbed},0.01" for n in range(3)),
        ]
        (folder / f"torch/rank-{rank}.step_metrics.csv").write_text("\n".join(rows))
        files += [(f"torch/rank-{rank}.trace.json", "chrome_trace", rank)]
        files += [(f"torch/rank-{rank}.step_metrics.csv", "step_metrics", rank)]
    return write_run(folder, files, **fields)


# --- The state of the GPUs ---


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (FREE._replace(mean_mhz=1890), "the mean clock of the SMs differs: A 1,980 MHz, B 1,890 MHz"),
        (FREE._replace(highest_mhz=1400), "the highest clock of the SMs differs: A 1,980 MHz, B 1,400 MHz"),
        (FREE._replace(power_limited_pct=50), "clocks were reduced for power in 0 % of the time of A, 50 % of B"),
        (FREE._replace(heat_limited_pct=11), "clocks were reduced for temperature in 0 % of the time of A, 11 % of B"),
        (FREE._replace(processes=2), "another process used a GPU in 0 of 2 runs of A and in 2 of 2 of B"),
        (FREE._replace(mean_mhz=1950, power_limited_pct=9), None),  # less than 2 % and 10 %
        (State(None, None, None, None, None), None),  # not known
    ],
)
def test_state_of_the_gpus(state: State, says: str | None) -> None:
    said = [text for texts in state_differences([FREE] * 2, [state] * 2).values() for text in texts]
    assert said == ([says] if says else [])
    # One run a side, too.
    assert len([text for texts in state_differences([FREE], [state]).values() for text in texts]) == len(said)


def test_clocks_that_differ_by_chance_are_not_said() -> None:
    """The means, 1950 and 1900 MHz, differ by 2.6 %; runs of one side differ by 4.5 and 9 %."""
    a, b = ([FREE._replace(mean_mhz=mhz) for mhz in of] for of in ((1980, 1890, 1980), (1980, 1800, 1920)))
    assert state_differences(a, b)["clocks"] == []
    # One of them each would be said.
    assert state_differences(a[:1], b[1:2])["clocks"]


def test_one_run_of_several_on_a_shared_gpu() -> None:
    shared = FREE._replace(processes=2)
    said = state_differences([FREE, FREE], [FREE, shared])["processes"]
    assert said == ["another process used a GPU in 0 of 2 runs of A and in 1 of 2 of B"]
    # As often on both sides.
    assert state_differences([FREE, shared], [shared, FREE])["processes"] == []


def test_processes_of_the_program_itself_are_no_others() -> None:
    """As sampled on an H100: three runs, one of which had a child process on the GPU, and three beside a program."""
    alone, with_child = (FREE._replace(processes=n, other_processes=0) for n in (1, 2))
    assert state_differences([with_child, alone, alone], [alone] * 3)["processes"] == []
    shared = alone._replace(processes=2, other_processes=1)
    said = state_differences([with_child, alone, alone], [shared] * 3)["processes"]
    assert said == ["another process used a GPU in 0 of 3 runs of A and in 3 of 3 of B"]


def test_samples_count_by_the_time_in_which_a_kernel_ran(tmp_path: Path) -> None:
    free, idle = (1980, 0, 90, 1), (210, 1, 0, 1)
    # B has half of its busy time at 1800 MHz, limited for power, and a second process: mean 1890 MHz.
    states = {"a": [idle, free, free], "b": [free, idle, idle, (1800, 4, 90, 2)]}
    a, b = (
        [run(tmp_path / f"{side}{n}", ms + n / 100, states[side]) for n in range(2)]
        for side, ms in (("a", 10), ("b", 11))
    )

    def judged(**options: Any) -> tuple[str, tuple[str, ...]]:
        found = analyze.compare(analyze.open(*a), analyze.open(*b), **options)
        return next(r["verdict"] for r in found.answer.dicts() if r["measure"] == "step_time"), found.notes

    verdict, notes = judged()
    assert verdict == "cannot tell"
    assert {
        "the mean clock of the SMs differs: A 1,980 MHz, B 1,890 MHz",
        "clocks were reduced for power in 0 % of the time of A, 50 % of B",
        "another process used a GPU in 0 of 2 runs of A and in 2 of 2 of B",
    } <= {*notes}
    # The user may know that it is the code that draws more power.
    why = "the GPUs differed, so times have no verdict; --despite gives them one"
    assert notes[-1] == why and judged(despite=["clocks", "processes"]) == ("slower", notes[:-1])


# --- The work, and how it was recorded ---


def test_other_work_has_no_verdict(tmp_path: Path) -> None:
    a, b = (
        recorded(
            tmp_path / name,
            ranks=ranks,
            gpu_devices=[{"index": 0, "name": name}],
            world_size=ranks,
            version=2,
            workload={"model": name, "batch_size": ranks, "image_size": 32 * ranks},
        )
        for name, ranks in (("one", 1), ("two", 2))
    )
    with pytest.raises(InputError, match="same work, recorded alike") as error:
        analyze.compare(a, b)
    for said in ("gpu_name: A one, B two", "world_size: A 1, B 2", "model: A one, B two", "batch_size: A 1, B 2"):
        assert said in str(error.value)
    names = str(error.value).rpartition("--despite ")[2].split()[0].split(",")
    assert {"gpu_name", "world_size", "model", "batch_size", "image_size"} <= {*names}
    assert analyze.compare(a, b, despite=names).answer.dicts()
    with pytest.raises(InputError, match="--despite colour: must be one of gpu_name"):
        analyze.compare(a, b, despite=["colour"])


def test_versions_and_settings_that_differ_are_listed(tmp_path: Path) -> None:
    versions = (
        "driver_version",
        "cuda_version",
        "cudnn_version",
        "nccl_version",
        "torch_version",
        "host",
        "git_commit",
    )
    a, b = (
        run(tmp_path / v, 10, **dict.fromkeys(versions, v), version=2, workload={"data": v, "precision": v})
        for v in ("fp32", "bf16")
    )
    notes = analyze.compare(a, b).notes
    for name in (*versions, "dataset", "precision"):
        assert f"differs: {name}: A fp32, B bf16" in notes


def test_detail_of_the_recording(tmp_path: Path) -> None:
    """Recorded steps with shapes and without have no verdict; steps timed before the recording have one."""
    dims = [[2, 2], [2, 2]]
    a, b = recorded(tmp_path / "a"), recorded(tmp_path / "b", dims=dims)
    with pytest.raises(InputError, match=r"detail: A operators, B operators \+ shapes; --despite detail compares them"):
        analyze.compare(a, b)
    said = "differs: detail: A operators, B operators + shapes"
    assert said in analyze.compare(a, b, despite=["detail"]).notes
    c, d = recorded(tmp_path / "c", undisturbed=True), recorded(tmp_path / "d", undisturbed=True, dims=dims)
    assert said in analyze.compare(c, d).notes
