# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "torch"]
# ///
"""torchrun starts two ranks that train with FSDP, and save a distributed checkpoint."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

if "RANK" not in os.environ:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(subprocess.run([*launcher, "--nproc-per-node=2", __file__, folder]).returncode)

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(8):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
torch.distributed.checkpoint.save(model.state_dict(), checkpoint_id=sys.argv[1])
if dist.get_rank() == 0:
    print(loss.item().hex(), len(list(Path(sys.argv[1]).iterdir())), flush=True)
dist.destroy_process_group()
