-- Time by name. Ranks without events have the sums of a printed summary (nvprof).

-- @view printed_kernel_sums  a row is a kernel name on a rank without events, from a printed summary.
-- @columns run_group, run_id, rank
-- @column name text               Name.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW printed_kernel_sums AS
SELECT run_group, run_id, rank, name, calls, total_ns, min_ns, max_ns
FROM gpu_summary ANTI JOIN kernels USING (run_id, rank)
WHERE NOT starts_with(name, '[');

-- @view kernel_sums  a row is a kernel name on a rank.
-- @columns run_group, run_id, rank
-- @column name text               Name.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW kernel_sums AS
SELECT
    run_group, run_id, rank, name, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns, min(dur_ns) AS min_ns,
    max(dur_ns) AS max_ns
FROM kernels
GROUP BY run_group, run_id, rank, name
UNION ALL
FROM printed_kernel_sums;

-- @view kernels_by_name  a row is a kernel name on a rank.
-- @columns run_group
-- @column name text                  Kernel name.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW kernels_by_name AS
SELECT run_group, kernel_names.name AS name, calls, total_ns, min_ns, max_ns
FROM kernel_sums JOIN kernel_names USING (run_id, name);

-- @view kernels_by_short_name  a row is a kernel name on a rank.
-- @columns run_group
-- @column short_name text            Short name of the kernel.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW kernels_by_short_name AS
SELECT run_group, kernel_names.short_name AS short_name, calls, total_ns, min_ns, max_ns
FROM kernel_sums JOIN kernel_names USING (run_id, name);

-- @view kernels_by_family  a row is a kernel name on a rank.
-- @columns run_group
-- @column family text                Family.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW kernels_by_family AS
SELECT run_group, kernel_names.family AS family, calls, total_ns, min_ns, max_ns
FROM kernel_sums JOIN kernel_names USING (run_id, name);

-- @view kernels_by_algorithm  a row is a kernel name on a rank.
-- @columns run_group
-- @column algorithm text             Algorithm of a convolution.
-- @columns calls, total_ns, min_ns, max_ns
CREATE VIEW kernels_by_algorithm AS
SELECT run_group, kernel_names.algorithm AS algorithm, calls, total_ns, min_ns, max_ns
FROM kernel_sums JOIN kernel_names USING (run_id, name);

-- @view run_kernel_time  a row is a run with kernels.
-- @columns run_id
-- @column ns ns                   Sum of their durations.
CREATE VIEW run_kernel_time AS SELECT run_id, sum(total_ns) AS ns FROM kernel_sums GROUP BY run_id;

-- @view gpu_time_sums  a row is a group of runs. Summaries name copies and fills [CUDA memcpy HtoD] and the like.
-- @columns run_group
-- @column kernel_ns ns            Durations of all kernels.
-- @column gpu_ns ns               Durations of kernels, memcpys and memsets.
CREATE VIEW gpu_time_sums AS
SELECT
    run_group,
    coalesce(sum(total_ns) FILTER (is_kernel), 0)::BIGINT AS kernel_ns,
    sum(total_ns)::BIGINT AS gpu_ns
FROM (
    SELECT run_group, kind = 'kernel' AS is_kernel, dur_ns AS total_ns FROM gpu_work
    UNION ALL
    SELECT run_group, NOT starts_with(name, '['), total_ns
    FROM gpu_summary ANTI JOIN gpu_work USING (run_id, rank)
)
GROUP BY run_group;
