-- What waiting is an artifact of the recording: ranks that began to record later than others, and cold first calls.
-- @use collective_kinds

-- @table rank_starts  a row is a rank with GPU work: when it, and all ranks, began to record.
-- @columns run_id, rank
-- @column steps count             Recorded steps.
-- @column start_ns ns             Start of its first step, else of its GPU work.
-- @column common_start_ns ns      The latest such start, if the ranks began more than 1 ms apart; else NULL.
-- Only ranks of one host share a clock. A start beyond the first half of a rank's GPU work does not count: the ranks
-- were not recorded together.
CREATE TABLE rank_starts AS
WITH _work AS (
    SELECT run_id, rank, min(first_ns) AS first_ns, max(last_ns) AS last_ns FROM gpu_spans GROUP BY ALL
),
_steps AS (
    SELECT run_id, rank, count(*) AS steps, min(start_ns) AS step_ns FROM recorded_steps GROUP BY ALL
),
_starts AS (
    SELECT
        run_id, rank, coalesce(steps, 0) AS steps, coalesce(step_ns, first_ns) AS start_ns,
        max(coalesce(step_ns, first_ns)) OVER hosts AS latest_ns,
        min(coalesce(step_ns, first_ns)) OVER hosts AS earliest_ns,
        min(first_ns // 2 + last_ns // 2) OVER hosts AS middle_ns
    FROM _work LEFT JOIN _steps USING (run_id, rank) LEFT JOIN rank_hosts h USING (run_id, rank)
    WINDOW hosts AS (PARTITION BY run_id, h.host)
)
SELECT
    run_id, rank, steps, start_ns,
    CASE WHEN latest_ns > earliest_ns + 1000000 AND latest_ns < middle_ns THEN latest_ns END AS common_start_ns
FROM _starts;

-- @table cold_kernels  a row is a kernel of a cold first call: the first recorded collective of a process group, which
--   has more than 90 % of the waiting in all of two or more steps, and in five or more calls.
-- It sets up connections, or the ranks were not yet in step; a rank that is late in every step has no such call. Here,
-- the n-th kernels of a collective on each rank are one call, and a kernel waits for as long as it is longer than the
-- shortest kernel of its call: both hold for collectives that no rank can leave early, and neither needs a common
-- clock.
-- @columns run_id, rank
-- @column device index            GPU.
-- @column group_name text         Process group; NULL if not known.
-- @columns start_ns
-- @column wait_ns ns              Its waiting.
-- @column group_wait_ns ns        Waiting in all calls of the group on this rank.
-- @column calls count             Calls of the group.
CREATE TABLE cold_kernels AS
WITH _kernels AS (
    SELECT
        k.run_id, k.rank, k.device, k.start_ns, k.dur_ns,
        {'name': k.group_name, 'ranks': k.group_ranks, 'size': k.group_size} AS of,
        kernel_collective(k.collective, n.collective) AS collective
    FROM comm_kernels k JOIN kernel_names n ON n.run_id = k.run_id AND n.name = k.name
    WHERE n.family = 'communication' AND k.dur_ns IS NOT NULL
),
_numbered AS (
    SELECT *, row_number() OVER (PARTITION BY run_id, rank, of, collective ORDER BY start_ns) AS number
    FROM _kernels
    WHERE ends_together(collective)
),
_waits AS (
    SELECT
        *, dur_ns - min(dur_ns) OVER calls AS wait_ns, count(*) OVER calls AS ranks,
        max(start_ns) OVER calls < min(start_ns + dur_ns) OVER calls AS met
    FROM _numbered
    WINDOW calls AS (PARTITION BY run_id, of, collective, number)
),
_judged AS (
    SELECT
        *, start_ns = min(start_ns) OVER ranks AS is_first, sum(wait_ns) OVER ranks AS group_wait_ns,
        count(*) OVER ranks AS calls, sum(wait_ns) OVER (PARTITION BY run_id, of) AS all_ns,
        sum(wait_ns) OVER (PARTITION BY run_id, of, collective, number) AS call_ns
    FROM _waits
    WINDOW ranks AS (PARTITION BY run_id, rank, of)
)
SELECT
    run_id, rank, device, of.name AS group_name, start_ns, wait_ns, group_wait_ns::BIGINT AS group_wait_ns, calls
FROM _judged
WHERE is_first AND number = 1 AND ranks > 1 AND met AND calls >= 5 AND 10 * call_ns > 9 * all_ns
    AND (run_id, rank) IN (SELECT (run_id, rank) FROM rank_starts WHERE steps >= 2);
