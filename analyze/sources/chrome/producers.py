"""Recognise Chrome traces of other programs than torch.profiler."""

from __future__ import annotations

import re

_PRODUCERS = (
    ("torch_npu (Ascend)", re.compile(rb'"Ascend Hardware"|"async_npu"')),
    ("JAX (XLA)", re.compile(rb'"/device:[A-Z]+:[0-9]+"|"/host:CPU"')),
    ("Intel unitrace", re.compile(rb'"DEVICE<[^"]*>"')),
    ("Triton Proton", re.compile(rb'"call_stack"\s*:\s*\[\s*"ROOT"')),
    ("rocprof (ROCm)", re.compile(rb'"(?:CPU )?(?:HIP|HSA) API"')),
)


def producer_of(head: bytes) -> str | None:
    """Return the program that wrote a trace, from names at its beginning; None if unknown."""
    return next((name for name, pattern in _PRODUCERS if pattern.search(head)), None)
