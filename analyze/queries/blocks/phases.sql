-- The phases of the training steps.
-- @use gpu_work, intervals, launch_calls
-- @keep gpu_work_phases
-- @once phase_calls, phase_ranges, phase_stretches, phase_tracks

-- @view inferred_phases  a row is a stretch of a phase on a thread, as autograd tells it.
-- Of ranks without ranges named like the collector's phases. The nodes that autograd's engine evaluates are backward,
-- the ranges of torch's optimizers optimizer, and forward are the operators that made those nodes: of the operators
-- with the sequence number of one, the last to begin, and those around it. What lies inside a node or an optimizer is
-- part of that. A stretch is from the first to the last of them on a thread with none of another phase between on the
-- rank.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column tid id                Thread.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column phase text            forward or backward.
CREATE VIEW inferred_phases AS
WITH _annotated AS (
    SELECT DISTINCT run_id, rank
    FROM ranges
    WHERE origin IN ('record_function', 'nvtx')
        AND name IN ('data', 'h2d', 'forward', 'loss', 'backward', 'optimizer')
),
_nodes AS (
    SELECT run_id, rank, run_group, tid, start_ns, start_ns + dur_ns AS end_ns, sequence_number
    FROM cpu_ops ANTI JOIN _annotated USING (run_id, rank)
    WHERE starts_with(name, 'autograd::engine::evaluate_function') AND dur_ns IS NOT NULL
),
_marks AS (
    SELECT run_id, rank, run_group, tid, start_ns, end_ns, 'backward' AS phase, NULL AS sequence_number FROM _nodes
    UNION ALL
    SELECT run_id, rank, run_group, tid, start_ns, start_ns + dur_ns, 'optimizer', NULL
    FROM ranges
    WHERE origin IN ('record_function', 'nvtx') AND name LIKE 'Optimizer.%#%' AND dur_ns IS NOT NULL
    UNION ALL
    SELECT o.run_id, o.rank, o.run_group, o.tid, o.start_ns, o.start_ns + o.dur_ns, 'forward', o.sequence_number
    FROM cpu_ops o SEMI JOIN _nodes USING (run_id, rank, sequence_number)
    WHERE NOT starts_with(o.name, 'autograd::engine') AND o.dur_ns IS NOT NULL
),
_outside AS (
    SELECT *
    FROM _marks
    QUALIFY coalesce(start_ns >= max(CASE WHEN phase <> 'forward' THEN end_ns END) OVER (
        PARTITION BY run_id, rank, tid ORDER BY start_ns, end_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), true)
),
_made AS (
    SELECT *
    FROM _outside
    QUALIFY phase <> 'forward' OR end_ns >= arg_max(end_ns, (start_ns, -end_ns)) OVER (
        PARTITION BY run_id, rank, tid, sequence_number
    )
),
_turned AS (
    SELECT *, phase IS DISTINCT FROM lag(phase) OVER in_order AS turns
    FROM _made
    WINDOW in_order AS (PARTITION BY run_id, rank ORDER BY start_ns, end_ns DESC, tid)
),
_numbered AS (
    SELECT *, count(CASE WHEN turns THEN 1 END) OVER (
        PARTITION BY run_id, rank ORDER BY start_ns, end_ns DESC, tid ROWS UNBOUNDED PRECEDING
    ) AS number
    FROM _turned
)
SELECT run_id, rank, run_group, tid, min(start_ns) AS start_ns, max(end_ns) AS end_ns, phase
FROM _numbered
WHERE phase <> 'optimizer'
GROUP BY run_id, rank, run_group, tid, number, phase;

