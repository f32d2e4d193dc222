-- Interval algebra as table macros over the name of a table, view or CTE (a string). Such a table has the columns
-- `track` (only intervals on the same track meet), `start_ns` and `end_ns`. An interval holds its start and not its
-- end, so one of 0 ns holds nothing, and intervals that touch make one. Each macro sorts once by track and time and
-- walks over that order with window functions: no interval is compared with all the others. Where a running maximum or
-- sum is enough, the rows are sorted first and the windows are over `()`: such a walk takes DuckDB half the time and
-- none of the memory of one with PARTITION BY and ORDER BY.

-- @macro grown_ns(start_ns, end_ns, reached_ns)  what an interval adds to the union of those before it, which reach to
-- reached_ns (NULL: there is none).
CREATE MACRO grown_ns(start_ns, end_ns, reached_ns) AS
    greatest(0, end_ns - greatest(start_ns, coalesce(reached_ns, start_ns)));

-- @macro furthest_end(track, start_ns, end_ns)  the furthest end of the intervals before this one on its track (any
-- key), in order of start, longer first; NULL for the first. As a window: it may stand where those may. Of an interval
-- that begins there or later, none of them holds a part; of one that ends later, none holds the whole.
CREATE MACRO furthest_end(track, start_ns, end_ns) AS max(end_ns) OVER (
    PARTITION BY track ORDER BY start_ns, end_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
);

-- @macro track_ns(number, ns)  a time on a track of that number, as a number that is higher on every later track: a
-- running maximum over all tracks is then one of each.
CREATE MACRO track_ns(number, ns) AS number * 18446744073709551616::HUGEINT + ns;

-- @macro ns_on_track(number, place)  the time that track_ns was made of; NULL if it is of an earlier track.
CREATE MACRO ns_on_track(number, place) AS
    CASE WHEN place >= track_ns(number, -9223372036854775808) THEN (place - track_ns(number, 0))::BIGINT END;

-- @macro intervals_reached(t)  the intervals in order of track and start, longer first, each with the furthest end of
-- those before it on its track, as furthest_end.
-- @column * of t
-- @column reached_ns ns          Furthest end of those before it; NULL for the first.
CREATE MACRO intervals_reached(t) AS TABLE
WITH _ordered AS (
    SELECT *, track IS DISTINCT FROM lag(track) OVER () AS _turns
    FROM (SELECT * FROM query_table(t) ORDER BY track, start_ns, end_ns DESC)
),
_numbered AS (
    SELECT * EXCLUDE (_turns), count(*) FILTER (_turns) OVER (ROWS UNBOUNDED PRECEDING) AS _number FROM _ordered
),
_running AS (
    SELECT *, max(track_ns(_number, end_ns)) OVER (ROWS UNBOUNDED PRECEDING) AS _furthest FROM _numbered
)
SELECT * EXCLUDE (_number, _furthest), ns_on_track(_number, lag(_furthest) OVER ()) AS reached_ns
FROM _running;

-- @macro intervals_union(t)  the union: disjoint intervals as long as can be, in order of track and start. An interval
-- begins a new one if all before it ended earlier.
-- @column track index           Track.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE MACRO intervals_union(t) AS TABLE
WITH _some AS (
    SELECT track, start_ns, end_ns FROM query_table(t) WHERE end_ns > start_ns
),
_reached AS (
    SELECT
        track, start_ns, greatest(end_ns, reached_ns) AS furthest_ns,
        coalesce(start_ns > reached_ns, true) AS begins,
        lead(track) OVER () IS DISTINCT FROM track OR lead(start_ns) OVER () > furthest_ns AS ends
    FROM intervals_reached('_some')
),
-- Those that neither begin nor end one are left out, so what follows the first of one is its last.
_edges AS (
    SELECT track, start_ns, begins, CASE WHEN ends THEN furthest_ns ELSE lead(furthest_ns) OVER () END AS end_ns
    FROM _reached
    WHERE begins OR ends
)
SELECT track, start_ns, end_ns FROM _edges WHERE begins;

