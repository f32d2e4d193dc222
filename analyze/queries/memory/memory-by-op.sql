-- Which operators allocate and free memory?
--
-- The memory columns of torch.profiler's key_averages() of the same trace (profile_memory): what was allocated less
-- what was freed while a call ran, on whatever thread (total), and the same without its children's (self). Added up
-- over all calls, so these are no peaks: an operator whose outputs are freed by another has more the longer is
-- recorded. `memory-peak` has what was there at a time. Of a step and of an epoch they are those of the recording x
-- steps / recorded steps; steps of an epoch as in `epochs`.
-- @param per recording|step|epoch = recording   What the sums are of.
-- @param images int[0..1000000000000] = 0 Images of an epoch; 0 for those that the run's data has.
-- @param python no|yes = no       Whether Python functions (with_stack) take self memory from what is below them.
-- @column name text               Operator, range or CUDA call.
-- @column kind text               op, range, async (a collective's range), call or overhead.
-- @column calls count             Calls.
-- @column self_device_bytes B     On GPUs, without its children's.
-- @column total_device_bytes B    On GPUs.
-- @column self_cpu_bytes B        In the CPU's memory, without its children's.
-- @column total_cpu_bytes B       In the CPU's memory.
-- @order self_device_bytes DESC, self_cpu_bytes DESC, name, kind
-- @use allocators, epoch_steps, memory_tree_{python}
-- @needs allocator events (profile_memory=True), and operators, ranges or CUDA calls
-- @plot bars y=name x=self_device_bytes top=15
WITH changes AS (
    SELECT
        run_id, rank, start_ns,
        coalesce(sum(sum(bytes) FILTER (is_allocator('gpu', device_type))) OVER before, 0) AS gpu,
        coalesce(sum(sum(bytes) FILTER (NOT is_allocator('gpu', device_type))) OVER before, 0) AS cpu
    FROM memory_events
    GROUP BY run_id, rank, start_ns
    WINDOW before AS (PARTITION BY run_id, rank ORDER BY start_ns)
),
events AS (
    -- All changes up to the end of a call, that moment included, less those before its start.
    SELECT
        t.run_group, t.run_id, t.rank, t.node, t.parent, t.name, t.kind, t.folded,
        coalesce(e.gpu, 0) - coalesce(b.gpu, 0) AS gpu, coalesce(e.cpu, 0) - coalesce(b.cpu, 0) AS cpu
    FROM (SELECT *, start_ns + dur_ns AS end_ns FROM memory_tree_{python}) t
    ASOF LEFT JOIN changes b ON b.run_id = t.run_id AND b.rank = t.rank AND t.start_ns > b.start_ns
    ASOF LEFT JOIN changes e ON e.run_id = t.run_id AND e.rank = t.rank AND t.end_ns >= e.start_ns
),
below AS (
    SELECT run_id, rank, parent, sum(gpu) AS gpu, sum(cpu) AS cpu
    FROM events
    WHERE parent IS NOT NULL
    GROUP BY run_id, rank, parent
),
-- In each rank.
sums AS (
    SELECT
        e.run_group, e.run_id, e.rank, e.name, e.kind, count(*) FILTER (NOT folded) AS calls,
        coalesce(sum(e.gpu - coalesce(c.gpu, 0)) FILTER (kind <> 'async'), 0) AS self_device_bytes,
        coalesce(sum(e.gpu) FILTER (NOT folded), 0) AS total_device_bytes,
        coalesce(sum(e.cpu - coalesce(c.cpu, 0)) FILTER (kind <> 'async'), 0) AS self_cpu_bytes,
        coalesce(sum(e.cpu) FILTER (NOT folded), 0) AS total_cpu_bytes
    FROM events e LEFT JOIN below c ON c.run_id = e.run_id AND c.rank = e.rank AND c.parent = e.node
    WHERE kind <> 'python'
    GROUP BY e.run_group, e.run_id, e.rank, e.name, e.kind
)
SELECT
    run_group, name, kind, sum(round(COLUMNS('^calls$|_bytes$') * times))::BIGINT
FROM sums JOIN recorded_times('{per}', $images) USING (run_id, rank)
GROUP BY run_group, name, kind
