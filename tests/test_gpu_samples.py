"""Samples of the GPUs' state: what `collect` writes, and what `hardware`, `health` and `trace` say of it."""

import csv
import json
import sys
import types
from pathlib import Path

import pytest
from commands import run_cli
from support import ask, sql
from test_job_parts import part
from traces import event, kernel, write_run, write_trace

from collect.amd_gpu import amd_gpus
from collect.rank_reports import RankReport
from collect.sampler import write_rank_samples
from schemas.gpu_samples import GPU_SAMPLES_CSV

MS = 1_000_000


def run_folder(path: Path, samples: list[dict[str, float]]) -> Path:
    """One kernel from 100 ms to 300 ms; step 7 from 100 ms to 200 ms, step 8 to 300 ms. Samples' times are in ms."""
    steps = [event("user_annotation", f"ProfilerStep#{n}", at * 1000, 100_000) for n, at in ((7, 100), (8, 200))]
    write_trace(path / "torch/rank-0.trace.json", [kernel("k", 100_000, 200_000), *steps], baseTimeNanoseconds=0)
    with (path / "torch/rank-0.gpu_samples.csv").open("w", newline="") as f:
        out = csv.DictWriter(f, GPU_SAMPLES_CSV)
        out.writeheader()
        out.writerows({"rank": 0, "device": 0, **s, "start_ns": round(s["start_ns"] * MS)} for s in samples)
    kinds = {"trace.json": "chrome_trace", "gpu_samples.csv": "gpu_samples"}
    return write_run(path, [(f"torch/rank-0.{end}", kind, 0) for end, kind in kinds.items()], run_id="r")


SAMPLES = [
    # Activity is NULL where the driver has not counted since the last sample.
    {"start_ns": 50, "sm_active_pct": 0, "power_w": 100, "sm_clock_mhz": 1980, "clock_limits": 1, "processes": 0},
    {"start_ns": 150, "sm_active_pct": 40, "power_w": 300, "sm_clock_mhz": 1980, "clock_limits": 0, "processes": 1},
    {"start_ns": 200, "power_w": 500, "sm_clock_mhz": 1800, "clock_limits": 4, "processes": 1},
    {"start_ns": 250, "sm_active_pct": 90, "power_w": 500, "sm_clock_mhz": 1600, "clock_limits": 4, "processes": 1},
    {"start_ns": 350, "sm_active_pct": 10, "power_w": 200, "sm_clock_mhz": 1980, "clock_limits": 0, "processes": 1},
]
for _sample in SAMPLES:
    _sample["memory_used_bytes"] = 5 << 20


def test_averages_are_weighted_by_time(tmp_path: Path) -> None:
    path = run_folder(tmp_path / "run", SAMPLES)
    [row] = ask(path, "hardware")
    # 100 to 300 ms. Activity: 40 % for 50 ms, 90 % for 100 ms (150 to 250), 10 % for 50 ms.
    assert row["sm_active_pct"] == pytest.approx((40 * 50 + 90 * 100 + 10 * 50) / 200)
    # State: 300 W for 50 ms, 500 for 50, 500 for 50, 200 for 50; clocks likewise.
    assert row["power_w"] == pytest.approx((300 + 500 + 500 + 200) / 4)
    assert row["sm_clock_mhz"] == pytest.approx((1980 + 1800 + 1600 + 1980) / 4) and row["min_sm_clock_mhz"] == 1600
    assert row["power_limited_pct"] == pytest.approx(50) and row["heat_limited_pct"] == 0
    assert (row["activity_samples"], row["sampled_ns"], row["max_processes"]) == (3, 200 * MS, 1)
    assert row["dram_active_pct"] is None


def test_steps_take_the_samples_that_cover_them(tmp_path: Path) -> None:
    first, second = ask(run_folder(tmp_path / "run", SAMPLES), "hardware", params={"per": "step"})
    # Step 7 is from 100 to 200 ms: 40 % for 50 ms, 90 % for 50 ms. Step 8: 90 % for 50 ms, 10 % for 50 ms.
    assert (first["step"], first["sm_active_pct"]) == (7, pytest.approx(65))
    assert (second["step"], second["sm_active_pct"]) == (8, pytest.approx(50))


