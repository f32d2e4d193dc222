# /// script
# requires-python = ">=3.11"
# dependencies = ["accelerate", "torch"]
# ///
"""`accelerate launch` starts the training; the launcher imports torch, too."""

import os
import subprocess
import sys

if "ACCELERATE_USE_CPU" not in os.environ:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes=1", "--num_machines=1"]
    launch += ["--mixed_precision=no", "--dynamo_backend=no", "--num_cpu_threads_per_process=1"]
    sys.exit(subprocess.run([*launch, __file__]).returncode)

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

set_seed(0)
accelerator = Accelerator()
model = torch.nn.Linear(8, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
for _ in range(8):
    loss = model(torch.randn(4, 8)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
accelerator.print(loss.item().hex(), flush=True)
accelerator.end_training()
