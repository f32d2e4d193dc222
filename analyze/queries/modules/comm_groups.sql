-- Process groups: their ranks and their dimension of the parallelism.
-- @use collective_kinds, launches

-- @macro has_word(text, what)  whether a description contains the word `what` (a regular expression). Words end at
--   anything but letters.
CREATE MACRO has_word(text, what) AS regexp_matches(lower(text), '(^|[^a-z])(' || what || ')([^a-z]|$)');

-- @macro stated_dimension(description)  the dimension in the program's name of a group; several as dp+cp; NULL if it
--   has none. Knows the names of torch's meshes, torchtitan, Megatron and vLLM.
CREATE MACRO stated_dimension(description) AS nullif(concat_ws(
    '+',
    CASE WHEN has_word(description, 'fsdp|dp_shard|hsdp_shard') THEN 'fsdp' END,
    CASE WHEN has_word(description, 'ddp|data|dp_replicate|replicate')
        OR has_word(replace(description, 'dp_shard', ''), 'dp') THEN 'dp' END,
    CASE WHEN has_word(description, 'tp|tensor') THEN 'tp' END,
    CASE WHEN has_word(description, 'pp|pipe|pipeline') THEN 'pp' END,
    CASE WHEN has_word(description, 'ep|expert|moe') THEN 'ep' END,
    CASE WHEN has_word(description, 'cp|context') THEN 'cp' END
), '');

-- @macro inferred_dimension(kinds, stride, whole, ddp)  the dimension inferred from the collectives of a group; NULL if
--   they do not determine it.
-- Sends and receives alone: pipeline. all_to_alls alone: experts. all_reduces, or all_gathers with reduce_scatters:
-- tensor parallel between neighbouring ranks, data parallel (dp, fsdp) between ranks that are further apart.
-- all_reduces in a group of all ranks: data parallel if DDP is used.
CREATE MACRO inferred_dimension(kinds, stride, whole, ddp) AS CASE
    WHEN kinds = ['send_recv'] THEN 'pp'
    WHEN kinds = ['all_to_all'] THEN 'ep'
    WHEN whole IS NULL THEN NULL
    WHEN kinds = ['all_reduce'] AND whole THEN CASE WHEN ddp THEN 'dp' END
    WHEN kinds IN (['all_reduce'], ['all_gather', 'reduce_scatter'], ['all_gather', 'all_reduce', 'reduce_scatter'])
        THEN CASE
            WHEN NOT whole AND stride = 1 THEN 'tp'
            WHEN NOT whole AND stride IS NULL THEN NULL
            WHEN kinds = ['all_reduce'] THEN 'dp'
            ELSE 'fsdp'
        END
END;

-- @view job_ranks  a row is a run: the number of ranks of its job, if known.
-- @columns run_id
-- @column size count              Number of ranks; NULL if not known.
-- @column scope text              intra or inter, as ranks_scope of all of them.
CREATE VIEW job_ranks AS
WITH _jobs AS (
    SELECT
        run_id,
        CASE WHEN greatest(world_size, ranks) > 1 OR world_size = 1 THEN greatest(world_size, ranks) END AS size
    FROM (SELECT run_id, world_size, ranks FROM runs)
)
SELECT
    j.run_id, any_value(j.size) AS size,
    CASE WHEN count(DISTINCT h.host) > 1 THEN 'inter' WHEN count(h.host) = any_value(j.size) THEN 'intra' END AS scope
FROM _jobs j LEFT JOIN rank_hosts h ON h.run_id = j.run_id AND h.rank < j.size
GROUP BY j.run_id;

-- @view run_hosts  a row is a run with known hosts.
-- @columns run_id
-- @column hosts row               Their hosts, by rank.
CREATE VIEW run_hosts AS SELECT run_id, map(list(rank), list(host)) AS hosts FROM rank_hosts GROUP BY run_id;

-- @macro ranks_scope(ranks, hosts)  whether ranks are on one host (intra) or several (inter); NULL if not known.
--   `hosts` is a map by rank.
CREATE MACRO ranks_scope(ranks, hosts) AS CASE
    WHEN len(list_distinct(list_filter([hosts[r::INTEGER] for r in ranks], lambda h: h IS NOT NULL))) > 1 THEN 'inter'
    WHEN list_bool_and([hosts[r::INTEGER] IS NOT NULL for r in ranks]) THEN 'intra'
