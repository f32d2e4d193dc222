"""Prints bytes, other languages, parts of lines and warnings."""

import logging
import os
import subprocess
import sys
import warnings

import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
print(sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.isatty(), sys.stdout.encoding)
for number in range(8):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"\r步 {number}", end="", flush=True)
    sys.stdout.buffer.write(b" \x1b[1m%d\x1b[0m" % number)
    sys.stdout.flush()
    os.write(1, b" of 8")
    logging.warning("é %s", loss.item().hex())
    warnings.warn(f"step {number}", stacklevel=1)
subprocess.run(["echo", "the shell's"], check=True)
print("x" * 100_000)
print("no newline", end="")
