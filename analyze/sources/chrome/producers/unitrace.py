"""Chrome traces of Intel's unitrace (PTI): rows of a process DEVICE<name> are work of a GPU.

https://github.com/intel/pti-gpu/blob/master/tools/unitrace/README.md
"""

from __future__ import annotations

import re

from analyze.sources.chrome.events import Event
from analyze.sources.chrome.producers.place import Place, args_of, sizes_of, whole_of

NAME = "Intel unitrace"
PATTERN = re.compile(rb'"DEVICE<[^"]*>"')

_KERNEL = re.compile(r"(.+?)\[SIMD\w* \{([0-9; ]+)\} \{([0-9; ]+)\}\]")
"""Name, number of work groups, size of a work group."""
_MEMORY_COPY = re.compile(r"\w{0,80}MemoryCopy\w{0,80}\(?([MDSH])2([MDSH])\)?(?:\[([0-9]{1,18}) bytes\])?")
_FILL = re.compile(r"\w*MemoryFill\w*(?:\(\w*\))?(?:\[([0-9]{1,18}) bytes\])?")


def translate(event: Event, place: Place) -> None:
    """Give an event of unitrace its category."""
    args = args_of(event)
    number = whole_of(args.id)
    args.correlation = None if number is None else number + 1  # from 0 here; 0 is no call in the tables
    if event.cat != "gpu_op":
        if event.name.startswith(("ze", "cl")):
            event.cat = "cuda_driver"
        return
    args.device = place.number or 0
    if copy := _MEMORY_COPY.match(event.name):
        event.cat = "gpu_memcpy"
        source, target = (end.replace("S", "M") for end in copy.group(1, 2))  # shared memory is of no device
        event.name = f"Memcpy {source}2{target}"
        args.bytes = int(copy[3]) if copy[3] else None
    elif fill := _FILL.match(event.name):
        event.cat = "gpu_memset"
        args.bytes = int(fill[1]) if fill[1] else None
    else:
        event.cat = "kernel"
        if kernel := _KERNEL.fullmatch(event.name):
            event.name = kernel[1]
            args.grid, args.block = sizes_of(kernel[2], ";"), sizes_of(kernel[3], ";")
