-- Per run: how many GPUs (of all ranks) the trace has, and means over them. What one GPU of several could save is worth
-- its part of that: findings divide by `gpus`. `host_note` is what to know of times on the host.
-- @use gpu_tracks, gpu_windows, recording_facts
-- @view run_gpus  a row is a run with GPU work.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column gpus count            GPUs of all ranks that the trace has.
-- @column span_ns ns            Mean span.
-- @column idle_ns ns            Mean of what is idle of it.
-- @column exposed_comm_ns ns    Mean of communication without compute beside it.
-- @column comm_ns ns            Mean union of communication kernels.
-- @column exposed_copy_ns ns    Mean of copies without any kernel beside them.
-- @column copy_ns ns            Mean union of copies.
-- @column host_note text        What to know of times on the host; empty for nothing.
CREATE VIEW run_gpus AS
SELECT
    t.run_group, t.run_id, count(*) AS gpus, avg(span_ns) AS span_ns,
    avg(span_ns - busy_ns) AS idle_ns, avg(kernel_ns - compute_ns) AS exposed_comm_ns,
    avg(comm_ns) AS comm_ns, avg(busy_ns - kernel_ns) AS exposed_copy_ns, avg(copy_ns) AS copy_ns,
    CASE WHEN t.run_id IN (SELECT run_id FROM recording_facts WHERE python_stacks)
        THEN '; Python stacks were recorded, which inflates host time' ELSE '' END AS host_note
FROM gpu_lengths_span JOIN gpu_tracks t ON t.track = window_id
GROUP BY t.run_group, t.run_id;

-- @macro ms(ns)  a time as text.
CREATE MACRO ms(ns) AS printf('%.3f ms', coalesce(ns, 0)::DOUBLE / 1e6);

-- @macro counted(n, one, many)  a number of things as text.
CREATE MACRO counted(n, one, many) AS concat(n, ' ', CASE WHEN n = 1 THEN one ELSE many END);

-- @macro longest(rank, device, start_ns, end_ns)  these of the longest of intervals, the first of several; of those
-- whose end is known, for NULL is the largest of a row.
CREATE MACRO longest(rank, device, start_ns, end_ns) AS arg_max(
    {'rank': rank, 'device': device, 'start_ns': start_ns, 'end_ns': end_ns},
    CASE WHEN end_ns - start_ns IS NOT NULL THEN (end_ns - start_ns, -start_ns, -rank, -coalesce(device, 0)) END
);

-- @macro and_part(ns, what)  a further part of a finding's evidence; empty where it is nothing.
CREATE MACRO and_part(ns, what) AS CASE WHEN ns > 0 THEN printf('; %s %s', ms(ns), what) ELSE '' END;
