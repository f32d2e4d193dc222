"""autocast, a gradient scaler and averaged weights."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", enabled=True)
averaged = torch.optim.swa_utils.AveragedModel(model)
for _ in range(8):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.randn(4, 8)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    averaged.update_parameters(model)
print(loss.item().hex(), averaged(torch.ones(1, 8)).item().hex())
