"""The table `source_times`: which line of the program the time of a GPU comes from, where Python stacks were recorded.

The program's main thread is in one innermost function of its own at any time. Work on a GPU comes from the one that the
main thread was in when the work was launched (by whichever thread: autograd's have no Python functions); idle time from
the one that it is in meanwhile.
"""

from __future__ import annotations

import duckdb

from schemas.python_files import program_function

DECLARATION = """The source line of GPU time, in recordings with Python stacks.

The innermost function of the program itself on its main thread: at the launch of the GPU work, or during idle time of
the GPU. Concurrent work has a row each.
@use gpu_timeline, intervals
@table source_times  a row is an interval of a GPU with one source.
@columns track
@column source text  File, line on which the function begins, and its name: train.py:42 in train_step.
@columns start_ns, end_ns
"""
_NAMES = "SELECT DISTINCT name FROM ranges WHERE origin = 'python_function' AND name IS NOT NULL"
_EMPTY = "CREATE OR REPLACE TABLE {table} (track INTEGER, source VARCHAR, start_ns BIGINT, end_ns BIGINT)"
_FUNCTIONS = "CREATE OR REPLACE TEMP TABLE program_functions (name VARCHAR, source VARCHAR, collector BOOLEAN)"
_FRAMES = """
CREATE OR REPLACE TEMP TABLE program_frames AS
WITH frames AS (
    SELECT r.run_id, r.rank, r.pid, r.tid, f.source, f.collector, r.start_ns, r.start_ns + r.dur_ns AS end_ns
    FROM ranges r JOIN program_functions f USING (name)
    WHERE r.origin = 'python_function' AND r.dur_ns > 0
),
-- What ran the program is no part of it; but the collector's own training loop is one.
own AS (
    SELECT *
    FROM frames
    WHERE NOT collector OR (run_id, rank) NOT IN (SELECT (run_id, rank) FROM frames WHERE NOT collector)
),
main AS (
    SELECT run_id, rank, tid
    FROM own
    GROUP BY run_id, rank, pid, tid
    QUALIFY row_number() OVER (
        PARTITION BY run_id, rank
        ORDER BY coalesce(tid = pid, false) DESC, max(end_ns) - min(start_ns) DESC, tid
    ) = 1
),
-- A process by the first of its GPUs: a number sorts faster than run and rank do.
processes AS (
    SELECT run_id, rank, min(track) AS process FROM gpu_tracks GROUP BY run_id, rank
),
running AS (
    SELECT p.process AS track, o.source AS name, o.start_ns, o.end_ns
    FROM own o
    JOIN main m ON m.run_id = o.run_id AND m.rank = o.rank AND m.tid IS NOT DISTINCT FROM o.tid
    JOIN processes p ON p.run_id = o.run_id AND p.rank = o.rank
)
SELECT * FROM intervals_innermost('running')
"""
_TIMES = """
CREATE OR REPLACE TABLE {table} AS
WITH processes AS (
    SELECT track, min(track) OVER (PARTITION BY run_id, rank) AS process, run_id, rank, device FROM gpu_tracks
),
calls AS (
    SELECT p.process AS track, p.track AS gpu, w.call_start_ns AS at_ns, w.start_ns, w.start_ns + w.dur_ns AS end_ns
    FROM gpu_work w
    JOIN processes p ON p.run_id = w.run_id AND p.rank = w.rank AND p.device IS NOT DISTINCT FROM w.device
    WHERE w.dur_ns > 0 AND w.call_start_ns IS NOT NULL
),
meanwhile AS (
    SELECT p.track, f.name, f.start_ns, f.end_ns FROM program_frames f JOIN processes p ON p.process = f.track
),
gaps AS (
    SELECT track, start_ns, end_ns, start_ns AS window_id FROM gpu_idle
)
SELECT gpu AS track, inside.name AS source, start_ns, end_ns
FROM points_in_intervals('calls', 'program_frames')
WHERE inside IS NOT NULL
UNION ALL
SELECT track, name, start_ns, end_ns FROM intervals_clip('meanwhile', 'gaps')
"""


def create(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Make the table: `track` of a GPU, `source` (`train.py:42 in train_step`), `start_ns`, `end_ns`.

    Empty where no recording has Python functions, which takes no time. `analyze.query.computed` has its columns.
    """
    names = [name for (name,) in connection.execute(_NAMES).fetchall()]
    found = [(name, *known) for name in names if (known := program_function(name)) is not None]
    if not found:
        connection.execute(_EMPTY.format(table=table))
        return
    connection.execute(_FUNCTIONS)
    columns = [list(column) for column in zip(*found, strict=True)]
    connection.execute("INSERT INTO program_functions SELECT unnest($1), unnest($2), unnest($3)", columns)
    connection.execute(_FRAMES)
    connection.execute(_TIMES.format(table=table))
    connection.execute("DROP TABLE program_frames")
    connection.execute("DROP TABLE program_functions")
