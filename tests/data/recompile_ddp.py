"""Compiled DDP on two ranks. A print breaks the graph; in one step, rank 1 has a smaller batch and compiles anew.

Recorded with `collect run --steps 4 --gpu-steps 0 --warmup 3 -- torchrun --nproc-per-node 2 recompile_ddp.py` into
sample_traces/recompile-ddp.
"""

import os

import torch
import torch.distributed as dist

ODD_STEP = 8
"""The second recorded step: after 3 warm-up steps and 4 undisturbed ones."""
cuda = torch.cuda.is_available()
rank = int(os.environ["RANK"])
if cuda:
    torch.cuda.set_device(rank)
device = "cuda" if cuda else "cpu"
dist.init_process_group("nccl" if cuda else "gloo")


class Net(torch.nn.Module):
    """Two layers with a print between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(256, 256)
        self.second = torch.nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a loss."""
        x = torch.nn.functional.gelu(self.first(x))
        print("between the layers", end="\r")
        return self.second(x).square().mean()


torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.compile(Net().to(device), dynamic=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    rows = 48 if step == ODD_STEP and rank == 1 else 64
    model(torch.randn(rows, 256, device=device)).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
