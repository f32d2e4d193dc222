-- Pipelines: ranks that send to each other, in order, and what they send.
-- @use collective_calls

-- @view pipeline_pairs  a row is a send or receive of a pipeline.
-- Of a group that is one (pp), or that is not known to be another.
-- @column * of collective_kernels
-- @column ranks count           Kernels of the call.
-- @column last_start_ns ns      Latest start of the call.
-- @column first_end_ns ns       Earliest end of it.
-- @column buffered bool         Whether its send had ended when the receive began.
-- @column status text           What is known.
-- @column wait_ns ns            Of matched calls: from the kernel's start to the latest start, or to its own end.
-- @column last bool             Whether others may have waited for it.
CREATE VIEW pipeline_pairs AS
SELECT *
FROM judged_calls('collective_kernels')
WHERE source IS NOT NULL AND source <> destination AND coalesce(contains(dimension, 'pp'), true);

-- @view pipeline_stages  a row is a rank of a pipeline: ranks that send to each other, directly or over others.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column pipeline index        Lowest rank of its pipeline.
-- @column stage index           Its place in it, from 0: ranks in order.
-- @column stages count          Ranks of the pipeline.
-- @column complete bool         Whether all of them were recorded; if not, there may be more of them than were found.
CREATE VIEW pipeline_stages AS
WITH RECURSIVE _edges AS (
    SELECT DISTINCT run_id, source AS a, destination AS b FROM pipeline_pairs
    UNION
    SELECT DISTINCT run_id, destination, source FROM pipeline_pairs
),
_reached AS (
    SELECT DISTINCT run_id, a AS rank, a AS other FROM _edges
    UNION
    SELECT r.run_id, r.rank, e.b FROM _reached r JOIN _edges e ON e.run_id = r.run_id AND e.a = r.other
),
_pipelines AS (
    SELECT run_id, rank, min(other) AS pipeline FROM _reached GROUP BY run_id, rank
)
SELECT
    run_id, rank, pipeline,
    row_number() OVER (PARTITION BY run_id, pipeline ORDER BY rank) - 1 AS stage,
    count(*) OVER (PARTITION BY run_id, pipeline) AS stages,
    count(recorded) OVER (PARTITION BY run_id, pipeline) = count(*) OVER (PARTITION BY run_id, pipeline) AS complete
FROM _pipelines LEFT JOIN (SELECT DISTINCT run_id, rank, true AS recorded FROM pipeline_pairs) USING (run_id, rank);

-- @view pipeline_transfers  a row is a send or receive of a stage, with its neighbour and its micro-batch.
-- Activations go to the next stage, gradients to the previous one. In an interleaved schedule the last stage's next one
-- is the first. From one stage to the next go as many activations a step as there are micro-batches, times the chunks
-- of a stage; from the last to the first one chunk's less.
-- @column * of pipeline_pairs
-- @column pipeline index        Lowest rank of its pipeline.
-- @column stage index           The rank's place in it, from 0.
-- @column stages count          Ranks of the pipeline.
-- @column complete bool         Whether all of them were recorded. A stage knows its neighbours all the same.
-- @column peer text             previous or next; other of a stage that is no neighbour.
-- @column forward bool          Whether it is an activation, not a gradient; NULL of a batch of both.
-- @column per_step count        Transfers of a step between the same two stages in one direction; NULL if not known.
-- @column step_number index     Which of the recording's steps it belongs to, from 0; NULL if not known.
-- @column turn index            Which transfer of its step it is, of the same two stages and direction, from 0.
-- @column micro_batches count   Micro-batches of a step; NULL if not known, as where a rank was not recorded, or other
--                               steps of some ranks than of others.
-- @column chunks count          Chunks of layers that a stage holds, 2 or more if interleaved; likewise.
CREATE VIEW pipeline_transfers AS
WITH _steps AS (
    SELECT run_id, rank, count(*) AS steps
    FROM ranges
    WHERE origin = 'profiler_step' OR origin = 'nvtx' AND name = 'step'
    GROUP BY run_id, rank
),
_placed AS (
    SELECT
        p.*, s.pipeline, s.stage, s.stages, s.complete, o.stage AS other_stage, n.steps,
        CASE
            WHEN o.stage = s.stage + 1 THEN 'next'
            WHEN o.stage = s.stage - 1 THEN 'previous'
            WHEN s.stage = s.stages - 1 AND o.stage = 0 THEN 'next'
            WHEN s.stage = 0 AND o.stage = s.stages - 1 THEN 'previous'
            ELSE 'other'
        END AS peer
    FROM pipeline_pairs p
    JOIN pipeline_stages s ON s.run_id = p.run_id AND s.rank = p.rank
    JOIN pipeline_stages o
        ON o.run_id = p.run_id AND o.rank = CASE WHEN p.rank = p.source THEN p.destination ELSE p.source END
    LEFT JOIN _steps n ON n.run_id = p.run_id AND n.rank = p.rank
),
_directed AS (
    SELECT *, CASE WHEN peer <> 'other' THEN sends = (peer = 'next') END AS forward FROM _placed
),
_counted AS (
    SELECT
        *, count(*) OVER (
            PARTITION BY run_id, rank, source, destination, batch, group_name, group_ranks
        ) AS found,
        sum(sent) FILTER (peer = 'next' AND stage + 1 = other_stage)
            OVER pipelines AS sent_on,
        coalesce(sum(sent) FILTER (peer = 'next' AND stage > other_stage) OVER pipelines, 0) AS sent_around,
        CASE WHEN complete AND min(steps) OVER pipelines = max(steps) OVER pipelines THEN steps END AS steps_of_all
    FROM _directed
    WINDOW pipelines AS (PARTITION BY run_id, pipeline)
),
_divided AS (
    SELECT
        *, CASE WHEN found % steps = 0 THEN found // steps END AS per_step,
        sent_on / nullif((stages - 1) * steps_of_all, 0) AS link, sent_around / nullif(steps_of_all, 0) AS around
    FROM _counted
)
SELECT
    * EXCLUDE (other_stage, steps, steps_of_all, found, sent_on, sent_around, link, around),
    (occurrence - 1) // per_step AS step_number, (occurrence - 1) % per_step AS turn,
    CASE WHEN link = floor(link) AND around = floor(around) AND link > around THEN (link - around)::BIGINT END
        AS micro_batches,
    CASE WHEN link % nullif(link - around, 0) = 0 THEN (link / (link - around))::BIGINT END AS chunks
FROM _divided;
