"""Configures logging and changes into an output folder."""

import logging
import os
import sys
import tempfile

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


logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s", force=True)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for number in range(8):
        logging.info("%d %s", number, step().hex())
    os.chdir("/")
