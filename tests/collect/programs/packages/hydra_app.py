# /// script
# requires-python = ">=3.11"
# dependencies = ["hydra-core", "torch"]
# ///
"""A program of Hydra that runs two jobs (--multirun) in folders of their own."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import hydra
import torch
from hydra.core.config_store import ConfigStore


@dataclass
class Config:
    lr: float = 0.01


ConfigStore.instance().store("config", Config)


@hydra.main(version_base=None, config_name="config")
def main(config):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
    Path("loss.txt").write_text(loss.item().hex())
    print(config.lr, loss.item().hex())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.argv += ["--multirun", "lr=0.01,0.02", f"hydra.sweep.dir={folder}", "hydra.job.chdir=true"]
        sys.argv += ["hydra/job_logging=disabled", "hydra/hydra_logging=disabled"]
        main()
        print([path.read_text() for path in sorted(Path(folder).glob("*/loss.txt"))])
