"""Chrome traces of JAX: jax.profiler writes NAME.trace.json.gz beside the XPlane; XLA names processes and threads.

https://github.com/openxla/xla/blob/main/xla/tsl/profiler/convert/xplane_to_trace_events.cc
"""

from __future__ import annotations

import re

from analyze.sources.chrome.events import Event
from analyze.sources.chrome.producers.place import DERIVED, Place, args_of, sizes_of, text_of, whole, whole_of

NAME = "JAX (XLA)"
PATTERN = re.compile(rb'"/device:[A-Z]+:[0-9]|"/host:CPU"')

_DEVICE = re.compile(r"/device:[A-Z]+:([0-9]{1,9})")
_STREAM = re.compile(r"Stream #([0-9]{1,9})")
_OPS = "XLA Ops"
"""The thread of a TPU's work; on a GPU it is derived from the streams."""
_DETAIL = re.compile(r"(regs|static_shared|dynamic_shared|grid|block|occ_pct|size):([0-9.,]{1,60})")
_CALL = re.compile(r"(?:cu|hip)[A-Z]\w*")


def translate(event: Event, place: Place) -> None:
    """Give an event of XLA its category."""
    if device := _DEVICE.match(place.process):
        _device(event, place, int(device[1]))
    elif event.name.startswith("$"):
        event.cat = "python_function"
    elif event.args and (step := whole_of(event.args.step_num)) is not None:
        event.cat, event.name = "user_annotation", f"ProfilerStep#{step}"
    elif _CALL.fullmatch(event.name) or event.name.startswith("cuda"):
        event.cat = "cuda_runtime" if event.name.startswith(("cuda", "hip")) else "cuda_driver"
        args = args_of(event)
        args.correlation = whole_of(args.correlation_id)
    else:
        event.cat = "cpu_op"


def _device(event: Event, place: Place, device: int) -> None:
    stream = _STREAM.search(place.thread)
    if not stream and (place.has_streams or place.thread not in ("", _OPS)):
        event.cat = DERIVED
        return
    args = args_of(event)
    args.device = device
    if stream:
        args.stream = int(stream[1])
    args.correlation = whole_of(args.correlation_id)
    details: dict[str, str] = {}
    grid = args.grid if isinstance(args.grid, str) else ""
    for text in (*map(text_of, (args.kernel_details, args.memcpy_details, args.memset_details)), grid):
        details.update(_DETAIL.findall(text))
    if event.name.startswith(("Memcpy", "Memset")):
        event.cat = "gpu_memcpy" if event.name.startswith("Memcpy") else "gpu_memset"
        args.bytes = whole(details.get("size", ""))
        return
    event.cat = "kernel"
    args.registers = whole(details.get("regs", ""))
    shared = [whole(details.get(kind, "")) for kind in ("static_shared", "dynamic_shared")]
    args.shared_memory = sum(n or 0 for n in shared) if any(n is not None for n in shared) else None
    args.grid, args.block = sizes_of(details.get("grid"), ","), sizes_of(details.get("block"), ",")
    occupancy = details.get("occ_pct", "")
    args.occupancy = float(occupancy) if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", occupancy) else None
