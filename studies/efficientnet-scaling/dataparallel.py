"""Times EfficientNet-B0 under DataParallel on two GPUs, one thing changed at a time; prints CSV.

DataParallel starts a thread for each GPU in every forward pass, and cuDNN's plans are cached by thread.
"""

from __future__ import annotations

import argparse
import os
import queue
import statistics
import threading
import time
from typing import Any

import torch
import torchvision

STEPS, SKIPPED = 40, 10
VARIANTS = ("one GPU", "DataParallel", "same threads", "same threads, no cuDNN", "no cuDNN", "benchmark")


class Threads:
    """One thread for each GPU, which lives on; otherwise like torch.nn.parallel.parallel_apply."""

    def __init__(self, count: int) -> None:
        self._asked: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(count)]
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for i in range(count):
            threading.Thread(target=self._serve, args=(i,), daemon=True).start()

    def _serve(self, i: int) -> None:
        torch.cuda.set_device(i)
        while True:
            module, inputs, kwargs, grad = self._asked[i].get()
            with torch.set_grad_enabled(grad):
                self._answers.put((i, module(*inputs, **kwargs)))

    def apply(self, modules: Any, inputs: Any, kwargs: Any = None, devices: Any = None) -> list[Any]:
        """Run module i on inputs i in thread i."""
        for i, module in enumerate(modules):
            self._asked[i].put((module, inputs[i], kwargs[i] if kwargs else {}, torch.is_grad_enabled()))
        answers = dict(self._answers.get() for _ in modules)
        return [answers[i] for i in range(len(modules))]


def main() -> None:
    """Train one variant, and print its step times in ms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("--model", default="efficientnet_b0")
    options = parser.parse_args()
    torch.backends.cudnn.enabled = "no cuDNN" not in options.variant
    torch.backends.cudnn.benchmark = options.variant == "benchmark"
    model = torchvision.models.get_model(options.model).cuda()
    for parameter in model.features.parameters():
        parameter.requires_grad_(False)
    wrapped: Any = model
    if options.variant != "one GPU":
        wrapped = torch.nn.DataParallel(model, [0, 1])
        if "same threads" in options.variant:
            wrapped.parallel_apply = Threads(2).apply
    optimizer = torch.optim.SGD(model.classifier.parameters(), lr=0.01)
    images = torch.randn(64, 3, 224, 224, device="cuda")
    labels = torch.randint(1000, (64,), device="cuda")
    forward, steps = [], []
    for _ in range(STEPS):
        start = time.perf_counter()
        output = wrapped(images)
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)
        middle = time.perf_counter()
        torch.nn.functional.cross_entropy(output, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        forward.append(middle - start)
        steps.append(time.perf_counter() - start)
    times = sorted(steps[SKIPPED:])
    limit = os.environ.get("TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "")
    print(
        f"{options.variant!r},{options.model},{limit},{1e3 * statistics.median(times):.1f},{1e3 * times[0]:.1f},"
        f"{1e3 * times[-1]:.1f},{1e3 * statistics.median(forward[SKIPPED:]):.1f}"
    )


if __name__ == "__main__":
    main()