END;

-- @table comm_groups  a row is a process group, as the kernels of a rank name it.
-- @columns run_id, rank
-- @column group_name text         Its name.
-- @column group_ranks text        Its ranks, as the kernels have them; long lists are truncated.
-- @column description text        The program's name for it.
-- @column ranks text              Its ranks, [0, 1]; NULL if not known.
-- @column process_group text      Label: the program's name for the group, else its own name, and its ranks.
-- @column size count              Number of these products.
-- @column dimension text          dp, fsdp, tp, pp, ep, cp, or several (dp+cp); NULL if not known.
-- @column inferred bool           Whether the dimension is inferred from its collectives and ranks.
-- @column scope text              intra (its ranks are on one host) or inter (on several); NULL if not known.
CREATE TABLE comm_groups AS
WITH _used AS (
    SELECT
        run_id, rank, group_name, group_ranks, max(group_size) AS group_size, any_value(group_desc) AS group_desc,
        list(DISTINCT plain_collective(lower(collective))) AS kinds
    FROM (
        SELECT run_id, rank, group_name, group_ranks, group_size, group_desc, collective FROM comm_kernels
        UNION ALL
        -- Kernels of batches have no metadata.
        SELECT run_id, rank, group_name, group_ranks, NULL, NULL, collective
        FROM launching_ops
        -- Unlike IN, `= ANY` lets DuckDB skip row groups without such operators.
        WHERE collective = ANY(['send', 'recv'])
    )
    WHERE group_name IS NOT NULL OR group_ranks IS NOT NULL
    GROUP BY run_id, rank, group_name, group_ranks
),
_listed AS (
    SELECT
        run_id, rank, group_name, any_value(description) AS description, any_value(ranks) AS ranks,
        any_value(size) AS size
    FROM (SELECT * FROM process_groups UNION ALL SELECT * FROM full_process_groups)
    GROUP BY run_id, rank, group_name
),
_known AS (
    SELECT
        u.run_id, u.rank, u.group_name, u.group_ranks, kinds, coalesce(u.group_desc, l.description) AS description,
        coalesce(whole_list(u.group_ranks), whole_list(l.ranks)) AS ranks,
        coalesce(u.group_size, len(whole_list(u.group_ranks)), l.size) AS size,
        CASE WHEN r.world_size IS NOT NULL THEN greatest(r.world_size, r.ranks) END AS world_size,
        (u.run_id, u.rank) IN (
            SELECT (run_id, rank) FROM launching_ranges WHERE name LIKE 'DistributedDataParallel.%'
        ) AS ddp
    FROM _used u
    JOIN (SELECT run_id, world_size, ranks FROM runs) r ON r.run_id = u.run_id
    LEFT JOIN _listed l ON l.run_id = u.run_id AND l.rank = u.rank AND l.group_name = u.group_name
),
_kinds AS (
    SELECT
        run_id, group_name, ranks, size,
        list_sort(list_filter(
            list_distinct(flatten(list(kinds))),
            lambda k: k IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'send_recv')
        )) AS kinds
    FROM _known
    GROUP BY run_id, group_name, ranks, size
)
SELECT
    k.run_id, k.rank, k.group_name, k.group_ranks, description,
    k.ranks::VARCHAR AS ranks,
    concat_ws(' ', coalesce(description, k.group_name), coalesce(k.ranks::VARCHAR, k.group_ranks)) AS process_group,
    k.size,
    coalesce(
        stated_dimension(description), inferred_dimension(c.kinds, k.ranks[2] - k.ranks[1], k.size = world_size, ddp)
    ) AS dimension,
    CASE WHEN dimension IS NOT NULL THEN stated_dimension(description) IS NULL END AS inferred,
    CASE WHEN k.ranks IS NOT NULL THEN ranks_scope(k.ranks, h.hosts) WHEN k.size = world_size THEN j.scope END AS scope
FROM _known k
LEFT JOIN job_ranks j ON j.run_id = k.run_id
LEFT JOIN run_hosts h ON h.run_id = k.run_id
JOIN _kinds c
    ON c.run_id = k.run_id AND c.group_name IS NOT DISTINCT FROM k.group_name
    AND c.ranks IS NOT DISTINCT FROM k.ranks AND c.size IS NOT DISTINCT FROM k.size;
