-- Hangs in a sentence.

-- @macro hung_runs(t)  a row is a run with dumps of the flight recorder; t: the answer of the query `hang`.
-- @columns run_id
-- @column hung_groups count       Process groups with a collective that not all ranks completed.
-- @column hang text               The first of these collectives, and the ranks that did not reach it or called
--                                 another one; NULL if all completed.
CREATE MACRO hung_runs(t) AS TABLE
WITH _collectives AS (
    SELECT
        run_id, process_group, seq, min(called_ns) AS called_ns, mode(operation) AS operation,
        list(rank ORDER BY rank) FILTER (status IN ('missing', 'differs')) AS apart,
        CASE
            WHEN bool_or(status = 'missing') THEN 'missing'
            WHEN bool_and(status = 'differs') THEN 'calling different ones'
            WHEN bool_or(status = 'differs') THEN 'calling another'
        END AS how
    FROM query_table(t)
    GROUP BY run_id, process_group, seq
)
SELECT
    run_id, count(DISTINCT process_group) FILTER (seq IS NOT NULL) AS hung_groups,
    arg_min(
        concat(
            operation, ' (call ', seq, ')', ': rank' || CASE WHEN len(apart) > 1 THEN 's ' ELSE ' ' END
            || array_to_string(apart[:6], ', ') || CASE WHEN len(apart) > 6 THEN ' ...' ELSE '' END || ' ' || how
        ),
        (apart IS NULL, called_ns, process_group, seq)
    ) AS hang
FROM (SELECT DISTINCT run_id FROM flight_groups) LEFT JOIN _collectives USING (run_id)
GROUP BY run_id;
