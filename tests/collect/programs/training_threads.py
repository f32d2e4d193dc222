"""Three threads train at the same time: all are within a step at once."""

import threading

import torch

together = threading.Barrier(3)
losses = {}


def wait(*_):
    together.wait()


def train(seed):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.ones(8, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    optimizer.register_step_pre_hook(wait)
    for _ in range(8):
        optimizer.zero_grad()
        loss = (torch.randn(4, 8, generator=generator) @ weight).square().mean()
        loss.backward()
        optimizer.step()
    losses[seed] = loss.item().hex()


threads = [threading.Thread(target=train, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(losses.items()))
