"""resnet18 whose four stages are computed again in the backward pass.

Recorded with `collect run --steps 3 --warmup 3 -- python tests/data/checkpoint.py` into
sample_traces/resnet18-checkpoint.
"""

import torch
import torchvision
from torch.utils.checkpoint import checkpoint


class Again(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


model = torchvision.models.resnet18().cuda()
for name in ("layer1", "layer2", "layer3", "layer4"):
    setattr(model, name, Again(getattr(model, name)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(32, 3, 224, 224, device="cuda")).sum().backward()
    optimizer.step()
