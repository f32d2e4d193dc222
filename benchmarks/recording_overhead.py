"""How much longer do steps take while they are recorded? `python recording_overhead.py FOLDER [PROGRAM ...]`.

Runs each program plain and under `collect run`. Prints medians, and with --repeat the least and greatest. Needs a GPU,
and two for DDP, FSDP2 and trainer_2gpu; some programs need transformers and accelerate, or lightning. A program prints
its own step times, by CUDA events. BLOCK_STEPS=10 makes the blocks of `collect` longer. `--program fsdp2`, trainer and
Lightning's run on a machine without a GPU, too, small and by the host's clock: to try them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

BLOCK = int(os.environ.get("BLOCK_STEPS", "5"))
"""Steps of each block of `collect`."""
FIRST = 2
"""First undisturbed step of `collect`."""
SKIPPED = 3 * BLOCK + 10
"""Steps until `collect` is certainly done."""
STEPS = SKIPPED + 15
"""Steps of a program."""


class Steps:
    """Iterates over steps. At the end it prints the mean of those that `collect` leaves undisturbed, and the median of
    the last ones.
    """

    def __init__(self, steps: int = STEPS, skipped: int = SKIPPED) -> None:
        self.steps, self.skipped = steps, skipped

    def __iter__(self) -> Iterator[int]:
        self.begin()
        for step in range(self.steps):
            self.next()
            yield step
        self.end()

    def begin(self) -> None:
        """Begin to count."""
        self._marks: list[Any] = []

    def next(self) -> None:
        """Mark the begin of a step."""
        import torch

        if torch.cuda.is_available():
            self._marks.append(torch.cuda.Event(enable_timing=True))
            self._marks[-1].record()
        else:
            self._marks.append(time.perf_counter())

    def end(self) -> None:
        """Print the step times."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
            ms = [a.elapsed_time(b) for a, b in itertools.pairwise(self._marks)]
        else:
            ms = [1000 * (b - a) for a, b in itertools.pairwise(self._marks)]
        if os.environ.get("RANK", "0") == "0":
            first = ms[FIRST : FIRST + BLOCK]
            last = ms[self.skipped :]
            print(f"first: {statistics.mean(first):.3f} ms, last: {statistics.median(last):.3f} ms", flush=True)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _transformer(blocks: int, width: int) -> Any:
    from torch import nn

    layers = [nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, dropout=0.0) for _ in range(blocks)]
    return nn.Sequential(*layers).to(_device())


def _train_ddp(sleep_s: float) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    model = torch.nn.parallel.DistributedDataParallel(_transformer(6, 1024), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(8, 256, 1024, device="cuda")
    for _ in Steps():
        time.sleep(sleep_s * (rank == 1))
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def ddp() -> None:
    """DDP, 6 transformer blocks, 2 GPUs."""
    _train_ddp(0)


def late_rank() -> None:
    """The same; rank 1 sleeps 5 ms in each step."""
    _train_ddp(0.005)


def fsdp2() -> None:
    """FSDP2, 6 transformer blocks in bf16, 2 GPUs."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    device = _device()
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank())
    width = 1024 if device == "cuda" else 64
    model = _transformer(6, width)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(8, width // 4, width, device=device)
    for _ in Steps():
        model(batch).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def trainer(**settings: Any) -> None:
    """Trainer of transformers, Llama of 117 M, bf16, batch 8 x 512."""
    import tempfile

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

    on_gpu = _device() == "cuda"
    width, layers, length = (768, 12, 512) if on_gpu else (32, 2, 16)
    config = LlamaConfig(
        vocab_size=16_384, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
        num_attention_heads=width // 16 if width < 64 else width // 64, use_cache=False,
    )  # fmt: skip
    steps = Steps()
    steps.begin()

    class Times(TrainerCallback):
        """Marks the steps."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            steps.next()

    data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 16_384, (1024, length))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=8, max_steps=STEPS, save_strategy="no", report_to="none",
            bf16=on_gpu, use_cpu=not on_gpu, logging_steps=STEPS, **settings,
        )  # fmt: skip
        Trainer(LlamaForCausalLM(config), arguments, train_dataset=data, callbacks=[Times()]).train()
    steps.end()


def trainer_compiled() -> None:
    """The same under torch.compile."""
    trainer(torch_compile=True)


def trainer_2gpu() -> None:
    """The same under torchrun, on 2 GPUs."""
    trainer()


