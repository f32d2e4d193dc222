"""An optimizer that calls a closure."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
inputs = torch.randn(4, 8)


def closure():
    optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    return loss


for _ in range(6):
    loss = optimizer.step(closure)
print(loss.item().hex())
