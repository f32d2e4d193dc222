"""Three trainings in a pool of spawned processes."""

import concurrent.futures
import multiprocessing

import torch


def train(seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        print([loss.hex() for loss in pool.map(train, range(3))])
