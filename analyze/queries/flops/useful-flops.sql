-- Which share of the executed FLOPs does the model need?
--
-- Needs two runs of one workload: one under Nsight Compute (executed FLOPs), one under torch.profiler with shapes
-- (model FLOPs); both passes of `collect run --profiler torch,ncu`, or two paths. Launches are matched by short kernel
-- name and order on their device, within the phase that ncu was limited to. Kernels of operators without a FLOP formula
-- are the row (other operators); launches without a match are (unmatched). useful_pct is model / executed FLOPs: below
-- 100 if a kernel pads or computes twice, above if it needs fewer operations (Winograd, FFT).
-- @param group op|kernel|call|all = op   What a row is: an operator and its shapes, the short name of the call's main
--                                 kernel (the one that executes most), one call, or everything.
-- @column call text               Operator and shapes, main kernel, or call.
-- @column calls count             Operator calls.
-- @column launches count          Kernels that they launched, profiled by ncu.
-- @column dur_ns ns               Sum of durations under the profiler.
-- @column model_flops FLOP        2 per multiply-add, from the shapes.
-- @column executed_flops FLOP     total_flops as in `flops`.
-- @column useful_pct %            model_flops / executed_flops.
-- @column executed_per_model x    executed_flops / model_flops.
-- @main call, calls, dur_ns, model_flops, executed_flops, useful_pct
-- @order model_flops DESC NULLS LAST, executed_flops DESC NULLS LAST, call
-- @use arithmetic, ncu, ncu_ops
-- @needs both an Nsight Compute and a torch.profiler recording of the same workload (collect run --profiler
--       torch,ncu)
WITH calls AS (
    SELECT
        run_group, run_id, rank,
        coalesce(call_id::VARCHAR, CASE WHEN matched THEN 'other' ELSE 'unmatched' END) AS call,
        call_id IS NOT NULL AS is_call, any_value(op_name) AS op_name, any_value(input_dims) AS input_dims,
        any_value(model_flops) AS model_flops,
        arg_max(short_name, (coalesce(total_flops, 0), dur_ns, -launch_id)) AS main_kernel,
        min(launch_id) AS first_launch, count(*) AS launches, whole_sum(dur_ns) AS dur_ns,
        whole_sum(total_flops) AS executed_flops, any_value(matched) AS matched
    FROM op_launches
    GROUP BY run_group, run_id, rank, call, is_call
),
named AS (
    SELECT
        *,
        CASE
            WHEN '{group}' = 'all' THEN '(all)'
            WHEN NOT is_call THEN CASE WHEN matched THEN '(other operators)' ELSE '(unmatched)' END
            WHEN '{group}' = 'kernel' THEN main_kernel
            ELSE CASE WHEN '{group}' = 'call' THEN first_launch || ' ' ELSE '' END
                || op_name || coalesce(' ' || array_to_string(
                    list_transform(
                        list_filter(CAST(input_dims AS JSON[])[1:3], lambda x: json_array_length(x) > 1),
                        lambda x: array_to_string(CAST(x AS VARCHAR[]), 'x')
                    ), ', '
                ), '')
        END AS label
    FROM calls
)
SELECT
    run_group, label AS call, count(*) FILTER (is_call) AS calls, sum(launches)::BIGINT AS launches,
    whole_sum(dur_ns) AS dur_ns, sum(model_flops)::BIGINT AS model_flops, whole_sum(executed_flops) AS executed_flops,
    pct(sum(model_flops), whole_sum(executed_flops)) AS useful_pct,
    whole_sum(executed_flops)::DOUBLE / nullif(sum(model_flops), 0) AS executed_per_model
FROM named
GROUP BY run_group, label
