"""Nsight Compute: CSV, text, and reports through ncu itself."""

import re

from analyze.sources.interface import LOG_NAME, Source

# A table, or a log with more than the path of the report.
_NCU = (
    rb'"ID","Process ID",|(?:\A|[\r\n])(?:ID,Process ID,|"?Process ID"?,"?Process Name"?,)'
    rb"|\A(?s:(?!.*\n==PROF== Report:).*)(?:\A|(?<=[\r\n]))(?:==PROF== |==ERROR== |\[\d+\] \S+@\S+\s)"
)
SOURCES = (
    Source("ncu_csv", f"{__name__}.reader", "ncu", LOG_NAME, re.compile(_NCU)),
    Source(
        "ncu_report", f"{__name__}.ncu_rep", "ncu", re.compile(r".*\.ncu-rep$", re.I), exported=(".ncu.csv", ".csv")
    ),
)
