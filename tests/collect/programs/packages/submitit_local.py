# /// script
# requires-python = ">=3.11"
# dependencies = ["submitit", "torch"]
# ///
"""submitit starts a job of this machine; the optimizer's class is pickled with the script's function."""

import tempfile

import submitit
import torch


class Optimizer(torch.optim.SGD):
    pass


def train(seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(8, 1)
    optimizer = Optimizer(model.parameters(), lr=0.01)
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        executor = submitit.AutoExecutor(folder, cluster="local")
        print(executor.submit(train, 0).result().hex())
