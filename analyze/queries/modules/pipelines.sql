-- Pipelines: the stages, their neighbours, and the transfers between them.
-- @use collectives

-- @view pipeline_pairs  a row is a send or receive in a pipeline group (pp), or in a group of unknown dimension.
-- @column * of collective_kernels
-- @column ranks count             Kernels of the call.
-- @column last_start_ns ns        Latest start of the call.
-- @column first_end_ns ns         Earliest end of the call.
-- @column buffered bool           Whether its send ended before the receive began.
-- @column status text             Status of its call.
-- @column excluded_ns ns          The part of its waiting that is an artifact of the recording.
-- @column wait_ns ns              Matched calls: from the kernel's start to the latest start, at most to its own end,
--                                 without excluded_ns.
-- @column last bool               Whether it is the last kernel of its call.
CREATE VIEW pipeline_pairs AS
SELECT *
FROM matched_collectives('collective_kernels')
WHERE source IS NOT NULL AND source <> destination AND coalesce(contains(dimension, 'pp'), true);

-- @view pipeline_stages  a row is a rank of a pipeline: ranks that send to each other, directly or through others.
-- @columns run_id, rank
-- @column pipeline index          Lowest rank of its pipeline.
-- @column stage index             Position in the pipeline, from 0: ranks in order.
-- @column stages count            Ranks of the pipeline.
-- @column complete bool           Whether all of them were recorded; if not, there may be more.
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

-- @view pipeline_transfers  a row is a send or receive of a stage, with its neighbour and micro-batch.
-- Activations go to the next stage, gradients to the previous one. In an interleaved schedule the last stage is
-- followed by the first. Between neighbours there are micro-batches x chunks activations per step; from the last stage
-- to the first, one chunk less.
-- @column * of pipeline_pairs
-- @column pipeline index          Lowest rank of its pipeline.
-- @column stage index             Position of the rank in it, from 0.
-- @column stages count            Ranks of the pipeline.
-- @column complete bool           Whether all of them were recorded.
-- @column peer text               previous or next; other for a stage that is not a neighbour.
-- @column forward bool            Whether it is an activation, not a gradient; NULL for a batch of both.
-- @column per_step count          Transfers of a step between the same two stages in one direction; NULL if not known.
-- @column step_number index       Step of the recording, from 0; NULL if not known.
-- @column turn index              Number among the transfers of its step between the same two stages in the same
--                                 direction, from 0.
-- @column micro_batches count     Micro-batches of a step; NULL if not known: a rank was not recorded, or ranks have
--                                 different numbers of steps.
-- @column chunks count            Chunks of layers per stage, 2 or more if interleaved; NULL if not known.
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
