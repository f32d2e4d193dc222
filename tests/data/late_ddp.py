"""DDP on two ranks, of which the last sleeps 5 ms in every step.

Recorded with `collect run --steps 3 --warmup 3 -- torchrun --nproc-per-node 2 tests/data/late_ddp.py` into
sample_traces/late-ddp.
"""

import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
layers = [torch.nn.Linear(1024, 1024) for _ in range(8)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), bucket_cap_mb=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(30):
    if rank == dist.get_world_size() - 1:
        time.sleep(0.005)
    model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
