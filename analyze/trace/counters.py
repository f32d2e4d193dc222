"""The counter tracks of an exported trace: queue depth, work running, copy bandwidth, allocated memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Counter(NamedTuple):
    """Counter tracks of one name, and SQL of pid, series, start_ns and value at each change.

    `decimals`: the value is a whole number of a unit so many powers of ten below that in the name.
    """

    name: str
    sql: str
    decimals: int = 0
    uses: tuple[str, ...] = ()
    """The blocks that the SQL reads."""

    def shown(self, value: int) -> str:
        """The value as it is written: exact."""
        if not self.decimals:
            return str(value)
        sign, digits = ("-" if value < 0 else ""), str(abs(value)).rjust(self.decimals + 1, "0")
        return f"{sign}{digits[: -self.decimals]}.{digits[-self.decimals :]}"


def changes(edges: Iterable[tuple[int, Any]], from_ns: int, to_ns: int | None) -> Iterator[tuple[int, Any]]:
    """The edges at which the value changes inside the window, and at its start the value that holds there."""
    before: Any = None
    shown: Any = None
    for at, value in edges:
        if at <= from_ns:
            before = value
            continue
        if before is not None and shown is None:
            shown = before
            yield from_ns, shown
        if to_ns is not None and at >= to_ns:
            return
        if value != shown:
            shown = value
            yield at, value
    if before is not None and shown is None:
        yield from_ns, before


def counter_tracks(gpu: str, cpu: str) -> list[Counter]:
    """The tracks of a run; `gpu` and `cpu` are SQL of the process numbers of a device and of a CPU process.

    Each change is an edge; the value holds until the next one. Series of a process are told apart by name.
    """

    def running(edges: str) -> str:
        # The last of the edges at one time is the value there.
        return (
            f"WITH edges AS ({edges}), sums AS (SELECT pid, series, at_ns, sum(sum(change)) OVER"
            " (PARTITION BY pid, series ORDER BY at_ns) AS value FROM edges GROUP BY pid, series, at_ns)"
            " SELECT pid, series, at_ns, value FROM sums ORDER BY pid, series, at_ns"
        )

    queued = (
        f"SELECT {gpu} AS pid, 'stream ' || coalesce(stream, 0) AS series, min(call_start_ns) AS begins,"
        " greatest(min(start_ns), min(call_start_ns)) AS ends FROM gpu_work WHERE call_start_ns IS NOT NULL"
        " GROUP BY rank, device, stream, correlation_id"
    )
    both_ends = "SELECT pid, series, unnest([begins, ends]) AS at_ns, unnest([1, -1])::BIGINT AS change"
    busy = (
        f"SELECT {gpu} AS pid, 'on GPU' AS series, start_ns AS begins, start_ns + dur_ns AS ends"
        " FROM gpu_work WHERE dur_ns > 0"
    )
    # Bytes per ns are GB/s. As integers of B/s, so that what is added is taken away again to the last bit.
    # HUGEINT, since 9.3 GB times 10^9 are more than 64 bits hold.
    speed = "(bytes::HUGEINT * 1000000000 // dur_ns)"
    copying = (
        f"SELECT {gpu} AS pid, kind AS series, unnest([start_ns, start_ns + dur_ns]) AS at_ns,"
        f" unnest([{speed}, -{speed}]) AS change FROM memcpys WHERE dur_ns > 0 AND bytes > 0"
    )
    allocated = (
        f"SELECT CASE WHEN device_type = 'cpu' THEN {cpu} ELSE {gpu} END, device_type,"
        " start_ns, allocated_bytes FROM memory_events WHERE allocated_bytes IS NOT NULL ORDER BY 1, 2, 3, file_row"
    )
    return [
        Counter("queue depth", running(f"{both_ends} FROM ({queued})")),
        Counter("running", running(f"{both_ends} FROM ({busy})")),
        Counter("copy GB/s", running(copying), decimals=9),
        Counter("allocated MB", allocated, decimals=6),
    ]
