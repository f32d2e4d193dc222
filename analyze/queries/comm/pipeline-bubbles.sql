-- How long do pipeline stages wait for each other, and what is the ideal bubble?
--
-- A pipeline is a set of ranks that send to each other, in order; each is a stage. Its bubble is the part of the window
-- without compute and without transfer. The parts of the bubble add up exactly: waiting for the previous or the next
-- stage (a send or receive whose peer has not started); other communication without known transfer; exposed copies;
-- idle. Waiting is warm-up until the first gradient of a step has arrived (last stage: the first activation), drain
-- after the last activation and while a stage already waits for the next step, and steady between. 1F1B and GPipe have
-- at least (p-1)/(m+p-1) of the time as bubble for p stages and m micro-batches; interleaved schedules with v chunks
-- per stage, (p-1)/(v*m+p-1). Micro-batches are the transfers between two stages in the recording / its steps.
-- @param each no|yes = no         Whether a row is one transfer of a micro-batch instead of a stage.
-- @param window span|step = step  What a row of a stage covers: a training step (as in breakdown), or the whole
--                                 recording.
-- @column run_id id               The run.
-- @column pipeline index          Lowest rank of its pipeline. Empty, like all columns that depend on the number of
--                                 stages, if one of its ranks was not recorded.
-- @column stage index             Stage, from 0.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column step index              Training step; empty for the whole span, or if not known.
-- @column micro_batch index       With each=yes: number of the transfer in its step, between the same two stages.
-- @column moves text              With each=yes: activation, gradient, or both (a batch that sends and receives).
-- @column peer text               With each=yes: the stage that it waits for: previous or next.
-- @column sends bool              With each=yes: whether it sends; empty of a batch that sends and receives.
-- @column part text               With each=yes: warmup, steady or drain.
-- @column start_ns ns             With each=yes: start, since the first event of the run.
-- @column span_ns ns              Length of the window; with each=yes, of the kernel.
-- @column compute_ns ns           Union of compute kernels.
-- @column transfer_ns ns          Exposed transfer of communication kernels; with each=yes the transfer of this kernel,
--                                 exposed or not.
-- @column wait_previous_ns ns     Exposed waiting for the previous stage; with each=yes, exposed or not.
-- @column wait_next_ns ns         Exposed waiting for the next stage; with each=yes, exposed or not.
-- @column other_comm_ns ns        Other exposed communication without known transfer: waiting in collectives, and all
--                                 of calls that are not known.
-- @column exposed_memcpy_ns ns    Memcpys and memsets without a concurrent kernel.
-- @column idle_ns ns              Time without any work.
-- @column bubble_ns ns            Window - compute - transfer: the sum of the five columns before. With each=yes, the
--                                 waiting.
-- @column warmup_ns ns            Waiting for both stages: until the first gradient.
-- @column steady_ns ns            Waiting for both stages: between, and if the step is not known.
-- @column drain_ns ns             Waiting for both stages: after the last activation, or for the next step.
-- @column bubble_pct %            Share of the window.
-- @column ideal_pct %             Least bubble of the schedule; empty if the micro-batches are not known.
-- @column stages count            Stages, p.
-- @column micro_batches count     Micro-batches of a step, m.
-- @column chunks count            Chunks of layers per stage, v: 1 unless interleaved.
-- @main run_id, stage, step, micro_batch, moves, peer, start_ns, part, span_ns, compute_ns, transfer_ns,
--     wait_previous_ns, wait_next_ns, idle_ns, bubble_pct, ideal_pct
-- @order run_id, pipeline, step, start_ns, stage, rank, device
-- @use arithmetic, exposed_comm, gpu_timeline, intervals, pipelines, run_zeros, steps
-- @needs sends and receives (communication kernels whose peers are known)
-- @pass gpu
-- @disturbed waits and idle time
-- @plot bars y=stage,step
--     x=compute_ns,transfer_ns,wait_previous_ns,wait_next_ns,other_comm_ns,exposed_memcpy_ns,idle_ns top=64 per=step
WITH transfers AS MATERIALIZED (
    SELECT * FROM pipeline_transfers
),
-- Arrival of the first gradient and of the last activation of a step.
edges AS (
    SELECT
        run_group, run_id, rank, step_number,
        min(start_ns + dur_ns) FILTER (received > 0 AND (peer = 'next' OR stage = stages - 1)) AS warm_ns,
        max(start_ns + dur_ns) FILTER (
            received > 0 AND peer = 'previous' OR sent > 0 AND peer = 'next' AND stage = 0
        ) AS last_ns
    FROM transfers
    WHERE step_number IS NOT NULL
    GROUP BY run_group, run_id, rank, step_number
),
parted AS (
    SELECT
        t.*, CASE
            WHEN t.start_ns < e.warm_ns THEN 'warmup'
            WHEN t.start_ns >= greatest(e.warm_ns, e.last_ns) THEN 'drain'
            ELSE 'steady'
        END AS part
    FROM transfers t
    LEFT JOIN edges e
        ON e.run_group IS NOT DISTINCT FROM t.run_group AND e.run_id = t.run_id AND e.rank = t.rank
        AND e.step_number = t.step_number
),
calls AS (
    SELECT
        t.track, p.call, any_value(p.peer) AS peer, any_value(p.part) AS part, any_value(p.step_number) AS step_number
    FROM parted p
    JOIN gpu_tracks t ON t.run_id = p.run_id AND t.rank = p.rank AND t.device IS NOT DISTINCT FROM p.device
    GROUP BY t.track, p.call
),
numbered_steps AS (
    SELECT
        run_id, rank, step, start_ns, row_number() OVER (PARTITION BY run_id, rank ORDER BY start_ns) - 1 AS step_number
    FROM step_windows
),
stretches AS (
    SELECT
        e.track, e.start_ns, e.end_ns, c.peer, c.part, coalesce(s.start_ns, e.start_ns) AS step_ns,
        CASE
            WHEN owner.part = 'transfer' OR c.peer IN ('previous', 'next') AND owner.part = 'waiting' THEN owner.part
            ELSE 'other'
        END AS what
    FROM exposed_comm e
    JOIN gpu_tracks t ON t.track = e.track
    LEFT JOIN calls c ON c.track = e.track AND c.call = owner.call
    LEFT JOIN numbered_steps s ON s.run_id = t.run_id AND s.rank = t.rank AND s.step_number = c.step_number
),
-- Waiting before the start of the step is drain of the previous step.
owned AS (
    SELECT track, start_ns, least(end_ns, step_ns) AS end_ns, peer, 'drain' AS part, what
    FROM stretches
    WHERE start_ns < step_ns
    UNION ALL
    SELECT track, greatest(start_ns, step_ns), end_ns, peer, part, what
    FROM stretches
    WHERE end_ns > step_ns
),
exposed AS (
    SELECT
        window_id, sum(end_ns - start_ns) FILTER (what = 'transfer') AS transfer_ns,
        sum(end_ns - start_ns) FILTER (what = 'waiting' AND peer = 'previous') AS wait_previous_ns,
        sum(end_ns - start_ns) FILTER (what = 'waiting' AND peer = 'next') AS wait_next_ns,
        sum(end_ns - start_ns) FILTER (what = 'waiting' AND part = 'warmup') AS warmup_ns,
        sum(end_ns - start_ns) FILTER (what = 'waiting' AND part = 'steady') AS steady_ns,
        sum(end_ns - start_ns) FILTER (what = 'waiting' AND part = 'drain') AS drain_ns,
        sum(end_ns - start_ns) FILTER (what = 'other') AS other_comm_ns
    FROM intervals_clip('owned', 'gpu_windows_{window}')
    GROUP BY window_id
),
lengths AS (
    SELECT window_id, busy_ns, kernel_ns, compute_ns, cold_ns FROM gpu_lengths_{window}
),
known AS (
    SELECT
        run_id, rank, any_value(pipeline) FILTER (complete) AS pipeline, any_value(stage) FILTER (complete) AS stage,
        any_value(stages) FILTER (complete) AS stages, any_value(micro_batches) AS micro_batches,
        any_value(chunks) AS chunks
    FROM transfers
    GROUP BY run_id, rank
),
of_stages AS (
    SELECT
        t.run_group, t.run_id, k.pipeline, k.stage, t.rank, t.device, w.step,
        w.end_ns - w.start_ns - coalesce(cold_ns, 0) AS span_ns,
        coalesce(compute_ns, 0) AS compute_ns, coalesce(transfer_ns, 0)::BIGINT AS transfer_ns,
        coalesce(wait_previous_ns, 0)::BIGINT AS wait_previous_ns, coalesce(wait_next_ns, 0)::BIGINT AS wait_next_ns,
        coalesce(other_comm_ns, 0)::BIGINT AS other_comm_ns, coalesce(busy_ns - kernel_ns, 0) AS exposed_memcpy_ns,
        w.end_ns - w.start_ns - coalesce(busy_ns, 0) - coalesce(cold_ns, 0) AS idle_ns,
        (
            w.end_ns - w.start_ns - coalesce(cold_ns, 0) - coalesce(compute_ns, 0) - coalesce(transfer_ns, 0)
        )::BIGINT AS bubble_ns,
        coalesce(warmup_ns, 0)::BIGINT AS warmup_ns, coalesce(steady_ns, 0)::BIGINT AS steady_ns,
        coalesce(drain_ns, 0)::BIGINT AS drain_ns, k.stages, k.micro_batches, k.chunks
    FROM gpu_windows_{window} w
    JOIN gpu_tracks t USING (track)
    JOIN known k ON k.run_id = t.run_id AND k.rank = t.rank
    LEFT JOIN exposed USING (window_id)
    LEFT JOIN lengths USING (window_id)
),
of_transfers AS (
    SELECT
        p.run_group, p.run_id, k.pipeline, k.stage, p.rank, p.device, s.step, p.turn AS micro_batch,
        CASE WHEN p.forward THEN 'activation' WHEN NOT p.forward THEN 'gradient' WHEN p.sends IS NULL THEN 'both' END
            AS moves, p.peer, p.sends, p.part,
        p.own_start_ns - zero_ns AS start_ns, p.dur_ns - p.excluded_ns AS span_ns,
        p.dur_ns - p.excluded_ns - p.wait_ns AS transfer_ns,
        CASE WHEN p.peer = 'previous' THEN p.wait_ns END AS wait_previous_ns,
        CASE WHEN p.peer = 'next' THEN p.wait_ns END AS wait_next_ns, p.wait_ns AS bubble_ns, k.stages,
        k.micro_batches, k.chunks
    FROM parted p
    JOIN known k USING (run_id, rank)
    JOIN run_zeros USING (run_id)
    LEFT JOIN numbered_steps s
        ON s.run_id = p.run_id AND s.rank = p.rank AND s.step_number = p.step_number
)
SELECT
    run_group, run_id, pipeline, stage, rank, device, step, micro_batch, moves, peer, sends, part, start_ns, span_ns,
    compute_ns, transfer_ns, wait_previous_ns, wait_next_ns, other_comm_ns, exposed_memcpy_ns, idle_ns, bubble_ns,
    warmup_ns, steady_ns, drain_ns, pct(bubble_ns, span_ns) AS bubble_pct,
    CASE WHEN '{each}' = 'no' THEN 100.0::DOUBLE * (stages - 1) / (chunks * micro_batches + stages - 1) END
        AS ideal_pct,
    stages, micro_batches, chunks
FROM (
    SELECT * FROM of_stages WHERE '{each}' = 'no'
    UNION ALL BY NAME
    SELECT * FROM of_transfers WHERE '{each}' = 'yes'
)
