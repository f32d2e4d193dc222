"""torchrun restarts a rank that failed."""

import os
import subprocess
import sys

if "RANK" not in os.environ:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    sys.exit(subprocess.run([*launcher, "--max-restarts=1", __file__]).returncode)

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


attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(attempt, [step().hex() for _ in range(8)], flush=True)
sys.exit(3 if attempt == "0" else 0)
