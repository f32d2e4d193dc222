-- Data-quality checks: is the recording complete, and which figures need care?
--
-- A row is a check of a run or of one of its ranks. Verdicts: ok; note: some figures need care; warning: something is
-- lost or missing; unknown: the recording does not say. The profiler overhead per step is the collector's time of a
-- step with the profiler / without. If none without was timed, it is estimated from the launches: if most work starts
-- within 20 us after its launch call, the queue was empty, the CPU is the limit, and the overhead is likely large. Time
-- in the profiler is the union of Kineto's overhead ranges, which cover only some of its work; its operators are those
-- around these ranges on the same thread or, if that thread runs none (CUPTI numbers threads in its own way), on any
-- thread. Kernel launches inside a stream capture launch nothing yet and are not counted as lost. The clock offset of a
-- rank is the median of how much later than the middle rank its kernels end, in collectives that no rank leaves early.
-- The start skew of a rank is how much later than the first rank it began its first step (else its GPU work), on
-- corrected clocks. Doubtful work is a warning: more than 1 s before the first step, more than 1 us before its launch
-- call, or a CUDA graph that starts more than 100 ms after its call though the GPU is idle. Work that cannot have run
-- as the file says is removed at ingest, and reported under `reading`. A GPU-only block is checked against its full
-- block: its twins (table `twins`), how long kernels take, and the mean step of both and of the undisturbed steps. From
-- a memory snapshot: who held most of a GPU's memory when it last ran out, and whether 20 % of what is reserved in
-- segments that cannot grow is free between live blocks. From dumps of the flight recorder: what hangs.
-- @param per run|rank = run       For checks of ranks: show the worst rank, or each.
-- @column run_id id               The run.
-- @column rank index              Process rank; empty for checks of the run.
-- @column fact text               The check.
-- @column verdict text            ok, note, warning or unknown.
-- @column value text              Result.
-- @column impact text             Figures that it affects, and how; empty for none.
-- @order run_id, turn, rank
-- @use allocator, api_roles, arithmetic, block_limits, collective_kinds, collectives, common_start, gpu_clocks,
--     gpu_timeline, hangs, intervals, profiler_cost, steps
-- @answer hung hang
-- @answer failed_requests memory-oom
-- @answer reserved_memory memory-fragmentation
-- @needs runs that --where and --profiler leave
-- @pass all
WITH ranks AS (
    SELECT run_group, run_id, rank, profiler, row_number() OVER (ORDER BY run_id, rank)::INTEGER AS track
    FROM run_groups
),
first_steps AS (
    SELECT run_id, rank, min(start_ns) AS first_step_ns FROM step_ranges GROUP BY run_id, rank
),
work AS MATERIALIZED (
    SELECT
        run_id, rank, count(*) AS pieces, min(start_ns) AS first_ns,
        max(start_ns + dur_ns) - min(start_ns) AS span_ns,
        count(*) FILTER (call_start_ns IS NULL) AS unlaunched,
        count(*) FILTER (start_ns < first_step_ns - 1000000000) AS before_steps,
        max(first_step_ns - start_ns) AS before_steps_ns,
        count(*) FILTER (call_start_ns > start_ns + 1000) AS before_calls,
        max(call_start_ns - start_ns) AS before_calls_ns,
        bool_or(contains(call_name, 'GraphLaunch')) AS has_graphs
    FROM gpu_work LEFT JOIN first_steps USING (run_id, rank)
    GROUP BY run_id, rank
),
ops AS MATERIALIZED (
    SELECT run_id, rank, count(*) AS n, bool_or(input_dims IS NOT NULL) AS shapes FROM cpu_ops GROUP BY run_id, rank
),
launches AS (
    SELECT w.run_id, w.rank, count(*) FILTER (w.first_of_call) AS n
    FROM gpu_work w JOIN api_roles r ON r.name = w.call_name
    WHERE r.role = 'launch'
    GROUP BY w.run_id, w.rank
    UNION ALL
    SELECT run_id, rank, count(*) FROM launches_without_work GROUP BY run_id, rank
),
captures AS (
    SELECT run_id, rank, tid, start_ns AS at_ns, name LIKE '%StreamBeginCapture%' AS begins
    FROM cuda_calls
    WHERE contains(name, 'StreamBeginCapture') OR contains(name, 'StreamEndCapture')
),
lost AS (
    SELECT run_id, rank, any_value(launches) AS launches, count(*) FILTER (lost AND begins IS NOT TRUE) AS n
    FROM (SELECT run_id, rank, sum(n)::BIGINT AS launches FROM launches GROUP BY run_id, rank)
    LEFT JOIN (
        SELECT l.run_id, l.rank, c.begins, true AS lost
        FROM launches_without_work l
        ASOF LEFT JOIN captures c
            ON c.run_id = l.run_id AND c.rank = l.rank AND c.tid = l.tid AND l.start_ns >= c.at_ns
    ) USING (run_id, rank)
    GROUP BY run_id, rank
),
overhead AS (
    SELECT r.track, o.name, o.start_ns, o.start_ns + o.dur_ns AS end_ns, o.op_name
    FROM profiler_overhead o JOIN ranks r USING (run_id, rank)
),
overhead_named AS (
    SELECT o.track, o.name, any_value(l.covered_ns) AS all_ns, sum(o.end_ns - o.start_ns)::BIGINT AS ns,
        list(DISTINCT o.op_name ORDER BY o.op_name) FILTER (o.op_name IS NOT NULL) AS operators
    FROM overhead o JOIN intervals_coverage('overhead') l USING (track)
    GROUP BY o.track, o.name
),
overhead_texts AS (
    SELECT track, any_value(all_ns) AS ns, string_agg(
        concat(name, printf(' %.3f ms', ns / 1e6), ' on ' || array_to_string(operators[:3], ', '),
            CASE WHEN len(operators) > 3 THEN ' ...' END),
        '; ' ORDER BY ns DESC, name
    ) AS details
    FROM overhead_named
    GROUP BY track
),
unclosed AS (
    SELECT run_id, rank, sum(n)::BIGINT AS n
    FROM (
        SELECT run_id, rank, count(*) FILTER (dur_ns IS NULL) AS n FROM ranges GROUP BY run_id, rank
        UNION ALL
        SELECT run_id, rank, 0 FROM ops
        UNION ALL
        SELECT run_id, rank, count(*) FROM cpu_ops WHERE dur_ns IS NULL GROUP BY run_id, rank
    )
    GROUP BY run_id, rank
),
-- Complete calls of several processes that no rank leaves before all have arrived.
whole_calls AS (
    SELECT run_id, rank, call, max(own_start_ns + dur_ns) AS end_ns
    FROM collective_kernels
    WHERE group_known AND NOT one_process AND NOT leaves_early(collective) AND collective NOT IN ('send_recv', 'other')
    GROUP BY run_id, rank, call, members
    QUALIFY count(*) OVER (PARTITION BY call) = members AND members > 1
),
-- Relative times: a median is a DOUBLE, which resolves times since 1970 to 256 ns only.
whole_ends AS (
    SELECT run_id, rank, call, end_ns - min(end_ns) OVER (PARTITION BY call) AS after_ns FROM whole_calls
),
clocks AS (
    SELECT run_id, rank, median(late_ns)::BIGINT AS off_ns
    FROM (SELECT *, after_ns - median(after_ns) OVER (PARTITION BY call) AS late_ns FROM whole_ends)
    GROUP BY run_id, rank
),
begun AS (
    SELECT run_id, rank, coalesce(min(s.start_ns), any_value(w.first_ns)) - coalesce(any_value(c.off_ns), 0) AS begun_ns
    FROM ranks
    LEFT JOIN step_ranges s USING (run_id, rank)
    LEFT JOIN work w USING (run_id, rank)
    LEFT JOIN clocks c USING (run_id, rank)
    GROUP BY run_id, rank
),
skewed AS (
    SELECT
        run_id, rank, (begun_ns - min(begun_ns) OVER runs_of)::BIGINT AS skew_ns,
        max(span_ns) OVER runs_of AS span_ns
    FROM begun LEFT JOIN work USING (run_id, rank)
    WINDOW runs_of AS (PARTITION BY run_id)
    QUALIFY count(begun_ns) OVER runs_of > 1 AND begun_ns IS NOT NULL
),
late_starts AS (
    SELECT run_id, max(common_start_ns - start_ns) AS excluded_ns FROM rank_starts GROUP BY run_id
),
cold_calls AS (
    SELECT
        run_id, rank, max(wait_ns) AS wait_ns, sum(wait_ns) AS all_ns,
        string_agg(printf(
            '%.3f of %.3f ms of waiting in %d calls', wait_ns / 1e6, group_wait_ns / 1e6, calls
        ) || coalesce(' of group ' || group_name, ''), '; ' ORDER BY wait_ns DESC, group_name) AS details
    FROM cold_kernels
    GROUP BY run_id, rank
),
-- Idle time between this work and the later of its call and the previous work.
graph_waits AS (
    SELECT run_id, rank, start_ns - greatest(call_start_ns + call_dur_ns, previous_end_ns) AS wait_ns
    FROM (
        SELECT *, previous_end((run_id, rank, device), start_ns, start_ns + dur_ns) AS previous_end_ns
        FROM gpu_work SEMI JOIN (SELECT run_id, rank FROM work WHERE has_graphs) USING (run_id, rank)
    )
    WHERE contains(call_name, 'GraphLaunch')
),
-- GPU work of CUDA graphs, where a capture was recorded.
graphed AS (
    SELECT run_id, rank, count(*) AS n, count(graph) AS linked
    FROM gpu_work LEFT JOIN (SELECT DISTINCT run_id, rank, true AS has FROM graph_launches) USING (run_id, rank)
    WHERE contains(call_name, 'GraphLaunch')
    GROUP BY run_id, rank
    HAVING bool_or(has) OR linked > 0
),
late_graphs AS (
    SELECT run_id, rank, count(*) AS n, max(wait_ns) AS wait_ns
    FROM graph_waits
    WHERE wait_ns > 100000000
    GROUP BY run_id, rank
),
-- State of the GPUs while the rank used them, and before the program began.
sampled AS (
    SELECT
        s.run_id, s.rank, start_ns > first_ns AND start_ns < first_ns + span_ns AS working,
        limited_for_power(clock_limits) AS power_limited, limited_for_heat(clock_limits) AS heat_limited,
        memory_used_bytes, processes,
        row_number() OVER (PARTITION BY s.run_id, s.rank, device ORDER BY start_ns) AS turn
    FROM gpu_samples s JOIN work USING (run_id, rank)
),
clock_states AS (
    SELECT
        run_id, rank, pct(count(*) FILTER (power_limited), count(*)) AS power_pct,
        pct(count(*) FILTER (heat_limited), count(*)) AS heat_pct
    FROM sampled
    WHERE working AND power_limited IS NOT NULL
    GROUP BY run_id, rank
),
other_users AS (
    SELECT run_id, rank, max(memory_used_bytes) AS bytes, max(processes) AS processes
    FROM sampled
    WHERE turn = 1
    GROUP BY run_id, rank
),
other_processes AS (
    SELECT
        run_id, rank, max(other_processes) AS most, pct(count(*) FILTER (other_processes > 0), count(*)) AS seen_pct
    FROM gpu_samples
    WHERE other_processes IS NOT NULL
    GROUP BY run_id, rank
),
-- Means per step over the GPUs of a rank, in ms.
idle_times AS (
    SELECT
        run_id, rank, avg(undisturbed_ns / steps) / 1e6 AS undisturbed_ms,
        avg(undisturbed_idle_ns / steps) / 1e6 AS undisturbed_idle_ms,
        avg(recorded_ns / steps) / 1e6 AS recorded_ms, avg(recorded_idle_ns / steps) / 1e6 AS recorded_idle_ms,
        pct(sum(undisturbed_idle_ns), sum(undisturbed_ns)) AS undisturbed_pct,
        pct(sum(recorded_idle_ns), sum(recorded_ns)) AS recorded_pct
    FROM gpu_undisturbed_span JOIN gpu_tracks ON track = window_id
    GROUP BY run_id, rank
),
classified AS (
    SELECT run_id, sum(dur_ns) AS ns, sum(dur_ns) FILTER (family = 'other') AS other_ns
    FROM kernels JOIN kernel_names USING (run_id, name)
    GROUP BY run_id
),
counted AS (
    SELECT run_id, max(steps) AS most, min(steps) AS least FROM step_counts GROUP BY run_id
),
operators AS (
    SELECT run_id, sum(n)::BIGINT AS n, bool_or(shapes) AS shapes FROM ops GROUP BY run_id
),
op_rates AS (
    SELECT run_id, rank, n * 1e6 / span_ns AS per_ms FROM ops JOIN work USING (run_id, rank) WHERE span_ns > 0
),
-- Without undisturbed steps: whether the profiler's share is large.
estimates AS (
    SELECT
        run_id, rank, 2 * empty > launched AS large,
        printf('the queue is empty at %.0f %% of the launches', pct(empty, launched))
            || coalesce(printf(', %.1f operators per ms', per_ms), '') AS reason
    FROM empty_queue_launches LEFT JOIN op_rates USING (run_id, rank)
),
memory AS (
    SELECT run_id, count(*) AS n FROM memory_events GROUP BY run_id
),
known_hosts AS (
    SELECT run_id, count(*) AS n, list(DISTINCT host ORDER BY host) AS names FROM rank_hosts GROUP BY run_id
),
pairs AS (
    SELECT
        run_id, count(*) AS n, count(*) FILTER (status = 'point_to_point') AS alone,
        count(*) FILTER (status = 'point_to_point' AND in_batch IS NOT NULL) AS batches
    FROM matched_collectives('collective_kernels')
    LEFT JOIN (SELECT run_id, rank, correlation_id, sent + received AS in_batch FROM batched_kernels)
        USING (run_id, rank, correlation_id)
    WHERE collective = 'send_recv'
    GROUP BY run_id
),
ungrouped AS (
    SELECT
        run_id, count(*) FILTER (status = 'group not known') AS unknown, count(*) FILTER (group_inferred) AS inferred,
        count(*) AS n
    FROM matched_collectives('collective_kernels')
    GROUP BY run_id
),
-- GPU-only blocks: their work against that of their full blocks.
twinned AS MATERIALIZED (
    SELECT
        run_id, rank, count(*) AS n, count(full_start_ns) AS found,
        100 * count(full_start_ns) < (SELECT twins_pct FROM block_limits) * count(*) AS few,
        median(t.dur_ns / nullif(full_dur_ns, 0)) FILTER (t.kind = 'kernel') AS pace,
        count(*) FILTER (t.start_ns < s.start_ns) AS early, count(turn) AS stepped
    FROM twins t LEFT JOIN (SELECT run_id, rank, turn, start_ns FROM step_ranges) s USING (run_id, rank, turn)
    GROUP BY run_id, rank
),
recorded_blocks AS (
    SELECT run_id, rank, avg(end_ns - start_ns) AS step_ns FROM step_windows GROUP BY run_id, rank
),
-- The collector's times, else those of the recorded steps.
block_steps AS (
    SELECT
        workload_id, rank, run_id, profiler, coalesce(c.recorded_step_ns, b.step_ns) AS step_ns, c.undisturbed_step_ns
    FROM recorded_blocks b
    JOIN (SELECT run_id, workload_id, profiler FROM runs) USING (run_id)
    LEFT JOIN (SELECT * EXCLUDE (run_group) FROM step_costs) c USING (run_id, rank)
    WHERE profiler IN ('gpu', 'torch')
),
block_times AS (
    SELECT
        g.run_id, g.rank, g.step_ns, f.step_ns AS full_ns,
        coalesce(g.undisturbed_step_ns, f.undisturbed_step_ns) AS undisturbed_ns,
        max(g.step_ns) OVER of_run > (SELECT slower FROM block_limits) * max(f.step_ns) OVER of_run AS slow
    FROM block_steps g
    LEFT JOIN (SELECT * FROM block_steps WHERE profiler = 'torch') f
        ON f.workload_id = g.workload_id AND f.rank = g.rank
    WHERE g.profiler = 'gpu'
    WINDOW of_run AS (PARTITION BY g.run_id)
),
failures AS (
    SELECT run_id, rank, device, arg_max(concat(cause, ': ', advice), start_ns) AS advice
    FROM failed_requests
    GROUP BY run_id, rank, device
),
-- Of each rank the device with the largest share.
fragmented AS (
    SELECT run_id, rank, device, sum(stuck_bytes) AS stuck_bytes, sum(reserved_bytes) AS reserved_bytes
    FROM reserved_memory
    WHERE expandable_segments = 0
    GROUP BY run_id, rank, device
    QUALIFY row_number() OVER (
        PARTITION BY run_id, rank ORDER BY pct(sum(stuck_bytes), sum(reserved_bytes)) DESC NULLS LAST, device
    ) = 1
),
of_runs AS (
    SELECT
        run_group, run_id, 0 AS turn, 'status' AS fact,
        CASE WHEN status IN ('failed', 'running') THEN 'warning' ELSE 'ok' END AS verdict, status AS value,
        coalesce(reason, CASE WHEN status = 'running' THEN 'the run did not report its end' END) AS impact
    FROM runs
    WHERE status IS NOT NULL
    UNION ALL
    SELECT
        run_group, run_id, 1, 'reading', CASE WHEN warnings <> '' THEN 'warning' ELSE 'ok' END,
        CASE WHEN warnings <> '' THEN 'with losses' ELSE 'without losses' END, nullif(warnings, '')
    FROM runs
    UNION ALL
    SELECT
        run_group, run_id, 2, 'ranks',
        CASE
            WHEN ranks <> world_size THEN 'warning'
            WHEN contains(warnings, 'guessed') THEN 'note'
            ELSE 'ok'
        END,
        concat(ranks, ' of ', coalesce(world_size, ranks)),
        CASE
            WHEN ranks < world_size THEN 'collectives with missing ranks have no bandwidths and no waits'
            WHEN ranks > world_size THEN 'some are not ranks of the job, but other processes or another attempt'
            WHEN contains(warnings, 'guessed') THEN 'which process has which rank is guessed'
        END
    FROM runs
    WHERE ranks IS NOT NULL
    UNION ALL
    SELECT
        run_group, run_id, 3, 'training steps', CASE WHEN most IS NULL OR most <> least THEN 'note' ELSE 'ok' END,
        CASE WHEN most IS NULL THEN 'unknown' WHEN most = least THEN most::VARCHAR ELSE concat(least, ' to ', most) END,
        CASE
            WHEN most IS NULL THEN 'no answers per step: neither ProfilerStep# nor the NVTX range step was recorded'
            WHEN most <> least THEN 'ranks have different numbers of steps'
        END
    FROM runs LEFT JOIN counted USING (run_id)
    -- Counters, sums, snapshots and dumps have no answers per step anyway.
    WHERE most IS NOT NULL OR run_id IN (SELECT run_id FROM work UNION ALL SELECT run_id FROM ops)
    UNION ALL
    SELECT
        run_group, run_id, 4, 'hang', CASE WHEN hang IS NULL THEN 'ok' ELSE 'warning' END,
        coalesce(hang, 'all collectives completed'),
        CASE WHEN hang IS NOT NULL THEN 'the query hang says where each rank is' END
    FROM runs JOIN hung_runs('hung') USING (run_id)
    UNION ALL
    SELECT
        run_group, run_id, 12, 'operators', 'ok',
        concat(format('{:,}', n), CASE WHEN shapes THEN ', with shapes' ELSE ', without shapes' END), NULL
    FROM runs JOIN operators USING (run_id)
    UNION ALL
    SELECT run_group, run_id, 13, 'allocator events', 'ok', format('{:,}', n), NULL FROM runs JOIN memory USING (run_id)
    UNION ALL
    SELECT
        run_group, run_id, 14, 'kernels of unknown family', CASE WHEN other_ns > 0.1 * ns THEN 'note' ELSE 'ok' END,
        printf('%.1f %% of kernel time', pct(coalesce(other_ns, 0), ns)),
        CASE WHEN other_ns > 0.1 * ns THEN 'shares of the known families are too low by up to that' END
    FROM runs JOIN classified USING (run_id)
    WHERE ns > 0
    UNION ALL
    SELECT
        run_group, run_id, 15, 'hosts', CASE WHEN n = ranks THEN 'ok' ELSE 'unknown' END,
        CASE
            WHEN n = ranks THEN concat(
                len(names), ': ', array_to_string(names[:3], ', '), CASE WHEN len(names) > 3 THEN ', ...' END
            )
            ELSE printf('known for %d of %d ranks', coalesce(n, 0), ranks)
        END,
        NULL
    FROM runs LEFT JOIN known_hosts USING (run_id)
    WHERE ranks > 1
    UNION ALL
    SELECT
        run_group, run_id, 16, 'sends and receives', CASE WHEN alone > 0 THEN 'note' ELSE 'ok' END,
        CASE
            WHEN alone = 0 THEN 'all paired'
            ELSE printf('%d of %d kernels are not paired: ', alone, n) || concat_ws(
                ', ',
                CASE WHEN batches > 0 THEN
                    batches || CASE WHEN batches = 1 THEN ' is a batch' ELSE ' are batches' END || ' with several ranks'
                END,
                CASE WHEN alone > batches THEN printf('%d without a recorded peer', alone - batches) END
            )
        END,
        CASE WHEN alone > 0 THEN 'their waits and transfers are not known' END
    FROM runs JOIN pairs USING (run_id)
    UNION ALL
    SELECT
        run_group, run_id, 17, 'process groups', 'note',
        concat_ws(
            ', ', CASE WHEN unknown > 0 THEN printf('not known for %d', unknown) END,
            CASE WHEN inferred > 0 THEN printf('inferred for %d', inferred) END
        ) || printf(' of %d communication kernels', n),
        concat_ws(
            '; ',
            CASE WHEN unknown > 0 THEN
                'kernels without a group cannot be matched across ranks, so their waits are not known'
            END,
            CASE WHEN inferred > 0 THEN
                'inferred to be all ranks, because their kernels end together'
            END
        )
    FROM runs JOIN ungrouped USING (run_id)
    WHERE unknown + inferred > 0
),
of_ranks AS (
    SELECT
        run_group, run_id, rank, 4 AS turn, 'profiler overhead per step' AS fact, slowdown AS badness,
        CASE
            WHEN slowdown > 1.1 OR slowdown IS NULL AND large THEN 'note'
            WHEN slowdown IS NULL THEN 'unknown'
            ELSE 'ok'
        END AS verdict,
        CASE
            WHEN slowdown IS NULL THEN 'not timed' || coalesce(printf(
                '; estimate: likely %s (%s)', CASE WHEN large THEN 'large' ELSE 'small' END, reason
            ), '')
            ELSE printf(
                '%.2f x (%.3f ms with, %.3f ms without profiler)',
                slowdown, recorded_step_ns / 1e6, undisturbed_step_ns / 1e6
            )
        END AS value,
        CASE
            WHEN slowdown > 1.1 THEN 'host times and GPU idle time are longer than without the profiler'
                || CASE WHEN shapes OR python_stacks THEN ': record less (collect run --detail light)' ELSE '' END
            WHEN slowdown IS NULL AND large
                THEN 'the profiler may cause most of the GPU idle time, waits and MFU loss: '
                    || 'collect run also times steps without it'
        END AS impact
    FROM ranks
    LEFT JOIN estimates USING (run_id, rank)
    LEFT JOIN (SELECT * EXCLUDE (run_group) FROM step_costs) USING (run_id, rank)
    LEFT JOIN operators USING (run_id)
    LEFT JOIN (SELECT run_id, rank, python_stacks FROM recording_facts) USING (run_id, rank)
    WHERE profiler IN ('torch', 'nsys')
    UNION ALL
    SELECT
        run_group, run_id, rank, 4.5, 'GPU idle time per step', recorded_pct - undisturbed_pct,
        CASE WHEN recorded_pct > undisturbed_pct + 5 THEN 'note' ELSE 'ok' END,
        printf(
            'undisturbed %.1f %% (%.3f of %.3f ms), recorded %.1f %% (%.3f of %.3f ms)', undisturbed_pct,
            undisturbed_idle_ms, undisturbed_ms, recorded_pct, recorded_idle_ms, recorded_ms
        ),
        CASE WHEN recorded_pct > undisturbed_pct + 5 THEN 'the profiler causes the difference' END
    FROM ranks JOIN idle_times USING (run_id, rank)
    WHERE profiler IN ('torch', 'nsys')
    UNION ALL
    SELECT
        run_group, run_id, rank, 4.6, 'twins in the full block', 1 - found / n,
        CASE WHEN few THEN 'warning' ELSE 'ok' END,
        format('{:.2f} % of {:,} kernels, copies and fills', pct(found, n), n),
        CASE WHEN few THEN 'queries about time use the full block' END
    FROM ranks JOIN twinned USING (run_id, rank)
    UNION ALL
    SELECT
        run_group, run_id, rank, 4.7, 'kernels against their twins', abs(ln(pace)),
        CASE WHEN pace BETWEEN 0.8 AND 1.25 THEN 'ok' ELSE 'warning' END,
        printf('a kernel takes %.2f times as long as in the full block (median)', pace),
        CASE WHEN pace NOT BETWEEN 0.8 AND 1.25
            THEN 'the GPU ran at another clock, or the times of a block are wrong' END
    FROM ranks JOIN twinned USING (run_id, rank)
    WHERE pace > 0
    UNION ALL
    SELECT
        run_group, run_id, rank, 4.8, 'steps of the twins', early / stepped,
        CASE WHEN early > 0.01 * stepped THEN 'warning' ELSE 'ok' END,
        format('{:,} of {:,} kernels, copies and fills begin before the step that launched them', early, stepped),
        CASE WHEN early > 0.01 * stepped THEN 'answers per step may assign work to the wrong step' END
    FROM ranks JOIN twinned USING (run_id, rank)
    WHERE stepped > 0
    UNION ALL
    SELECT
        run_group, run_id, rank, 4.9, 'step time of the blocks', coalesce(step_ns / undisturbed_ns, step_ns / full_ns),
        CASE
            WHEN slow THEN 'warning' WHEN step_ns > 1.05 * undisturbed_ns THEN 'note'
            WHEN undisturbed_ns IS NULL THEN 'unknown' ELSE 'ok'
        END,
        concat_ws(
            ', ', printf('GPU only %.3f ms', step_ns / 1e6), printf('full %.3f ms', full_ns / 1e6),
            coalesce(printf(
                'undisturbed %.3f ms: %.2f x', undisturbed_ns / 1e6, step_ns / undisturbed_ns
            ) || coalesce(printf(' and %.2f x', full_ns / undisturbed_ns), ''), 'undisturbed not timed')
        ),
        CASE
            WHEN slow THEN 'queries about time use the full block'
            WHEN step_ns > 1.05 * undisturbed_ns
                THEN 'idle time and waits are longer than in the program by up to the difference'
        END
    FROM ranks JOIN block_times USING (run_id, rank)
    UNION ALL
    SELECT
        run_group, run_id, rank, 5, 'time in the profiler', pct(ns, span_ns),
        CASE WHEN ns > 0.02 * span_ns THEN 'note' WHEN ns IS NULL THEN 'unknown' ELSE 'ok' END,
        CASE WHEN ns IS NULL THEN 'not recorded' ELSE printf('%.1f %% of the span: %s', pct(ns, span_ns), details) END,
        CASE WHEN ns > 0.02 * span_ns THEN 'the program runs faster without the profiler' END
    FROM ranks JOIN work USING (run_id, rank) LEFT JOIN overhead_texts USING (track)
    WHERE profiler = 'torch' AND span_ns > 0
    UNION ALL
    SELECT
        run_group, run_id, rank, 6, 'Python stacks', python_stacks::INTEGER,
        CASE WHEN python_stacks THEN 'note' ELSE 'ok' END,
        CASE WHEN python_stacks THEN 'recorded' ELSE 'not recorded' END,
        CASE WHEN python_stacks THEN 'host times are longer than without stacks' END
    FROM ranks JOIN (SELECT run_id, rank, python_stacks FROM recording_facts) USING (run_id, rank)
    WHERE profiler = 'torch'
    UNION ALL
    SELECT
        run_group, run_id, rank, 6.9, 'CUDA graphs with their capture', 1 - linked / n,
        CASE WHEN linked < n THEN 'note' ELSE 'ok' END,
        format('{:.2f} % of {:,} kernels, copies and fills', pct(linked, n), n),
        CASE WHEN linked < n
            THEN 'the others have no operator and no module: their capture was not recorded, or is not of this work' END
    FROM ranks JOIN graphed USING (run_id, rank)
    UNION ALL
    SELECT
        run_group, run_id, rank, 7, 'GPU work without a launch call', pct(unlaunched, pieces),
        CASE WHEN unlaunched > 0.05 * pieces THEN 'note' ELSE 'ok' END,
        format('{:,} of {:,} kernels, copies and fills', unlaunched, pieces),
        CASE WHEN unlaunched > 0.05 * pieces THEN 'it has no operator and no phase' END
    FROM ranks JOIN work USING (run_id, rank)
    WHERE profiler IS DISTINCT FROM 'gpu'
    UNION ALL
    SELECT
        run_group, run_id, rank, 8, 'launches without a kernel', pct(n, launches),
        CASE WHEN n > 0.01 * launches THEN 'warning' WHEN n > 0 THEN 'note' ELSE 'ok' END,
        format('{:,} of {:,} launches', n, launches),
        CASE WHEN n > 0 THEN 'the profiler dropped kernels or stopped before they ran: GPU time lacks them' END
    FROM ranks JOIN work USING (run_id, rank) JOIN lost USING (run_id, rank)
    WHERE profiler IS DISTINCT FROM 'gpu'
    UNION ALL
    SELECT
        run_group, run_id, rank, 9, 'ranges without an end', n, CASE WHEN n > 0 THEN 'note' ELSE 'ok' END,
        format('{:,}', n),
        CASE WHEN n > 0 THEN 'they have no duration and are in no sum' END
    FROM ranks JOIN unclosed USING (run_id, rank)
    UNION ALL
    SELECT
        run_group, run_id, rank, 10, 'start skew', skew_ns,
        CASE WHEN excluded_ns > 0 OR skew_ns > 0.05 * span_ns THEN 'note' ELSE 'ok' END,
        printf('%.3f ms', skew_ns / 1e6),
        CASE
            WHEN excluded_ns > 0 THEN printf(
                'waits, breakdown and MFU exclude up to %.3f ms, until all ranks had begun to record',
                excluded_ns / 1e6
            )
            WHEN skew_ns > 0.05 * span_ns
                THEN 'waits for it may be an artifact: this rank''s recording started later'
        END
    FROM ranks JOIN skewed USING (run_id, rank) LEFT JOIN late_starts USING (run_id)
    UNION ALL
    SELECT
        run_group, run_id, rank, 10.5, 'cold first collective', all_ns, 'note', details,
        'the first call sets up connections: waits, breakdown and MFU exclude its waiting'
    FROM ranks JOIN cold_calls USING (run_id, rank)
    UNION ALL
    SELECT
        run_group, run_id, rank, 11, 'clock offset to the other ranks', abs(off_ns),
        CASE WHEN abs(off_ns) > 100000 THEN 'note' ELSE 'ok' END, printf('%+.3f ms', off_ns / 1e6),
        CASE WHEN abs(off_ns) > 100000 THEN 'waits for other ranks are wrong by up to that' END
    FROM ranks JOIN clocks USING (run_id, rank)
    UNION ALL
    SELECT
        run_group, run_id, rank, 17, 'GPU work long before the first step', before_steps_ns, 'warning',
        format('{:,} of {:,} pieces, up to ', before_steps, pieces) || printf('%.3f s', before_steps_ns / 1e9),
        'answers for the whole recording include that time: query steps instead (--param window=step)'
    FROM ranks JOIN work USING (run_id, rank)
    WHERE before_steps > 0
    UNION ALL
    SELECT
        run_group, run_id, rank, 18, 'GPU work before its launch call', before_calls_ns, 'warning',
        format('{:,} pieces, up to ', before_calls) || printf('%.3f ms', before_calls_ns / 1e6),
        'the clocks of CPU and GPU differ: queue delays, idle causes and times in steps are wrong by up to that'
    FROM ranks JOIN work USING (run_id, rank)
    WHERE before_calls > 0
    UNION ALL
    SELECT
        run_group, run_id, rank, 19, 'CUDA graphs that start late on an idle GPU', wait_ns, 'warning',
        format('{:,} times, up to ', n) || printf('%.3f ms after the call', wait_ns / 1e6),
        'the profiler may have recorded graph work too late: idle time may be wrong'
    FROM ranks JOIN late_graphs USING (run_id, rank)
    UNION ALL
    SELECT
        run_group, run_id, rank, 20, 'reduced GPU clocks', greatest(power_pct, heat_pct),
        CASE WHEN greatest(power_pct, heat_pct) > 5 THEN 'note' ELSE 'ok' END,
        printf('%.1f %% of the samples for power, %.1f %% for temperature', power_pct, heat_pct),
        CASE WHEN greatest(power_pct, heat_pct) > 5
            THEN 'kernels are slower than at full clocks: compare times with care (`hardware` has the clocks)' END
    FROM ranks JOIN clock_states USING (run_id, rank)
    UNION ALL
    SELECT
        run_group, run_id, rank, 21, 'GPU in use before the program began', bytes,
        CASE WHEN processes > 0 OR bytes > 100000000 THEN 'warning' ELSE 'ok' END,
        CASE
            WHEN processes > 0 OR bytes > 100000000
                THEN printf('%.0f MB of memory', bytes / 1e6) || CASE WHEN processes > 0
                    THEN printf(', %d process', processes) || CASE WHEN processes > 1 THEN 'es' ELSE '' END ELSE '' END
            ELSE 'no'
        END,
        CASE WHEN processes > 0 OR bytes > 100000000 THEN 'other work on the GPU may have made kernels slower' END
    FROM ranks JOIN other_users USING (run_id, rank)
    UNION ALL
    SELECT
        run_group, run_id, rank, 23, 'other processes on the GPU', seen_pct,
        CASE WHEN most > 0 THEN 'warning' ELSE 'ok' END,
        CASE WHEN most > 0 THEN printf('up to %d, in %.1f %% of the samples', most, seen_pct) ELSE 'none' END,
        CASE WHEN most > 0 THEN 'their work may have made kernels slower' END
    FROM ranks JOIN other_processes USING (run_id, rank)
    UNION ALL
    SELECT
        run_group, run_id, rank, 22, 'out of GPU memory', held_bytes, 'warning',
        holders, coalesce(advice, 'the program failed or tried again: memory-live at=oom says who held it')
    FROM ranks JOIN exhausted_devices USING (run_id, rank) LEFT JOIN failures USING (run_id, rank, device)
    UNION ALL
    SELECT
        run_group, run_id, rank, 24, 'free GPU memory between live blocks', pct(stuck_bytes, reserved_bytes),
        CASE WHEN stuck_bytes >= 0.2 * reserved_bytes THEN 'note' ELSE 'ok' END,
        printf('GPU %d: %.1f %% of the %.1f MiB reserved', device, pct(stuck_bytes, reserved_bytes),
            reserved_bytes / 1048576),
        CASE WHEN stuck_bytes >= 0.2 * reserved_bytes
            THEN 'large requests may fail: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets free blocks join' END
    FROM ranks JOIN fragmented USING (run_id, rank)
    WHERE reserved_bytes > 0
),
checks AS (
    SELECT run_group, run_id, NULL::INTEGER AS rank, fact, verdict, value, impact, turn FROM of_runs
    UNION ALL
    SELECT run_group, run_id, rank, fact, verdict, value, impact, turn
    FROM of_ranks
    QUALIFY '{per}' = 'rank' OR row_number() OVER (
        PARTITION BY run_group, run_id, turn
        ORDER BY list_position(['warning', 'note', 'unknown', 'ok'], verdict), badness DESC NULLS LAST, rank
    ) = 1
)
SELECT * FROM checks
