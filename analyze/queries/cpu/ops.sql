-- What does each operator cost on the CPU and on the GPU?
--
-- The table of torch.profiler's key_averages() for the same trace. Self CPU time excludes child operators and CUDA
-- calls. Self device time is that of the kernels, memcpys and memsets that the operator launched; total device time
-- includes its children. An operator whose only child has the same name is one call, as in torch.profiler. GPU work has
-- rows of its own.
-- @param python no|yes = no       Whether Python functions (with_stack) are nodes of the tree, so that their time is
--                                 not self time of the operators and ranges around them. torch's table includes them in
--                                 versions that list them as events.
-- @column name text               Operator, range, CUDA call, kernel or copy.
-- @column place text              cpu or gpu.
-- @column kind text               op, range, async (a collective's range), call, overhead or gpu.
-- @column calls count             Calls.
-- @column self_cpu_ns ns          CPU time without children.
-- @column total_cpu_ns ns         CPU time with children.
-- @column self_device_ns ns       GPU time of the work that it launched itself.
-- @column total_device_ns ns      GPU time of the work that it and its children launched.
-- @column backward_ns ns          GPU time of the backward pass of it and its children, launched outside of it; with
--                                 total_device_ns, the GPU time of forward and backward. Sequence numbers link them.
-- @column self_cpu_pct %          Self CPU time / all self CPU time.
-- @column total_cpu_pct %         CPU time with children / all self CPU time. More than 100 is possible for recursive
--                                 operators, as in torch.profiler; empty for an async range, which takes no CPU time.
-- @column avg_cpu_ns ns           CPU time with children, per call.
-- @column self_device_pct %       Self GPU time / all GPU work; empty for ranges on the GPU, which are not work.
-- @column avg_device_ns ns        GPU time with children, per call.
-- @main name, calls, self_cpu_ns, total_cpu_ns, self_device_ns, total_device_ns, backward_ns
-- @order self_device_ns + self_cpu_ns DESC, name, kind
-- @use arithmetic, call_sums
-- @needs operators, ranges, CUDA calls or GPU work
-- @full operators
-- @plot bars y=name x=self_device_ns,self_cpu_ns top=15 per=step,rank
-- @drill name module-tree root={name}
WITH gpu_events AS (
    SELECT run_group, name, dur_ns, true AS work FROM gpu_work
    UNION ALL
    SELECT run_group, regexp_replace(name, '^ProfilerStep#\d+$', 'ProfilerStep*'), greatest(dur_ns - 2, 0), false
    FROM ranges WHERE origin = 'gpu_annotation'
),
named AS (
    SELECT
        run_group, name, 'cpu' AS place, kind,
        sum(calls)::BIGINT AS calls,
        sum(known_ns(self_ns))::BIGINT AS self_cpu_ns, sum(known_ns(total_ns))::BIGINT AS total_cpu_ns,
        sum(known_ns(gpu_ns))::BIGINT AS self_device_ns, sum(known_ns(total_gpu_ns))::BIGINT AS total_device_ns,
        sum(known_ns(backward_ns))::BIGINT AS backward_ns, 0 AS gpu_work_ns, true AS work
    FROM op_sums
    WHERE kind <> 'python' AND python = ('{python}' = 'yes')
    GROUP BY run_group, name, kind
    UNION ALL
    SELECT
        run_group, name, 'gpu', 'gpu', count(*), 0, 0, sum(dur_ns)::BIGINT, sum(dur_ns)::BIGINT, 0,
        coalesce(sum(dur_ns) FILTER (work), 0)::BIGINT, bool_or(work)
    FROM gpu_events
    GROUP BY run_group, name
)
SELECT
    * EXCLUDE (gpu_work_ns, work),
    pct(self_cpu_ns, sum(self_cpu_ns) OVER whole) AS self_cpu_pct,
    CASE WHEN kind <> 'async' THEN pct(total_cpu_ns, sum(self_cpu_ns) OVER whole) END AS total_cpu_pct,
    total_cpu_ns / nullif(calls, 0) AS avg_cpu_ns,
    CASE WHEN work THEN pct(self_device_ns, sum(gpu_work_ns) OVER whole) END AS self_device_pct,
    total_device_ns / nullif(calls, 0) AS avg_device_ns
FROM named
WINDOW whole AS (PARTITION BY run_group)
