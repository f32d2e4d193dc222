-- Where does the CUDA API time of each phase go?
--
-- As `cuda-api`, for each phase of `phases`: for example, the share of the backward pass that is spent launching
-- kernels. A call belongs to the phase in which it begins: that of its own thread, else that of another thread of the
-- process (autograd launches the backward pass from a thread of its own).
-- @param group name|role = name   What a row is: a function, or what it does (schemas/api_roles.toml).
-- @param phase text = ''          Only this phase; empty: all.
-- @column phase text              Phase of the training step; (outside) for calls in none.
-- @column {group} text            Runtime or driver function; or launch, sync, stream_wait, copy, copy_async, other.
-- @column calls count             Calls.
-- @column total_ns ns             Sum of durations.
-- @column avg_ns ns               Mean.
-- @column phase_time_pct %        Share of the time in all calls of the phase.
-- @column api_time_pct %          Share of the time in all calls.
-- @main phase, {group}, calls, total_ns, avg_ns, phase_time_pct, api_time_pct
-- @order phase, total_ns DESC, {group}
-- @use api_roles, arithmetic, intervals, phases
-- @needs CUDA API calls, each on its own (not the summary of an nvprof log)
-- @full CUDA calls
-- @plot bars y={group} x=total_ns color=phase label=api_time_pct top=15 per=step,rank
WITH placed AS (
    SELECT
        c.run_group, c.name, coalesce(r.role, 'other') AS role, c.start_ns AS at_ns, c.dur_ns,
        coalesce(own.track, others.track) AS track
    FROM cuda_calls c
    LEFT JOIN api_roles r ON r.name = c.name
    LEFT JOIN phase_tracks own ON own.run_id = c.run_id AND own.rank = c.rank AND own.tid = c.tid
    LEFT JOIN phase_tracks others ON others.run_id = c.run_id AND others.rank = c.rank AND others.tid IS NULL
    WHERE c.api <> 'sync'
),
grouped AS (
    SELECT
        run_group, coalesce(inside.phase, '(outside)') AS phase, {group}, count(*) AS calls,
        sum(dur_ns)::BIGINT AS total_ns
    FROM points_in_intervals('placed', 'phase_segments')
    GROUP BY ALL
),
shares AS (
    SELECT
        run_group, phase, {group}, calls, total_ns, total_ns::DOUBLE / calls AS avg_ns,
        pct(total_ns, sum(total_ns) OVER (PARTITION BY run_group, phase)) AS phase_time_pct,
        pct(total_ns, sum(total_ns) OVER (PARTITION BY run_group)) AS api_time_pct
    FROM grouped
)
SELECT * FROM shares WHERE $phase IN ('', phase)
