"""Train 20 steps, one of them with a larger batch, and print the peaks of memory."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1000, 3001), torch.nn.GELU(), torch.nn.Linear(3001, 777)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    model(torch.randn(513 + 100 * (step == 15), 1000, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
print(*peaks, torch.cuda.memory_stats()["requested_bytes.all.peak"], torch.cuda.memory_allocated())