-- @macro intervals_length(t)  per track: first start, last end, and the length of the union. Each interval adds what
-- lies behind the furthest end so far.
-- @column track index           Track.
-- @column first_ns ns           First start.
-- @column last_ns ns            Last end.
-- @column covered_ns ns         Length of the union.
CREATE MACRO intervals_length(t) AS TABLE
WITH _some AS (
    SELECT track, start_ns, end_ns FROM query_table(t)
)
SELECT
    track, min(start_ns) AS first_ns, max(end_ns) AS last_ns,
    sum(grown_ns(start_ns, end_ns, reached_ns))::BIGINT AS covered_ns
FROM intervals_reached('_some')
GROUP BY track;

-- @macro intervals_open(t)  how many intervals are open between any two neighbouring edges. Stretches inside a track
-- where nothing is open have n = 0.
-- @column track index           Track.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column n count               Intervals that are open.
CREATE MACRO intervals_open(t) AS TABLE
WITH _edges AS (
    SELECT track, start_ns AS at_ns, 1 AS opened FROM query_table(t) WHERE end_ns > start_ns
    UNION ALL
    SELECT track, end_ns, -1 FROM query_table(t) WHERE end_ns > start_ns
),
-- At the end of a track all are closed, so the sum goes on with the next.
_running AS (
    SELECT
        track, at_ns AS start_ns,
        CASE WHEN lead(track) OVER () IS NOT DISTINCT FROM track THEN lead(at_ns) OVER () END AS end_ns,
        sum(opened) OVER (ROWS UNBOUNDED PRECEDING) AS n
    FROM (SELECT * FROM _edges ORDER BY track, at_ns)
)
SELECT track, start_ns, end_ns, n::BIGINT AS n FROM _running WHERE end_ns > start_ns;

-- @macro intervals_sweep(t)  the sweep: as intervals_open, with `total`, the sum of the values of those that are open.
-- Needs a column `value`.
-- @column track index           Track.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column n count               Intervals that are open.
-- @column total number          Sum of their values.
CREATE MACRO intervals_sweep(t) AS TABLE
WITH _edges AS (
    SELECT track, start_ns AS at_ns, 1 AS opened, value AS change FROM query_table(t) WHERE end_ns > start_ns
    UNION ALL
    SELECT track, end_ns, -1, -value FROM query_table(t) WHERE end_ns > start_ns
),
-- At the end of a track all are closed, so the sums go on with the next.
_running AS (
    SELECT
        track, at_ns AS start_ns,
        CASE WHEN lead(track) OVER () IS NOT DISTINCT FROM track THEN lead(at_ns) OVER () END AS end_ns,
        sum(opened) OVER (ROWS UNBOUNDED PRECEDING) AS n, sum(change) OVER (ROWS UNBOUNDED PRECEDING) AS total
    FROM (SELECT * FROM _edges ORDER BY track, at_ns)
)
SELECT track, start_ns, end_ns, n::BIGINT AS n, total FROM _running WHERE end_ns > start_ns;

-- @macro intervals_overlay(a, b)  two unions laid over each other: stretches between neighbouring edges, and whether
-- `a` and `b` hold them.
-- @column track index           Track.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column in_a bool             Whether `a` holds it.
-- @column in_b bool             Whether `b` does.
CREATE MACRO intervals_overlay(a, b) AS TABLE
WITH _edges AS (
    SELECT track, unnest([start_ns, end_ns]) AS at_ns, unnest([1, -1]) AS in_a, 0 AS in_b FROM intervals_union(a)
    UNION ALL
    SELECT track, unnest([start_ns, end_ns]), 0, unnest([1, -1]) FROM intervals_union(b)
),
-- At the end of a track neither holds anything, so the sums go on with the next.
_running AS (
    SELECT
        track, at_ns AS start_ns,
        CASE WHEN lead(track) OVER () IS NOT DISTINCT FROM track THEN lead(at_ns) OVER () END AS end_ns,
        sum(in_a) OVER (ROWS UNBOUNDED PRECEDING) AS in_a, sum(in_b) OVER (ROWS UNBOUNDED PRECEDING) AS in_b
    FROM (SELECT * FROM _edges ORDER BY track, at_ns)
)
SELECT track, start_ns, end_ns, in_a > 0 AS in_a, in_b > 0 AS in_b FROM _running WHERE end_ns > start_ns;

