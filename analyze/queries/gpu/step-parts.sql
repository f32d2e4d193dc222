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
-- The steps of a GPU follow each other: one window for all.
windows AS MATERIALIZED (
    SELECT
        t.run_id, t.rank, t.device, track, t.run_group, count(*) AS steps, min(s.start_ns) AS first_ns,
        max(s.end_ns) AS last_ns
    FROM gpu_windows_step s JOIN gpu_tracks t USING (track)
    GROUP BY ALL
),
work AS (
    SELECT
        t.track, t.run_group, greatest(w.start_ns, t.first_ns) AS start_ns,
        least(w.start_ns + w.dur_ns, t.last_ns) AS end_ns, w.alone,
        -- Of work that began before the steps, too, the last to begin counts.
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
    JOIN windows t ON t.run_id = w.run_id AND t.rank = w.rank AND t.device IS NOT DISTINCT FROM w.device
    LEFT JOIN kernel_names n ON n.run_id = w.run_id AND n.name = w.name
    WHERE w.dur_ns > 0 AND w.start_ns < t.last_ns AND w.start_ns + w.dur_ns > t.first_ns
),
overlapping AS (
    SELECT * FROM work WHERE NOT alone
),
latest AS (
    SELECT latest.run_group AS run_group, latest.part AS part, sum(end_ns - start_ns) AS latest_ns
    FROM intervals_latest('overlapping')
    GROUP BY latest.run_group, latest.part
),
sums AS (
    SELECT
        run_group, part, sum(end_ns - start_ns) AS work_ns,
        coalesce(sum(end_ns - start_ns) FILTER (alone), 0) AS alone_ns
    FROM work
    GROUP BY run_group, part
),
all_work AS (
    SELECT s.run_group, s.part, work_ns, alone_ns + coalesce(latest_ns, 0) AS exposed_ns
    FROM sums s LEFT JOIN latest l ON l.run_group IS NOT DISTINCT FROM s.run_group AND l.part = s.part
),
steps AS (
    SELECT run_group, sum(steps)::BIGINT AS steps, sum(last_ns - first_ns) AS all_ns
    FROM windows
    GROUP BY run_group
),
parts AS (
    SELECT run_group, part, exposed_ns, work_ns - exposed_ns AS hidden_ns
    FROM all_work
    UNION ALL
    SELECT run_group, '(idle)', all_ns - coalesce(busy_ns, 0), 0
    FROM steps s
    LEFT JOIN (SELECT run_group AS busy_group, sum(exposed_ns) AS busy_ns FROM all_work GROUP BY run_group)
        ON busy_group IS NOT DISTINCT FROM run_group
)
SELECT
    s.run_group, part AS "{group}", exposed_ns::DOUBLE / steps AS exposed_ns, hidden_ns::DOUBLE / steps AS hidden_ns,
    pct(exposed_ns, all_ns) AS step_pct
FROM parts p JOIN steps s ON s.run_group IS NOT DISTINCT FROM p.run_group
