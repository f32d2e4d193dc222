"""A DataLoader that sleeps 20 ms for each batch.

Recorded with `collect run --steps 3 --warmup 3 -- python tests/data/slow_loader.py` into sample_traces/slow-loader.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        time.sleep(0.0025)
        return torch.randn(512)


model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Slow(), batch_size=8, pin_memory=True):
    model(batch.cuda(non_blocking=True)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
