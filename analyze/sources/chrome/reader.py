"""Read Chrome traces of torch.profiler (Kineto) since 2021 into batches of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from analyze.errors import InputError
from analyze.sources import on_disk
from analyze.sources.chrome.category_batches import Batches, build_batches, graph_nodes, process_groups
from analyze.sources.chrome.cross_chunk_events import HALVES, Halves, processes_of
from analyze.sources.chrome.events import Event, Tally, decode_chunk, decode_singles, split_chunk
from analyze.sources.chrome.json_events import CHUNK_BYTES, TraceFile
from analyze.sources.chrome.json_recovery import LONGEST_AROUND, OTHER_TRACE, Scanner
from analyze.sources.chrome.json_repair import repair
from analyze.sources.chrome.metadata import (
    LONGEST_GZIP,
    merged,
    metadata_after_events,
    parse_metadata,
    read_metadata,
    trailer_object,
)
from analyze.sources.chrome.producers import Producer, other_json, producer_of, why_refused
from analyze.sources.compressed import is_gzip
from analyze.sources.encodings import as_utf8, is_utf16
from analyze.sources.interface import FileReport, Mapper, TableBatch, inline_map
from analyze.sources.rank_hint import RankHint
from analyze.sources.remote import RawPath, RemotePath

_LISTED = 8
"""Most counts in a warning."""
_GPU_TABLES = {"kernels", "memcpys", "memsets"}
_NAMES_BYTES = 1 << 20
"""Bytes at the beginning that name the producer, and the processes and threads of other producers than torch."""
_SCANNED_BYTES = 4 << 20
"""Bytes that are scanned for events at a time: a malicious file may have an event in every two bytes."""


class Decoded(NamedTuple):
    """The rows of a chunk. `whole`: False if the chunk is not a list of complete events; then there are no rows.

    `later`: events that need more than the chunk: begin and end events, or all events of a merged file.
    """

    batches: Batches
    tally: Tally
    whole: bool
    later: Sequence[Event] = ()


def _built(events: list[Event], base_ns: int, tally: Tally, merged: bool, producer: Producer | None) -> Decoded:
    if producer:
        events = producer.translate(events)
    if merged:
        return Decoded({}, tally, True, events)
    later = [e for e in events if e.ph in HALVES]
    if later:
        events = [e for e in events if e.ph not in HALVES]
    return Decoded(build_batches(events, base_ns, tally), tally, True, later)


def read_rank_hint(path: RawPath) -> RankHint:
    """Return the rank that torch.distributed gave the process. Raises InputError if it does not begin like a trace."""
    whole = isinstance(path, RemotePath) and is_gzip(path) and path.facts().bytes <= LONGEST_GZIP
    try:
        with on_disk("chrome_trace", path) if whole else nullcontext(path) as here:
            info = read_metadata(here).distributed
    except InputError:
        if not is_utf16(path):
            raise
        with on_disk("chrome_trace", path) as copy, as_utf8(copy, []) as text:
            info = read_metadata(text).distributed
    return RankHint(info.rank, info.world_size) if info else RankHint()


def decode(chunk: bytes, base_ns: int, merged: bool = False, producer: Producer | None = None) -> Decoded:
    """Decode a chunk of comma-separated events into batches (in a worker process, for large files)."""
    tally = Tally()
    data = chunk.strip(b" \t\r\n,")
    events = decode_chunk(data)
    if events is None:
        repaired = repair(data)
        tally.repaired = repaired != data
        events = decode_chunk(repaired)
        if events is None:
            singles = split_chunk(repaired)
            if singles is None:
                return Decoded({}, tally, False)
            events = decode_singles(singles, tally)
    return _built(events, base_ns, tally, merged, producer)


def decode_scanned(found: list[bytes], base_ns: int, merged: bool = False, producer: Producer | None = None) -> Decoded:
    """Convert events that a Scanner found to rows."""
    tally = Tally()
    events = decode_chunk(b",".join(found))
    if events is None:
        events = decode_singles(found, tally)
    return _built(events, base_ns, tally, merged, producer)


def read(
    path: Path, report: FileReport, mapper: Mapper = inline_map, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[TableBatch]:
    """Yield the rows of a trace chunk by chunk; losses and facts of the run go to `report`.

    Raises InputError, before the first or after the last row, if the file is not a Chrome trace.
    """
    trace = TraceFile(path, chunk_bytes)
    try:
        yield from _read(trace, report, mapper)
    finally:
        trace.close()


def _read(trace: TraceFile, report: FileReport, mapper: Mapper) -> Iterator[TableBatch]:
    metadata, problems = parse_metadata(trace.header.text)
    base_ns = metadata.base_ns
    if base_ns is None and not trace.header.is_array:
        # Kineto since 2024-05 writes it after the events, but their times need it.
        base_ns = metadata_after_events(trace).base_ns
    report.zero_ns = base_ns or 0
    scanner = Scanner(in_object=not trace.header.is_array)
    tally = Tally()
    head = trace.peek(_NAMES_BYTES)
    producer = producer_of(head, in_object=not trace.header.is_array)
    processes = processes_of(trace)
    several = processes is not None
    halves = Halves()
    found: set[str] = set()
    in_flight: list[tuple[bytes, int]] = []

    def chunks() -> Iterator[tuple[bytes, int, bool, Producer | None]]:
        for chunk in trace.chunks():
            in_flight.append((chunk, trace.position))
            yield chunk, base_ns or 0, several, producer

    def rows(result: Decoded) -> Iterator[TableBatch]:
        tally.add(result.tally)
        found.update(result.batches)
        yield from _of_rank(None, result.batches)
        if result.later:
            yield from placed(list(halves.join(result.later, tally)))

    def placed(events: list[Event]) -> Iterator[TableBatch]:
        for rank, own in processes.split(events).items() if processes else [(None, events)]:
            batches = build_batches(own, base_ns or 0, tally)
            found.update(batches)
            yield from _of_rank(rank, batches)

    # Events of a merged file are decoded here: sending them between processes costs more than decoding.
    for result in (inline_map if several else mapper)(decode, chunks()):
        chunk, report.position = in_flight.pop(0)
        if not result.whole or not scanner.ready:
            # The bytes left over continue here, even if this chunk is valid alone: it may be a list inside args.
            for start in range(0, len(chunk), _SCANNED_BYTES):
                events = scanner.feed(chunk[start : start + _SCANNED_BYTES])
                yield from rows(decode_scanned(events, base_ns or 0, several, producer))
            continue
        if scanner.other_trace:
            tally.lost[OTHER_TRACE] += result.tally.events + result.tally.lost.total() + result.tally.unread.total()
            continue
        yield from rows(result)
    yield from rows(decode_scanned(scanner.feed(b"", at_end=True), base_ns or 0, several, producer))
    halves.count_unended(tally)
    tally.lost += scanner.lost
    tally.stray = tally.stray or scanner.stray

    trailer, more = parse_metadata(trailer_object(bytes(scanner.trailer)))
    said = merged(metadata, trailer)
    report.info = said.run_columns()
    if said.distributed and said.distributed.groups:
        yield "process_groups", None, process_groups(said.distributed.groups)
    if said.graphs:
        yield "graph_nodes", None, graph_nodes(said.graphs)
    if metadata.base_ns is None and base_ns != trailer.base_ns:
        problems.append(f"the baseTimeNanoseconds after its events is {trailer.base_ns}, but {base_ns} was used")
    problems += more if scanner.ended else []
    if producer:
        unread = ", whose GPU events are not read" if tally.unread and not found & _GPU_TABLES else ""
        problems.append(f"written by {producer.name}{unread}")
    problems += trace.gzip_problems + _problems(scanner, tally)
    # At the end: VizTracer may log torch's events, too.
    if not found and (refusal := why_refused(head)):
        raise InputError(f"{trace.path}: {refusal}")
    damaged = tally.lost or tally.stray or not scanner.ended
    if not tally.events and not tally.unread and (damaged or trace.header.is_array):
        why = other_json(b"[" + head if trace.header.is_array else head) or "no event could be read from it"
        raise InputError(f"{trace.path}: not a Chrome trace: {why}")
    if not tally.events and not tally.unread and not said.graphs:
        problems.append("it has no events")
    if processes and processes.guessed:
        problems.append(f"the ranks of its {len(processes.ranks)} processes are guessed from the order of their labels")
    if problems:
        report.warnings.append(f"{trace.path.name}: {'; '.join(problems)}; {tally.events} events kept")


def _of_rank(rank: int | None, batches: Batches) -> Iterator[TableBatch]:
    return ((table, rank, batch) for table, batch in batches.items())


def _problems(scanner: Scanner, tally: Tally) -> list[str]:
    """Describe losses and unusual things."""
    problems = []
    if not scanner.ended:
        problems.append("the file is truncated (its list of events does not end)")
    if lost := tally.lost.total():
        problems.append(
            f"{lost} event{'s' if lost > 1 else ''} could not be read and {'are' if lost > 1 else 'is'} left out"
            f" ({_counts(tally.lost)})"
        )
    if tally.unread:
        problems.append(f"categories that are not read: {_counts(tally.unread)}")
    if tally.unrepresentable:
        problems.append(f"values that their columns cannot hold are NULL: {_counts(tally.unrepresentable)}")
    if scanner.lists > 1:
        problems.append(f"it has {scanner.lists} lists of events, read as one")
    if tally.stray:
        problems.append("there are brackets or other values between its events")
    if scanner.long_trailer:
        problems.append(f"the part after its events is longer than {LONGEST_AROUND >> 20} MiB and is not read")
    if tally.repaired:
        problems.append("not strict JSON (NaN, trailing commas, control characters or invalid UTF-8), repaired")
    return problems


def _counts(counter: Counter[str]) -> str:
    """List counts, the largest first."""
    listed = counter.most_common(_LISTED)
    more = [f"{len(counter) - _LISTED} more"] if len(counter) > _LISTED else []
    return ", ".join([f"{n:,} {what}" for what, n in listed] + more)
