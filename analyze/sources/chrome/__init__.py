"""Chrome traces, as torch.profiler and others write them."""

import re

from analyze.sources.interface import Source

SOURCES = (
    Source(
        "chrome_trace",
        f"{__name__}.reader",
        "torch",
        re.compile(r".*\.(json|chrome_trace)$", re.I),  # Triton Proton writes .chrome_trace
        splits=True,
        says_rank=True,
    ),
)
