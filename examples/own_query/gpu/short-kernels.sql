-- Which families of kernels are so short that launching them costs more than they do?
--
-- analyze query short-kernels PATH --queries examples/own_query --param limit_us=5
-- @param limit_us number[0..] = 5  Longest of a short one.
-- @column family text              Kernel family.
-- @column calls count              Short kernels.
-- @column total_ns ns              Their time together.
-- @column short_pct %              Share of the family's kernels that are short.
-- @order calls DESC, family
-- @needs kernels
-- @plot bars x=calls y=family
SELECT
    run_group, family,
    count(*) FILTER (dur_ns <= 1000 * $limit_us) AS calls,
    coalesce(sum(dur_ns) FILTER (dur_ns <= 1000 * $limit_us), 0)::BIGINT AS total_ns,
    100.0 * count(*) FILTER (dur_ns <= 1000 * $limit_us) / count(*) AS short_pct
FROM kernels JOIN kernel_names USING (run_id, name)
GROUP BY run_group, family
HAVING count(*) FILTER (dur_ns <= 1000 * $limit_us) > 0
