# /// script
# requires-python = ">=3.11"
# dependencies = ["optuna", "torch"]
# ///
"""Three trials of Optuna in threads."""

import optuna
import torch

optuna.logging.set_verbosity(optuna.logging.WARNING)


def objective(trial):
    generator = torch.Generator().manual_seed(trial.number)
    weight = torch.zeros(8, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=trial.suggest_float("lr", 0.01, 0.1))
    for _ in range(8):
        optimizer.zero_grad()
        loss = (torch.randn(4, 8, generator=generator) @ weight - 1).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


study = optuna.create_study(sampler=optuna.samplers.GridSampler({"lr": [0.01, 0.02, 0.04]}, seed=0))
study.optimize(objective, n_trials=3, n_jobs=2)
print(len(study.trials), study.best_value > 0)
