"""A training of ten steps, to which `collect doctor` attaches: no output, no data, two ranks under torchrun."""

from __future__ import annotations

import torch
import torch.distributed as dist

STEPS = 10


def main() -> None:
    """Train a linear layer on the CPU."""
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
