-- Interval algebra as table macros over the name of a table, view or CTE (a string). Such a table has the columns
-- `track` (only intervals on the same track meet), `start_ns` and `end_ns`. An interval holds its start and not its
-- end, so one of 0 ns holds nothing, and intervals that touch make one. Each macro sorts once by track and time and
-- walks over that order with window functions: no interval is compared with all the others.

-- The union: disjoint intervals as long as can be. An interval begins a new one if all before it ended earlier.
CREATE MACRO intervals_union(t) AS TABLE
WITH reached AS (
    SELECT
        track, start_ns,
        max(end_ns) OVER (
            PARTITION BY track ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns,
        max(end_ns) OVER (PARTITION BY track) AS last_ns
    FROM query_table(t)
    WHERE end_ns > start_ns
),
islands AS (
    SELECT * FROM reached WHERE reached_ns IS NULL OR start_ns > reached_ns
)
SELECT track, start_ns, coalesce(lead(reached_ns) OVER (PARTITION BY track ORDER BY start_ns), last_ns) AS end_ns
FROM islands;

-- Per track: first start, last end, and the length of the union. Each interval adds what lies behind the furthest end
-- so far.
CREATE MACRO intervals_length(t) AS TABLE
WITH reached AS (
    SELECT
        track, start_ns, end_ns,
        max(end_ns) OVER (
            PARTITION BY track ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM query_table(t)
)
SELECT
    track, min(start_ns) AS first_ns, max(end_ns) AS last_ns,
    sum(greatest(0, end_ns - greatest(start_ns, coalesce(reached_ns, start_ns))))::BIGINT AS covered_ns
FROM reached
GROUP BY track;

-- The gaps of the union: from the end of each of its intervals to the start of the next, on one track.
CREATE MACRO intervals_gaps(t) AS TABLE
WITH following AS (
    SELECT track, end_ns AS start_ns, lead(start_ns) OVER (PARTITION BY track ORDER BY start_ns) AS end_ns
    FROM intervals_union(t)
)
SELECT track, start_ns, end_ns FROM following WHERE end_ns IS NOT NULL;

-- The sweep: what is open between any two neighbouring edges. Needs a column `value`; gives `n`, how many intervals are
-- open, and `total`, the sum of their values. Stretches inside a track where nothing is open have n = 0.
CREATE MACRO intervals_sweep(t) AS TABLE
WITH edges AS (
    SELECT track, start_ns AS at_ns, 1 AS opened, value AS change FROM query_table(t) WHERE end_ns > start_ns
    UNION ALL
    SELECT track, end_ns, -1, -value FROM query_table(t) WHERE end_ns > start_ns
),
running AS (
    SELECT
        track, at_ns AS start_ns, lead(at_ns) OVER edge AS end_ns,
        sum(opened) OVER (edge ROWS UNBOUNDED PRECEDING) AS n, sum(change) OVER (edge ROWS UNBOUNDED PRECEDING) AS total
    FROM edges
    WINDOW edge AS (PARTITION BY track ORDER BY at_ns, opened)
)
SELECT track, start_ns, end_ns, n::BIGINT AS n, total FROM running WHERE end_ns > start_ns;

-- Two unions laid over each other: stretches between neighbouring edges, and whether `a` and `b` hold them.
CREATE MACRO intervals_overlay(a, b) AS TABLE
WITH edges AS (
    SELECT track, unnest([start_ns, end_ns]) AS at_ns, unnest([1, -1]) AS in_a, 0 AS in_b FROM intervals_union(a)
    UNION ALL
    SELECT track, unnest([start_ns, end_ns]), 0, unnest([1, -1]) FROM intervals_union(b)
),
running AS (
    SELECT
        track, at_ns AS start_ns, lead(at_ns) OVER edge AS end_ns,
        sum(in_a) OVER (edge ROWS UNBOUNDED PRECEDING) AS in_a, sum(in_b) OVER (edge ROWS UNBOUNDED PRECEDING) AS in_b
    FROM edges
    WINDOW edge AS (PARTITION BY track ORDER BY at_ns, in_a, in_b)
)
SELECT track, start_ns, end_ns, in_a > 0 AS in_a, in_b > 0 AS in_b FROM running WHERE end_ns > start_ns;

-- What both hold, and what `a` holds and `b` does not: disjoint intervals as long as can be.
CREATE MACRO intervals_intersection(a, b) AS TABLE
SELECT track, start_ns, end_ns FROM intervals_overlay(a, b) WHERE in_a AND in_b;

CREATE MACRO intervals_subtraction(a, b) AS TABLE
SELECT track, start_ns, end_ns FROM intervals_overlay(a, b) WHERE in_a AND NOT in_b;

-- What began last of all that is open, at any time, of intervals that overlap in whatever way: disjoint stretches, each
-- with its interval as the struct `latest`. A column `level` goes before the start: a lower one never hides a higher.
-- Every interval is laid on each stretch between two neighbouring edges that it covers: for intervals in few layers.
CREATE MACRO intervals_last_begun(t) AS TABLE
WITH edges AS (
    SELECT track, at_ns, row_number() OVER edge AS number, lead(at_ns) OVER edge AS next_ns
    FROM (
        SELECT DISTINCT track, unnest([start_ns, end_ns]) AS at_ns FROM query_table(t) WHERE end_ns > start_ns
    )
    WINDOW edge AS (PARTITION BY track ORDER BY at_ns)
),
laid AS (
    SELECT i AS held, unnest(range(a.number, b.number)) AS number
    FROM query_table(t) i
    JOIN edges a ON a.track = i.track AND a.at_ns = i.start_ns
    JOIN edges b ON b.track = i.track AND b.at_ns = i.end_ns
)
SELECT
    e.track, e.at_ns AS start_ns, e.next_ns AS end_ns,
    arg_max(held, (held.level, held.start_ns, -held.end_ns)) AS latest
FROM laid l JOIN edges e ON e.track = l.held.track AND e.number = l.number
GROUP BY e.track, e.at_ns, e.next_ns;

-- The pieces of `t` inside windows. `windows` has `window_id` beside its interval, and the windows of a track are
-- disjoint. A piece keeps the other columns of its interval. Most intervals lie in one window, which an as-of join
-- finds; those that do not get their last window from another one, and those between by number.
CREATE MACRO intervals_cut(t, windows) AS TABLE
WITH numbered AS (
    SELECT
        track AS window_track, window_id, start_ns AS window_start_ns, end_ns AS window_end_ns,
        row_number() OVER (PARTITION BY track ORDER BY start_ns) AS number
    FROM query_table(windows)
),
first_windows AS (
    SELECT i.*, n.*
    FROM (SELECT * FROM query_table(t) WHERE end_ns > start_ns) i
    ASOF LEFT JOIN numbered n ON i.track = n.window_track AND i.start_ns >= n.window_start_ns
),
crossing AS (
    SELECT * EXCLUDE (window_track, window_id, window_start_ns, window_end_ns)
    FROM first_windows
    WHERE end_ns > window_end_ns IS NOT FALSE
),
last_windows AS (
    SELECT c.* EXCLUDE (number), unnest(range(coalesce(c.number, 1), n.number + 1)) AS number
    FROM crossing c ASOF JOIN numbered n ON c.track = n.window_track AND c.end_ns > n.window_start_ns
),
pieces AS (
    SELECT
        l.* REPLACE (greatest(start_ns, window_start_ns) AS start_ns, least(end_ns, window_end_ns) AS end_ns),
        n.window_id
    FROM last_windows l JOIN numbered n ON l.track = n.window_track AND l.number = n.number
    WHERE greatest(start_ns, window_start_ns) < least(end_ns, window_end_ns)
)
SELECT * EXCLUDE (window_track, window_start_ns, window_end_ns, number) FROM first_windows WHERE end_ns <= window_end_ns
UNION ALL BY NAME
SELECT * EXCLUDE (number) FROM pieces;

-- Points (track, at_ns and more) with the range that holds them, as the struct `inside`; NULL where none does. The
-- ranges of a track are disjoint; of nested ones, take what `innermost` makes of them.
CREATE MACRO points_in_ranges(points, ranges) AS TABLE
SELECT p.*, CASE WHEN p.at_ns < r.end_ns THEN r END AS inside
FROM query_table(points) p
ASOF LEFT JOIN query_table(ranges) r ON p.track = r.track AND p.at_ns >= r.start_ns;
