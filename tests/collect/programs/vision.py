"""Trains a model of torchvision on generated images; its weights are averaged."""

import torch
import torchvision
from torchvision.transforms import v2

torch.manual_seed(0)
transform = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
data = torchvision.datasets.FakeData(32, (3, 32, 32), num_classes=4, transform=transform)
model = torchvision.models.squeezenet1_1(num_classes=4)
average = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8)
for images, labels in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    scheduler.step()
    average.update_parameters(model)
print(loss.item().hex(), average(images).sum().item().hex())
