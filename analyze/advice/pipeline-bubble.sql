-- Pipeline stages wait for other stages
--
-- Saving: Waits in pipeline bubbles: from the start of a send or receive to the start of its peer, at most the duration
-- of its kernel, without concurrent compute or transfer; mean over the GPUs.
-- Of: late ranks
-- See: pipeline-bubbles
-- Try: more micro-batches, an interleaved or zero-bubble schedule, stages of equal duration; check what the rank that
-- others wait for does before it sends.
-- @use findings
-- @needs sends and receives whose peers are known
WITH waits AS MATERIALIZED (
    SELECT * FROM call_waits WHERE pair
),
alone AS MATERIALIZED (
    SELECT track, start_ns, end_ns FROM exposed_waits WHERE pair
),
exposed AS (
    SELECT * FROM run_time_within('alone', 'alone')
),
counts AS (
    SELECT run_id, count(DISTINCT call) AS calls FROM waits GROUP BY run_id
)
SELECT
    g.run_group, run_id, e.ns / gpus AS saving_ns,
    printf('each GPU waits %s without other work, in %s; others wait longest for rank %d: %s while it does not wait',
        ms(e.ns / gpus), counted(c.calls, 'pair of send and receive', 'pairs of send and receive'), r.rank,
        ms(r.blocked_ns)) || coalesce(printf(', and its GPU computes for %s and is idle for %s',
            ms(d.ns - d.idle_ns), ms(d.idle_ns)), '') || coalesce(w.note, '') AS evidence,
    unnest(coalesce(d.longest, e.longest)), d.source
FROM exposed e
JOIN (SELECT * FROM latest_ranks WHERE pair) r USING (run_id)
JOIN counts c USING (run_id)
LEFT JOIN late_times(true) d USING (run_id)
JOIN run_gpus g USING (run_id)
LEFT JOIN unknown_waits w USING (run_id)
