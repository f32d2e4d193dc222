-- Ranks wait for the slowest one in collectives
--
-- Saving: Latest start less own start, summed over the matched collective calls, mean over the ranks that take part;
-- runs of several ranks.
-- See: stragglers
-- Try: even out the work (batch sizes, sequence lengths, data loading); look at what the last rank does before the
-- collective.
-- @use run_gpus, collective_calls
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @order run_id
WITH members AS (
    SELECT
        run_id, rank, call, max(start_ns) OVER (PARTITION BY run_id, call) - start_ns AS wait_ns,
        count(*) OVER (PARTITION BY run_id, call) AS ranks
    FROM collective_kernels
),
by_rank AS (
    SELECT run_id, rank, count(*) AS calls, sum(wait_ns) AS ns FROM members WHERE ranks > 1 GROUP BY run_id, rank
),
summed AS (
    SELECT
        run_id, count(*) AS ranks, avg(ns) AS ns, max(ns) AS most_ns, max(calls) AS calls,
        arg_min(rank, ns) AS last_rank
    FROM by_rank
    GROUP BY run_id
    HAVING count(*) > 1
)
SELECT
    g.run_group, run_id, ns AS saving_ns,
    printf('in %d collectives a rank waits %s on average, at most %s; rank %d waits least',
        calls, ms(ns), ms(most_ns), last_rank) AS evidence
FROM summed JOIN run_gpus g USING (run_id)
