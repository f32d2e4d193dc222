-- The phases of the training steps on the CPU; gpu_work has those of GPU work.
-- @use intervals

-- @table phase_ranges  a row is a stretch of a phase on a rank.
-- The union of its ranges over all threads. Different phases may overlap.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column phase text            Phase of the training step.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
CREATE TABLE phase_ranges AS
WITH _reached AS (
    SELECT
        * EXCLUDE (begins),
        coalesce(start_ns >= furthest_end((run_id, rank, phase), start_ns, end_ns), true) AS begins
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

-- @table phase_tracks  a row is a thread with phases of its own, or all other threads of a process as one.
-- @column track index           Its number.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread; NULL for the others.
CREATE TABLE phase_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank, tid)::INTEGER AS track, run_id, rank, tid
FROM (
    SELECT DISTINCT run_id, rank, tid FROM phase_calls WHERE tid IS NOT NULL
    UNION ALL
    SELECT DISTINCT run_id, rank, NULL FROM phase_calls
);

-- @table phase_stretches  a row is a stretch of such a track in one phase.
-- The phase is the innermost of its own, else the innermost of any thread's.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column phase text            Phase of the training step.
-- @column call_ns ns            Start of the call of the phase.
CREATE TABLE phase_stretches AS
WITH _calls AS (
    SELECT
        track, c.phase, c.call_start_ns AS call_ns, c.start_ns, c.start_ns + c.dur_ns AS end_ns,
        (c.tid = t.tid IS TRUE)::INTEGER AS level
    FROM phase_calls c JOIN phase_tracks t USING (run_id, rank)
)
SELECT track, start_ns, end_ns, latest.phase AS phase, latest.call_ns AS call_ns FROM intervals_last_begun('_calls');