-- @macro intervals_split(a, b)  the union of `a`, split at the edges of `b`, and whether that holds each part.
-- @column track index           Track.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column in_b bool             Whether `b` holds it.
CREATE MACRO intervals_split(a, b) AS TABLE
SELECT track, start_ns, end_ns, in_b FROM intervals_overlay(a, b) WHERE in_a;

-- @macro intervals_intersection(a, b)  what both hold: disjoint intervals as long as can be.
-- @column track index           Track.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE MACRO intervals_intersection(a, b) AS TABLE
SELECT track, start_ns, end_ns FROM intervals_split(a, b) WHERE in_b;

-- @macro intervals_subtraction(a, b)  what `a` holds and `b` does not, likewise.
-- @column track index           Track.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE MACRO intervals_subtraction(a, b) AS TABLE
SELECT track, start_ns, end_ns FROM intervals_split(a, b) WHERE NOT in_b;

-- @macro intervals_last_begun(t)  what began last of all that is open, at any time, of intervals that overlap in
-- whatever way: disjoint stretches, each with its interval as the struct `latest`. A column `level` goes before the
-- start: a lower one never hides a higher. Every interval is laid on each stretch between two neighbouring edges that
-- it covers: for intervals in few layers.
-- @column track index           Track.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column latest row            The interval of `t`.
CREATE MACRO intervals_last_begun(t) AS TABLE
WITH _edges AS (
    SELECT track, at_ns, row_number() OVER edge AS number, lead(at_ns) OVER edge AS next_ns
    FROM (
        SELECT DISTINCT track, unnest([start_ns, end_ns]) AS at_ns FROM query_table(t) WHERE end_ns > start_ns
    )
    WINDOW edge AS (PARTITION BY track ORDER BY at_ns)
),
-- Materialized, or both edges may be joined to each other first, on the track alone.
_begun AS MATERIALIZED (
    SELECT i AS held, a.number
    FROM query_table(t) i JOIN _edges a ON a.track = i.track AND a.at_ns = i.start_ns
),
_laid AS (
    SELECT held, unnest(range(a.number, b.number)) AS number
    FROM _begun a JOIN _edges b ON b.track = held.track AND b.at_ns = held.end_ns
)
SELECT
    e.track, e.at_ns AS start_ns, e.next_ns AS end_ns,
    arg_max(held, (held.level, held.start_ns, -held.end_ns)) AS latest
FROM _laid l JOIN _edges e ON e.track = l.held.track AND e.number = l.number
GROUP BY e.track, e.at_ns, e.next_ns;

-- @macro ranges_in_cells(ranges)  disjoint ranges, once for every cell of time that they touch. Cells are 2^shift ns,
-- so that about four, of few ranges up to 64, go into one: what lies in a range is found by the track and its cell, for
-- a third of what an as-of join takes, which sorts all that it is given. Where most ranges lie in a hundredth of the
-- time that all cover, so many share a cell.
-- @column track index           Track.
-- @column cell index            Number of the cell: its start >> shift.
-- @column shift count           The same for all.
-- @column start_ns ns           Start of the range.
-- @column end_ns ns             Its end.
-- @column held row              The range.
CREATE MACRO ranges_in_cells(ranges) AS TABLE
WITH _held AS (
    SELECT track, start_ns, end_ns, r AS held FROM query_table(ranges) r WHERE end_ns > start_ns
),
_length AS (
    SELECT sum(end_ns - start_ns)::DOUBLE / greatest(4 * count(*), least(64 * count(*), 65536)) AS ns FROM _held
)
SELECT track, unnest(range(start_ns >> shift, ((end_ns - 1) >> shift) + 1)) AS cell, shift, start_ns, end_ns, held
FROM _held, (SELECT floor(log2(greatest(ns, 1)))::INTEGER AS shift FROM _length);