def test_whole_run_includes_samples_outside_the_recording(tmp_path: Path) -> None:
    [row] = ask(run_folder(tmp_path / "run", SAMPLES), "hardware", params={"per": "run"})
    assert row["sampled_ns"] == 300 * MS
    assert row["sm_active_pct"] == pytest.approx((40 * 100 + 90 * 100 + 10 * 100) / 300)


def test_health_says_reduced_clocks(tmp_path: Path) -> None:
    checks = {r["fact"]: r for r in ask(run_folder(tmp_path / "run", SAMPLES), "health")}
    # Two of the three samples between 100 and 300 ms.
    assert checks["reduced GPU clocks"]["value"] == "66.7 % of the samples for power, 0.0 % for temperature"
    assert checks["reduced GPU clocks"]["verdict"] == "note"
    assert checks["GPU in use before the program began"]["verdict"] == "ok"


def test_health_says_that_others_used_the_gpu(tmp_path: Path) -> None:
    before = [SAMPLES[0] | {"processes": 2, "memory_used_bytes": 955_000_000}, *SAMPLES[1:]]
    checks = {r["fact"]: r for r in ask(run_folder(tmp_path / "run", before), "health")}
    found = checks["GPU in use before the program began"]
    assert (found["verdict"], found["value"]) == ("warning", "955 MB of memory, 2 processes")


def test_processes_of_the_program_are_not_others(tmp_path: Path) -> None:
    """Two processes: the program and its child in two samples; then the child has ended, and another has come."""
    others = [{"processes": n, "other_processes": other} for n, other in ((0, 0), (2, 0), (2, 0), (2, 1), (2, 1))]
    path = run_folder(tmp_path / "run", [a | b for a, b in zip(SAMPLES, others, strict=True)])
    checks = {r["fact"]: r for r in ask(path, "health")}
    found = checks["other processes on the GPU"]
    assert (found["verdict"], found["value"]) == ("warning", "up to 1, in 40.0 % of the samples")
    [row] = ask(path, "hardware", params={"per": "run"})
    assert (row["max_processes"], row["max_other_processes"]) == (2, 1)
    # So it is of a run that was not recorded, but timed.
    timed = tmp_path / "timed/none/rank-0.gpu_samples.csv"
    timed.parent.mkdir(parents=True)
    timed.write_text((path / "torch/rank-0.gpu_samples.csv").read_text())
    write_run(tmp_path / "timed", [("none/rank-0.gpu_samples.csv", "gpu_samples", 0)], profiler="none")
    assert found["value"] in {r["value"] for r in ask(tmp_path / "timed", "health")}
    # Samples without the column, of an earlier version, do not say.
    assert "other processes on the GPU" not in {r["fact"] for r in ask(run_folder(tmp_path / "old", SAMPLES), "health")}


