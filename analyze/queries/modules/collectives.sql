-- Collective calls: communication kernels matched across ranks, and how long each waits.
-- @use collective_kinds, comm_groups, common_start, launches

-- @table communication_names  a row is a name of communication kernels.
-- @columns run_id
-- @column name text               The name.
-- @column collective text         What the name says: all_reduce, broadcast ...
CREATE TABLE communication_names AS
SELECT run_id, name, collective FROM kernel_names WHERE family = 'communication';

-- @view launches_without_metadata  a row is a communication kernel without metadata, with its launch call.
-- @columns run_id, rank, correlation_id
-- @column collective text         What the kernel name says.
-- @column tid id                  Thread of the launch call.
-- @column start_ns ns             Start of the launch call; in a GPU-only block, of the twin's launch call.
CREATE VIEW launches_without_metadata AS
SELECT
    run_id, rank, correlation_id, n.collective, call_tid AS tid, coalesce(call_start_ns, twin_ns) AS start_ns
FROM comm_kernels k
JOIN communication_names n USING (run_id, name)
LEFT JOIN twin_launches USING (run_id, rank, correlation_id)
WHERE k.collective IS NULL;

-- @view launched_collectives  a row is a communication kernel without metadata that was launched in a range of NCCL's
--   process group (nccl:...).
-- The kernel name alone is not enough: an all_to_all runs as SendRecv, in old versions of NCCL other collectives, too.
-- @columns run_id, rank, correlation_id
-- @column collective text         Name of the range.
CREATE VIEW launched_collectives AS
WITH _bare AS (
    SELECT DISTINCT run_id, rank, correlation_id, tid, start_ns FROM launches_without_metadata
),
_ranges AS (
    SELECT run_id, rank, tid, name, start_ns, start_ns + dur_ns AS end_ns
    FROM launching_ranges SEMI JOIN _bare USING (run_id, rank)
    WHERE starts_with(name, 'nccl:') AND plain_collective(lower(name)) IS NOT NULL
        AND origin IN ('record_function', 'nvtx')
    UNION ALL
    SELECT run_id, rank, tid, name, start_ns, start_ns + dur_ns
    FROM launching_ops SEMI JOIN _bare USING (run_id, rank)
    WHERE starts_with(name, 'nccl:') AND plain_collective(lower(name)) IS NOT NULL
)
SELECT b.run_id, b.rank, b.correlation_id, r.name AS collective
FROM _bare b
ASOF JOIN _ranges r ON r.run_id = b.run_id AND r.rank = b.rank AND r.tid = b.tid AND b.start_ns >= r.start_ns
WHERE b.start_ns < r.end_ns;

