-- Why is each GPU idle?
--
-- A gap is time without GPU work on a device, between its first start and its last end. host_wait: the call that
-- launched the next work began after the gap did, so nothing was queued. kernel_wait: the next work was queued, and the
-- gap is shorter than the threshold: the time from one kernel to the next. other: the next work was queued and the gap
-- is longer (it waits for an event, another stream, another GPU), or its launch call is not recorded. profiler: the
-- profiler itself worked on the CPU for more than half of the gap, before the launch call returned; an unprofiled run
-- does not have this time. profiler_ns is the profiler's time in the gaps of each cause. The rows of a device add up to
-- its idle time in `breakdown`. With per=stream, gaps are those of each stream, whatever other streams do. A
-- GPU-only block has no launch calls (docs/blocks.md): there, gaps of the only GPU of a process are host_wait from
-- 10 us on, and all others are other.
-- @param per device|stream = device   Gaps of devices or of streams.
-- @param threshold_us number[0..1e9] = 30   Gaps shorter than this (us) with queued work count as kernel_wait.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column stream id               CUDA stream; empty for the device.
-- @column cause text              host_wait, kernel_wait, profiler or other.
-- @column gaps count              Gaps.
-- @column idle_ns ns              Sum of their lengths.
-- @column idle_pct %              Share of the idle time of the device.
-- @column avg_ns ns               Mean gap.
-- @column max_ns ns               Longest gap.
-- @column profiler_ns ns          The part of idle_ns in which the profiler itself worked on the CPU.
-- @column note text               What inflates host time in this recording; empty for nothing.
-- @main run_id, rank, device, stream, cause, gaps, idle_ns, idle_pct, max_ns
-- @order run_id, rank, device, stream, idle_ns DESC, cause
-- @use arithmetic, gpu_gaps, gpu_timeline, profiler_cost
-- @by device
-- @needs work on GPUs with gaps between
-- @pass gpu
-- @disturbed idle time
-- @plot bars y=run_id,rank,device,stream x=idle_ns parts=cause per=step
-- @drill cause gaps top=1000 cause={cause} rank={rank} device={device}
WITH named AS (
    SELECT
        track, stream,
        gap_cause(start_ns, end_ns, launch_ns, alone, profiler_ns, $threshold_us * 1000::BIGINT) AS cause,
        end_ns - start_ns AS gap_ns, profiler_ns
    FROM {per}_gaps
)
SELECT
    run_group, run_id, rank, device, stream, cause, count(*) AS gaps, sum(gap_ns)::BIGINT AS idle_ns,
    pct(sum(gap_ns), sum(sum(gap_ns)) OVER (PARTITION BY run_id, rank, device, stream)) AS idle_pct,
    avg(gap_ns) AS avg_ns, max(gap_ns) AS max_ns, sum(profiler_ns)::BIGINT AS profiler_ns,
    host_time_note(any_value(python_stacks)) AS note
FROM named
JOIN gpu_tracks USING (track)
LEFT JOIN (SELECT run_id, rank, python_stacks FROM recording_facts) USING (run_id, rank)
GROUP BY run_group, run_id, rank, device, stream, cause
