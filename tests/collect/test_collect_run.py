"""`collect run` on the CPU with real models: the contents of a run folder."""

from __future__ import annotations

import hashlib
import math
import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collect_support import CPU, Collect, environment, names, read_csv, read_trace, refused
from PIL import Image

from collect.injected.trace_files import KEY_AVERAGES_COLUMNS
from collect.option_checks import make_options
from collect.workload.data import open_source
from collect.workload.model import build
from schemas.errors import InputError
from schemas.phases import PHASES
from schemas.recorded_tables import STEP_METRICS_CSV


def outermost(trace: dict[str, Any]) -> Iterator[str]:
    """Names of the operator calls that key_averages() counts: one inside another of its own name is the same call."""
    open_calls: dict[int, list[tuple[str, float]]] = {}
    for e in sorted((e for e in trace["traceEvents"] if e.get("cat") == "cpu_op"), key=lambda e: (e["ts"], -e["dur"])):
        stack = open_calls.setdefault(e["tid"], [])
        while stack and stack[-1][1] <= e["ts"]:
            stack.pop()
        if not stack or stack[-1][0] != e["name"]:
            yield e["name"]
        stack.append((e["name"], e["ts"] + e["dur"]))


def test_torch_pass(collect: Collect) -> None:
    ran = collect(*CPU, "--model", "resnet18", "--memory", "--flops", "--memory-timeline")
    assert ran.code == 0, ran.stderr
    assert ran.stdout.strip() == str(ran.folder)
    m = ran.manifest
    assert (m.status, m.reason) == ("done", None)
    w = m.workload
    assert (w.model, w.batch_size, w.image_size) == ("resnet18", 2, 32)
    # One process on the CPU is 0 GPUs, as schemas.workload says.
    assert (w.gpus, w.parallel, w.steps, w.warmup, w.device) == (0, "none", 2, 1, "cpu")
    assert (m.world_size, m.passes[0].counted_steps) == (1, 2)
    assert m.torch_version and m.torchvision_version and m.python_version and m.host and m.end
    assert m.command[:2] == ["collect", "run"] and "--flops" in m.command
    assert [p.status for p in m.passes] == ["done"]
    kinds = Counter(f.kind for f in m.passes[0].files)
    one_each = ("chrome_trace", "key_averages", "memory_timeline", "step_metrics", "host_samples", "log")
    assert kinds == dict.fromkeys(one_each, 1)
    assert all((ran.folder / f.path).is_file() for f in m.passes[0].files)
    assert (ran.folder / "torch/rank-0.memory_timeline.json.gz").stat().st_size > 100
    # Nothing half-written or reserved is left.
    left = sorted(str(p.relative_to(ran.folder)) for p in ran.folder.rglob("*") if p.is_file())
    assert left == sorted(["run.json", *(f.path for f in m.passes[0].files)])

    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    ranges = Counter(names(trace, "user_annotation"))
    # Two profiled steps: each phase once a step. Step 0 is warm-up, so the profiled ones are 1 and 2.
    assert {name: ranges[name] for name in PHASES} == dict.fromkeys(PHASES, 2)
    assert {n for n in ranges if n.startswith("ProfilerStep")} == {"ProfilerStep#1", "ProfilerStep#2"}

    averages = read_csv(ran.folder / "torch/rank-0.key_averages.csv")
    assert tuple(averages[0]) == KEY_AVERAGES_COLUMNS
    # Some versions of torch have a row for each overload of an operator.
    calls: Counter[str] = Counter()
    for row in averages:
        calls[row["key"]] += int(row["calls"])
    in_trace = Counter(outermost(trace))
    # resnet18 has 20 convolutions (torchvision), so 40 in two steps; and the CSV counts the trace's own events.
    assert calls["aten::conv2d"] == in_trace["aten::conv2d"] == 40
    assert {k: v for k, v in calls.items() if k.startswith("aten::")} == {
        k: v for k, v in in_trace.items() if k.startswith("aten::")
    }
    conv = next(row for row in averages if row["key"] == "aten::conv2d")
    assert int(conv["flops"]) > 0 and float(conv["total_cpu_us"]) > 0

    rows = read_csv(ran.folder / "torch/rank-0.step_metrics.csv")
    assert tuple(rows[0]) == STEP_METRICS_CSV
    assert [(r["step"], r["warmup"]) for r in rows] == [("0", "true"), ("1", "false"), ("2", "false")]
    for row in rows:
        parts = [float(row[f"{p}_s"]) for p in PHASES]
        assert all(p >= 0 for p in parts)
        # On the CPU the phases follow each other inside the step.
        assert sum(parts) <= float(row["step_s"])
        assert len(row["step_s"].partition(".")[2]) == 9
        assert row["images"] == "2" and float(row["loss"]) > 0 and row["max_allocated_bytes"] == ""


