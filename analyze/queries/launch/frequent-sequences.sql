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
-- @use arithmetic, cpu_tracks, gpu_named_work, intervals
-- @needs GPU work that operators launched, two pieces or more, and min_count times
WITH outermost AS (
    SELECT track, name, start_ns, end_ns
    FROM cpu_intervals
    WHERE CASE WHEN $operator = '' THEN kind = 'op' ELSE contains(name, $operator) END
    QUALIFY coalesce(end_ns > furthest_end(track, start_ns, end_ns), true)
),
launching AS (
    SELECT run_id, rank, op_id, arg_max(track, start_ns) AS track, max(start_ns) AS op_start_ns
    FROM cpu_intervals SEMI JOIN gpu_named_work USING (run_id, rank, op_id)
    WHERE op_id > 0
    GROUP BY run_id, rank, op_id
),
owned AS (
    SELECT w.*, l.track, l.op_start_ns FROM gpu_named_work w JOIN launching l USING (run_id, rank, op_id)
),
in_calls AS (
    -- A series is the work of one call on one device.
    SELECT w.*, o.name AS operator, dense_rank() OVER (ORDER BY o.track, o.start_ns, w.device) AS series
    FROM owned w ASOF JOIN outermost o ON o.track = w.track AND w.op_start_ns >= o.start_ns
    WHERE w.op_start_ns < o.end_ns
),
numbered AS (
    SELECT
        run_group, operator, series, name, dur_ns,
        greatest(0, lead(start_ns) OVER in_order - start_ns - dur_ns) AS gap_ns,
        row_number() OVER in_order AS number, count(*) OVER (PARTITION BY series) AS in_series
    FROM in_calls
    WINDOW in_order AS (PARTITION BY series ORDER BY start_ns, correlation_id)
),
begun AS (
    -- A sequence begins at every piece that enough others follow; all the work of a call only at the first.
    SELECT *, CASE WHEN $length > 0 THEN $length::BIGINT WHEN number = 1 THEN in_series ELSE 1 END AS length
    FROM numbered
    WHERE in_series > 1
),
spelled AS (
    SELECT
        *, number + length - 1 <= in_series AND (number = 1 OR $length > 0) AS complete,
        list(name) OVER (PARTITION BY series ORDER BY number ROWS BETWEEN CURRENT ROW AND length - 1 FOLLOWING) AS names
    FROM begun
),
compared AS (
    -- How many of its first pieces were already in the same sequence just before it.
    SELECT *, lag(number) OVER (PARTITION BY series, complete, names ORDER BY number) + length - number AS overlap
    FROM spelled
),
measured AS (
    SELECT
        *, sum(dur_ns) OVER (onwards ROWS BETWEEN shared FOLLOWING AND length - 1 FOLLOWING) AS new_ns,
        CASE WHEN length > 1 THEN sum(gap_ns) OVER (
            onwards ROWS BETWEEN greatest(shared - 1, 0) FOLLOWING AND greatest(length - 2, 0) FOLLOWING
        ) ELSE 0 END AS new_gap_ns
    FROM (SELECT *, greatest(0, coalesce(overlap, 0)) AS shared FROM compared)
    WINDOW onwards AS (PARTITION BY series ORDER BY number)
),
totals AS (
    SELECT run_group, sum(dur_ns) AS all_ns FROM gpu_named_work GROUP BY run_group
)
SELECT
    m.run_group, operator, array_to_string(names, ' > ') AS sequence, any_value(length) AS length, count(*) AS count,
    sum(length - shared)::BIGINT AS pieces, sum(new_ns)::BIGINT AS gpu_ns, sum(new_gap_ns)::BIGINT AS gap_ns,
    pct(sum(new_ns), any_value(all_ns)) AS gpu_time_pct
FROM measured m JOIN totals t ON t.run_group IS NOT DISTINCT FROM m.run_group
WHERE complete
GROUP BY m.run_group, operator, names
HAVING count(*) >= $min_count
