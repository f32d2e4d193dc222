"""Recognise Chrome traces of other programs than torch.profiler, a module for each whose device work is read.

A module has NAME, PATTERN (of the first MiB) and `translate`, which gives an event the category and arguments that
torch.profiler would have written. Another program is refused by name (`_REFUSED`) or named in a warning (`_UNREAD`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from analyze.sources.chrome.events import Event, Tally, decode_singles
from analyze.sources.chrome.json_recovery import Scanner
from analyze.sources.chrome.producers import jax, msprof, proton, unitrace
from analyze.sources.chrome.producers.place import Place, text_of

_TRANSLATED = (jax, msprof, unitrace, proton)
_UNREAD = (("rocprof (ROCm)", re.compile(rb'"(?:CPU )?(?:HIP|HSA) API"')),)
_REFUSED = (
    ("VizTracer", re.compile(rb'"cat"\s*:\s*"FEE"'), "it has Python functions only; open it with vizviewer"),
    ("py-spy", re.compile(rb'"cat"\s*:\s*"py-spy"'), "it has Python stacks only; open it in https://speedscope.app"),
    (
        "nsys2json",
        re.compile(rb'"pid"\s*:\s*"Device [0-9]+"'),
        "read the .nsys-rep, or `nsys export --type sqlite`, which have all of it",
    ),
    (
        "Chrome",
        re.compile(rb'"cat"\s*:\s*"(?:__metadata|toplevel|disabled-by-default-[^"]*)"'),
        "it is of a browser; open it in https://ui.perfetto.dev",
    ),
)
_OTHER_JSON = (
    (
        "Triton Proton (hatchet)",
        re.compile(rb'\A\s*\[\s*\{\s*"(?:children|frame|metrics)"'),
        'it has sums only; proton.start(..., data="trace") writes NAME.chrome_trace with each kernel',
    ),
    ("speedscope", re.compile(rb"speedscope\.app/file-format"), "it has sampled stacks; open it in that page"),
)


Thread = tuple[int | str | None, int | str | None]
"""Process and thread."""


class Producer(NamedTuple):
    """The program that wrote a trace, and what its processes and threads are."""

    name: str
    module: int | None
    """Its place in `_TRANSLATED`; None if its device work is not read. A number, because modules cannot be pickled."""
    places: dict[Thread, Place]
    """By process and thread; (process, None) for threads without a name."""

    def translate(self, events: Sequence[Event]) -> list[Event]:
        """Return the events as torch.profiler would have written them."""
        if self.module is None:
            return list(events)
        translate: Callable[[Event, Place], None] = _TRANSLATED[self.module].translate
        kept = [e for e in events if e.ph or e.name]  # XLA ends its list with an empty object
        for e in kept:
            if e.ph == "X":
                translate(e, self.places.get((e.pid, e.tid)) or self.places.get((e.pid, None)) or Place())
        return kept


def producer_of(head: bytes, in_object: bool) -> Producer | None:
    """Return the program that wrote a trace, from its beginning; None for torch.profiler and unknown ones."""
    for at, module in enumerate(_TRANSLATED):
        if module.PATTERN.search(head):
            return Producer(module.NAME, at, _places(head, in_object))
    return next((Producer(name, None, {}) for name, pattern in _UNREAD if pattern.search(head)), None)


def why_refused(head: bytes) -> str | None:
    """Return why a trace without rows of any table is not read, with its producer and the way out; None if unknown."""
    return next((f"written by {name}: {way_out}" for name, p, way_out in _REFUSED if p.search(head)), None)


def other_json(head: bytes) -> str | None:
    """Return the program that wrote a JSON file that is no Chrome trace, with the way out; None if unknown."""
    return next((f"written by {name}: {way_out}" for name, p, way_out in _OTHER_JSON if p.search(head)), None)


def _places(head: bytes, in_object: bool) -> dict[Thread, Place]:
    processes: dict[int | str | None, str] = {}
    threads: dict[Thread, str] = {}
    for e in decode_singles(Scanner(in_object).feed(head), Tally()):
        if e.ph == "M" and e.args and (name := text_of(e.args.label)):
            if e.name == "process_name":
                processes[e.pid] = name
            elif e.name == "thread_name":
                threads[e.pid, e.tid] = name
    places: dict[Thread, Place] = {(pid, None): Place(process) for pid, process in processes.items()}
    devices = sorted((name, str(pid), pid) for pid, name in processes.items())
    numbers = {pid: at for at, (_, _, pid) in enumerate(d for d in devices if d[0].startswith("DEVICE<"))}
    places |= {(pid, None): Place(processes[pid], number=number) for pid, number in numbers.items()}
    with_streams = {pid for (pid, _), thread in threads.items() if "Stream" in thread}
    for (pid, tid), thread in threads.items():
        places[pid, tid] = Place(processes.get(pid, ""), thread, numbers.get(pid), pid in with_streams)
    return places
