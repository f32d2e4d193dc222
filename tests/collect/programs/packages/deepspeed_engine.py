# /// script
# requires-python = ">=3.11"
# dependencies = ["deepspeed", "setuptools", "torch"]
# ///
"""An engine of DeepSpeed on the CPU."""

import os

for name, value in {
    "DS_ACCELERATOR": "cpu",
    "LOCAL_RANK": "0",
    "RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}.items():
    os.environ.setdefault(name, value)
import deepspeed
import torch

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiling it takes minutes
deepspeed.init_distributed("gloo", verbose=False)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
engine, _, _, _ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
    config={"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0}},
)
for _ in range(8):
    loss = engine(torch.randn(4, 8)).square().mean()
    engine.backward(loss)
    engine.step()
print("loss", loss.item().hex())
