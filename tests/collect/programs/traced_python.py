"""Runs under cProfile, tracemalloc and a trace function of its own."""

import cProfile
import pstats
import sys
import tracemalloc

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
calls = 0


def step():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def trace(frame, event, argument):
    global calls
    calls += frame.f_code.co_name == "step" and frame.f_code.co_filename == __file__


tracemalloc.start()
sys.settrace(trace)
profile = cProfile.Profile()
profile.enable()
print([step().hex() for _ in range(8)])
profile.disable()
sys.settrace(None)
counts = {name: count[1] for (file, _, name), count in pstats.Stats(profile).stats.items() if file == __file__}
print(calls, counts["step"], tracemalloc.get_traced_memory()[0] > 0)
