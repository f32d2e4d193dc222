"""Matrix products in bf16 that draw as much power as the GPU may: its clocks are reduced."""

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192) for _ in range(4)]).cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
for _ in range(80):
    optimizer.zero_grad()
    model(x).float().pow(2).mean().backward()
    optimizer.step()
