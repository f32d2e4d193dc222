"""DDP on two ranks with the same work, and enough of it that the GPUs never wait for the host.

Recorded with `collect run --steps 3 --warmup 3 -- torchrun --nproc-per-node 2 tests/data/even_ddp.py` into
sample_traces/even-ddp.
"""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
layers = [torch.nn.Linear(2048, 2048) for _ in range(8)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), bucket_cap_mb=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(8192, 2048, device="cuda")
for _ in range(30):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
