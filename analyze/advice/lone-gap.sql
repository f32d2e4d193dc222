-- One gap has nearly all of the idle time of the GPU
--
-- Saving: The gap that has more than 90 % of a GPU's idle time, in three or more steps or ten or more gaps; mean over
-- the GPUs. No other finding counts it.
-- See: gaps
-- Try: look at what the CPU does in it. If it belongs to the start or end of the program (loading, a warm-up,
-- saving a checkpoint), exclude it from the recording.
-- @use findings, gpu_timeline
-- @needs work on GPUs with gaps between
WITH calls AS (
    SELECT
        g.track, arg_max(
            {'name': c.name, 'ns': least(c.start_ns + c.dur_ns, g.end_ns) - greatest(c.start_ns, g.start_ns)},
            (least(c.start_ns + c.dur_ns, g.end_ns) - greatest(c.start_ns, g.start_ns), c.name)
        ) AS longest
    FROM lone_gaps g
    JOIN gpu_tracks t USING (track)
    JOIN cuda_calls c
        ON c.run_id = t.run_id AND c.rank = t.rank AND c.start_ns < g.end_ns AND c.start_ns + c.dur_ns > g.start_ns
    WHERE c.api <> 'sync'
    GROUP BY g.track
),
lone AS (
    SELECT * FROM run_times('lone_gaps')
),
most AS (
    SELECT t.run_id, t.rank, t.device, c.longest, i.idle_ns
    FROM gpu_tracks t
    JOIN (SELECT track, sum(end_ns - start_ns) AS idle_ns FROM gpu_idle GROUP BY track) i USING (track)
    LEFT JOIN calls c USING (track)
)
SELECT
    g.run_group, run_id, l.ns / gpus AS saving_ns,
    printf('%s of %s of idle time (%.1f %%) are one gap', ms(l.longest.end_ns - l.longest.start_ns), ms(m.idle_ns),
        100.0 * (l.longest.end_ns - l.longest.start_ns) / m.idle_ns)
        || CASE WHEN 2 * m.longest.ns > l.longest.end_ns - l.longest.start_ns
            THEN printf('; the CPU is in %s for %s of it', m.longest.name, ms(m.longest.ns)) ELSE '' END
        || CASE WHEN l.pieces > 1 THEN printf('; %d GPUs have such a gap', l.pieces) ELSE '' END AS evidence,
    l.longest.rank, l.longest.device, l.longest.start_ns, l.longest.end_ns, l.source
FROM lone l
JOIN run_gpus g USING (run_id)
JOIN most m ON m.run_id = l.run_id AND m.rank = l.longest.rank AND m.device IS NOT DISTINCT FROM l.longest.device