def test_ddp_two_gloo_ranks(collect: Collect) -> None:
    ran = collect(*CPU, "--parallel", "ddp", "--gpus", "2")
    assert ran.code == 0, ran.stderr
    assert (ran.manifest.workload.gpus, ran.manifest.workload.parallel) == (2, "ddp")
    for rank in (0, 1):
        trace = read_trace(ran.folder / f"torch/rank-{rank}.trace.json.gz")
        about = trace["distributedInfo"]
        assert (about["rank"], about["world_size"], about["backend"]) == (rank, 2, "gloo")
        assert any("all_reduce" in n for n in names(trace, "user_annotation"))
        assert not any("barrier" in e.get("name", "") for e in trace["traceEvents"])
        rows = read_csv(ran.folder / f"torch/rank-{rank}.step_metrics.csv")
        assert [r["rank"] for r in rows] == [str(rank)] * 3
    files = {(f.kind, f.rank) for f in ran.manifest.passes[0].files}
    assert {("chrome_trace", 0), ("chrome_trace", 1), ("log", None)} <= files


def test_ddp_of_one_rank(collect: Collect) -> None:
    # The first point of a scaling study: the same DistributedDataParallel, with nobody to wait for.
    ran = collect(*CPU, "--parallel", "ddp", "--gpus", "1")
    assert ran.code == 0, ran.stderr
    about = read_trace(ran.folder / "torch/rank-0.trace.json.gz")["distributedInfo"]
    assert (about["rank"], about["world_size"], about["backend"]) == (0, 1, "gloo")


def test_passes_repeat_the_same_seeded_workload(collect: Collect) -> None:
    ran = collect(*CPU, "--profiler", "none,torch", "--seed", "7")
    assert ran.code == 0
    assert [p.profiler for p in ran.manifest.passes] == ["none", "torch"]
    losses = [
        [row["loss"] for row in read_csv(ran.folder / name / "rank-0.step_metrics.csv")] for name in ("none", "torch")
    ]
    assert losses[0] == losses[1]
    assert not list((ran.folder / "none").glob("*.trace.json.gz"))


def test_fake_jpeg_with_a_loader_worker(collect: Collect) -> None:
    fake = ["--data", "fake-jpeg"]
    ran = collect(*CPU, "--model", "resnet18", *fake, "--workers", "1", "--freeze-features", "--precision", "bf16")
    assert ran.code == 0, ran.stderr
    assert (ran.manifest.workload.data, ran.manifest.workload.freeze_features) == ("fake-jpeg", True)
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    operators = names(trace, "cpu_op")
    # Only the classifier trains: its product runs backward, no convolution does.
    assert "aten::convolution_backward" not in operators and "AddmmBackward0" in operators


def test_fake_datasets_have_real_shapes(collect: Collect, tmp_path: Path) -> None:
    # Food-101's layout, read by torchvision's own loader.
    tail = ["--workers", "0", "--profiler", "none", "--schedule", "cosine"]
    ran = collect(*CPU, "--data", "fake-food101:9", *tail)
    assert ran.code == 0, ran.stderr
    assert (ran.manifest.workload.data, ran.manifest.workload.schedule) == ("fake-food101:9", "cosine")
    options = make_options({"model": "resnet18", "batch_size": 5, "data": "fake-food101:9", "workers": 0})
    food = open_source(options, 16, "cpu", 0, tmp_path)
    images, labels = next(food.batches)
    assert (food.classes, food.images, tuple(images.shape), tuple(labels.shape)) == (101, 9, (5, 3, 16, 16), (5,))
    assert sorted(Image.open(p).size for p in tmp_path.rglob("*.jpg")) == [(512, 384)] * 9
    options = make_options({"model": "resnet18", "batch_size": 5, "data": "fake-cifar100:60", "workers": 0})
    cifar = open_source(options, 16, "cpu", 0, tmp_path)
    images, _ = next(cifar.batches)
    assert (cifar.classes, tuple(images.shape)) == (100, (5, 3, 16, 16))
    with pytest.raises(InputError, match="expected a number of images"):
        make_options({"model": "resnet18", "data": "fake-cifar100:many"})


@pytest.mark.parametrize("data", ["fake-jpeg", "fake-food101"])
def test_all_workers_have_images_to_load(data: str, tmp_path: Path) -> None:
    """Loaders prefetch two batches for each worker, and never beyond the end of a pass."""
    options = make_options({"model": "resnet18", "batch_size": 6, "data": data, "workers": 8})
    source = open_source(options, 16, "cpu", 0, tmp_path)
    assert len(list(tmp_path.rglob("*.jpg"))) == 12
    assert source.images and source.images // 6 > 100 * 2 * options.workers


