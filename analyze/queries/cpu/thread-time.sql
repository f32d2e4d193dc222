-- What do the CPU threads do: are they on a core, or do they wait, and in which call of the operating system?
--
-- From Nsight Systems with --trace=osrt (calls) and --cpuctxsw (context switches; without them `state` is empty). With
-- during=idle, only the thread that launches a GPU's work, and only while the GPU is idle because that thread has not
-- launched any: why the GPU waits. With during=gap, the same for each of the longest gaps. The rows of a thread add up
-- to its time: from its first switch or call to its last, or in the gaps up to the launch. A thread that waits outside
-- of all calls was not scheduled, or waits in a call that is not traced.
-- @param during all|idle|gap = all   Which time; see above.
-- @param top int[0..999999] = 20  Number of gaps with during=gap, per group of runs.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU that is idle; empty with during=all.
-- @column tid id                  The thread.
-- @column start_ns ns             Start of the gap, since the first event of the run (`run_zeros`); empty otherwise.
-- @column state text              on a core or waiting; empty if context switches were not recorded.
-- @column os_call text            Innermost call: read, sem_wait, poll ...; empty for none.
-- @column function text           Function that most samples of a thread on a core found; empty without samples.
-- @column samples count           Samples in that function.
-- @column total_ns ns             Time.
-- @column share_pct %             Share of the thread's time, or of the gap.
-- @main run_id, rank, device, tid, start_ns, state, os_call, function, total_ns, share_pct
-- @order run_id, rank, device, tid, start_ns, total_ns DESC, state, os_call
-- @use arithmetic, run_zeros, thread_states
-- @needs states of CPU threads
-- @pass all
-- @plot bars y=rank,device,tid x=total_ns parts=os_call
WITH times_all AS (
    SELECT 0 AS track, run_group, run_id, rank, NULL::INTEGER AS device, tid, start_ns, end_ns FROM thread_spans
),
times_idle AS (
    SELECT track, run_group, run_id, rank, device, tid, start_ns, end_ns FROM host_waits
),
times_gap AS (
    SELECT *
    FROM times_idle
    QUALIFY row_number() OVER (PARTITION BY run_group ORDER BY end_ns - start_ns DESC, track, start_ns) <= $top
),
-- A thread may launch work of several GPUs, whose gaps overlap.
windows AS MATERIALIZED (
    SELECT row_number() OVER () AS window_id, track AS lane, * EXCLUDE (track) FROM times_{during}
),
by_function AS (
    SELECT
        w.run_group, w.run_id, w.rank, w.device, w.tid, CASE '{during}' WHEN 'gap' THEN w.start_ns END AS gap_ns,
        a.state, a.os_call, a.function, sum(a.ns)::BIGINT AS ns, sum(a.samples)::BIGINT AS samples
    FROM thread_activities('windows') a JOIN windows w USING (window_id)
    GROUP BY ALL
),
activities AS (
    SELECT
        run_group, run_id, rank, device, tid, gap_ns, state, os_call,
        arg_max(function, (samples, function)) AS function, max(samples) AS samples, sum(ns)::BIGINT AS total_ns
    FROM by_function
    GROUP BY ALL
    HAVING sum(ns) > 0
)
SELECT
    run_group, run_id, rank, device, tid, gap_ns - zero_ns AS start_ns, state, os_call, function,
    nullif(samples, 0) AS samples, total_ns,
    pct(total_ns, sum(total_ns) OVER (PARTITION BY run_id, rank, device, tid, gap_ns)) AS share_pct
FROM activities LEFT JOIN run_zeros USING (run_id)
