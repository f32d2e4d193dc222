"""A plain training loop, which knows nothing of profilers.

collect run -o runs -- python examples/train.py
"""

import argparse

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--width", type=int, default=64, help="channels of the first layer")
options = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
width = options.width
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, width, 3, stride=2),
    torch.nn.BatchNorm2d(width),
    torch.nn.ReLU(),
    torch.nn.Conv2d(width, 2 * width, 3, stride=2),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(2 * width, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for _ in range(options.steps):
    images = torch.randn(options.batch_size, 3, 32, 32, device=device)
    labels = torch.randint(10, (options.batch_size,), device=device)
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
