-- Which kernels take the time of each phase?
--
-- As `kernel-share`, for each phase of `phases`: for example, the share of the max-pool backward kernel in the backward
-- phase.
-- @param group name|short_name|family|algorithm = name   What a row is.
-- @param phase text = ''          Only this phase; empty: all.
-- @column phase text              Phase of the training step; (outside) for kernels launched in none.
-- @column {group} text            Kernel name, or what the name says it is.
-- @column calls count             Launches that ran.
-- @column total_ns ns             Sum of durations.
-- @column avg_ns ns               Mean duration.
-- @column phase_time_pct %        Share of the kernel time of the phase.
-- @column kernel_time_pct %       Share of all kernel time.
-- @main phase, {group}, calls, total_ns, phase_time_pct, kernel_time_pct
-- @order phase, total_ns DESC, {group}
-- @use arithmetic
-- @by device, stream
-- @needs kernels
-- @pass gpu
-- @plot bars y={group} x=total_ns color=phase label=kernel_time_pct top=15 per=step,gpu
-- @drill phase kernel-by-phase phase={phase} group=family
-- @drill family kernel-durations family={family}
WITH by_name AS (
    SELECT run_group, run_id, coalesce(phase, '(outside)') AS phase, name, count(*) AS calls, sum(dur_ns) AS total_ns
    FROM gpu_work
    WHERE kind = 'kernel'
    GROUP BY ALL
),
grouped AS (
    SELECT
        run_group, phase, kernel_names.{group} AS {group}, sum(calls)::BIGINT AS calls,
        sum(total_ns)::BIGINT AS total_ns
    FROM by_name JOIN kernel_names USING (run_id, name)
    GROUP BY run_group, phase, kernel_names.{group}
),
shares AS (
    SELECT
        run_group, phase, {group}, calls, total_ns, total_ns::DOUBLE / calls AS avg_ns,
        pct(total_ns, sum(total_ns) OVER (PARTITION BY run_group, phase)) AS phase_time_pct,
        pct(total_ns, sum(total_ns) OVER (PARTITION BY run_group)) AS kernel_time_pct
    FROM grouped
)
SELECT * FROM shares WHERE $phase IN ('', phase)
