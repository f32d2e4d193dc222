# /// script
# requires-python = ">=3.11"
# dependencies = ["timm", "torch", "torchvision"]
# ///
"""Trains a small vision transformer of timm, with its optimizer, scheduler, mixup and average of weights."""

import timm
import torch
from timm.data import Mixup
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3, random_seed

random_seed(0)
model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=4, depth=2, pretrained=False)
optimizer = create_optimizer_v2(model, opt="lamb", lr=0.001)
scheduler, average, mixup = CosineLRScheduler(optimizer, 8), ModelEmaV3(model), Mixup(num_classes=4)
for step in range(8):
    images, labels = mixup(torch.randn(4, 3, 32, 32), torch.randint(0, 4, (4,)))
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step(step)
    average.update(model)
print(loss.item().hex(), average.module(images).sum().item().hex())
