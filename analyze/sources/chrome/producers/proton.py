"""Chrome traces of Triton Proton: `proton.start(..., data="trace")` writes NAME.chrome_trace.

https://github.com/triton-lang/triton/tree/main/third_party/proton
"""

from __future__ import annotations

import re

from analyze.sources.chrome.events import Event
from analyze.sources.chrome.producers.place import Place, args_of

NAME = "Triton Proton"
PATTERN = re.compile(rb'"call_stack"\s*:\s*\[\s*"ROOT"')

_STREAM = re.compile(r"GPU Stream ([0-9]{1,18})")


def translate(event: Event, place: Place) -> None:
    """Give an event of Proton its category; its kernels have it."""
    if event.cat == "scope":
        event.cat = "user_annotation"
    elif event.cat == "kernel" and (stream := _STREAM.search(place.thread)):
        args_of(event).stream = int(stream[1])
