-- Interval algebra. Each table macro takes the name of a table, view or CTE (a string) with the columns `track`,
-- `start_ns` and `end_ns`. Intervals are half-open, [start, end): one of 0 ns is empty, and adjacent intervals merge.
-- Only intervals on the same track are combined. Each macro sorts once by track and start, then uses window functions
-- over that order: no interval is compared with all others. A running maximum or sum over the sorted rows (an empty
-- OVER clause) takes DuckDB half the time of one with PARTITION BY and ORDER BY, and no memory.

-- @macro previous_end(track, start_ns, end_ns)  the furthest end of the previous intervals on the track (any key), in
--   order of start, longest first; NULL for the first.
-- A window expression. An interval that starts at or after it overlaps none of the previous ones; one that ends after
-- it lies in none of them.
CREATE MACRO previous_end(track, start_ns, end_ns) AS max(end_ns) OVER (
    PARTITION BY track ORDER BY start_ns, end_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
);

-- @macro added_coverage_ns(start_ns, end_ns, previous_end_ns)  length that an interval adds to the union of the
--   previous ones, which end at previous_end_ns (NULL: there are none).
CREATE MACRO added_coverage_ns(start_ns, end_ns, previous_end_ns) AS
    greatest(0, end_ns - greatest(start_ns, coalesce(previous_end_ns, start_ns)));

