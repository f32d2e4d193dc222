"""Time of epochs: `epochs` and `op-totals`, by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support import SAMPLES, ask
from traces import event, kernel, launch, write_run, write_trace


def run_folder(root: Path, dataset: str, parallelism: str = "dp", ranks: int = 1, profiler: str = "none") -> Path:
    """Two steps of batch 64 after a warm-up step: waits of 10 and 30 ms, steps of 100 and 140 ms, 20 ms more a rank."""
    header = "rank,step,warmup,data_s,h2d_s,forward_s,loss_s,backward_s,optimizer_s,step_s,images,loss"
    files = []
    for rank in range(ranks):
        more = rank * 0.02
        rows = [f"{rank},0,true,9,0,0,0,0,0,9,64,1", f"{rank},1,false,0.01,0,0,0,0,0,{0.1 + more},64,1"]
        rows.append(f"{rank},2,false,0.03,0,0,0,0,0,{0.14 + more},64,1")
        path = root / profiler / f"rank-{rank}.step_metrics.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([header, *rows]) + "\n")
        files.append((f"{profiler}/{path.name}", "step_metrics", rank))
    return write_run(
        root, files, profiler, model="m", precision="fp32", dataset=dataset, image_size=32, batch_size=64, gpus=ranks,
        parallelism=parallelism, steps=2, world_size=ranks,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dataset", "params", "images", "steps"),
    [
        # 50,000 / 64 = 781.25, 75,750 / 64 = 1183.6, 25,000 / 64 = 390.6, 640 / 64 = 10.
        ("fake-cifar100", {}, 50_000, 782),
        ("cifar100", {}, 50_000, 782),
        ("fake-food101", {}, 75_750, 1184),
        ("fake-cifar100:25000", {}, 25_000, 391),
        ("fake-cifar100", {"images": 640}, 640, 10),
        ("synthetic", {}, None, None),
        ("synthetic", {"images": 641}, 641, 11),
    ],
)
def test_time_of_an_epoch(
    tmp_path: Path, dataset: str, params: dict[str, int], images: int | None, steps: int | None
) -> None:
    # A mean step of (100 + 140) / 2 = 120 ms, of which (10 + 30) / 2 = 20 ms wait.
    [row] = ask(run_folder(tmp_path / "r", dataset), "epochs", params=params)
    assert (row["images"], row["step_images"], row["steps"], row["recorded"]) == (images, 64, steps, 2)
    times = (row["data_ns"], row["train_ns"], row["epoch_ns"])
    assert times == (tuple(steps * ms * 1_000_000 for ms in (20, 100, 120)) if steps else (None, None, None))
    assert row["data_pct"] == (pytest.approx(100 * 20 / 120) if steps else None)


def test_the_processes_of_ddp_share_an_epoch(tmp_path: Path) -> None:
    # Each of two processes has a batch of 64: 50,000 / 128 = 390.6. The mean of 120 and 140 ms, and 20 ms of waiting.
    [row] = ask(run_folder(tmp_path / "r", "fake-cifar100", "ddp", 2), "epochs")
    assert (row["step_images"], row["steps"], row["recorded"]) == (128, 391, 2)
    assert (row["data_ns"], row["epoch_ns"]) == (391 * 20_000_000, 391 * 130_000_000)


def test_totals_by_hand(tmp_path: Path) -> None:
    # Two steps of 100 us. Of 200 us, an operator of 30 us launches a kernel of 50 us by a call of 5 us in each step:
    # all self CPU time is the 200 us of the steps; 2 operators, 2 calls, 2 kernels of 50 us.
    events = []
    for n in range(2):
        at = n * 100
        events += [
            event("user_annotation", f"ProfilerStep#{n}", at, 100),
            event("cpu_op", "aten::conv2d", at + 10, 30, **{"External id": n + 1}),
            launch(at + 20, n + 7, 5, **{"External id": n + 1}),
            kernel("k", at + 30, 50, correlation=n + 7, **{"External id": n + 1}),
        ]
    path = write_trace(tmp_path / "t.json", events)
    columns = ("recorded", "steps", "cpu_ns", "device_ns", "op_calls", "cuda_calls", "kernels", "copies")
    expected = {
        "recording": (2, 2, 200_000, 100_000, 2, 2, 2, 0),
        "step": (2, 1, 100_000, 50_000, 1, 1, 1, 0),
        # A bare trace does not say how many steps an epoch has.
        "epoch": (2, None, None, None, None, None, None, None),
    }
    for per, values in expected.items():
        [row] = ask(path, "op-totals", params={"per": per, "images": 640})
        assert tuple(row[c] for c in columns) == values


def test_totals_are_those_below_torchs_table() -> None:
    """The CSV beside the trace is what torch printed on the GPU node; an epoch of 320 images has 10 steps of 32."""
    folder = SAMPLES / "resnet18-1gpu"
    with (folder / "torch/rank-0.key_averages.csv").open() as f:
        rows = list(csv.DictReader(f))
    cpu_ns = sum(round(float(r["self_cpu_us"]) * 1000) for r in rows)
    work = [r for r in rows if r["device_type"] == "CUDA" and r["is_user_annotation"] == "false"]
    device_ns = sum(round(float(r["self_device_us"]) * 1000) for r in work)
    [row] = ask(folder, "op-totals", profiler="torch")
    assert (row["steps"], row["cpu_ns"], row["device_ns"]) == (2, cpu_ns, device_ns)
    assert row["kernels"] + row["copies"] == sum(int(r["calls"]) for r in work)
    [epoch] = ask(folder, "op-totals", profiler="torch", params={"per": "epoch", "images": 320})
    assert (epoch["steps"], epoch["cpu_ns"], epoch["device_ns"]) == (10, 5 * cpu_ns, 5 * device_ns)


def test_epoch_time_of_unrecorded_steps_is_null(tmp_path: Path) -> None:
    """A trace of the GPU alone: how much the CPU did is not known."""
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 3), kernel("l", 5, 2)])
    [row] = ask(path, "op-totals")
    assert (row["device_ns"], row["kernels"], row["copies"]) == (5000, 2, 0)
    assert (row["cpu_ns"], row["op_calls"], row["cuda_calls"]) == (None, None, None)
