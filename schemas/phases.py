"""The phases of a training step, in order.

`collect` opens a `record_function` range and an NVTX range with these names; `analyze` looks for them.
"""

PHASES = ("data", "h2d", "forward", "loss", "backward", "optimizer")
"""data: waiting for the next batch; h2d: host-to-device copies; loss: the loss function only."""

STEP_RANGE = "step"
"""NVTX range around a whole step. (torch.profiler names its own steps `ProfilerStep#N`.)"""
