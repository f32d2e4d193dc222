-- Expert parallelism: the matrix products with the tokens that an all_to_all brings to a rank.
-- @use collective_kinds, comm_groups, op_flops, steps

-- @view expert_dispatches  a row is an all_to_all that brings tokens to the experts of a rank, or takes them back.
-- In a sequence of all_to_alls on a thread in a step, where each returns what the previous one received, the odd ones
-- bring tokens.
-- @columns run_id, rank, run_group
-- @column process_group text      Label: the program's name for the group, else its own name, and its ranks.
-- @columns tid, start_ns
-- @column rows count              Rows that the rank receives; NULL if not known.
-- @column dispatch bool           Whether it brings tokens; else it returns them.
CREATE VIEW expert_dispatches AS
WITH _calls AS (
    SELECT
        k.run_group, k.run_id, k.rank, g.process_group, o.tid, o.start_ns, k.in_splits, k.out_splits,
        CASE
            WHEN coalesce(k.out_splits, '[]') = '[]' THEN try_cast(try_cast(o.input_dims AS JSON)->>'$[0][0]' AS BIGINT)
            ELSE list_sum(whole_list(k.out_splits))::BIGINT
        END AS rows
    FROM kernels k
    JOIN comm_groups g
        ON g.run_id = k.run_id AND g.rank = k.rank AND g.group_name IS NOT DISTINCT FROM k.group_name
        AND g.group_ranks IS NOT DISTINCT FROM k.group_ranks
    JOIN cpu_ops o ON o.run_id = k.run_id AND o.rank = k.rank AND o.op_id = k.op_id AND o.name = 'record_param_comms'
    WHERE plain_collective(lower(k.collective)) = 'all_to_all'
),
_in_steps AS (
    SELECT c.*, {'tid': tid, 'group': process_group, 'step_ns': s.start_ns} AS place
    FROM _calls c ASOF LEFT JOIN step_ranges s ON s.run_id = c.run_id AND s.rank = c.rank AND c.start_ns >= s.start_ns
),
_linked AS (
    SELECT *, coalesce(
        in_splits = lag(out_splits) OVER in_place AND out_splits = lag(in_splits) OVER in_place, false
    ) AS back
    FROM _in_steps
    WINDOW in_place AS (PARTITION BY run_id, rank, place ORDER BY start_ns)
),
_chained AS (
    SELECT *, count(CASE WHEN NOT back THEN 1 END) OVER (
        PARTITION BY run_id, rank, place ORDER BY start_ns ROWS UNBOUNDED PRECEDING
    ) AS chain
    FROM _linked
)
SELECT
    run_id, rank, run_group, process_group, tid, start_ns, rows,
    row_number() OVER (PARTITION BY run_id, rank, place, chain ORDER BY start_ns) % 2 = 1 AS dispatch
FROM _chained;

