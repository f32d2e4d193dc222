-- Communication without concurrent compute: each ns once, as waiting, transfer or unknown. Waiting that is an artifact
-- of the recording (module `common_start`) is left out.
-- @use collectives, gpu_timeline, intervals

-- @view compute_times  a row is a segment of a GPU with compute kernels.
-- @columns track, start_ns, end_ns
CREATE VIEW compute_times AS SELECT track, start_ns, end_ns FROM gpu_timeline WHERE compute_kernels > 0;

-- @view comm_parts  a row is a part of a communication kernel: waiting, or the rest.
-- @columns track
-- @column collective text         all_reduce, broadcast, send_recv ...
-- @column dimension text          dp, fsdp, tp, pp, ep, cp; NULL if not known.
-- @column inferred bool           Whether the dimension is inferred.
-- @column scope text              intra (within a host) or inter (between hosts); NULL if not known.
-- @column process_group text      Label: the program's name for the group, else its own name, and its ranks.
-- @column one_process bool        Whether the group is the devices of one process.
-- @column call index              Its call.
-- @column pair bool               Whether it is a send or receive whose peer is known.
-- @column part text               waiting (until the last rank of its call has started), transfer (the rest), or
--                                 unknown if the call is not known.
-- @column level index             0 for waiting, 1 for others: a transfer hides waiting.
-- @columns start_ns, end_ns
CREATE VIEW comm_parts AS
WITH _kernels AS MATERIALIZED (
    SELECT
        t.track, c.* REPLACE (own_start_ns + excluded_ns AS start_ns), own_start_ns + dur_ns AS end_ns,
        own_start_ns + excluded_ns + coalesce(wait_ns, 0) AS came_ns
    FROM matched_collectives('collective_kernels') c
    JOIN gpu_tracks t ON t.run_id = c.run_id AND t.rank = c.rank AND t.device IS NOT DISTINCT FROM c.device
)
SELECT
    track, collective, dimension, inferred, scope, process_group, one_process, call, source IS NOT NULL AS pair,
    'waiting' AS part, 0 AS level, start_ns, came_ns AS end_ns
FROM _kernels
WHERE wait_ns > 0
UNION ALL
SELECT
    track, collective, dimension, inferred, scope, process_group, one_process, call, source IS NOT NULL,
    CASE WHEN wait_ns IS NULL THEN 'unknown' ELSE 'transfer' END, 1, came_ns, end_ns
FROM _kernels;

-- @view exposed_comm  a row is an interval of communication without compute on a GPU; all are disjoint.
-- Of several concurrent kernels, one that transfers comes before one that waits, then the one that began last.
-- @columns track, start_ns, end_ns
-- @column owner row               The part that it belongs to, of `comm_parts`.
CREATE VIEW exposed_comm AS
WITH _comm_alone AS (
    SELECT track, start_ns, end_ns FROM gpu_timeline WHERE comm_kernels > 0 AND compute_kernels = 0
),
_exposed AS (
    SELECT track, start_ns, end_ns FROM intervals_subtract('_comm_alone', 'cold_waits')
),
_windows AS (
    SELECT row_number() OVER () AS window_id, track, start_ns, end_ns FROM intervals_union('_exposed')
),
_parts AS MATERIALIZED (
    SELECT * FROM comm_parts
),
_owned AS (
    SELECT track, start_ns, end_ns, latest AS owner FROM intervals_latest('_parts')
)
SELECT track, start_ns, end_ns, owner FROM intervals_clip('_owned', '_windows');
