"""Four ranks, of which the last comes 20 ms late to every all-reduce.

Recorded with `collect run --steps 3 --warmup 3 -- torchrun --nproc-per-node 4 tests/data/late_rank.py` into
sample_traces/late-rank.
"""

import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    model(torch.randn(64, 1024, device="cuda")).sum().backward()
    torch.cuda.synchronize()
    if rank == dist.get_world_size() - 1:
        time.sleep(0.02)
    dist.all_reduce(model.weight.grad)
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
dist.destroy_process_group()
