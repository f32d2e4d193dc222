-- Phases of the training steps on the CPU. gpu_work has the phase of GPU work.
-- @use intervals

-- @table phase_ranges  a row is an interval of a phase on a rank: the union of its ranges over all threads. Different
--   phases may overlap.
-- @columns run_id, rank, run_group
-- @column phase text              Phase of the training step.
-- @columns start_ns, dur_ns
CREATE TABLE phase_ranges AS
WITH _reached AS (
    SELECT
        * EXCLUDE (begins),
        coalesce(start_ns >= previous_end((run_id, rank, phase), start_ns, end_ns), true) AS begins
    FROM (SELECT *, start_ns + dur_ns AS end_ns FROM phase_calls)
),
_numbered AS (
    SELECT
        *, count(CASE WHEN begins THEN 1 END) OVER (
            PARTITION BY run_id, rank, phase ORDER BY start_ns, end_ns DESC ROWS UNBOUNDED PRECEDING
        ) AS number
    FROM _reached
)
SELECT run_id, rank, run_group, phase, min(start_ns) AS start_ns, max(end_ns) - min(start_ns) AS dur_ns
FROM _numbered
GROUP BY run_id, rank, run_group, phase, number;

-- @table phase_tracks  a row is a thread with phases of its own, or all other threads of a process together.
-- @column track index             Its number.
-- @columns run_id, rank
-- @column tid id                  Thread; NULL for the others.
CREATE TABLE phase_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank, tid)::INTEGER AS track, run_id, rank, tid
FROM (
    SELECT DISTINCT run_id, rank, tid FROM phase_calls WHERE tid IS NOT NULL
    UNION ALL
    SELECT DISTINCT run_id, rank, NULL FROM phase_calls
);

-- @table phase_segments  a row is a segment of a phase track in one phase: the innermost of its own thread, else the
--   innermost of any thread.
-- @columns track, start_ns, end_ns
-- @column phase text              Phase of the training step.
-- @column call_ns ns              Start of the call of the phase.
CREATE TABLE phase_segments AS
WITH _calls AS (
    SELECT
        track, c.phase, c.call_start_ns AS call_ns, c.start_ns, c.start_ns + c.dur_ns AS end_ns,
        (c.tid = t.tid IS TRUE)::INTEGER AS level
    FROM phase_calls c JOIN phase_tracks t USING (run_id, rank)
)
SELECT track, start_ns, end_ns, latest.phase AS phase, latest.call_ns AS call_ns FROM intervals_latest('_calls');
