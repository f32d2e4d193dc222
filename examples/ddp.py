"""DistributedDataParallel under torchrun: NCCL on GPUs, gloo on the CPU.

collect run -o runs -- torchrun --nproc-per-node 2 examples/ddp.py
"""

import argparse
import os

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--slow-rank", type=int, help="a rank that works twice as much: see `analyze query stragglers`")
options = parser.parse_args()

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo")
layers = [torch.nn.Linear(options.width, options.width) for _ in range(4)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
rows = 64 if dist.get_rank() == options.slow_rank else 32
for _ in range(options.steps):
    model(torch.randn(rows, options.width, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