-- @view expert_products  a row is a matrix product with the tokens of a dispatch, before the next all_to_all of the
--   thread.
-- The experts' first layer: the first products of one kind with weights of one shape whose rows add up to the received
-- rows.
-- @columns run_id, rank
-- @column dispatch_ns ns          Start of the dispatch.
-- @column number index            Number among these products, from 0.
-- @column products count          Number of these products.
-- @column rows count              Its rows.
-- @column weights count           Weight matrices of the product: experts.
-- @column even bool               Whether each of them has the same number of rows.
CREATE VIEW expert_products AS
WITH _ops AS (
    SELECT
        run_id, rank, tid, start_ns, name, shape(input_dims, CASE WHEN name = 'aten::addmm' THEN 1 ELSE 0 END) AS x,
        shape(input_dims, CASE WHEN name = 'aten::addmm' THEN 2 ELSE 1 END) AS w
    FROM cpu_ops
    WHERE name IN ('aten::linear', 'aten::mm', 'aten::addmm', 'aten::bmm', 'aten::_scaled_mm', 'aten::_scaled_mm_v2',
        'aten::_grouped_mm', 'aten::_scaled_grouped_mm', 'aten::_scaled_grouped_mm_v2')
        AND (run_id, rank) IN (SELECT (run_id, rank) FROM expert_dispatches)
),
_within AS (
    SELECT
        o.*, d.start_ns AS dispatch_ns, d.rows AS received,
        list_aggregate(x[1:len(x) - 1], 'product')::BIGINT AS rows
    FROM _ops o
    ASOF JOIN expert_dispatches d
        ON d.run_id = o.run_id AND d.rank = o.rank AND d.tid = o.tid AND o.start_ns >= d.start_ns
    WHERE d.dispatch AND len(x) > 1 AND len(w) > 1
),
_layers AS (
    SELECT *, sum(rows) OVER layer AS all_rows, count(*) OVER layer AS products, min(start_ns) OVER layer AS layer_ns
    FROM _within
    WINDOW layer AS (PARTITION BY run_id, rank, tid, dispatch_ns, name, w)
)
SELECT
    run_id, rank, dispatch_ns,
    row_number() OVER (PARTITION BY run_id, rank, dispatch_ns ORDER BY start_ns) - 1 AS number,
    products, rows, CASE WHEN len(w) = 3 THEN w[1] ELSE 1 END AS weights, name = 'aten::bmm' AS even
FROM _layers
WHERE all_rows = received
QUALIFY layer_ns = min(layer_ns) OVER (PARTITION BY run_id, rank, dispatch_ns);

-- @view expert_loads  a row is an expert of a rank, or the rank if the trace does not tell its experts apart.
-- The products of a dispatch are the experts in order, if each dispatch of the rank has as many.
-- @columns run_id, run_group
-- @column process_group text      Label: the program's name for the group, else its own name, and its ranks.
-- @columns rank
-- @column expert index            Its number on the rank, from 0; NULL if the trace does not tell experts apart.
-- @column experts count           Experts of the rank; NULL if not known.
-- @column calls count             Dispatches, also those of gradients in the backward pass.
-- @column rows count              Sum of its rows; NULL if the trace does not tell experts apart.
CREATE VIEW expert_loads AS
WITH _of_dispatch AS (
    SELECT
        d.run_group, d.run_id, d.process_group, d.rank, d.start_ns,
        CASE WHEN count(p.number) = 1 THEN max(weights) WHEN max(weights) = 1 THEN count(p.number) END AS experts,
        bool_and(weights = 1 OR even AND products = 1) AS countable, list(p.rows ORDER BY p.number) AS rows
    FROM (SELECT * FROM expert_dispatches WHERE dispatch) d
    LEFT JOIN expert_products p ON p.run_id = d.run_id AND p.rank = d.rank AND p.dispatch_ns = d.start_ns
    GROUP BY d.run_group, d.run_id, d.process_group, d.rank, d.start_ns
),
_of_rank AS (
    SELECT
        *, count(*) OVER of_rank AS calls,
        CASE WHEN count(experts) OVER of_rank = count(*) OVER of_rank
            AND min(experts) OVER of_rank = max(experts) OVER of_rank THEN experts END AS same,
        coalesce(bool_and(coalesce(countable, false)) OVER of_rank AND same IS NOT NULL, false) AS separate
    FROM _of_dispatch
    WINDOW of_rank AS (PARTITION BY run_group, run_id, process_group, rank)
),
_experts AS (
    SELECT *, unnest(CASE WHEN separate THEN range(same) ELSE [NULL] END) AS expert FROM _of_rank
)
SELECT
    run_id, run_group, process_group, rank, expert, any_value(same) AS experts, any_value(calls) AS calls,
    sum(CASE WHEN len(rows) = same THEN rows[expert + 1] ELSE rows[1] // same END) FILTER (separate)::BIGINT AS rows
FROM _experts
GROUP BY run_id, run_group, process_group, rank, expert;
