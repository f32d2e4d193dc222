"""Keeps the counts of the program's own Python profiler (cProfile) correct."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from itertools import repeat
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
EVENTS = "PY_START PY_RESUME PY_THROW PY_RETURN PY_YIELD PY_UNWIND CALL C_RETURN C_RAISE"
"""The events of `sys.monitoring` that cProfile registers."""


def hide_from_cprofile(function: Function) -> Function:
    """Let the program's cProfile see no calls inside this function.

    From Python 3.12 on, cProfile sees methods of pybind11 return that it has not seen called. It takes such a return
    for that of a function around it, and does not count that function.
    """
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return function

    @functools.wraps(function)
    def hidden(*args: Any, **kwargs: Any) -> Any:
        if monitoring.get_tool(monitoring.PROFILER_ID) is None:
            return function(*args, **kwargs)
        events = [getattr(monitoring.events, name) for name in EVENTS.split()]
        tools = repeat(monitoring.PROFILER_ID)
        # map() calls without an event: cProfile would see the first call without its return.
        callbacks = list(map(monitoring.register_callback, tools, events, repeat(None)))
        try:
            return function(*args, **kwargs)
        finally:
            list(map(monitoring.register_callback, tools, events, callbacks))

    return hidden  # type: ignore[return-value]
