"""Recordings of AMD's rocprofv3: its JSON, and databases (rocpd), which ROCm 7 writes by default.

https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
"""

import re

from analyze.sources.interface import LOG_NAME, Source

SOURCES = (
    Source(
        "rocprofv3_json",
        f"{__name__}.json_records",
        "rocprof",
        re.compile(r".*\.json$", re.I),
        re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"rocprofiler-sdk-tool"'),
    ),
    Source(
        "rocpd",
        f"{__name__}.rocpd",
        "rocprof",
        re.compile(rf"{LOG_NAME.pattern}|.*\.sqlite$", re.IGNORECASE),
        re.compile(rb"\ASQLite format 3\0.*rocpd_", re.DOTALL),
        beside=("-journal", "-wal"),
    ),
)