def test_cosine_schedule() -> None:
    """Loshchilov and Hutter, SGDR (2017), equation 5, without restarts: rate * (1 + cos(pi * t / T)) / 2."""
    from torch import device

    options = make_options({"model": "squeezenet1_1", "warmup": 1, "steps": 3, "schedule": "cosine"})
    workload = build(options, 10, 32, device("cpu"), 0)
    rates = []
    for _ in range(4):
        rates.append(workload.optimizer.param_groups[0]["lr"])
        workload.optimizer.step()
        workload.next_rate()
    assert rates == pytest.approx([0.01 * (1 + math.cos(math.pi * t / 4)) / 2 for t in range(4)])


def test_cifar100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The real data set's format: a pickled dict of rows of 3072 bytes (3 x 32 x 32), its names in `meta`.
    root = tmp_path / "cifar-100-python"
    root.mkdir()
    images = {"data": np.zeros((8, 3072), np.uint8), "fine_labels": [0, 1] * 4}
    names = {"fine_label_names": ["apple", "bear"]}
    digests = {}
    for name, content in {"train": images, "test": images, "meta": names}.items():
        (root / name).write_bytes(pickle.dumps(content))
        digests[name] = hashlib.md5((root / name).read_bytes()).hexdigest()
    # torchvision declares the MD5 of each file. Those of the real data set reject these files ...
    options = make_options({"model": "resnet18", "batch_size": 5, "data": f"cifar100:{tmp_path}", "workers": 0})
    with pytest.raises(InputError, match="no usable cifar100 data set"):
        open_source(options, 32, "cpu", 0, tmp_path)
    # ... and their own accept them.
    cifar = pytest.importorskip("torchvision").datasets.CIFAR100
    monkeypatch.setattr(cifar, "train_list", [["train", digests["train"]]])
    monkeypatch.setattr(cifar, "test_list", [["test", digests["test"]]])
    monkeypatch.setitem(cifar.meta, "md5", digests["meta"])
    found = open_source(options, 32, "cpu", 0, tmp_path)
    batch, labels = next(found.batches)
    assert (found.classes, tuple(batch.shape), set(labels.tolist())) == (2, (5, 3, 32, 32), {0, 1})


def test_images_of_a_folder_and_auxiliary_outputs(collect: Collect, tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for index in range(2):
            Image.new("RGB", (40, 30), (index * 90, 60, 30)).save(tmp_path / "images" / name / f"{index}.png")
    # googlenet returns two auxiliary classifiers' outputs in training.
    model = ["--model", "googlenet", "--image-size", "64", "--steps", "1", "--optimizer", "adamw", "--channels-last"]
    data = ["--data", f"imagefolder:{tmp_path / 'images'}", "--workers", "0"]
    ran = collect(*CPU, *model, *data, "--profiler", "none")
    assert ran.code == 0, ran.stderr
    options = make_options({"model": "resnet18", "batch_size": 5, "data": f"imagefolder:{tmp_path / 'images'}"})
    with pytest.raises(InputError, match="4 images for each process, fewer than one batch"):
        open_source(options, 32, "cpu", 0, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "resnet81"], "no classification model 'resnet81'; similar names: resnet18"),
        (["--model", "resnet18", "--image-size", "8", "--data", "food101:/nowhere"], "no food101 data set"),
        (["--model", "resnet18", "--gpus", "2"], "2 GPUs need --parallel dp or --parallel ddp"),
        (["--model", "resnet18", "--gpus", "2", "--parallel", "dp"], "with --device cpu use --gpus 1"),
        (["--model", "resnet18", "--precision", "fp8"], "expected one of fp32, tf32, bf16, fp16"),
        (["--model", "resnet18", "--precision", "tf32"], "--precision tf32 is a mode of NVIDIA GPUs"),
        (["--model", "resnet18", "--profiler", "vtune"], "expected one of gpu, ncu, none, nsys, torch"),
        (["--model", "resnet18", "--steps", "0"], "0 is below the minimum of 1"),
        (["--model", "resnet18", "--seed", str(2**63)], "is above the maximum of 9223372036854775807"),
        (["--model", "resnet18", "--batch-size", "many"], "'--batch-size'"),
        ([], "choose a torchvision model"),
        (["--", "no-such-program"], "'no-such-program' is not on PATH"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    own = ["--device", "cpu"] if "--" not in arguments else []
    code, stderr = refused("run", "-o", str(tmp_path / "runs"), *own, *arguments)
    assert code == 2
    assert sentence in stderr.splitlines()[-1] and stderr.splitlines()[-1].startswith("collect: ")
    assert not (tmp_path / "runs").exists()


def test_help_does_not_import_torch() -> None:
    import subprocess

    code = "import sys; from collect.cli import app\ntry: app(['run', '--help'])\nexcept SystemExit: pass\n"
    check = "bad = {'torch', 'duckdb', 'pandas', 'analyze'} & set(sys.modules); sys.exit(f'{bad}' if bad else 0)"
    done = subprocess.run([sys.executable, "-c", code + check], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--ncu-metrics" in done.stdout
