# /// script
# requires-python = ">=3.11"
# dependencies = ["fastai", "torch"]
# ///
"""Fits a Learner of fastai."""

import torch
from fastai.callback.schedule import Learner
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.torch_core import set_seed

set_seed(0)
x = torch.randn(64, 8)
pairs = [(row, row[:1]) for row in x]
loaders = DataLoaders(DataLoader(pairs, bs=8), DataLoader(pairs, bs=8))
learner = Learner(loaders, torch.nn.Linear(8, 1), torch.nn.MSELoss())
with learner.no_bar(), learner.no_logging():
    learner.fit_one_cycle(2)
    print(float(learner.validate()[0]).hex())
