"""Chrome traces of Ascend NPUs: torch_npu's trace_view.json and msprof's msprof_*.json.

https://www.hiascend.com/document/detail/en/canncommercial/800/devaids/opdev/profiling/atlasprofiling_16_0063.html
"""

from __future__ import annotations

import re

from analyze.sources.chrome.events import Event
from analyze.sources.chrome.producers.place import DERIVED, Place, args_of, text_of, whole_of

NAME = "torch_npu (Ascend)"
PATTERN = re.compile(rb'"Ascend Hardware"|"async_npu"')

_NO_WORK = re.compile(r"EVENT|NOTIFY|MODEL_|PROFILER|PLACE_HOLDER|LABEL|STREAM_|STARS|CAPTURE", re.IGNORECASE)
"""Types of tasks that wait, mark or switch."""
_COPY = re.compile(r"MEMCPY|SDMA", re.IGNORECASE)
_NUMBERS = re.compile(r"(?<!_)_*(?:_[0-9]{1,20}){3}$")
"""Of the group, the call and the stream."""
_STREAM = re.compile(r"Stream ([0-9]{1,9})")


def translate(event: Event, place: Place) -> None:
    """Give an event of CANN its category."""
    args = args_of(event)
    if place.process == "Ascend Hardware":
        task = text_of(args.task_type) or event.name
        event.cat = DERIVED if _NO_WORK.match(task) else "gpu_memcpy" if _COPY.match(task) else "kernel"
        stream = _STREAM.search(place.thread)
        args.device, args.stream = 0, int(stream[1]) if stream else None
        args.correlation = whole_of(args.connection_id)
    elif place.process in ("Communication", "HCCL") and event.name.startswith("hcom_"):
        # Of a group as a whole; its tasks in the planes below are parts of it.
        event.cat, event.name, args.device = "kernel", _NUMBERS.sub("", event.name), 0
        args.stream = -1 - (event.tid if isinstance(event.tid, int) else 0)
        args.correlation = whole_of(args.connection_id)
    elif place.process == "CANN" and event.name.endswith("@launch"):
        event.cat = "cuda_runtime"
        args.correlation = whole_of(args.connection_id)
    elif not event.cat:
        event.cat = DERIVED
