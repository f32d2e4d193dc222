-- Ranks wait for what others send, as the stages of a pipeline do
--
-- Saving: The waiting in a pipeline's bubble: from the start of a send or receive to the start of its other half, at
-- most as long as its kernel runs, where neither compute nor a transfer runs beside it, over the GPUs.
-- See: pipeline-bubbles
-- Try: more micro-batches, an interleaved or zero-bubble schedule, stages of equal length; look at what the rank that
-- others wait for does before it sends.
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @column rank index              Rank of the longest stretch that it is about.
-- @column device index            GPU of that.
-- @column start_ns ns             Its start.
-- @column end_ns ns               Its end.
-- @column source text             Line of the program that most of its time comes from; NULL if not known.
-- @order run_id
-- @use run_gpus, time_owners
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
    printf('in %s a GPU does nothing but wait for %s; for rank %d others wait longest, %s while it waits for no one',
        counted(c.calls, 'pair of send and receive', 'pairs of send and receive'), ms(e.ns / gpus), r.rank,
        ms(r.blocked_ns)) || coalesce(w.note, '') AS evidence,
    e.longest.rank, e.longest.device, e.longest.start_ns, e.longest.end_ns, e.source
FROM exposed e
JOIN (SELECT * FROM latest_ranks WHERE pair) r USING (run_id)
JOIN counts c USING (run_id)
JOIN run_gpus g USING (run_id)
LEFT JOIN unknown_waits w USING (run_id)
