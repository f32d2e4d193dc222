-- What fills a training step of a GPU, and how much work is hidden behind other work?
--
-- Every nanosecond of a step counts once: for the compute kernel that runs, else for communication, else for a memcpy
-- or memset, else as idle; of several at once, for the one that began last. So exposed_ns adds up to the step. Work is
-- hidden while the time counts for other work: without it, the step would hardly be shorter. Times are means over the
-- steps of all GPUs.
-- @param group family|kernel|op|module|phase = family   What a row is: a kernel family, kernel, operator, nn.Module
--                                 with phase, or phase; copies and idle time are rows of their own.
-- @param modules regex = .        With group=module, work counts for the innermost nn.Module around its launch (of the
--                                 backward pass: around the forward operator) whose name matches.
-- @column {group} text            Family, kernel, operator, module or phase; (idle); copies (family, kernel) by kind.
-- @column exposed_ns ns           Time of a step that counts for it.
-- @column hidden_ns ns            Its work that runs while the time counts for other work.
-- @column step_pct %              exposed_ns, share of the step.
-- @order exposed_ns DESC, {group}
-- @use arithmetic, gpu_timeline, intervals, work_places
-- @needs work on GPUs, training steps (ProfilerStep# or NVTX ranges named step)
-- @pass gpu
-- @disturbed idle time
-- @plot bars y={group} x=exposed_ns,hidden_ns top=40
WITH matching_modules AS (
    SELECT * FROM module_calls WHERE '{group}' = 'module' AND regexp_matches(name, $modules)
),
innermost AS (
    SELECT * FROM intervals_innermost('matching_modules')
),
points AS (
    SELECT
        t.track, f.place_ns AS at_ns, f.run_id, f.rank, f.device, f.start_ns, f.dur_ns, f.kind, f.name, f.op_name,
        f.phase, f.alone
    FROM forward_work f
    LEFT JOIN python_threads t ON t.run_id = f.run_id AND t.rank = f.rank AND t.tid IS NOT DISTINCT FROM f.place_tid
    WHERE '{group}' = 'module'
),
placed AS (
    SELECT run_id, rank, device, start_ns, dur_ns, kind, name, op_name, phase, alone, NULL AS module
    FROM gpu_work
    WHERE '{group}' <> 'module'
    UNION ALL
    SELECT run_id, rank, device, start_ns, dur_ns, kind, name, op_name, phase, alone, inside.name
    FROM points_in_intervals('points', 'innermost')
),
work AS (
    SELECT
        t.track, w.start_ns, w.start_ns + w.dur_ns AS end_ns, w.alone,
        -- Of work that began before the step, too, the last to begin counts.
        track_ns(
            CASE WHEN w.kind <> 'kernel' THEN 0 WHEN n.family = 'communication' THEN 1 ELSE 2 END, w.start_ns
        ) AS level,
        CASE '{group}'
            WHEN 'op' THEN coalesce(w.op_name, '(no operator)')
            WHEN 'module' THEN coalesce(module, '(no module)') || ', ' || coalesce(w.phase, '(outside)')
            WHEN 'phase' THEN coalesce(w.phase, '(outside)')
            WHEN 'kernel' THEN w.name
            ELSE coalesce(n.family, w.kind)
        END AS part
    FROM placed w
    JOIN gpu_tracks t ON t.run_id = w.run_id AND t.rank = w.rank AND t.device IS NOT DISTINCT FROM w.device
    LEFT JOIN kernel_names n ON n.run_id = w.run_id AND n.name = w.name
    WHERE w.dur_ns > 0
),
work_in_steps AS (
    SELECT * FROM intervals_clip('work', 'gpu_windows_step')
),
overlapping AS (
    SELECT * FROM work_in_steps WHERE NOT alone
),
latest AS (
    SELECT latest.window_id AS window_id, latest.part AS part, sum(end_ns - start_ns)::BIGINT AS latest_ns
    FROM intervals_latest('overlapping')
    GROUP BY latest.window_id, latest.part
),
sums AS (
    SELECT
        window_id, part, sum(end_ns - start_ns)::BIGINT AS work_ns,
        coalesce(sum(end_ns - start_ns) FILTER (alone), 0)::BIGINT AS alone_ns
    FROM work_in_steps
    GROUP BY window_id, part
),
all_work AS (
    SELECT window_id, part, work_ns, alone_ns + coalesce(latest_ns, 0) AS exposed_ns
    FROM sums LEFT JOIN latest USING (window_id, part)
),
windows AS (
    SELECT w.window_id, t.run_group, w.end_ns - w.start_ns AS step_ns
    FROM gpu_windows_step w JOIN gpu_tracks t USING (track)
),
parts AS (
    SELECT run_group, part, exposed_ns, work_ns - exposed_ns AS hidden_ns
    FROM all_work JOIN windows USING (window_id)
    UNION ALL
    SELECT run_group, '(idle)', step_ns - coalesce(busy_ns, 0), 0
    FROM windows LEFT JOIN (SELECT window_id, sum(exposed_ns) AS busy_ns FROM all_work GROUP BY ALL) USING (window_id)
),
steps AS (
    SELECT run_group, count(*) AS steps, sum(step_ns) AS all_ns FROM windows GROUP BY run_group
)
SELECT
    s.run_group, part AS "{group}", sum(exposed_ns)::DOUBLE / any_value(steps) AS exposed_ns,
    sum(hidden_ns)::DOUBLE / any_value(steps) AS hidden_ns, pct(sum(exposed_ns), any_value(all_ns)) AS step_pct
FROM parts p JOIN steps s ON s.run_group IS NOT DISTINCT FROM p.run_group
GROUP BY s.run_group, part
