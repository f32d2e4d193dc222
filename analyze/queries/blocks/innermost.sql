-- Nested intervals, flattened.
-- @macro innermost(t)  what runs on each track at any time.
-- Stretches with the innermost interval that is open then, of a table of nested intervals with `track`, `name`,
-- `start_ns` and `end_ns`. The edges of all intervals in order, with the number open after each: after a start, that
-- interval is the innermost; after an end, the last one that began at the depth which is left. For some events: DuckDB
-- holds all edges while it sorts them. Of intervals that overlap in part it may name one that has ended.
-- @column track index           Track.
-- @column name text             That of the innermost interval.
-- @column start_ns ns           Start of the stretch.
-- @column end_ns ns             Its end.
CREATE MACRO innermost(t) AS TABLE
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
