-- Why does the job hang: which rank did not reach which collective, or called another one?
--
-- From dumps of PyTorch's flight recorder, one for each rank. For each process group: the first collective that some
-- ranks did not call, that ranks called with different operations, sizes or types, or that did not complete. A group
-- without one has no rows. Collectives are compared as torchfrtrace compares them: operation, sizes of inputs and
-- outputs, types; not sizes that may differ (all_to_all, inputs of scatter, outputs of gather). Coalesced collectives
-- count as one. Sends and receives that did not complete have a row each. `where` of a missing rank is the line of the
-- last collective that it called.
-- @column run_id id               The run.
-- @column process_group text      Process group, with its description.
-- @column seq index               Number of the collective in the group.
-- @column rank index              A rank of the group.
-- @column status text             missing (did not call it), differs (from what most ranks called; without such a
--                                 call, all differ), waiting, completed, or no dump.
-- @column operation text          What it called; for a missing rank, its last collective.
-- @column in_sizes text           Shapes of the inputs.
-- @column dtypes text             Their element types.
-- @column where text              The program's innermost line that called it.
-- @column path text               The program's lines, outermost first.
-- @column last_seq index          The last collective of the group that the rank called.
-- @column called_ns ns            When it called, since the first rank did; NULL for a missing rank.
-- @main run_id, process_group, seq, rank, status, operation, where
-- @order run_id, process_group, seq, rank
-- @use program_frames
-- @needs dumps of the flight recorder
-- @pass all
WITH own_frames AS (
    SELECT
        run_id, rank, record, depth, frame_text(file, line, function) AS text, is_own_frame(file) AS is_own
    FROM flight_frames
),
places AS (
    SELECT
        run_id, rank, record,
        coalesce(arg_min(text, depth) FILTER (is_own), arg_min(text, depth)) AS "where",
        string_agg(text, ' > ' ORDER BY depth DESC) FILTER (is_own) AS path
    FROM own_frames
    GROUP BY run_id, rank, record
),
kinds AS (
    SELECT *, regexp_extract(operation, '[^:]*$') AS kind FROM flight_records
),
-- Only the root of a gather has outputs, and only that of a scatter has inputs.
signed AS (
    SELECT
        *, CASE WHEN is_p2p THEN record END AS p2p_record,
        concat_ws(
            ' ', operation,
            CASE WHEN kind NOT IN ('scatter', 'broadcast') THEN in_dtypes END,
            CASE WHEN kind <> 'gather' THEN out_dtypes END,
            CASE WHEN kind NOT IN ('all_to_all', 'all_to_all_single', 'scatter') THEN in_sizes END,
            CASE WHEN kind NOT IN ('all_to_all', 'all_to_all_single', 'gather') THEN out_sizes END
        ) AS signature
    FROM kinds
),
-- Coalesced collectives have one number: they are one call.
records AS (
    SELECT
        run_group, run_id, rank, group_name, any_value(group_desc) AS group_desc, is_p2p, seq, min(record) AS record,
        count(*) AS coalesced, string_agg(signature, ', ' ORDER BY record) AS signature,
        bool_and(state = 'completed') AS completed, min(created_ns) AS created_ns
    FROM signed
    GROUP BY run_group, run_id, rank, group_name, is_p2p, seq, p2p_record
),
-- Every rank of a group, with or without a dump.
members AS (
    SELECT DISTINCT run_group, run_id, group_name, group_desc, unnest(from_json(ranks, '["INTEGER"]')) AS rank
    FROM flight_groups
),
dumped AS (
    SELECT DISTINCT run_id, rank FROM flight_groups
),
calls AS (
    SELECT run_id, group_name, rank, max(seq) AS last_seq, min(seq) AS first_seq
    FROM records
    WHERE NOT is_p2p
    GROUP BY run_id, group_name, rank
),
-- Collectives that the buffers of all ranks reach back to.
compared AS (
    SELECT
        m.run_id, m.group_name, max(c.first_seq) AS from_seq, max(c.last_seq) AS to_seq,
        -- A rank with a dump that called none has reached nothing.
        min(coalesce(c.last_seq, 0)) AS reached_seq
    FROM members m
    JOIN dumped d ON d.run_id = m.run_id AND d.rank = m.rank
    LEFT JOIN calls c ON c.run_id = m.run_id AND c.group_name = m.group_name AND c.rank = m.rank
    GROUP BY m.run_id, m.group_name
),
faults AS (
    SELECT run_id, group_name, reached_seq + 1 AS seq FROM compared WHERE reached_seq < to_seq
    UNION ALL
    SELECT r.run_id, r.group_name, r.seq
    FROM records r JOIN compared c USING (run_id, group_name)
    WHERE NOT r.is_p2p AND r.seq >= c.from_seq
    GROUP BY r.run_id, r.group_name, r.seq
    -- A buffer may begin amid coalesced collectives.
    HAVING NOT bool_and(r.completed) OR count(DISTINCT r.signature) > 1
        AND (r.seq > any_value(c.from_seq) OR count(DISTINCT r.coalesced) = 1)
),
first_faults AS (
    SELECT run_id, group_name, min(seq) AS seq FROM faults GROUP BY run_id, group_name
),
signatures AS (
    SELECT r.run_id, r.group_name, r.seq, r.signature, count(*) AS ranks, min(r.created_ns) AS first_ns
    FROM records r JOIN first_faults f USING (run_id, group_name, seq)
    WHERE NOT r.is_p2p
    GROUP BY r.run_id, r.group_name, r.seq, r.signature
),
-- What more ranks called than anything else; NULL if there is no such call.
usual AS (
    SELECT
        run_id, group_name, seq, min(first_ns) AS first_ns,
        CASE WHEN count(*) = 1 OR max(ranks) > max(ranks, 2)[2] THEN arg_max(signature, ranks) END AS signature
    FROM signatures
    GROUP BY run_id, group_name, seq
),
collective_rows AS (
    SELECT
        m.run_group, m.run_id, m.group_name, m.group_desc, u.seq, m.rank,
        CASE
            WHEN d.rank IS NULL THEN 'no dump'
            WHEN r.record IS NULL THEN 'missing'
            WHEN r.signature IS DISTINCT FROM u.signature THEN 'differs'
            WHEN r.completed THEN 'completed'
            ELSE 'waiting'
        END AS status,
        coalesce(r.record, l.record) AS record, c.last_seq, r.created_ns - u.first_ns AS called_ns
    FROM members m
    JOIN usual u ON u.run_id = m.run_id AND u.group_name = m.group_name
    LEFT JOIN dumped d ON d.run_id = m.run_id AND d.rank = m.rank
    LEFT JOIN calls c ON c.run_id = m.run_id AND c.group_name = m.group_name AND c.rank = m.rank
    LEFT JOIN records r ON NOT r.is_p2p AND r.run_id = m.run_id AND r.group_name = m.group_name AND r.rank = m.rank
        AND r.seq = u.seq
    LEFT JOIN records l ON NOT l.is_p2p AND l.run_id = m.run_id AND l.group_name = m.group_name AND l.rank = m.rank
        AND l.seq = c.last_seq
),
all_rows AS (
    FROM collective_rows
    UNION ALL
    SELECT run_group, run_id, group_name, group_desc, seq, rank, 'waiting', record, NULL, NULL
    FROM records
    WHERE is_p2p AND NOT completed
)
SELECT
    a.run_group, a.run_id, concat_ws(' ', a.group_name, a.group_desc) AS process_group, a.seq, a.rank, a.status,
    r.operation, r.in_sizes, r.in_dtypes AS dtypes, p."where", p.path, a.last_seq, a.called_ns
FROM all_rows a
LEFT JOIN flight_records r ON r.run_id = a.run_id AND r.rank = a.rank AND r.record = a.record
LEFT JOIN places p ON p.run_id = a.run_id AND p.rank = a.rank AND p.record = a.record
