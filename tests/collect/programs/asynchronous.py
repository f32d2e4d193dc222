"""An asyncio program with signal handlers of its loop."""

import asyncio
import signal

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


async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
    for _ in range(8):
        loss = step()
        await asyncio.sleep(0.001)
    print(loss.hex())


asyncio.run(main())
