"""TORCH_TRACE logs: what torch.compile did in a process, as torch's structured logging writes it.

log.py          the records of a log: a line with JSON, then the lines of its payload
reader.py       the rows of the tables
metrics.py      columns of a compilation
messages.py     graph breaks and failed guards
output_code.py  kernels and source lines in the code that Inductor writes
"""

import re

from analyze.sources.interface import LOG_NAME, Source

SOURCES = (
    Source(
        "torch_trace",
        f"{__name__}.reader",
        "torch_trace",
        LOG_NAME,
        re.compile(rb'(?m)^V\d{4} \d\d:\d\d:\d\d\.\d{1,9} +\d+ [^\]\n]{1,500}\] \{"'),
        says_rank=True,
    ),
)
