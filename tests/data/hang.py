"""Hang on purpose: `missing`: rank 2 does not call the third all_reduce; `size`: rank 1 calls it with another size."""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

cuda = torch.cuda.is_available()
rank = int(os.environ["RANK"])
if cuda:
    torch.cuda.set_device(rank)
dist.init_process_group("nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=8))
device = torch.device("cuda", rank) if cuda else torch.device("cpu")


def average(tensor: torch.Tensor) -> None:
    """Average a tensor over the ranks."""
    dist.all_reduce(tensor)
    tensor /= dist.get_world_size()


def train(step: int) -> None:
    """One step."""
    if step == 2 and sys.argv[1] == "missing" and rank == 2:
        time.sleep(60)
    size = 2048 if step == 2 and sys.argv[1] == "size" and rank == 1 else 1024
    average(torch.ones(size, device=device))


for step in range(4):
    train(step)
    if cuda:
        torch.cuda.synchronize()
