"""Compiles a model with torch.compile, and trains it; then it hooks all modules."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
compiled = torch.compile(model, backend="eager")


def step():
    optimizer.zero_grad()
    loss = compiled(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


print([step().hex() for _ in range(8)])
# torch warns of the program's own hooks.
torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
print(compiled(torch.ones(1, 8)).item().hex())
