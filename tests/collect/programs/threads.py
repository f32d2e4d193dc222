"""A training in a thread, while others run."""

import threading

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


losses = []
stop = threading.Event()
helper = threading.Thread(target=stop.wait, daemon=True)
helper.start()
thread = threading.Thread(target=lambda: losses.extend(step() for _ in range(8)))
thread.start()
thread.join()
stop.set()
print([loss.hex() for loss in losses])
