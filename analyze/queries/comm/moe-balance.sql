-- How evenly do all_to_alls send tokens to the ranks of expert parallelism?
--
-- What each rank sends to each rank (itself included), from the split sizes of the calls: a row is a source and a
-- destination, summed over the calls. Without split sizes, a rank sends equal parts. Rows are those of the tensors,
-- usually tokens. Calls whose splits the profiler truncated (groups of more than 30 ranks) are counted; their bytes are
-- not known. The load of a destination is all that it receives, its own part included. Tokens per expert are the rows
-- of the matrix products that follow on the thread up to the next all_to_all: those of the first layer (products with
-- weights of one shape) whose rows add up to the received rows. Grouped products show the number of experts, not the
-- tokens of each.
-- @param per pair|expert = pair   What a row is: a source and a destination, or an expert of a destination.
-- @column run_id id               The run.
-- @column process_group text      The program's name for the process group, else its own name, and its ranks.
-- @column source index            Rank that sends; empty with per=expert.
-- @column destination index       Rank that receives.
-- @column expert index            With per=expert: its number on the rank, from 0; empty if the trace does not tell
--                                 experts apart.
-- @column experts count           With per=expert: experts of the rank; empty if not known.
-- @column calls count             Calls; with per=expert, those that bring tokens, also gradients in the backward pass.
-- @column bytes B                 Bytes, by the source's trace; empty if not known for one call.
-- @column rows count              Rows of its tensors; empty if not known for one call. With per=expert its tokens;
--                                 empty if the trace does not tell experts apart.
-- @column source_pct %            Share of the bytes that the source sends.
-- @column received_bytes B        The same bytes, by the destination's trace; empty if that is missing.
-- @column load_bytes B            Bytes that all ranks send to the destination.
-- @column load_ratio x            load_bytes / mean of the group's ranks; with per=expert, rows / mean of the group's
--                                 experts. 1 is even.
-- @main run_id, process_group, source, destination, expert, experts, calls, bytes, rows, source_pct, load_ratio
-- @order run_id, process_group, source, destination, expert
-- @use arithmetic, collective_kinds, comm_groups, experts
-- @needs sizes of all_to_alls (as torch.profiler writes them to their kernels)
-- @plot matrix x=destination y=source value=bytes
WITH calls AS (
    SELECT
        k.run_group, k.run_id, k.rank, g.process_group, g.ranks::BIGINT[] AS ranks,
        k.in_elems * dtype_bytes(k.dtype) AS in_bytes, k.out_elems * dtype_bytes(k.dtype) AS out_bytes,
        whole_list(coalesce(k.in_splits, '[]')) AS in_splits,
        whole_list(coalesce(k.out_splits, '[]')) AS out_splits,
        -- all_to_all of a list of tensors: the splits are elements, not rows.
        lower(k.collective) <> 'all_to_all' AS split_by_rows,
        try_cast(try_cast(o.input_dims AS JSON)->>'$[0][0]' AS BIGINT) AS rows
    FROM kernels k
    JOIN comm_groups g
        ON g.run_id = k.run_id AND g.rank = k.rank AND g.group_name IS NOT DISTINCT FROM k.group_name
        AND g.group_ranks IS NOT DISTINCT FROM k.group_ranks
    LEFT JOIN cpu_ops o
        ON o.run_id = k.run_id AND o.rank = k.rank AND o.op_id = k.op_id AND o.name = 'record_param_comms'
    WHERE plain_collective(lower(k.collective)) = 'all_to_all' AND g.ranks IS NOT NULL
),
parts AS (
    SELECT
        * EXCLUDE (in_splits, out_splits, ranks), unnest(ranks) AS other, len(ranks) AS size,
        len(in_splits) AS sent_parts, unnest(list_resize(in_splits, len(ranks))) AS sent,
        list_sum(in_splits) AS all_sent, len(out_splits) AS received_parts,
        unnest(list_resize(out_splits, len(ranks))) AS received, list_sum(out_splits) AS all_received
    FROM calls
),
sent AS (
    SELECT
        run_group, run_id, process_group, rank AS source, other AS destination, size,
        CASE
            WHEN sent_parts = 0 THEN in_bytes // size
            WHEN sent_parts = size AND all_sent = 0 THEN 0
            WHEN sent_parts = size THEN (in_bytes::HUGEINT * sent // all_sent)::BIGINT
        END AS bytes,
        CASE WHEN sent_parts = 0 THEN rows // size WHEN sent_parts = size AND split_by_rows THEN sent END AS rows
    FROM parts
),
received AS (
    SELECT
        run_group, run_id, process_group, other AS source, rank AS destination,
        CASE WHEN count(bytes) = count(*) THEN sum(bytes)::BIGINT END AS received_bytes
    FROM (
        SELECT
            *, CASE
                WHEN received_parts = 0 THEN out_bytes // size
                WHEN received_parts = size AND all_received = 0 THEN 0
                WHEN received_parts = size THEN (out_bytes::HUGEINT * received // all_received)::BIGINT
            END AS bytes
        FROM parts
    )
    GROUP BY ALL
),
pairs AS (
    SELECT
        run_group, run_id, process_group, source, destination, count(*) AS calls,
        CASE WHEN count(bytes) = count(*) THEN sum(bytes)::BIGINT END AS bytes,
        CASE WHEN count(rows) = count(*) THEN sum(rows)::BIGINT END AS rows, any_value(size) AS size
    FROM sent
    GROUP BY run_group, run_id, process_group, source, destination
),
loads AS (
    SELECT
        *, sum(bytes) OVER (PARTITION BY run_group, run_id, process_group, source) AS source_bytes,
        sum(bytes) OVER (PARTITION BY run_group, run_id, process_group, destination) AS destination_bytes,
        count(bytes) OVER (PARTITION BY run_group, run_id, process_group, destination) = size AS whole,
        sum(bytes) OVER (PARTITION BY run_group, run_id, process_group) / size AS mean_bytes
    FROM pairs
),
matrix AS (
    SELECT
        l.run_group, l.run_id, l.process_group, l.source, l.destination, calls, bytes, rows,
        pct(bytes, source_bytes) AS source_pct, received_bytes,
        CASE WHEN whole THEN destination_bytes::BIGINT END AS load_bytes,
        CASE WHEN whole THEN destination_bytes / nullif(mean_bytes, 0) END AS load_ratio
    FROM loads l
    LEFT JOIN received r
        ON r.run_group IS NOT DISTINCT FROM l.run_group AND r.run_id = l.run_id AND r.process_group = l.process_group
        AND r.source = l.source AND r.destination = l.destination
),
of_experts AS (
    SELECT
        run_group, run_id, process_group, rank AS destination, expert, experts, calls, rows,
        CASE WHEN count(rows) OVER all_of = count(*) OVER all_of THEN
            rows / nullif(sum(rows) OVER all_of / count(*) OVER all_of, 0) END AS load_ratio
    FROM expert_loads
    WINDOW all_of AS (PARTITION BY run_group, run_id, process_group)
)
SELECT
    run_group, run_id, process_group, source, destination, expert, experts, calls, bytes, rows, source_pct,
    received_bytes, load_bytes, load_ratio
FROM (
    SELECT *, NULL::BIGINT AS expert, NULL::BIGINT AS experts FROM matrix WHERE '{per}' = 'pair'
    UNION ALL BY NAME
    SELECT * FROM of_experts WHERE '{per}' = 'expert'
)