-- @macro intervals_cut(t, windows)  the pieces of `t` inside windows. `windows` has `window_id` beside its interval,
-- and the windows of a track are disjoint. A piece keeps the other columns of its interval. Most intervals lie in one
-- window, that in which they begin; those that do not get their last window from an as-of join, and those between by
-- number.
-- @column * of t
-- @column window_id index       The window.
CREATE MACRO intervals_cut(t, windows) AS TABLE
WITH _numbered AS (
    SELECT
        track AS window_track, window_id, start_ns AS window_start_ns, end_ns AS window_end_ns,
        row_number() OVER in_order AS number, lead(start_ns) OVER in_order AS next_ns
    FROM query_table(windows)
    WINDOW in_order AS (PARTITION BY track ORDER BY start_ns)
),
-- Each window with what is behind it and in none.
_window_stretches AS (
    SELECT
        window_track AS track, window_start_ns AS start_ns, coalesce(next_ns, window_end_ns) AS end_ns, window_id,
        window_end_ns, number
    FROM _numbered
),
_cells AS MATERIALIZED (
    SELECT track, cell, shift, start_ns, end_ns, held.window_id, held.window_end_ns, held.number
    FROM ranges_in_cells('_window_stretches')
),
-- The cell comes out of unnest, behind which DuckDB leaves it: else it may join by the track alone, and compare cells
-- after that.
_in_cells AS (
    SELECT *, unnest([start_ns >> (SELECT any_value(shift) FROM _cells)]) AS _cell
    FROM query_table(t)
    WHERE end_ns > start_ns
),
_first_windows AS (
    SELECT i.* EXCLUDE (_cell), c.window_id, c.window_end_ns, c.number
    FROM _in_cells i
    LEFT JOIN _cells c
        ON c.track = i.track AND c.cell = i._cell AND i.start_ns >= c.start_ns AND i.start_ns < c.end_ns
),
_crossing AS (
    SELECT * EXCLUDE (window_id, window_end_ns) FROM _first_windows WHERE end_ns > window_end_ns IS NOT FALSE
),
_last_ends AS (
    SELECT window_track, max(window_end_ns) AS last_ns FROM _numbered GROUP BY window_track
),
-- What begins in no stretch begins before the first or behind the last.
_last_windows AS (
    SELECT c.* EXCLUDE (number), unnest(range(coalesce(c.number, 1), n.number + 1)) AS number
    FROM (SELECT c.* FROM _crossing c JOIN _last_ends e ON c.track = e.window_track AND c.start_ns < e.last_ns) c
    ASOF JOIN _numbered n ON c.track = n.window_track AND c.end_ns > n.window_start_ns
),
_pieces AS (
    SELECT
        l.* REPLACE (greatest(start_ns, window_start_ns) AS start_ns, least(end_ns, window_end_ns) AS end_ns),
        n.window_id
    FROM _last_windows l JOIN _numbered n ON l.track = n.window_track AND l.number = n.number
    WHERE greatest(start_ns, window_start_ns) < least(end_ns, window_end_ns)
)
SELECT * EXCLUDE (window_end_ns, number)
FROM _first_windows
WHERE end_ns <= window_end_ns
UNION ALL BY NAME
SELECT * EXCLUDE (number) FROM _pieces;

-- @macro points_in_ranges(points, ranges)  points (track, at_ns and more) with the range that holds them, as the struct
-- `inside`; NULL where none does. The ranges of a track are disjoint; of nested ones, take what `innermost` makes of
-- them.
-- @column * of points
-- @column inside row            The range; NULL where none holds the point.
CREATE MACRO points_in_ranges(points, ranges) AS TABLE
WITH _cells_of_ranges AS MATERIALIZED (
    SELECT * FROM ranges_in_cells(ranges)
),
-- unnest, as in intervals_cut.
_points_in_cells AS (
    SELECT *, unnest([at_ns >> (SELECT any_value(shift) FROM _cells_of_ranges)]) AS _cell FROM query_table(points)
)
SELECT p.* EXCLUDE (_cell), c.held AS inside
FROM _points_in_cells p
LEFT JOIN _cells_of_ranges c
    ON c.track = p.track AND c.cell = p._cell AND p.at_ns >= c.start_ns AND p.at_ns < c.end_ns;
