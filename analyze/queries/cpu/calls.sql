-- How often is each operator, CUDA function and kernel called?
-- @param kind all|op|api|kernel = all   Which calls.
-- @column kind text               op, api or kernel.
-- @column name text               Name.
-- @column calls count             Calls.
-- @column calls_pct %             Share of the calls of its kind.
-- @column calls_per_step number   Calls per profiled step and rank, where the trace has training steps.
-- @main kind, name, calls, calls_pct, calls_per_step
-- @order kind DESC, calls DESC, name
-- @use arithmetic, steps
-- @needs operators, CUDA calls or kernels
WITH counted AS (
    SELECT run_group, 'op' AS kind, name, count(*) AS calls FROM cpu_ops GROUP BY ALL
    UNION ALL
    SELECT run_group, 'api', name, count(*) FROM cuda_calls WHERE api <> 'sync' GROUP BY ALL
    UNION ALL
    SELECT run_group, 'kernel', name, count(*) FROM kernels GROUP BY ALL
),
steps AS (
    SELECT run_group, count(*) AS steps FROM step_ranges GROUP BY run_group
)
SELECT
    c.run_group, kind, name, calls,
    pct(calls, sum(calls) OVER (PARTITION BY c.run_group, kind)) AS calls_pct,
    calls::DOUBLE / nullif(steps, 0) AS calls_per_step
FROM counted c LEFT JOIN steps s ON s.run_group IS NOT DISTINCT FROM c.run_group
WHERE '{kind}' IN ('all', kind)
