"""Children that are forked before, while and after training."""

import os

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


def fork(code):
    child = os.fork()
    if not child:
        torch.ones(3).sum()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


print(fork(3), [step().hex() for _ in range(3)], fork(4), [step().hex() for _ in range(5)], fork(5))
