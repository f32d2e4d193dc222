"""A 1F1B pipeline of as many stages as there are ranks: each sends activations on and gradients back.

collect run -o runs -- torchrun --nproc-per-node 4 examples/parallel/pipeline.py
"""

import argparse
import os

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--microbatches", type=int, default=8)
parser.add_argument("--layers", type=int, default=4, help="of a stage")
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--rows", type=int, default=2048, help="rows of a microbatch")
options = parser.parse_args()

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo")
rank, stages, width = dist.get_rank(), dist.get_world_size(), options.width
first, last = rank == 0, rank == stages - 1
layers = [layer for _ in range(options.layers) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
stage = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
data = torch.randn(options.rows, width, device=device)
under_way: list[dist.Work] = []


def forward() -> tuple[torch.Tensor, torch.Tensor]:
    """What a microbatch came as and what it became."""
    x = data.clone() if first else torch.empty_like(data)
    if not first:
        dist.recv(x, rank - 1)
    y = stage(x.requires_grad_())
    if not last:
        under_way.append(dist.isend(y.detach(), rank + 1))
    return x, y


def backward(x: torch.Tensor, y: torch.Tensor) -> None:
    """Gradients of a microbatch."""
    grad = torch.ones_like(y) if last else torch.empty_like(y)
    if not last:
        dist.recv(grad, rank + 1)
    y.backward(grad)
    if not first:
        under_way.append(dist.isend(x.grad, rank - 1))


for _ in range(options.steps):
    ahead = min(stages - 1 - rank, options.microbatches)  # forward passes before the first backward pass
    held = [forward() for _ in range(ahead)]
    for _ in range(options.microbatches - ahead):
        held.append(forward())
        backward(*held.pop(0))
    for x, y in held:
        backward(x, y)
    for work in under_way:
        work.wait()
    under_way.clear()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
