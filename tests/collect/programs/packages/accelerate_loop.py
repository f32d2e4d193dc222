# /// script
# requires-python = ">=3.11"
# dependencies = ["accelerate", "torch"]
# ///
"""A loop of accelerate: gradients are accumulated, the optimizer is wrapped."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for (batch,) in loader:
    with accelerator.accumulate(model):
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
accelerator.print(loss.item().hex())
