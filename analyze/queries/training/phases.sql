-- How long does each phase of the step take, on the CPU and on the GPU?
--
-- A phase is a range named data, h2d, forward, loss, backward or optimizer. For a rank without such ranges: torch's own
-- `enumerate(DataLoader)`, `DistributedDataParallel.forward` and `Optimizer.step` ranges, and forward and backward
-- inferred from autograd (`inferred`). Backward is then from the first to the last node that the autograd engine
-- evaluates, forward from the first to the last operator that created a node; both end where another phase begins. The
-- loss function is then part of forward, and work after the last node (DDP's copies back from its buckets) is outside.
-- GPU work belongs to the innermost phase range in which its launch call began: on the thread of the call, else on any
-- thread of the process (the backward pass launches from a thread of its own). Work launched outside all phases, or
-- without a recorded launch call, is the row `(outside)`. Runs without phases are left out. On the CPU, overlapping
-- ranges of one phase count once (an optimizer that steps another one); nested ranges of different phases each count in
-- full.
-- @column phase text              Phase of the training step.
-- @column inferred bool           Whether the phase, or a part of it, is inferred from autograd.
-- @column calls count             Ranges; a range inside one of the same phase and thread is part of it.
-- @column cpu_ns ns               Union of the ranges on the CPU, summed over ranks.
-- @column gpu_ops count           Kernels, memcpys and memsets launched in it.
-- @column gpu_ns ns               Sum of their durations.
-- @column gpu_span_ns ns          First start to last end of its GPU work, summed over ranges and devices.
-- @column gpu_time_pct %          Share of the durations of all GPU work of these runs.
-- @main phase, inferred, calls, cpu_ns, gpu_ops, gpu_ns, gpu_span_ns, gpu_time_pct
-- @order phase = '(outside)', min_start_ns, phase
-- @use arithmetic, phases
-- @needs ranges (named like the collector's phases, or torch's own), or a backward pass (autograd's nodes)
-- @rows if ranges or the backward pass name a phase
-- @full ranges
-- @plot bars y=phase x=gpu_ns label=gpu_time_pct per=step,gpu
-- @drill phase kernel-by-phase phase={phase}
WITH work AS (
    SELECT run_group, run_id, rank, device, phase_start_ns, coalesce(phase, '(outside)') AS phase, start_ns, dur_ns
    FROM gpu_work
    WHERE run_id IN (SELECT run_id FROM phase_ranges)
),
projected AS (
    SELECT run_group, phase, phase_start_ns, count(*) AS gpu_ops, sum(dur_ns) AS gpu_ns,
        CASE WHEN phase <> '(outside)' THEN max(start_ns + dur_ns) - min(start_ns) END AS gpu_span_ns
    FROM work
    GROUP BY run_group, run_id, rank, device, phase, phase_start_ns
),
on_gpu AS (
    SELECT
        run_group, phase, sum(gpu_ops)::BIGINT AS gpu_ops, sum(gpu_ns)::BIGINT AS gpu_ns,
        sum(gpu_span_ns)::BIGINT AS gpu_span_ns
    FROM projected
    GROUP BY run_group, phase
),
on_cpu AS (
    SELECT run_group, phase, sum(dur_ns)::BIGINT AS cpu_ns, min(start_ns - first_ns) AS min_start_ns
    FROM (SELECT *, min(start_ns) OVER (PARTITION BY run_id, rank) AS first_ns FROM phase_ranges)
    GROUP BY run_group, phase
),
called AS (
    SELECT run_group, phase, count(*) FILTER (begins) AS calls, bool_or(inferred) AS inferred
    FROM phase_calls
    GROUP BY run_group, phase
),
phases AS (
    SELECT run_group, phase FROM on_cpu UNION SELECT run_group, phase FROM on_gpu
)
SELECT
    p.run_group, p.phase, coalesce(inferred, false) AS inferred, coalesce(calls, 0) AS calls,
    coalesce(cpu_ns, 0) AS cpu_ns,
    coalesce(gpu_ops, 0) AS gpu_ops, coalesce(gpu_ns, 0) AS gpu_ns, gpu_span_ns,
    pct(coalesce(gpu_ns, 0), sum(gpu_ns) OVER (PARTITION BY p.run_group)) AS gpu_time_pct,
    min_start_ns
FROM phases p
LEFT JOIN on_cpu c ON c.run_group IS NOT DISTINCT FROM p.run_group AND c.phase = p.phase
LEFT JOIN called n ON n.run_group IS NOT DISTINCT FROM p.run_group AND n.phase = p.phase
LEFT JOIN on_gpu g ON g.run_group IS NOT DISTINCT FROM p.run_group AND g.phase = p.phase
