# /// script
# requires-python = ">=3.11"
# dependencies = ["ray", "torch"]
# ///
"""Ray's workers train; the optimizer's class is defined in the script."""

import ray
import torch


class Optimizer(torch.optim.SGD):
    pass


@ray.remote
class Trainer:
    def train(self, seed, kind):
        torch.manual_seed(seed)
        model = torch.nn.Linear(8, 1)
        optimizer = kind(model.parameters(), lr=0.01)
        for _ in range(8):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8)).square().mean()
            loss.backward()
            optimizer.step()
        return loss.item()


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
trainers = [Trainer.remote() for _ in range(2)]
print([loss.hex() for loss in ray.get([t.train.remote(n, Optimizer) for n, t in enumerate(trainers)])])
ray.shutdown()
