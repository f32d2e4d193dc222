"""torch.profiler written by hand: any Chrome trace that it exports can be asked.

python examples/own_profiler.py -o trace.json.gz && analyze info trace.json.gz
"""

import argparse

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("-o", "--output", default="trace.json.gz")
parser.add_argument("--width", type=int, default=1024)
options = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(*(torch.nn.Linear(options.width, options.width) for _ in range(4))).to(device)
optimizer = torch.optim.AdamW(model.parameters())
activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]

# One step is thrown away, the next is warm-up, three are recorded. Shapes are what FLOPs of operators are counted by.
with profile(
    activities=activities,
    schedule=schedule(wait=1, warmup=1, active=3),
    record_shapes=True,
    on_trace_ready=lambda done: done.export_chrome_trace(options.output),
) as profiler:
    for _ in range(5):
        with record_function("forward"):  # a phase in `analyze query nvtx`
            loss = model(torch.randn(32, options.width, device=device)).square().mean()
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        profiler.step()  # ends a step in `analyze query steps`
