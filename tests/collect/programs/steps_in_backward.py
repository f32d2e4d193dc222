"""Optimizers that step as gradients arrive."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}


def apply(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(apply)
for _ in range(8):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
print(loss.item().hex())
