"""The training loop is a generator that its consumer leaves early."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def steps():
    try:
        while True:
            yield step()
    finally:
        print("closed")


for number, loss in enumerate(steps()):
    print(loss.hex())
    if number == 9:
        break
