-- Batches of sends and receives (torch's `batch_isend_irecv`): one kernel for several, which says nothing of them.
-- @use collective_kinds, launch_calls

-- @view batched_kernels  a row is the kernel of a batch, with what was asked for before it.
-- NCCL's process group asks for each send and receive on its own (`record_param_comms`), and launches them together in
-- the range `nccl:coalesced` that follows on the thread. A batch of several kernels is left out.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column correlation_id id     Joins the kernel to the call that launched it.
-- @column group_name text       Process group; NULL of several.
-- @column group_ranks text      Its ranks.
-- @column peer index            The other rank, as PyTorch wrote it (`Src Rank`, `Dst Rank`); NULL of several.
-- @column sent count            Sends.
-- @column received count        Receives.
-- @column bytes B               The larger of what they send and receive; NULL if that of one is not known.
CREATE VIEW batched_kernels AS
WITH _own AS (
    SELECT run_id, rank, op_id FROM kernels WHERE collective IS NOT NULL AND op_id > 0
),
_asked AS (
    SELECT
        run_id, rank, tid, start_ns, collective = 'send' AS sends, peer, group_name, group_ranks,
        nullif(greatest(in_elems, out_elems), 0) * dtype_bytes(dtype) AS bytes
    FROM (SELECT * FROM cpu_ops WHERE collective IN ('send', 'recv')) ANTI JOIN _own USING (run_id, rank, op_id)
),
_ranges AS (
    SELECT run_id, rank, tid, start_ns AS batch_ns, start_ns + dur_ns AS end_ns
    FROM ranges
    WHERE origin = 'record_function' AND name = 'nccl:coalesced'
),
_batches AS (
    SELECT
        a.run_id, a.rank, a.tid, r.batch_ns, count(*) FILTER (sends) AS sent, count(*) FILTER (NOT sends) AS received,
        count(DISTINCT (peer, group_name, group_ranks)) = 1 AS alone, min(peer) AS peer, min(group_name) AS group_name,
        min(group_ranks) AS group_ranks, count(DISTINCT (group_name, group_ranks)) AS groups,
        CASE WHEN count(bytes) = count(*) THEN
            greatest(sum(bytes) FILTER (sends), sum(bytes) FILTER (NOT sends))::BIGINT END AS bytes
    FROM _asked a
    ASOF JOIN _ranges r ON r.run_id = a.run_id AND r.rank = a.rank AND r.tid = a.tid AND a.start_ns <= r.batch_ns
    GROUP BY a.run_id, a.rank, a.tid, r.batch_ns
),
_kernels AS (
    SELECT k.run_id, k.rank, k.correlation_id
    FROM kernels k JOIN kernel_names n ON n.run_id = k.run_id AND n.name = k.name
    WHERE n.collective = 'send_recv' AND k.collective IS NULL
),
_launched AS (
    SELECT l.run_id, l.rank, l.tid, l.correlation_id, r.batch_ns
    FROM (FROM launch_calls('_kernels') JOIN _kernels USING (run_id, rank, correlation_id)) l
    ASOF JOIN _ranges r ON r.run_id = l.run_id AND r.rank = l.rank AND r.tid = l.tid AND l.start_ns >= r.batch_ns
    WHERE l.start_ns < r.end_ns
    QUALIFY count(*) OVER (PARTITION BY l.run_id, l.rank, l.tid, r.batch_ns) = 1
)
SELECT
    run_id, rank, l.correlation_id, CASE WHEN groups = 1 THEN group_name END AS group_name,
    CASE WHEN groups = 1 THEN group_ranks END AS group_ranks, CASE WHEN alone THEN peer END AS peer, sent, received,
    bytes
FROM _batches JOIN _launched l USING (run_id, rank, tid, batch_ns);
