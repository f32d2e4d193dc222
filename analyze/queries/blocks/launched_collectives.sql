-- What the program called, where a communication kernel does not say what it is.
-- @use collective_kinds, launch_calls

-- @view launched_collectives  a row is such a kernel that was launched in a range of NCCL's process group (nccl:...).
-- Its name alone misleads: an all_to_all runs as SendRecv, and in old versions of NCCL other collectives do, too.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column correlation_id id     Joins the kernel to the call that launched it.
-- @column collective text       Name of the range.
CREATE VIEW launched_collectives AS
WITH _bare AS (
    SELECT DISTINCT k.run_id, k.rank, k.correlation_id
    FROM kernels k
    JOIN kernel_names n ON n.run_id = k.run_id AND n.name = k.name
    WHERE n.family = 'communication' AND k.collective IS NULL
),
_ranges AS (
    SELECT run_id, rank, tid, name, start_ns, start_ns + dur_ns AS end_ns
    FROM ranges
    WHERE starts_with(name, 'nccl:') AND plain_collective(lower(name)) IS NOT NULL
        AND origin IN ('record_function', 'nvtx')
    UNION ALL
    SELECT run_id, rank, tid, name, start_ns, start_ns + dur_ns
    FROM cpu_ops
    WHERE starts_with(name, 'nccl:') AND plain_collective(lower(name)) IS NOT NULL
)
SELECT b.run_id, b.rank, b.correlation_id, r.name AS collective
FROM launch_calls('_bare') b
ASOF JOIN _ranges r ON r.run_id = b.run_id AND r.rank = b.rank AND r.tid = b.tid AND b.start_ns >= r.start_ns
WHERE b.start_ns < r.end_ns;
