"""Copies, pickles and saves optimizers, one of a class of the script."""

import copy
import io
import pickle

import torch


class Decaying(torch.optim.SGD):
    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            group["lr"] *= 0.9
        return loss


torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = Decaying(model.parameters(), lr=0.01, momentum=0.9)
for number in range(8):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    if number == 3:
        saved = io.BytesIO()
        torch.save((model, optimizer), saved)
        saved.seek(0)
        model, optimizer = copy.deepcopy(torch.load(saved, weights_only=False))
        optimizer = pickle.loads(pickle.dumps(optimizer))
        optimizer.param_groups[0]["params"] = list(model.parameters())
print(type(optimizer).__name__, optimizer.param_groups[0]["lr"].hex(), loss.item().hex())
