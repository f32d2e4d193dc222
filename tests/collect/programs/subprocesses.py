"""Starts other Pythons: one without torch, a smoke test that fails, and a training."""

import subprocess
import sys

TRAIN = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(8):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
print(model(torch.zeros(1, 8)).shape)
"""
SMOKE = "import torch; torch.ones(3); raise SystemExit(5)"
print(subprocess.run([sys.executable, "-c", SMOKE]).returncode)
print(subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True).stdout)
print(subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True).stdout)