-- @view batched_kernels  a row is the kernel of a batch of sends and receives (torch's batch_isend_irecv), with the
--   operators that requested it.
-- NCCL's process group records each send and receive (`record_param_comms`) and launches them together in the range
-- `nccl:coalesced` that follows on the thread. Batches with several kernels are left out.
-- @columns run_id, rank, correlation_id
-- @column group_name text         Process group; NULL for several.
-- @column group_ranks text        Its ranks.
-- @column peer index              The other rank, as PyTorch wrote it (`Src Rank`, `Dst Rank`); NULL for several.
-- @column sent count              Sends.
-- @column received count          Receives.
-- @column bytes B                 The larger of sent and received bytes; NULL if not known for one of them.
CREATE VIEW batched_kernels AS
WITH _with_metadata AS (
    SELECT run_id, rank, op_id FROM comm_kernels WHERE collective IS NOT NULL AND op_id > 0
    UNION ALL
    SELECT run_id, rank, op_id FROM full_kernels WHERE collective IS NOT NULL AND op_id > 0
),
_operators AS (
    SELECT
        run_id, rank, tid, start_ns, collective = 'send' AS sends, peer, group_name, group_ranks,
        nullif(greatest(in_elems, out_elems), 0) * dtype_bytes(dtype) AS bytes
    FROM launching_ops ANTI JOIN _with_metadata USING (run_id, rank, op_id)
    -- Unlike IN, `= ANY` lets DuckDB skip row groups without such operators.
    WHERE collective = ANY(['send', 'recv'])
),
_ranges AS (
    SELECT run_id, rank, tid, start_ns AS batch_ns, start_ns + dur_ns AS end_ns
    FROM launching_ranges
    WHERE origin = 'record_function' AND name = 'nccl:coalesced'
),
_batches AS (
    SELECT
        a.run_id, a.rank, a.tid, r.batch_ns, count(*) FILTER (sends) AS sent, count(*) FILTER (NOT sends) AS received,
        count(DISTINCT (peer, group_name, group_ranks)) = 1 AS alone, min(peer) AS peer, min(group_name) AS group_name,
        min(group_ranks) AS group_ranks, count(DISTINCT (group_name, group_ranks)) AS groups,
        CASE WHEN count(bytes) = count(*) THEN
            greatest(sum(bytes) FILTER (sends), sum(bytes) FILTER (NOT sends))::BIGINT END AS bytes
    FROM _operators a
    ASOF JOIN _ranges r ON r.run_id = a.run_id AND r.rank = a.rank AND r.tid = a.tid AND a.start_ns <= r.batch_ns
    GROUP BY a.run_id, a.rank, a.tid, r.batch_ns
),
_kernels AS (
    SELECT run_id, rank, correlation_id, tid, start_ns FROM launches_without_metadata WHERE collective = 'send_recv'
),
_launched AS (
    SELECT l.run_id, l.rank, l.tid, l.correlation_id, r.batch_ns
    FROM _kernels l
    ASOF JOIN _ranges r ON r.run_id = l.run_id AND r.rank = l.rank AND r.tid = l.tid AND l.start_ns >= r.batch_ns
    WHERE l.start_ns < r.end_ns
    QUALIFY count(*) OVER (PARTITION BY l.run_id, l.rank, l.tid, r.batch_ns) = 1
)
SELECT
    run_id, rank, l.correlation_id, CASE WHEN groups = 1 THEN group_name END AS group_name,
    CASE WHEN groups = 1 THEN group_ranks END AS group_ranks, CASE WHEN alone THEN peer END AS peer, sent, received,
    bytes
FROM _batches JOIN _launched l USING (run_id, rank, tid, batch_ns);

-- @view pair_annotations  a row is the range that NCCL's process group writes for a send or receive on the GPU.
-- @columns run_id, rank, device, stream
-- @column sends bool              Whether it is a send.
-- @column own index               Position of the rank in the group.
-- @column peer index              Position of the peer.
-- @columns start_ns, end_ns
CREATE VIEW pair_annotations AS
WITH _said AS (
    SELECT
        run_id, rank, device, stream, start_ns, start_ns + dur_ns AS end_ns,
        regexp_extract(name, '^nccl:(send|recv) (\d+)(?:->|<-)(\d+)$', ['direction', 'own', 'peer']) AS said
    FROM launching_ranges
    WHERE origin = 'gpu_annotation' AND (starts_with(name, 'nccl:send ') OR starts_with(name, 'nccl:recv '))
),
_parsed AS (
    SELECT
        * EXCLUDE (said), said.direction = 'send' AS sends, try_cast(said.own AS INTEGER) AS own,
        try_cast(said.peer AS INTEGER) AS peer
    FROM _said
    WHERE said.peer <> ''
),
_twins AS (
    SELECT run_id, rank, device, stream, start_ns, dur_ns, full_stream, full_start_ns
    FROM twins
    WHERE kind = 'kernel' AND full_start_ns IS NOT NULL
)
SELECT run_id, rank, device, stream, sends, own, peer, start_ns, end_ns
FROM _parsed ANTI JOIN _twins USING (run_id, rank)
UNION ALL
-- In a GPU-only block: around the kernel whose twin it is around.
SELECT t.run_id, t.rank, t.device, t.stream, sends, own, peer, t.start_ns, t.start_ns + t.dur_ns
FROM _twins t
ASOF JOIN _parsed p
    ON p.run_id = t.run_id AND p.rank = t.rank AND p.device = t.device AND p.stream = t.full_stream
    AND t.full_start_ns >= p.start_ns
WHERE t.full_start_ns < p.end_ns;

-- @table collective_kernels  a row is a communication kernel with the number of its call, the same on all ranks and
--   devices of the group.
-- Calls are numbered by group and sequence number, or by order within group and collective if the profiler wrote no
-- number. A group is name, ranks and size together, since ranks may use a name for groups of their own. Without a named
-- group: the devices of a process that drives several; or all ranks of the job, if they are two, if the group has as
-- many, or if the kernels show that all ranks waited for the last one in each call (`_common`). Otherwise the group is
-- not known and kernels are not matched. A send and its receive are a call of two ranks, by source, destination and
-- order. A batch with one other rank (`batched_kernels`) matches the batch of that rank that receives and sends as
-- many. Without a known peer, each kernel is a call of its own.
-- Clocks: the ranks of a node share one. If most collectives that no rank can leave early never ran on all ranks at the
-- same time, each rank's clock is shifted by the median of how much later than the mean of the ranks its kernels end.
-- That needs 8 calls or sequence numbers, and ends that agree within 50 us (median) after the shift; else no clock is
-- shifted.
-- @columns run_group, run_id, rank, device, correlation_id
-- @column collective text         all_reduce, broadcast, send_recv ...
-- @column group_name text         Process group, where the profiler names it.
-- @column group_ranks text        Its ranks.
-- @column process_group text      Label: the program's name for the group, else its own name, and its ranks.
-- @column dimension text          dp, fsdp, tp, pp, ep, cp; NULL if not known (`comm_groups`).
-- @column inferred bool           Whether the dimension is inferred.
-- @column scope text              intra (within a host) or inter (between hosts); NULL if not known.
-- @column members count           Ranks of the group, 2 for a pair; those of the job if `group_known` is false; NULL if
--                                 not known.
-- @column group_known bool        Whether the group is known, named or inferred.
-- @column group_inferred bool     Whether the group is inferred to be all ranks, since kernels end together.
-- @column one_process bool        Whether the group is the devices of one process.
-- @column source index            Sends and receives: the sending rank; NULL if not known.
-- @column destination index       Sends and receives: the receiving rank.
-- @column sends bool              Whether it is the send of a pair; NULL for a batch that sends and receives.
-- @column sent count              Sends of a pair or batch.
-- @column received count          Receives of a pair or batch.
-- @column batch text              Batch of several: numbers of sends from source to destination, and back.
-- @column even bool               Whether as many sends as receives of the two ranks were recorded.
-- @column seq index               Sequence number that the profiler wrote.
-- @column bytes B                 The larger of its input and output; NULL without the profiler's metadata.
-- @column start_ns ns             Start, on the common clock of the ranks.
-- @columns dur_ns
-- @column own_start_ns ns         Start as recorded.
-- @column shift_ns ns             Shift subtracted from the clock of its rank; 0 if clocks agree.
-- @column residual_ns ns          Median difference between its ends of collectives and those of others, after the
--                                 shift; NULL without collectives of several ranks.
-- @column occurrence index        Number among the kernels of its kind on the rank, from 1.
-- @column call index              The call.
CREATE TABLE collective_kernels AS
WITH _said AS (
    SELECT
        k.run_group, k.run_id, k.rank, k.device, k.stream, n.collective AS name_says, k.correlation_id, k.start_ns,
        k.dur_ns, k.seq, k.group_size AS said_size,
        coalesce(k.group_name, b.group_name) AS group_name, coalesce(k.group_ranks, b.group_ranks) AS group_ranks,
        CASE WHEN sent = 0 THEN 'recv' WHEN received = 0 THEN 'send' ELSE k.collective END AS written,
        coalesce(k.peer, b.peer) AS peer, sent, received,
        coalesce(nullif(greatest(k.in_elems, k.out_elems), 0) * dtype_bytes(k.dtype), b.bytes) AS bytes
    FROM comm_kernels k
    JOIN communication_names n ON n.run_id = k.run_id AND n.name = k.name
    LEFT JOIN batched_kernels b
        ON b.run_id = k.run_id AND b.rank = k.rank AND b.correlation_id = k.correlation_id AND k.collective IS NULL
),
_communication AS (
    SELECT
        k.* EXCLUDE (written, name_says),
        kernel_collective(coalesce(written, l.collective), name_says) AS collective, lower(written) AS written,
        k.group_name IS NOT NULL OR k.group_ranks IS NOT NULL AS named,
        g.ranks::BIGINT[] AS ranks_of_group, g.size, g.process_group, g.dimension, g.inferred,
        g.scope
    FROM _said k
    LEFT JOIN launched_collectives l
        ON l.run_id = k.run_id AND l.rank = k.rank AND l.correlation_id = k.correlation_id
    LEFT JOIN comm_groups g
        ON g.run_id = k.run_id AND g.rank = k.rank AND g.group_name IS NOT DISTINCT FROM k.group_name
        AND g.group_ranks IS NOT DISTINCT FROM k.group_ranks
),
_processes AS (
    SELECT run_group, run_id, rank, count(DISTINCT device) AS devices
    FROM _communication
    GROUP BY run_group, run_id, rank
),
_annotated AS (
    SELECT
        c.* EXCLUDE (peer),
        CASE WHEN c.sent > 0 AND c.received > 0 THEN NULL ELSE coalesce(a.sends, c.written = 'send') END AS sends,
        coalesce(c.peer, a.peer) AS peer,
        -- The recorded peer is a global rank, unless some peer of the run can only be a position in its group.
        c.peer IS NULL OR coalesce(bool_or(
            NOT list_contains(ranks_of_group, c.peer) AND ranks_of_group[c.peer + 1] IS NOT NULL
        ) OVER (PARTITION BY c.run_id), false) AS peer_is_place,
        -- An annotation must give the rank its own position.
        c.peer IS NOT NULL AND (c.written IN ('send', 'recv') OR c.sent > 0) OR (
            c.peer IS NULL AND c.start_ns < a.end_ns AND coalesce(c.ranks_of_group[a.own + 1] = c.rank, a.own = c.rank)
        ) AS paired
    FROM _communication c
    ASOF LEFT JOIN pair_annotations a
        ON a.run_id = c.run_id AND a.rank = c.rank AND a.device = c.device AND a.stream = c.stream
        AND a.start_ns <= c.start_ns
),
_paired AS (
    SELECT
        a.* EXCLUDE (peer, peer_is_place, paired, sends), p.devices, j.size AS job_size,
        CASE WHEN collective = 'send_recv' AND paired THEN sends END AS sends,
        CASE
            WHEN collective <> 'send_recv' OR NOT paired THEN NULL
            WHEN peer_is_place AND ranks_of_group IS NOT NULL THEN ranks_of_group[peer + 1]
            WHEN peer_is_place THEN CASE WHEN coalesce(a.size, j.size) = j.size THEN peer END
            WHEN coalesce(list_contains(ranks_of_group, peer), true) THEN peer
        END AS other
    FROM _annotated a
    JOIN _processes p ON p.run_id = a.run_id AND p.rank = a.rank AND p.run_group IS NOT DISTINCT FROM a.run_group
    JOIN job_ranks j ON j.run_id = a.run_id
),
_grouped AS (
    SELECT
        p.* EXCLUDE (
            named, size, job_size, other, devices, written, ranks_of_group, sends, sent, received, scope
        ),
        j.scope AS job_scope,
        named OR devices > 1 OR other IS NOT NULL OR coalesce(job_size = 2 OR said_size = job_size, false)
            AS group_known,
        CASE
            WHEN other IS NOT NULL THEN ranks_scope([rank, other], h.hosts)
            WHEN named THEN p.scope
            WHEN devices > 1 THEN 'intra'
            WHEN group_known OR j.scope = 'intra' THEN j.scope
        END AS scope,
        NOT named AND devices > 1 AS one_process,
        CASE
            WHEN other IS NOT NULL THEN 2
            WHEN named THEN p.size
            WHEN devices > 1 THEN devices
            ELSE job_size
        END AS members,
        CASE WHEN other IS NOT NULL THEN sends END AS sends,
        CASE WHEN other IS NOT NULL THEN coalesce(sent, sends::INTEGER) END AS sent,
        CASE WHEN other IS NOT NULL THEN coalesce(received, (NOT sends)::INTEGER) END AS received,
        CASE WHEN other IS NULL THEN NULL WHEN sends IS NULL THEN least(rank, other) WHEN sends THEN rank ELSE other END
            AS source,
        CASE WHEN other IS NULL THEN NULL WHEN sends IS NULL THEN greatest(rank, other) WHEN sends THEN other ELSE rank
            END AS destination,
        CASE WHEN p.sent + p.received > 1 THEN
            CASE WHEN rank = source THEN concat(p.sent, '+', p.received) ELSE concat(p.received, '+', p.sent) END
        END AS batch,
        CASE WHEN collective = 'send_recv' AND other IS NULL OR NOT named AND devices > 1 THEN rank END AS only_rank,
        CASE WHEN collective = 'send_recv' AND other IS NULL THEN device END AS only_device,
        -- Sequence numbers of sends and receives are per rank.
        CASE WHEN collective <> 'send_recv' THEN seq END AS number
    FROM _paired p
    LEFT JOIN job_ranks j ON j.run_id = p.run_id
    LEFT JOIN run_hosts h ON h.run_id = p.run_id
),
_numbered AS (
    SELECT
        *, row_number() OVER (
            PARTITION BY
                run_group, run_id, rank, device, group_name, group_ranks, members, collective, source, destination,
                batch, number
            ORDER BY start_ns
        ) AS occurrence,
        CASE WHEN source IS NOT NULL THEN
            2 * count(CASE WHEN sends THEN 1 END) OVER pairs = count(*) OVER pairs
        END AS even
    FROM _grouped
    WINDOW pairs AS (PARTITION BY run_group, run_id, group_name, group_ranks, source, destination, batch)
),
_called AS MATERIALIZED (
    SELECT
        *, dense_rank() OVER (
            ORDER BY
                run_group, run_id, group_name, group_ranks, members, only_rank, only_device, collective, source,
                destination, batch, number, occurrence
        ) AS call
    FROM _numbered
),
_met AS (
    SELECT
        run_group, run_id, rank, call, seq, count(*) OVER calls = members AND group_known AS whole,
        max(start_ns) OVER calls < min(start_ns + dur_ns) OVER calls AS met,
        start_ns + dur_ns - min(start_ns) OVER calls AS end_ns
    FROM _called
    WHERE ends_together(collective) AND members > 1 AND NOT one_process
    WINDOW calls AS (PARTITION BY call)
),
_late AS (
    SELECT *, end_ns - avg(end_ns) OVER (PARTITION BY call) AS late_ns FROM _met WHERE whole
),
_offsets AS (
    SELECT run_group, run_id, rank, median(late_ns) AS off_ns FROM _late GROUP BY run_group, run_id, rank
),
_residuals AS (
    SELECT
        l.run_group, l.run_id, l.rank, any_value(off_ns) AS off_ns, median(abs(late_ns)) AS apart_ns,
        median(abs(late_ns - off_ns)) AS left_ns
    FROM _late l
    JOIN _offsets o ON o.run_group IS NOT DISTINCT FROM l.run_group AND o.run_id = l.run_id AND o.rank = l.rank
    GROUP BY l.run_group, l.run_id, l.rank
),
_clocks AS (
    SELECT
        run_group, run_id, 2 * count(*) FILTER (met) < count(*)
            AND (count(DISTINCT call) >= 8 OR bool_and(seq IS NOT NULL)) AS differ
    FROM _late
    GROUP BY run_group, run_id
),
_shifts AS (
    SELECT
        r.run_group, r.run_id, r.rank,
        c.differ AND max(left_ns) OVER (PARTITION BY r.run_group, r.run_id) <= 50000 AS shifted,
        round(CASE WHEN shifted THEN off_ns ELSE 0 END)::BIGINT AS shift_ns,
        round(CASE WHEN shifted THEN left_ns ELSE apart_ns END)::BIGINT AS residual_ns
    FROM _residuals r JOIN _clocks c ON c.run_group IS NOT DISTINCT FROM r.run_group AND c.run_id = r.run_id
),
_unknown AS (
    SELECT
        run_group, run_id, collective, count(dur_ns) = any_value(members) AS whole,
        max(start_ns + dur_ns) - min(start_ns + dur_ns) AS ends_apart_ns, max(start_ns, 2) AS latest,
        latest[1] < min(start_ns + dur_ns) AS met
    FROM _called
    WHERE NOT group_known AND said_size IS NULL AND ends_together(collective)
    GROUP BY run_group, run_id, collective, call
),
-- If the ranks were several groups, their ends would differ at least as much as the two latest starts of the call.
_common AS (
    SELECT run_group, run_id, collective
    FROM _unknown
    GROUP BY run_group, run_id, collective
    HAVING
        count(*) >= 8 AND bool_and(coalesce(whole AND met AND ends_apart_ns <= 50000, false))
        AND sum(latest[1] - latest[2]) > 4 * sum(ends_apart_ns)
)
SELECT
    c.run_group, c.run_id, c.rank, device, correlation_id, c.collective, group_name, group_ranks,
    CASE WHEN a.run_id IS NULL THEN process_group ELSE 'all ranks (inferred)' END AS process_group, dimension, inferred,
    CASE WHEN a.run_id IS NULL THEN scope ELSE job_scope END AS scope, members,
    c.group_known OR a.run_id IS NOT NULL AS group_known, a.run_id IS NOT NULL AS group_inferred,
    one_process, source, destination, sends, sent, received, batch, even, seq, bytes,
    start_ns - coalesce(shift_ns, 0) AS start_ns, dur_ns, start_ns AS own_start_ns, coalesce(shift_ns, 0) AS shift_ns,
    residual_ns, occurrence, call
FROM _called c
LEFT JOIN _shifts s ON s.run_group IS NOT DISTINCT FROM c.run_group AND s.run_id = c.run_id AND s.rank = c.rank
LEFT JOIN _common a
    ON a.run_group IS NOT DISTINCT FROM c.run_group AND a.run_id = c.run_id AND a.collective = c.collective
    AND NOT c.group_known AND c.said_size IS NULL;

-- @macro matched_collectives(t)  communication kernels with the status of their call.
-- Values of `status`:
-- matched: all members were recorded, and at some time all were in the call; or a rank may leave early and the match
-- does not rest on order alone; or a send ended before its receive began, with as many sends as receives.
-- incomplete: members are missing, or their number is not known.
-- group not known: all ranks of the job were recorded, but not which of them are a group.
-- unmatched: the members never ran at the same time (different calls, or clocks that differ), or a kernel has no end,
-- or there are more kernels than members.
-- point_to_point: a send or receive without a known peer.
-- @column * of t
-- @column ranks count             Kernels of the call.
-- @column last_start_ns ns        Latest start of the call.
-- @column first_end_ns ns         Earliest end of the call; NULL if not all ends are known.
-- @column buffered bool           Whether it is a pair whose send ended before the receive began.
-- @column status text             Status of its call.
-- @column excluded_ns ns          The part of its waiting that is an artifact of the recording (module `common_start`):
--                                 before all ranks had begun to record, or all of a cold first call. It comes first.
-- @column wait_ns ns              Matched calls: from the kernel's start to the latest start, at most to its own end,
--                                 without excluded_ns; 0 for a send that ended before its receive began.
-- @column last bool               Whether it is the last kernel of a matched call of several ranks, other than a cold
--                                 first call.
CREATE MACRO matched_collectives(t) AS TABLE
WITH _met AS (
    SELECT
        *, count(*) OVER calls AS ranks, max(start_ns) OVER calls AS last_start_ns,
        CASE WHEN count(dur_ns) OVER calls = ranks THEN min(start_ns + dur_ns) OVER calls END AS first_end_ns,
        min(start_ns + dur_ns) FILTER (sends) OVER calls AS sent_ns,
        max(start_ns) FILTER (NOT sends) OVER calls AS receives_ns,
        min(dur_ns) OVER calls = 0 AND min(start_ns) OVER calls < max(start_ns) OVER calls AS at_once
    FROM query_table(t)
    WINDOW calls AS (PARTITION BY call)
),
_judged AS (
    SELECT
        * EXCLUDE (sent_ns, receives_ns, at_once), coalesce(
            source IS NOT NULL AND ranks = 2 AND even AND sent_ns <= receives_ns AND sent_ns = first_end_ns, false
        ) AS buffered,
        CASE
            WHEN collective = 'send_recv' AND source IS NULL THEN 'point_to_point'
            WHEN ranks > members THEN 'unmatched'
            WHEN ranks < members OR members IS NULL THEN 'incomplete'
            WHEN NOT group_known THEN 'group not known'
            WHEN ranks = 1 OR last_start_ns < first_end_ns OR at_once AND last_start_ns = first_end_ns THEN 'matched'
            WHEN leaves_early(collective) AND (one_process OR seq IS NOT NULL) OR buffered THEN 'matched'
            ELSE 'unmatched'
        END AS status
    FROM _met
),
_waited AS (
    SELECT
        *, CASE WHEN status = 'matched' AND dur_ns IS NOT NULL
            THEN CASE WHEN buffered THEN 0 ELSE least(last_start_ns - start_ns, dur_ns) END END AS all_wait_ns
    FROM _judged
)
SELECT
    j.* EXCLUDE (all_wait_ns),
    CASE
        WHEN c.run_id IS NOT NULL THEN coalesce(all_wait_ns, 0)
        ELSE greatest(least(coalesce(common_start_ns - own_start_ns, 0), coalesce(all_wait_ns, 0)), 0)
    END AS excluded_ns,
    all_wait_ns - excluded_ns AS wait_ns,
    status = 'matched' AND ranks > 1 AND NOT buffered AND j.start_ns = last_start_ns AND c.run_id IS NULL AS last
FROM _waited j
LEFT JOIN (SELECT run_id, rank, common_start_ns FROM rank_starts) s ON s.run_id = j.run_id AND s.rank = j.rank
LEFT JOIN (SELECT run_id, rank, device, start_ns FROM cold_kernels) c
    ON c.run_id = j.run_id AND c.rank = j.rank AND c.device IS NOT DISTINCT FROM j.device
    AND c.start_ns = j.own_start_ns;
