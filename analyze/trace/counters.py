"""The counter tracks of an exported trace: queue depth, work running, copy bandwidth, memory, state of the GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Counter(NamedTuple):
    """Counter tracks of one name, with SQL of pid, series, time in ns and value at each change.

    `decimals`: decimal places of the value in the unit of the name; SQL returns it as an integer. `uses`: SQL modules.
    """

    name: str
    sql: str
    decimals: int = 0
    uses: tuple[str, ...] = ()

    def text(self, value: int) -> str:
        """Return the value as exact decimal text."""
        if not self.decimals:
            return str(value)
        sign, digits = ("-" if value < 0 else ""), str(abs(value)).rjust(self.decimals + 1, "0")
        return f"{sign}{digits[: -self.decimals]}.{digits[-self.decimals :]}"


def changes(edges: Iterable[tuple[int, Any]], from_ns: int, to_ns: int | None) -> Iterator[tuple[int, Any]]:
    """Yield time and value of each change in the window, with the value at its start if there is one."""
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
    """Return the counters of a run. `gpu` and `cpu` are SQL of the keys of a device and of a CPU process."""

    def running(edges: str) -> str:
        # Changes at the same time are one change.
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
    # Bytes per second as integers, so that the sum returns to exactly 0. HUGEINT: 9.3 GB * 10^9 exceed 64 bits.
    speed = "(bytes::HUGEINT * 1000000000 // dur_ns)"
    copying = (
        f"SELECT {gpu} AS pid, kind AS series, unnest([start_ns, start_ns + dur_ns]) AS at_ns,"
        f" unnest([{speed}, -{speed}]) AS change FROM memcpys WHERE dur_ns > 0 AND bytes > 0"
    )

    def memory(column: str, snapshots: str) -> str:
        return (
            f"SELECT CASE WHEN device_type = 'cpu' THEN {cpu} ELSE {gpu} END AS pid, device_type AS series,"
            f" start_ns AS at_ns, {column}, file_row FROM memory_events WHERE {column} IS NOT NULL"
            f" AND allocated_bytes IS NOT NULL UNION ALL SELECT {gpu}, 'snapshot', start_ns, {snapshots}"
            " ORDER BY 1, 2, 3, file_row"
        )

    during_work = (
        "start_ns BETWEEN (SELECT min(start_ns) FROM gpu_work) AND (SELECT max(start_ns + dur_ns) FROM gpu_work)"
    )
    # Activity is the mean since the sample before, so that it begins there.
    sampled = (
        "SELECT *, lag(start_ns) OVER (PARTITION BY rank, device ORDER BY start_ns) AS since_ns FROM gpu_samples"
        f" WHERE {during_work}"
    )
    activity = (
        f"SELECT {gpu} AS pid, unnest(['SMs', 'tensor cores', 'DRAM']) AS series, since_ns AS at_ns,"
        " unnest([sm_active_pct, tensor_active_pct, dram_active_pct]) AS value"
        f" FROM ({sampled} AND sm_active_pct IS NOT NULL) WHERE since_ns IS NOT NULL"
    )

    def state(column: str, series: str) -> str:
        return (
            f"SELECT {gpu} AS pid, '{series}' AS series, start_ns, round({column} * 1000)::BIGINT FROM ({sampled})"
            f" WHERE {column} IS NOT NULL ORDER BY 1, 2, 3"
        )

    # Page faults have no level, and metrics of kernels no time.
    recorded = (
        f"SELECT CASE WHEN device IS NULL THEN {cpu} ELSE {gpu} END AS pid, name AS series, start_ns,"
        " round(value * 1000)::BIGINT FROM (SELECT *, NULL::BIGINT AS pid FROM counters)"
        f" WHERE {during_work} AND kernel IS NULL AND NOT ends_with(name, 'page faults') AND abs(value) < 1e15"
        " ORDER BY 1, 2, 3"
    )
    return [
        Counter("queue depth", running(f"{both_ends} FROM ({queued})")),
        Counter("running", running(f"{both_ends} FROM ({busy})")),
        Counter("copy GB/s", running(copying), decimals=9),
        Counter(
            "allocated MB",
            memory("allocated_bytes", "held_bytes, event FROM allocator_changes"),
            decimals=6,
            uses=("allocator",),
        ),
        Counter(
            "reserved MB",
            memory(
                "reserved_bytes", "reserved_bytes, event FROM allocator_totals WHERE starts_with(action, 'segment_')"
            ),
            decimals=6,
            uses=("allocator",),
        ),
        Counter(
            "active %",
            f"SELECT pid, series, at_ns, round(value * 1000)::BIGINT FROM ({activity})"
            " WHERE value IS NOT NULL ORDER BY 1, 2, 3",
            decimals=3,
        ),
        Counter("power W", state("power_w", "board"), decimals=3),
        Counter("clock MHz", state("sm_clock_mhz", "SMs"), decimals=3),
        Counter("counter", recorded, decimals=3),
    ]
