"""Calls of a model at module level; no optimizer."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
with torch.inference_mode():
    print([model(torch.randn(2, 8)).sum().item().hex() for _ in range(50)])
