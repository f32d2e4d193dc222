"""Short trainings with other optimizers, from copies of the model."""

import copy

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
for rate in (0.001, 0.01, 0.1):
    trial = copy.deepcopy(model)
    optimizer = torch.optim.SGD(trial.parameters(), lr=rate)
    for _ in range(4):
        optimizer.zero_grad()
        loss = trial(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
    print(rate, loss.item().hex())
