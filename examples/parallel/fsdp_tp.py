"""FSDP2 over tensor parallelism: MLP blocks sharded over a mesh of dp x tp ranks.

collect run -o runs -- torchrun --nproc-per-node 4 examples/parallel/fsdp_tp.py --tp 2
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--tp", type=int, default=2, help="ranks that share a layer; the others share the batch")
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--rows", type=int, default=8192, help="rows of a batch")
options = parser.parse_args()

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo")
mesh = init_device_mesh(device.type, (dist.get_world_size() // options.tp, options.tp), mesh_dim_names=("dp", "tp"))
dtype = torch.bfloat16 if cuda else torch.float32


class Block(torch.nn.Module):
    """An MLP beside what came in."""

    def __init__(self, width: int):
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows x width, in and out."""
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


model = torch.nn.Sequential(*(Block(options.width) for _ in range(options.layers))).to(device, dtype)
for block in model:
    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
torch.manual_seed(mesh["dp"].get_local_rank())  # the ranks of one tp group see the same rows
for _ in range(options.steps):
    x = torch.randn(options.rows, options.width, device=device, dtype=dtype)
    model(x).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
