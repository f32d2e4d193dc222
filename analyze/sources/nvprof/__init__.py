"""Logs of nvprof."""

import re

from analyze.sources.interface import LOG_NAME, Source

_NVPROF = (
    rb"(^|[\r\n])(==(\d+|=+)== (NVPROF is profiling|(Profiling|Metric|Event) result:|API calls:)"
    rb'|"?(Type"?[,\t]"?)?Time\(%\)"?[,\t]"?Time"?[,\t]| *(Type +)?Time\(%\) +Time +Calls '
    rb'|"Start","Duration","(Grid X|Name)"|"Device","Kernel","Invocations",)'
)
SOURCES = (Source("nvprof_log", f"{__name__}.reader", "nvprof", LOG_NAME, re.compile(_NVPROF)),)
