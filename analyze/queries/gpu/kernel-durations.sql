-- How long are the kernels: many short ones, or few long ones?
--
-- Kernels by class of duration: from 1, 2 or 5 times a power of ten ns to the next such value, half-open [min, max).
-- Kernels of 0 ns have a class of their own. `launch` counts the kernels that are shorter than their launch calls.
-- `kernel-pace` shows how steady one kernel is over steps and ranks.
-- @param kernel text = ''         Only kernels whose name contains this.
-- @column family text             Kernel family.
-- @column min_duration_ns ns      Lower bound of the class.
-- @column max_duration_ns ns      Upper bound, exclusive.
-- @column kernels count           Kernels.
-- @column total_ns ns             Sum of their durations.
-- @column kernel_time_pct %       Share of the time of all kernels.
-- @order min_duration_ns, family
-- @use arithmetic
-- @by device, stream
-- @needs kernels
-- @pass gpu
-- @plot histogram x=min_duration_ns x2=max_duration_ns y=total_ns color=family per=step,gpu
-- @drill family kernel-by-phase group=family family={family}
WITH by_duration AS (
    SELECT run_group, family, dur_ns, count(*) AS kernels
    FROM kernels JOIN kernel_names USING (run_id, name)
    WHERE contains(name, $kernel)
    GROUP BY run_group, family, dur_ns
),
powers AS (
    SELECT *, CASE WHEN dur_ns > 0 THEN pow(10, length(dur_ns::VARCHAR) - 1)::BIGINT END AS power FROM by_duration
),
classes AS (
    SELECT
        *,
        CASE
            WHEN power IS NULL THEN 0
            WHEN dur_ns >= 5 * power THEN 5 * power
            WHEN dur_ns >= 2 * power THEN 2 * power
            ELSE power
        END AS min_duration_ns,
        CASE
            WHEN power IS NULL THEN 1
            WHEN dur_ns >= 5 * power THEN 10 * power
            WHEN dur_ns >= 2 * power THEN 5 * power
            ELSE 2 * power
        END AS max_duration_ns
    FROM powers
)
SELECT
    run_group, family, min_duration_ns, max_duration_ns, sum(kernels)::BIGINT AS kernels,
    sum(kernels * dur_ns)::BIGINT AS total_ns,
    pct(sum(kernels * dur_ns), sum(sum(kernels * dur_ns)) OVER (PARTITION BY run_group)) AS kernel_time_pct
FROM classes
GROUP BY run_group, family, min_duration_ns, max_duration_ns
