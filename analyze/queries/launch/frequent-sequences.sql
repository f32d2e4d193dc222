-- Which kernel sequences repeat under an operator, and how much time do they take?
--
-- Candidates for fusion: the GPU work launched in each call of an outermost operator, in order of start. Work that a
-- range launched outside of any operator belongs to that range. A sequence is all the work of a call (two launches or
-- more); with `length`, any launches in a row of that number. Such sequences may overlap; `pieces`, `gpu_ns` and
-- `gap_ns` count each launch once. Fusing a sequence into one kernel removes its gaps and all launches but one.
-- @param operator text = ''       Use the outermost operators or ranges whose name contains this instead.
-- @param length int[0..1000] = 0  Launches in a row; 0: all the work of a call.
-- @param min_count int[1..1000000000] = 2   Hide sequences that occur fewer times.
-- @column operator text           Operator or range.
-- @column sequence text           Short names of the kernels, memcpys and memsets, in order.
-- @column length count            Kernels, memcpys and memsets in the sequence.
-- @column count count             Occurrences.
-- @column pieces count            Kernels, memcpys and memsets in all occurrences, each counted once.
-- @column gpu_ns ns               Sum of their durations.
-- @column gap_ns ns               Sum of the gaps between them, within a sequence.
-- @column gpu_time_pct %          gpu_ns / durations of all GPU work.
-- @main sequence, count, gpu_ns, gpu_time_pct
-- @order gpu_ns DESC, operator, sequence
-- @use arithmetic, intervals, launches
-- @needs GPU work that operators launched, two pieces or more, and min_count times
-- @rows if a sequence is found min_count times
-- @pass gpu
WITH chosen_ranges AS (
    SELECT run_id, rank, tid, name, start_ns, start_ns + dur_ns AS end_ns
    FROM (
        SELECT run_id, rank, tid, name, start_ns, dur_ns FROM launching_ops
        UNION ALL
        SELECT run_id, rank, tid, name, start_ns, dur_ns FROM launching_ranges WHERE origin = 'record_function'
    )
    WHERE $operator <> '' AND contains(name, $operator) AND dur_ns IS NOT NULL
),
linked AS NOT MATERIALIZED (
    SELECT
        run_group, run_id, rank, device, kind, name, start_ns, dur_ns, correlation_id, op_tid, op_start_ns,
        op_start_ns + op_dur_ns AS op_end_ns, outer_name, outer_start_ns
    FROM gpu_work
    WHERE op_id > 0
),
-- A range that does not end after all previous ones is nested.
outermost AS (
    SELECT a.run_id, a.rank, a.tid, c.code, start_ns, end_ns
    FROM chosen_ranges a JOIN name_codes c USING (name)
    QUALIFY coalesce(end_ns > previous_end((run_id, rank, tid), start_ns, end_ns), true)
),
owned AS (
    SELECT p.*, c.code AS operator
    FROM linked p LEFT JOIN name_codes c ON c.name = p.outer_name
    WHERE $operator = '' AND outer_start_ns IS NOT NULL
    UNION ALL
    SELECT p.* REPLACE (o.start_ns AS outer_start_ns), o.code
    FROM linked p
    ASOF JOIN outermost o
        ON o.run_id = p.run_id AND o.rank = p.rank AND coalesce(o.tid, -1) = coalesce(p.op_tid, -1)
        AND p.op_start_ns >= o.start_ns
    WHERE p.op_start_ns < o.end_ns AND (o.start_ns < p.op_start_ns OR o.end_ns >= p.op_end_ns)
),
work_codes AS (
    SELECT run_id, w.kind, w.name, code
    FROM (
        SELECT run_id, 'kernel' AS kind, name, coalesce(short_name, name) AS shown FROM kernel_names
        UNION ALL
        SELECT DISTINCT run_id, kind, name, name FROM gpu_work WHERE kind <> 'kernel'
    ) w
    JOIN name_codes c ON c.name = shown
),
coded AS MATERIALIZED (
    SELECT
        run_group, o.run_id, rank, device, op_tid, outer_start_ns, operator, start_ns, dur_ns, correlation_id, c.code
    FROM owned o LEFT JOIN work_codes c ON c.run_id = o.run_id AND c.kind = o.kind AND c.name = o.name
),
-- A series is the work of one call on one device. Calls with a single launch are not sorted.
calls AS (
    SELECT run_id, rank, device, op_tid, outer_start_ns, operator, row_number() OVER () AS series
    FROM coded
    GROUP BY run_id, rank, device, op_tid, outer_start_ns, operator
    HAVING count(*) > 1
),
launches AS (
    SELECT c.run_group, c.operator, series, code, start_ns, dur_ns, correlation_id
    FROM coded c
    JOIN calls s
        ON s.run_id = c.run_id AND s.rank = c.rank AND s.device IS NOT DISTINCT FROM c.device
        AND s.op_tid IS NOT DISTINCT FROM c.op_tid AND s.outer_start_ns = c.outer_start_ns
        AND s.operator IS NOT DISTINCT FROM c.operator
),
numbered AS (
    SELECT
        run_group, operator, series, code, dur_ns, row_number() OVER () AS piece,
        at_least_0(lead(start_ns) OVER () - start_ns - dur_ns) AS gap_ns
    FROM (FROM launches ORDER BY series, start_ns, correlation_id)
),
all_series AS (
    SELECT
        any_value(run_group) AS run_group, any_value(operator) AS operator, series,
        list_sort(list({'piece': piece, 'code': code, 'dur_ns': dur_ns, 'gap_ns': gap_ns})) AS pieces
    FROM numbered
    GROUP BY series
),
-- A sequence begins at every launch that enough others follow; without `length`, at the first only.
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
    -- Launches that it shares with the previous occurrence of the same sequence; all the work of a call has no other.
    SELECT
        *, CASE WHEN $length > 0 THEN lag(number) OVER (PARTITION BY series, names ORDER BY number) + length - number
            END AS overlap
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
    SELECT run_group, sum(dur_ns) AS all_ns FROM gpu_work GROUP BY run_group
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
FROM found, (SELECT list(name ORDER BY code) AS all_names FROM name_codes)
