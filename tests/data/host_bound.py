"""Many small kernels: the GPU waits for the CPU to launch them.

Recorded with `collect run --steps 3 --warmup 3 -- python tests/data/host_bound.py` into sample_traces/host-bound.
"""

import torch

model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(40))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(16, 64, device="cuda")
for _ in range(30):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
