"""The phases of a training step, in the order in which a step goes through them.

The collector opens a `record_function` and an NVTX range of exactly these names; the analyses look for them.
"""

PHASES = ("data", "h2d", "forward", "loss", "backward", "optimizer")
"""data: waiting for the next batch; h2d: host-to-device copies; loss: the loss function alone."""

STEP_RANGE = "step"
"""NVTX range around a whole step. (torch.profiler names its own steps `ProfilerStep#N`.)"""