def test_trace_has_counter_tracks(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    assert run_cli("trace", run_folder(tmp_path / "run", SAMPLES), "-o", target).returncode == 0
    events = json.loads(target.read_text())["traceEvents"]
    # Activity begins at the sample before: 90 % from 150 ms on, which is 50 ms after the first event.
    active = [(e["ts"], e["args"]) for e in events if e["name"] == "active %"]
    assert active == [(50_000, {"SMs": 90})]
    assert [e["args"] for e in events if e["name"] == "power W"] == [{"board": 300}, {"board": 500}]


def test_rows_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    path = run_folder(tmp_path / "run", SAMPLES)
    file = path / "torch/rank-0.gpu_samples.csv"
    file.write_text(file.read_text().replace("1800", "18OO"))
    ran = run_cli("query", "hardware", path, "--param", "per=run", "-f", "csv")
    assert ran.returncode == 0 and "rank-0.gpu_samples.csv: line 4 is left out" in ran.stderr
    assert [r["n"] for r in sql(path, "SELECT count(*) AS n FROM gpu_samples")] == [4]


def test_each_rank_gets_the_samples_of_its_gpus(tmp_path: Path) -> None:
    values = [""] * (len(GPU_SAMPLES_CSV) - 3)
    node = tmp_path / "gpu-samples.csv"
    with node.open("w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerows([uuid, at, *values] for at in (1, 2) for uuid in ("GPU-a", "GPU-b", "GPU-c"))
        f.write("GPU-a,3,19")  # cut off where the sampler was killed
    reports = [
        RankReport(rank=0, gpus={"GPU-b": 0}),
        RankReport(rank=1, gpus={"GPU-a": 0, "GPU-b": 1}),
        RankReport(rank=2),
    ]
    write_rank_samples(node, reports, tmp_path)
    assert not (tmp_path / "rank-2.gpu_samples.csv").exists()
    found = [
        [(int(row["device"]), int(row["start_ns"])) for row in csv.DictReader(path.open())]
        for path in (tmp_path / "rank-0.gpu_samples.csv", tmp_path / "rank-1.gpu_samples.csv")
    ]
    assert found == [[(0, 1), (0, 2)], [(0, 1), (1, 1), (0, 2), (1, 2)]]


def test_samples_of_two_nodes_have_their_ranks_and_hosts(tmp_path: Path) -> None:
    """Each node samples its own GPUs into its own run folder; both have a GPU 0."""
    values = [""] * (len(GPU_SAMPLES_CSV) - 3)
    for host, ranks in (("a", (0, 1)), ("b", (2, 3))):
        folder = part(tmp_path / "job" / host, *ranks)
        node = tmp_path / f"{host}.csv"
        with node.open("w", newline="") as f:
            csv.writer(f).writerows([f"GPU-{host}{n}", 1000 + n, *values] for n in (0, 1))
        reports = [RankReport(rank=rank, host=host, gpus={f"GPU-{host}{n}": n}) for n, rank in enumerate(ranks)]
        write_rank_samples(node, reports, folder / "torch")
        manifest = json.loads((folder / "run.json").read_text())
        manifest["passes"][0]["files"] += [
            {"path": f"torch/rank-{rank}.gpu_samples.csv", "kind": "gpu_samples", "rank": rank} for rank in ranks
        ]
        (folder / "run.json").write_text(json.dumps(manifest))
    found = sql(
        tmp_path / "job",
        "SELECT rank, device, s.start_ns, host FROM gpu_samples s JOIN rank_hosts USING (run_id, rank) ORDER BY rank",
    )
    assert [tuple(row.values()) for row in found] == [
        (0, 0, 1000, "a"), (1, 1, 1001, "a"), (2, 0, 1000, "b"), (3, 1, 1001, "b"),
    ]  # fmt: skip


class AmdSmi(types.ModuleType):
    """What AMD SMI says of one GPU, in its units: MHz, W, °C, MB, %; it does not have all."""

    AmdSmiException = type("AmdSmiException", (Exception,), {})
    AmdSmiClkType = types.SimpleNamespace(GFX="gfx", MEM="mem")
    AmdSmiTemperatureType = types.SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = types.SimpleNamespace(CURRENT="current")
    amdsmi_init = staticmethod(lambda: None)
    amdsmi_get_processor_handles = staticmethod(lambda: ["gpu"])
    amdsmi_get_gpu_device_bdf = staticmethod(lambda handle: "0000:C1:00.0")
    amdsmi_get_clock_info = staticmethod(lambda handle, kind: {"clk": {"gfx": 2100, "mem": 1300}[kind]})
    amdsmi_get_power_info = staticmethod(
        lambda handle: {"current_socket_power": "N/A", "average_socket_power": 540, "gfx_voltage": 700}
    )
    amdsmi_get_gpu_vram_usage = staticmethod(lambda handle: {"vram_total": 196_592, "vram_used": 2000})
    amdsmi_get_gpu_activity = staticmethod(lambda handle: {"gfx_activity": 97, "umc_activity": 40})

    @classmethod
    def amdsmi_get_temp_metric(cls, handle: str, sensor: str, metric: str) -> int:
        raise cls.AmdSmiException


def test_units_of_an_amd_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake package says what the columns hold; it cannot say that AMD's own is like this."""
    monkeypatch.setitem(sys.modules, "amdsmi", AmdSmi("amdsmi"))
    [gpu] = amd_gpus()
    row = dict(zip(("name", *GPU_SAMPLES_CSV[2:]), gpu.sample(), strict=True))
    found = {name: value for name, value in row.items() if value is not None and name != "start_ns"}
    assert found == {
        "name": "0000:c1:00.0", "sm_clock_mhz": 2100, "memory_clock_mhz": 1300, "power_w": 540,
        "memory_used_bytes": 2000 << 20, "gpu_util_pct": 97,
    }  # fmt: skip


def test_without_amd_smi_there_are_no_amd_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert amd_gpus() == []