def lightning_resnet50() -> None:
    """Lightning, ResNet-50, bf16, batch 64, its own data loader."""
    import lightning
    import torch
    import torchvision

    on_gpu = _device() == "cuda"
    batch, size = (64, 224) if on_gpu else (2, 32)
    steps = Steps()
    steps.begin()

    class Module(lightning.LightningModule):
        """Trains the model, and marks the steps."""

        def __init__(self) -> None:
            super().__init__()
            self.model = torchvision.models.resnet50() if on_gpu else torchvision.models.resnet18()

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            steps.next()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    few = torch.utils.data.TensorDataset(torch.randn(batch, 3, size, size), torch.randint(1000, (batch,)))
    data: Any = torch.utils.data.ConcatDataset([few] * STEPS)
    fit = lightning.Trainer(
        max_steps=STEPS, max_epochs=-1, accelerator="auto", devices=1, precision="bf16-mixed" if on_gpu else "32-true",
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    fit.fit(Module(), torch.utils.data.DataLoader(data, batch_size=batch, num_workers=4 * on_gpu))
    steps.end()


def resnet50() -> None:
    """ResNet-50, bf16, batch 64."""
    import torch
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (64,), device="cuda")
    for _ in Steps():
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def generate() -> None:
    """generate() of a small Llama, 16 tokens; recorded whole."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8192, hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8
    )
    model = LlamaForCausalLM(config).cuda().half().eval()
    prompt = torch.randint(8192, (1, 16), device="cuda")
    for _ in Steps(8, 2):
        model.generate(prompt, max_new_tokens=16, min_new_tokens=16, do_sample=False, pad_token_id=0)


def graph_step(graph: Any) -> None:
    """Replay a graph: what --step-function counts."""
    graph.replay()


def cuda_graph() -> None:
    """Replay of a CUDA graph of 4 transformer blocks."""
    import torch

    model = _transformer(4, 512).half().eval()
    batch = torch.randn(4, 128, 512, device="cuda", dtype=torch.half)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                model(batch)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            model(batch)
    for _ in Steps():
        graph_step(graph)
        torch.cuda.synchronize()


def host_bound() -> None:
    """Many tiny kernels: waits for the host."""
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(200))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(16, 64, device="cuda")
    for _ in Steps():
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def data_bound() -> None:
    """A loader that sleeps 30 ms for each batch."""
    import torch

    model = _transformer(2, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in Steps():
        time.sleep(0.03)
        batch = torch.randn(8, 128, 512, pin_memory=True).cuda(non_blocking=True)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


PROGRAMS: dict[str, Callable[[], None]] = {
    f.__name__: f
    for f in (
        trainer, trainer_compiled, lightning_resnet50, ddp, fsdp2, trainer_2gpu,
        late_rank, resnet50, generate, cuda_graph, host_bound, data_bound,
    )
}  # fmt: skip
OPTIONS = {"generate": ["--profiler", "gpu,torch"], "cuda_graph": ["--step-function", "__main__:graph_step"]}
"""Options of `collect run`, where a program needs some."""
ON_TWO_GPUS = ("ddp", "late_rank", "fsdp2", "trainer_2gpu")
LAUNCHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def _command(name: str) -> list[str]:
    launcher = LAUNCHER if name in ON_TWO_GPUS else []
    return [sys.executable, *launcher, str(Path(__file__).resolve()), "--program", name]


def _printed(text: str, which: str) -> float | None:
    found = re.findall(rf"{which}: ([\d.]+) ms", text)
    return float(found[-1]) if found else None


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr[-3000:])
        raise RuntimeError(f"exit code {done.returncode}")
    return done.stdout + done.stderr


def plain(name: str) -> dict[str, Any]:
    """Run a program without `collect`, and return its step time in ms."""
    return {"plain": _printed(_run(_command(name)), "last" if name == "generate" else "first")}


def recorded(name: str, output: Path, options: Sequence[str] = ()) -> dict[str, Any]:
    """Record a program in a folder of its own, and return its step times in ms by column."""
    collect = [sys.executable, "-m", "collect", "run", "-o", str(output), "--steps", str(BLOCK)]
    said = _run([*collect, *OPTIONS.get(name, []), *options, "--", *_command(name)])
    row: dict[str, Any] = {"after": _printed(said, "last")}
    [path] = output.glob("*/run.json")
    for one in json.loads(path.read_text())["passes"]:
        ranks = one["ranks"]
        if name == "generate":
            row[one["profiler"]] = _printed((path.parent / one["profiler"] / "log.txt").read_text(), "last")
        elif ranks:
            slowest = max(ranks, key=lambda r: r["recorded_step_ns"] or 0)
            row[one["profiler"]] = (slowest["recorded_step_ns"] or 0) / 1e6
            row["undisturbed"] = (slowest["undisturbed_step_ns"] or 0) / 1e6
        if one["profiler"] == "gpu":
            row["recorder"] = one["options"].get("recorder")
    return row


def with_ratios(row: dict[str, Any]) -> dict[str, Any]:
    """Add the ratios to the undisturbed step, which `collect` cannot time where it records all of a program."""
    row.setdefault("undisturbed", row["plain"])
    ratios = {f"{c} ratio": row[c] / row["undisturbed"] for c in ("gpu", "torch") if row.get(c) and row["undisturbed"]}
    return row | ratios


COLUMNS = ("program", "plain", "undisturbed", "gpu", "torch", "gpu ratio", "torch ratio", "after", "recorder")


def _cell(rows: list[dict[str, Any]], column: str) -> str:
    values = [row[column] for row in rows if row.get(column) is not None]
    if not values or isinstance(values[0], str):
        return str(values[0]) if values else ""
    digits = 2 if "ratio" in column else 1 if min(values) >= 10 else 2
    spread = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.{digits}f}{spread}"


def table_row(name: str, rows: list[dict[str, Any]]) -> str:
    """Return the Markdown row of a program that was measured several times."""
    return "| " + " | ".join(_cell([{"program": name, **row} for row in rows], column) for column in COLUMNS) + " |"


def main() -> None:
    """Run one program, or measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, nargs="?", help="folder for the recordings")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PROGRAMS)}; default: all")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--program", choices=PROGRAMS, help="run this program alone")
    options = parser.parse_intermixed_args()
    if options.program:
        PROGRAMS[options.program]()
        return
    print("| " + " | ".join(COLUMNS) + " |\n|" + " --- |" * len(COLUMNS), flush=True)
    for name in options.names or PROGRAMS:
        folders = [options.output / f"{name}-{n}" for n in range(options.repeat)]
        try:
            rows = [with_ratios(plain(name) | recorded(name, folder)) for folder in folders]
        except Exception as e:
            print(f"| {name} | {type(e).__name__}: {e} |", flush=True)
            continue
        print(table_row(name, rows), flush=True)


if __name__ == "__main__":
    main()