-- @macro outermost(node, last_node)  whether no earlier row, in pre-order of a call tree, contains this one.
-- A window expression, so it works in QUALIFY.
CREATE MACRO outermost(node, last_node) AS
    coalesce(node > max(last_node) OVER (ORDER BY node ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true);

-- @macro track_ns(number, ns)  a time as a number that grows with the number of the track: one running maximum then
--   serves all tracks.
CREATE MACRO track_ns(number, ns) AS number * 18446744073709551616::HUGEINT + ns;

-- @macro ns_on_track(number, place)  the time behind track_ns; NULL if it is of an earlier track.
CREATE MACRO ns_on_track(number, place) AS
    CASE WHEN place >= track_ns(number, -9223372036854775808) THEN (place - track_ns(number, 0))::BIGINT END;

-- @macro intervals_with_previous_end(t)  the intervals in order of track and start, longest first, with previous_end.
-- @column * of t
-- @column previous_end_ns ns      Furthest end of the previous intervals; NULL for the first.
CREATE MACRO intervals_with_previous_end(t) AS TABLE
WITH _ordered AS (
    SELECT *, track IS DISTINCT FROM lag(track) OVER () AS _new_track
    FROM (SELECT * FROM query_table(t) ORDER BY track, start_ns, end_ns DESC)
),
_numbered AS (
    SELECT * EXCLUDE (_new_track), count(*) FILTER (_new_track) OVER (ROWS UNBOUNDED PRECEDING) AS _number FROM _ordered
),
_running AS (
    SELECT *, max(track_ns(_number, end_ns)) OVER (ROWS UNBOUNDED PRECEDING) AS _furthest FROM _numbered
)
SELECT * EXCLUDE (_number, _furthest), ns_on_track(_number, lag(_furthest) OVER ()) AS previous_end_ns
FROM _running;

-- @macro intervals_union(t)  the union of the intervals: disjoint, as long as possible, in order of track and start.
-- @columns track, start_ns, end_ns
CREATE MACRO intervals_union(t) AS TABLE
WITH _some AS (
    SELECT track, start_ns, end_ns FROM query_table(t) WHERE end_ns > start_ns
),
_with_previous AS (
    SELECT
        track, start_ns, greatest(end_ns, previous_end_ns) AS furthest_ns,
        coalesce(start_ns > previous_end_ns, true) AS begins,
        lead(track) OVER () IS DISTINCT FROM track OR lead(start_ns) OVER () > furthest_ns AS ends
    FROM intervals_with_previous_end('_some')
),
-- Only first and last intervals of a union are left, so the row after a first is its last.
_edges AS (
    SELECT track, start_ns, begins, CASE WHEN ends THEN furthest_ns ELSE lead(furthest_ns) OVER () END AS end_ns
    FROM _with_previous
    WHERE begins OR ends
)
SELECT track, start_ns, end_ns FROM _edges WHERE begins;

-- @macro intervals_coverage(t)  first start, last end and length of the union, per track.
-- @columns track
-- @column first_ns ns             First start.
-- @column last_ns ns              Last end.
-- @column covered_ns ns           Length of the union.
CREATE MACRO intervals_coverage(t) AS TABLE
WITH _some AS (
    SELECT track, start_ns, end_ns FROM query_table(t)
)
SELECT
    track, min(start_ns) AS first_ns, max(end_ns) AS last_ns,
    sum(added_coverage_ns(start_ns, end_ns, previous_end_ns))::BIGINT AS covered_ns
FROM intervals_with_previous_end('_some')
GROUP BY track;

-- @macro intervals_overlap_sum(t)  the number of overlapping intervals, and the sum of their `value`, between
--   neighbouring edges.
-- Segments without any interval, inside a track, have n = 0.
-- @columns track, start_ns, end_ns
-- @column n count                 Number of intervals.
-- @column total number            Sum of their values.
CREATE MACRO intervals_overlap_sum(t) AS TABLE
WITH _edges AS (
    SELECT track, start_ns AS at_ns, 1 AS opened, value AS change FROM query_table(t) WHERE end_ns > start_ns
    UNION ALL
    SELECT track, end_ns, -1, -value FROM query_table(t) WHERE end_ns > start_ns
),
-- All intervals of a track are closed at its end, so the sums need no partitions.
_running AS (
    SELECT
        track, at_ns AS start_ns,
        CASE WHEN lead(track) OVER () IS NOT DISTINCT FROM track THEN lead(at_ns) OVER () END AS end_ns,
        sum(opened) OVER (ROWS UNBOUNDED PRECEDING) AS n, sum(change) OVER (ROWS UNBOUNDED PRECEDING) AS total
    FROM (SELECT * FROM _edges ORDER BY track, at_ns)
)
SELECT track, start_ns, end_ns, n::BIGINT AS n, total FROM _running WHERE end_ns > start_ns;

-- @macro intervals_overlap_count(t)  the number of overlapping intervals between neighbouring edges; n = 0 in gaps of a
--   track.
-- @columns track, start_ns, end_ns
-- @column n count                 Number of intervals.
CREATE MACRO intervals_overlap_count(t) AS TABLE
WITH _counted AS (
    SELECT track, start_ns, end_ns, 1 AS value FROM query_table(t)
)
SELECT track, start_ns, end_ns, n FROM intervals_overlap_sum('_counted');

-- @macro intervals_segments(a, b)  segments between neighbouring edges of two unions, and whether `a` and `b` cover
--   them.
-- @columns track, start_ns, end_ns
-- @column in_a bool               Whether `a` covers it.
-- @column in_b bool               Whether `b` covers it.
CREATE MACRO intervals_segments(a, b) AS TABLE
WITH _edges AS (
    SELECT track, unnest([start_ns, end_ns]) AS at_ns, unnest([1, -1]) AS in_a, 0 AS in_b FROM intervals_union(a)
    UNION ALL
    SELECT track, unnest([start_ns, end_ns]), 0, unnest([1, -1]) FROM intervals_union(b)
),
-- Neither covers the end of a track, so the sums need no partitions.
_running AS (
    SELECT
        track, at_ns AS start_ns,
        CASE WHEN lead(track) OVER () IS NOT DISTINCT FROM track THEN lead(at_ns) OVER () END AS end_ns,
        sum(in_a) OVER (ROWS UNBOUNDED PRECEDING) AS in_a, sum(in_b) OVER (ROWS UNBOUNDED PRECEDING) AS in_b
    FROM (SELECT * FROM _edges ORDER BY track, at_ns)
)
SELECT track, start_ns, end_ns, in_a > 0 AS in_a, in_b > 0 AS in_b FROM _running WHERE end_ns > start_ns;

-- @macro intervals_split(a, b)  the union of `a`, split at the edges of `b`.
-- @columns track, start_ns, end_ns
-- @column in_b bool               Whether `b` covers it.
CREATE MACRO intervals_split(a, b) AS TABLE
SELECT track, start_ns, end_ns, in_b FROM intervals_segments(a, b) WHERE in_a;

-- @macro intervals_intersect(a, b)  the intersection: disjoint intervals, as long as possible.
-- @columns track, start_ns, end_ns
CREATE MACRO intervals_intersect(a, b) AS TABLE
SELECT track, start_ns, end_ns FROM intervals_split(a, b) WHERE in_b;

-- @macro intervals_subtract(a, b)  the difference: intervals in `a` and not in `b`; disjoint, as long as possible.
-- @columns track, start_ns, end_ns
CREATE MACRO intervals_subtract(a, b) AS TABLE
SELECT track, start_ns, end_ns FROM intervals_split(a, b) WHERE NOT in_b;

-- @macro intervals_latest(t)  at each time the overlapping interval that started last: disjoint segments with the
--   interval as the struct `latest`.
-- A column `level` comes before the start: a lower level never hides a higher one. For intervals with few overlaps:
-- each overlapping interval is copied to every segment between neighbouring edges that it covers.
-- @columns track, start_ns, end_ns
-- @column latest row              The interval of `t`.
CREATE MACRO intervals_latest(t) AS TABLE
WITH _some AS (
    SELECT * FROM query_table(t) WHERE end_ns > start_ns
),
_marked AS (
    SELECT
        *, coalesce(start_ns >= previous_end_ns, true)
            AND (lead(track) OVER () IS DISTINCT FROM track OR lead(start_ns) OVER () >= end_ns) AS _alone
    FROM intervals_with_previous_end('_some')
),
_overlapping AS MATERIALIZED (
    SELECT i AS item, row_number() OVER (ORDER BY i.level, i.start_ns, -i.end_ns) AS turn
    FROM (SELECT * EXCLUDE (previous_end_ns, _alone) FROM _marked WHERE NOT _alone) i
),
_edges AS MATERIALIZED (
    SELECT turn, at_ns, row_number() OVER edge AS number, lead(at_ns) OVER edge AS next_ns
    FROM (SELECT turn, item.track AS track, unnest([item.start_ns, item.end_ns]) AS at_ns FROM _overlapping)
    WINDOW edge AS (ORDER BY track, at_ns)
),
_covered AS (
    SELECT turn, unnest(range(min(number), max(number))) AS number FROM _edges GROUP BY turn
),
_last AS (
    SELECT number, max(turn) AS turn FROM _covered GROUP BY number
)
SELECT track, start_ns, end_ns, i AS latest
FROM (SELECT * EXCLUDE (previous_end_ns, _alone) FROM _marked WHERE _alone) i
UNION ALL
SELECT item.track, e.at_ns, e.next_ns, item
FROM _last l JOIN _edges e USING (number) JOIN _overlapping o ON o.turn = l.turn
WHERE e.at_ns < e.next_ns;

-- @macro intervals_innermost(t)  at each time the innermost of nested intervals (with `name`): disjoint segments.
-- After a start, the innermost interval is that one; after an end, the last one that started at the remaining depth.
-- DuckDB sorts all edges in memory, so use it for parts of a trace. For intervals that overlap in part, it may name one
-- that has ended.
-- @columns track
-- @column name text               Name of the innermost interval.
-- @columns start_ns, end_ns
CREATE MACRO intervals_innermost(t) AS TABLE
WITH _edges AS (
    SELECT track, name, start_ns AS at_ns, 1 AS opened, end_ns - start_ns AS dur_ns
    FROM query_table(t)
    WHERE end_ns > start_ns
    UNION ALL
    SELECT track, NULL, end_ns, -1, end_ns - start_ns FROM query_table(t) WHERE end_ns > start_ns
),
_walk AS (
    SELECT
        *, sum(opened) OVER in_order AS depth, row_number() OVER in_order AS number,
        lead(at_ns) OVER in_order AS next_ns
    FROM _edges
    WINDOW in_order AS (PARTITION BY track ORDER BY at_ns, opened, dur_ns DESC, name)
),
_begun AS (
    SELECT track, name, depth, number FROM _walk WHERE opened = 1
)
SELECT w.track, b.name, w.at_ns AS start_ns, w.next_ns AS end_ns
FROM _walk w ASOF JOIN _begun b ON b.track = w.track AND b.depth = w.depth AND w.number >= b.number
WHERE w.next_ns > w.at_ns AND w.depth > 0;

-- @macro intervals_in_bins(ranges)  disjoint intervals, once per bin of time that they overlap.
-- Bins are 2^shift ns long, so that most have about four intervals. A lookup by track and bin is a hash join, three
-- times as fast as an as-of join, which sorts its inputs.
-- @columns track
-- @column cell index              Number of the bin: its start >> shift.
-- @column shift count             The same for all.
-- @column start_ns ns             Start of the range.
-- @columns end_ns
-- @column item row                The interval.
CREATE MACRO intervals_in_bins(ranges) AS TABLE
WITH _held AS (
    SELECT track, start_ns, end_ns, r AS item FROM query_table(ranges) r WHERE end_ns > start_ns
),
_length AS (
    SELECT sum(end_ns - start_ns)::DOUBLE / greatest(4 * count(*), least(64 * count(*), 65536)) AS ns FROM _held
)
SELECT track, unnest(range(start_ns >> shift, ((end_ns - 1) >> shift) + 1)) AS cell, shift, start_ns, end_ns, item
FROM _held, (SELECT floor(log2(greatest(ns, 1)))::INTEGER AS shift FROM _length);

-- @macro intervals_clip(t, windows)  the parts of intervals inside windows (with `window_id`; the windows of a track
--   are disjoint).
-- Parts keep the other columns of their interval. Most intervals lie in the window in which they begin. The last window
-- of others comes from an as-of join, those between by number.
-- @column * of t
-- @column window_id index         The window.
CREATE MACRO intervals_clip(t, windows) AS TABLE
WITH _numbered AS (
    SELECT
        track AS window_track, window_id, start_ns AS window_start_ns, end_ns AS window_end_ns,
        row_number() OVER in_order AS number, lead(start_ns) OVER in_order AS next_ns
    FROM query_table(windows)
    WINDOW in_order AS (PARTITION BY track ORDER BY start_ns)
),
-- Each window, extended to the start of the next.
_extended_windows AS (
    SELECT
        window_track AS track, window_start_ns AS start_ns, coalesce(next_ns, window_end_ns) AS end_ns, window_id,
        window_end_ns, number
    FROM _numbered
),
_cells AS MATERIALIZED (
    SELECT track, cell, shift, start_ns, end_ns, item.window_id, item.window_end_ns, item.number
    FROM intervals_in_bins('_extended_windows')
),
-- unnest keeps DuckDB from joining on the track alone.
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
-- Intervals that begin in no extended window begin before the first or after the last.
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

-- @macro points_in_intervals(points, ranges)  points (`track`, `at_ns` and more) with the interval that contains them
--   as the struct `inside`.
-- The intervals of a track are disjoint; flatten nested ones with intervals_innermost.
-- @column * of points
-- @column inside row              The interval; NULL if none contains the point.
CREATE MACRO points_in_intervals(points, ranges) AS TABLE
WITH _cells_of_ranges AS MATERIALIZED (
    SELECT * FROM intervals_in_bins(ranges)
),
_points_in_cells AS (
    SELECT *, unnest([at_ns >> (SELECT any_value(shift) FROM _cells_of_ranges)]) AS _cell FROM query_table(points)
)
SELECT p.* EXCLUDE (_cell), c.item AS inside
FROM _points_in_cells p
LEFT JOIN _cells_of_ranges c
    ON c.track = p.track AND c.cell = p._cell AND p.at_ns >= c.start_ns AND p.at_ns < c.end_ns;
