"""Chrome traces of torch.profiler (Kineto), 2021 to now: raw file -> batches of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from analyze.errors import InputError
from analyze.sources.base import FileReport, Mapper, TableBatch, inline_map
from analyze.sources.chrome_events import Event, decode_chunk, decode_event, split_chunk
from analyze.sources.chrome_metadata import Metadata, parse_metadata
from analyze.sources.chrome_tables import Batches, build_batches
from analyze.sources.json_events import Chunk, TraceFile, read_chunk, repair, resync, scan

_TRAILER_LIMIT = 64 << 20


class Decoded(NamedTuple):
    """A chunk as rows. `whole` is False if the chunk was not a list of whole events; then it has no rows."""

    batches: Batches
    events: int
    lost: int
    repaired: bool
    whole: bool


def decode(chunk: Chunk, base_ns: int) -> Decoded:
    """Decode a chunk of comma-separated events into batches (in a worker process, for large files)."""
    data = read_chunk(chunk).strip(b" \t\r\n,")
    events = decode_chunk(data)
    if events is not None:
        return _rows(events, base_ns, 0, False)
    repaired = repair(data)
    events = decode_chunk(repaired)
    if events is not None:
        return _rows(events, base_ns, 0, repaired != data)
    singles = split_chunk(repaired)
    if singles is None:
        return Decoded({}, 0, 0, False, False)
    return _decode_singles(singles, base_ns, repaired != data)


def _decode_singles(singles: list[bytes], base_ns: int, repaired: bool) -> Decoded:
    events: list[Event] = []
    lost = 0
    for data in singles:
        event = decode_event(data)
        if event is None:
            fixed = repair(data)
            event = decode_event(fixed)
            repaired = repaired or event is not None
        if event is None:
            lost += 1
            events += [e for e in map(decode_event, map(repair, resync(data))) if e is not None and e.ph]
        else:
            events.append(event)
    return _rows(events, base_ns, lost, repaired)


def _rows(events: list[Event], base_ns: int, lost: int, repaired: bool) -> Decoded:
    batches, no_event, untimed = build_batches(events, base_ns)
    return Decoded(batches, len(events) - no_event, lost + untimed, repaired, True)


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the rows of a trace, chunk by chunk; what was lost and what the file says of the run goes to `report`.

    Raises InputError, before anything is yielded or after the last row, if the file is no Chrome trace.
    """
    trace = TraceFile(path)
    try:
        yield from _read(trace, report, mapper)
    finally:
        trace.close()


def _read(trace: TraceFile, report: FileReport, mapper: Mapper) -> Iterator[TableBatch]:
    metadata = parse_metadata(trace.header.text)
    base_ns = metadata.base_ns or 0
    in_flight: list[Chunk] = []

    def chunks() -> Iterator[tuple[Chunk, int]]:
        for chunk in trace.chunks():
            in_flight.append(chunk)
            yield chunk, base_ns

    events = lost = 0
    repaired = ended = False
    rest = trailer = b""
    for result in mapper(decode, chunks()):
        chunk = in_flight.pop(0)
        if ended:
            trailer = (trailer + read_chunk(chunk))[:_TRAILER_LIMIT]
            continue
        if not result.whole or rest:
            # What was left over goes on here, even if this chunk makes sense by itself: it may be a list inside args.
            scanned = scan(rest + read_chunk(chunk), at_end=False)
            lost, ended = lost + scanned.malformed, scanned.ended
            rest, trailer = (b"", scanned.rest) if ended else (scanned.rest, b"")
            result = _decode_singles(scanned.events, base_ns, False)
        events, lost, repaired = events + result.events, lost + result.lost, repaired or result.repaired
        yield from _without_rank(result.batches)
    if rest:
        scanned = scan(rest, at_end=True)
        result = _decode_singles(scanned.events, base_ns, False)
        events, lost, ended = events + result.events, lost + result.lost + scanned.malformed, scanned.ended
        yield from _without_rank(result.batches)
    _report(trace, report, metadata, trailer, events, lost, repaired, ended)


def _without_rank(batches: Batches) -> Iterator[TableBatch]:
    return ((table, None, batch) for table, batch in batches.items())


def _report(
    trace: TraceFile,
    report: FileReport,
    metadata: Metadata,
    trailer: bytes,
    events: int,
    lost: int,
    repaired: bool,
    ended: bool,
) -> None:
    if not events and not (ended and not lost):
        raise InputError(f"{trace.path}: not a Chrome trace: no event could be read from it")
    report.info = parse_metadata(b"{" + trailer.strip().lstrip(b",") if trailer else b"{}").run_columns()
    report.info |= metadata.run_columns()
    problems = []
    if trace.read_error:
        problems.append(f"reading stopped early ({trace.read_error})")
    if not ended:
        problems.append("the file is truncated (its list of events does not end)")
    if lost:
        problems.append(
            f"{lost} event{'s' if lost > 1 else ''} could not be read and {'are' if lost > 1 else 'is'} left out"
        )
    if repaired:
        problems.append("not strict JSON (NaN, trailing commas, control characters or invalid UTF-8), repaired")
    if not events:
        problems.append("it has no events")
    if problems:
        report.warnings.append(f"{trace.path.name}: {'; '.join(problems)}; {events} events kept")