-- @view phase_calls  a row is a range of a phase on a thread.
-- Ranges named like the collector's phases; only for a rank without any, what torch itself annotates and the
-- inferred_phases. Ranges of one phase that overlap on a thread (an optimizer that steps another) are one call.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column tid id                Thread.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column phase text            Phase of the training step.
-- @column inferred bool         Whether no range says so.
-- @column begins bool           Whether it is the first of ranges that overlap.
-- @column call_ns ns            Start of that one.
CREATE VIEW phase_calls AS
WITH _named AS (
    SELECT
        run_id, rank, run_group, tid, start_ns, start_ns + dur_ns AS end_ns,
        CASE
            WHEN name IN ('data', 'h2d', 'forward', 'loss', 'backward', 'optimizer') THEN name
            WHEN name LIKE 'enumerate(DataLoader)%' THEN 'data'
            WHEN name IN ('DistributedDataParallel.forward', 'DataParallel.forward') THEN 'forward'
            WHEN name LIKE 'Optimizer.step#%' OR name LIKE 'Optimizer.zero_grad#%' THEN 'optimizer'
        END AS phase,
        name IN ('data', 'h2d', 'forward', 'loss', 'backward', 'optimizer') AS own
    FROM ranges
    WHERE origin IN ('record_function', 'nvtx') AND dur_ns IS NOT NULL
),
_said AS (
    SELECT * EXCLUDE (own), false AS inferred
    FROM _named
    WHERE phase IS NOT NULL
    QUALIFY own OR NOT bool_or(own) OVER (PARTITION BY run_id, rank)
),
_chosen AS (
    SELECT * FROM _said
    UNION ALL BY NAME
    SELECT *, true AS inferred FROM inferred_phases
),
_reached AS (
    SELECT
        *, coalesce(start_ns >= furthest_end((run_id, rank, tid, phase), start_ns, end_ns), true) AS begins
    FROM _chosen
)
SELECT
    *, max(start_ns) FILTER (begins) OVER (
        PARTITION BY run_id, rank, tid, phase ORDER BY start_ns, end_ns DESC ROWS UNBOUNDED PRECEDING
    ) AS call_ns
FROM _reached;

-- @view phase_ranges  a row is a stretch of a phase on a rank.
-- The union of its ranges over all threads. Different phases may overlap.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column phase text            Phase of the training step.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
CREATE VIEW phase_ranges AS
WITH _reached AS (
    SELECT
        * EXCLUDE (begins),
        coalesce(start_ns >= furthest_end((run_id, rank, phase), start_ns, end_ns), true) AS begins
    FROM phase_calls
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

-- @view phase_tracks  a row is a thread with phases of its own, or all other threads of a process as one.
-- @column track index           Its number.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column tid id                Thread; NULL for the others.
CREATE VIEW phase_tracks AS
SELECT row_number() OVER (ORDER BY run_id, rank, tid)::INTEGER AS track, run_id, rank, tid
FROM (
    SELECT DISTINCT run_id, rank, tid FROM phase_calls WHERE tid IS NOT NULL
    UNION ALL
    SELECT DISTINCT run_id, rank, NULL FROM phase_calls
);

-- @view phase_stretches  a row is a stretch of such a track in one phase.
-- The phase is the innermost of its own, else the innermost of any thread's.
-- @column track index           The track that it stands on.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
-- @column phase text            Phase of the training step.
-- @column call_ns ns            Start of the call of the phase.
CREATE VIEW phase_stretches AS
WITH _calls AS (
    SELECT track, c.phase, c.call_ns, c.start_ns, c.end_ns, (c.tid = t.tid IS TRUE)::INTEGER AS level
    FROM phase_calls c JOIN phase_tracks t USING (run_id, rank)
)
SELECT track, start_ns, end_ns, latest.phase AS phase, latest.call_ns AS call_ns FROM intervals_last_begun('_calls');

-- @view gpu_work_phases  a row is GPU work with its phase.
-- The phase is one of the call's own thread or, where that is in none, of another of the process (autograd launches the
-- backward pass from one).
-- @column * of gpu_work
-- @column phase text            Phase that its launch call began in; NULL where there is none.
-- @column phase_start_ns ns     Start of that call of the phase; NULL where there is none.
CREATE VIEW gpu_work_phases AS
WITH _launches AS (
    SELECT l.run_id, l.rank, l.correlation_id, l.start_ns AS at_ns, coalesce(own.track, others.track) AS track
    FROM (SELECT * FROM launch_calls SEMI JOIN gpu_work USING (run_id, rank, correlation_id)) l
    LEFT JOIN phase_tracks own ON own.run_id = l.run_id AND own.rank = l.rank AND own.tid = l.tid
    LEFT JOIN phase_tracks others ON others.run_id = l.run_id AND others.rank = l.rank AND others.tid IS NULL
),
_phased AS (
    SELECT run_id, rank, correlation_id, inside.phase, inside.call_ns AS phase_start_ns
    FROM points_in_ranges('_launches', 'phase_stretches')
    WHERE inside IS NOT NULL
)
SELECT
    w.run_id, w.rank, w.run_group, w.device, w.stream, w.kind, w.name, w.correlation_id, w.op_id, w.start_ns, w.dur_ns,
    p.phase, p.phase_start_ns
FROM gpu_work w LEFT JOIN _phased p USING (run_id, rank, correlation_id);
