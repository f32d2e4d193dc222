-- How long does each training step take, and how much of it waits for data?
--
-- From the collector's step_metrics where the run has them; else from the ProfilerStep ranges of the trace and the
-- data-loading ranges inside them.
-- @use arithmetic, phases
-- @needs the collector's step metrics, or ProfilerStep ranges
-- @param warmup no|yes = no       Whether warm-up steps are shown.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column step index              Step number.
-- @column data_ns ns              Waiting for the batch.
-- @column train_ns ns             The rest of the step.
-- @column step_ns ns              The whole step.
-- @column data_pct %              Share of the step that waits for data.
-- @column images_per_s images/s   Images of this rank per second, where the run says how many.
-- @order run_id, rank, step
WITH timed AS (
    SELECT
        run_group, run_id, rank, step, warmup, images,
        round(data_s * 1e9)::BIGINT AS data_ns, round(step_s * 1e9)::BIGINT AS step_ns
    FROM step_metrics
),
traced AS (
    SELECT
        s.run_group, s.run_id, s.rank, regexp_extract(s.name, '\d+$')::INTEGER AS step, false AS warmup,
        NULL::BIGINT AS images, coalesce(sum(d.dur_ns), 0)::BIGINT AS data_ns, any_value(s.dur_ns) AS step_ns
    FROM ranges s
    LEFT JOIN phase_ranges d
        ON d.run_id = s.run_id AND d.rank = s.rank AND d.phase = 'data'
        AND d.start_ns >= s.start_ns AND d.start_ns < s.start_ns + s.dur_ns
    WHERE s.origin = 'profiler_step' AND (s.run_id, s.rank) NOT IN (SELECT (run_id, rank) FROM timed)
    GROUP BY ALL
),
steps AS (
    SELECT * FROM timed UNION ALL BY NAME SELECT * FROM traced
)
SELECT
    run_group, run_id, rank, step, data_ns, step_ns - data_ns AS train_ns, step_ns,
    pct(data_ns, step_ns) AS data_pct,
    images * 1e9 / nullif(step_ns, 0) AS images_per_s
FROM steps
WHERE NOT coalesce(warmup, false) OR '{warmup}' = 'yes'
