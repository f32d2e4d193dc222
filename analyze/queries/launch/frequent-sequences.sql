-- Which sequences of kernels come again and again under an operator, and what time do they take?
--
-- Candidates for fusion: for each call of an operator, the GPU work that it and what it calls launched, in the order of
-- its start. The operators are the outermost ones. A sequence is all the work of a call, if that is two pieces or more;
-- with `length`, it is any so many pieces in a row. Such sequences may overlap, so `pieces`, `gpu_ns` and `gap_ns`
-- count everything once. One fused kernel would have neither the gaps nor all launches but one.
-- @param operator text = ''       Take the outermost operators or ranges whose name contains this instead.
-- @param length int[0..1000] = 0  Pieces in a row; 0 for all the work of a call.
-- @param min_count int[1..1000000000] = 2 Sequences found fewer times are left out.
-- @column operator text           Operator or range.
-- @column sequence text           Short names of the kernels, memcpys and memsets, in order.
-- @column length count            Pieces in the sequence.
-- @column count count             How often it was found.
-- @column pieces count            Kernels, memcpys and memsets in all of them.
-- @column gpu_ns ns               Their durations, summed.
-- @column gap_ns ns               From the end of a piece to the start of the next of its sequence, summed.
-- @column gpu_time_pct %          Share of gpu_ns in the durations of all GPU work.
-- @main sequence, count, gpu_ns, gpu_time_pct
-- @order gpu_ns DESC, operator, sequence
-- @use arithmetic, cpu_events, cpu_tracks, gpu_named_work, intervals
-- @needs GPU work that operators launched, two pieces or more, and min_count times
WITH codes AS MATERIALIZED (
    -- Names as numbers: there are hundreds of them in millions of rows.
    SELECT name, row_number() OVER (ORDER BY name)::INTEGER AS code
    FROM (
        SELECT DISTINCT name FROM cpu_events WHERE kind IN ('op', 'range')
        UNION
        SELECT DISTINCT name FROM gpu_named_work
    )
    WHERE name IS NOT NULL
),
-- All operators and ranges. Those that are not asked for have no end, so they hold nothing.
calls AS (
    SELECT
        track, op_id, n.code, start_ns,
        CASE WHEN CASE WHEN $operator = '' THEN kind = 'op' ELSE contains(name, $operator) END THEN end_ns END AS end_ns
    FROM cpu_intervals LEFT JOIN codes n USING (name)
),
reached AS (
    SELECT
        track, op_id, code, start_ns, greatest(end_ns, reached_ns) AS furthest_ns,
        coalesce(end_ns > reached_ns, end_ns IS NOT NULL) AS outermost
    FROM intervals_reached('calls')
),
-- With the number of the outermost one that was the last to begin, which is the one that ends last so far.
placed AS (
    SELECT
        track, op_id, code, start_ns, start_ns < furthest_ns IS TRUE AS inside, outermost,
        count(*) FILTER (outermost) OVER (ROWS UNBOUNDED PRECEDING) AS outer_number
    FROM reached
),
named AS (
    SELECT *, arg_max(code, outer_number) FILTER (outermost) OVER (ROWS UNBOUNDED PRECEDING) AS operator FROM placed
),
launching AS (
    SELECT
        run_id, rank, op_id, arg_max(CASE WHEN inside THEN outer_number ELSE 0 END, start_ns) AS outer_number,
        arg_max(operator, start_ns) AS operator
    FROM named JOIN cpu_tracks USING (track) SEMI JOIN gpu_named_work USING (run_id, rank, op_id)
    WHERE op_id > 0
    GROUP BY run_id, rank, op_id
),
owned AS (
    SELECT w.run_group, w.device, l.outer_number, l.operator, n.code, w.correlation_id, w.start_ns, w.dur_ns
    FROM gpu_named_work w JOIN launching l USING (run_id, rank, op_id) LEFT JOIN codes n USING (name)
    WHERE outer_number > 0
),
-- A series is the work of one call on one device.
in_order AS (
    SELECT
        *, lead(start_ns) OVER () AS next_ns,
        lag(outer_number) OVER () = outer_number AND lag(device) OVER () IS NOT DISTINCT FROM device AS follows,
        lead(outer_number) OVER () = outer_number AND lead(device) OVER () IS NOT DISTINCT FROM device AS is_followed
    FROM (SELECT * FROM owned ORDER BY outer_number, device, start_ns, correlation_id)
),
-- Work that is alone makes no sequence.
numbered AS (
    SELECT
        run_group, operator, code, dur_ns, greatest(0, next_ns - start_ns - dur_ns) AS gap_ns,
        row_number() OVER () AS piece,
        count(*) FILTER (follows IS NOT TRUE) OVER (ROWS UNBOUNDED PRECEDING) AS series
    FROM in_order
    WHERE follows OR is_followed
),
all_series AS (
    SELECT
        run_group, operator, series,
        list_sort(list({'piece': piece, 'code': code, 'dur_ns': dur_ns, 'gap_ns': gap_ns})) AS pieces
    FROM numbered
    GROUP BY run_group, operator, series
),
-- A sequence begins at every piece that enough others follow; all the work of a call only at the first.
begun AS (
    SELECT
        *, CASE WHEN $length > 0 THEN $length::BIGINT ELSE len(pieces) END AS length,
        unnest(range(1, len(pieces) - length + 2)) AS number
    FROM all_series
),
spelled AS (
    SELECT *, list_transform(pieces[number:number + length - 1], lambda p : p.code) AS names FROM begun
),
compared AS (
    -- How many of its first pieces were already in the same sequence just before it.
    SELECT *, lag(number) OVER (PARTITION BY series, names ORDER BY number) + length - number AS overlap
    FROM spelled
),
measured AS (
    SELECT
        *, list_sum(list_transform(pieces[number + shared:number + length - 1], lambda p : p.dur_ns)) AS new_ns,
        CASE WHEN length > 1 THEN list_sum(list_transform(
            pieces[number + greatest(shared - 1, 0):number + length - 2], lambda p : p.gap_ns
        )) ELSE 0 END AS new_gap_ns
    FROM (SELECT *, greatest(0, coalesce(overlap, 0)) AS shared FROM compared)
),
totals AS (
    SELECT run_group, sum(dur_ns) AS all_ns FROM gpu_named_work GROUP BY run_group
),
found AS (
    SELECT
        m.run_group, operator, names, any_value(length) AS length, count(*) AS count,
        sum(length - shared)::BIGINT AS pieces, sum(new_ns)::BIGINT AS gpu_ns, sum(new_gap_ns)::BIGINT AS gap_ns,
        pct(sum(new_ns), any_value(all_ns)) AS gpu_time_pct
    FROM measured m JOIN totals t ON t.run_group IS NOT DISTINCT FROM m.run_group
    GROUP BY m.run_group, operator, names
    HAVING count(*) >= $min_count
)
SELECT
    run_group, all_names[operator] AS operator,
    array_to_string(list_transform(names, lambda c : all_names[c]), ' > ') AS sequence,
    length, count, pieces, gpu_ns, gap_ns, gpu_time_pct
FROM found, (SELECT list(name ORDER BY code) AS all_names FROM codes)
