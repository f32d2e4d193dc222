-- What the profiler calls a collective (allreduce, _allgather_base, reduce_scatter_tensor_coalesced) under its plain
-- name; NULL if it is none of them.
CREATE MACRO plain_collective(name) AS CASE
    WHEN regexp_matches(name, 'reduce_?scatter') THEN 'reduce_scatter'
    WHEN regexp_matches(name, 'all_?reduce') THEN 'all_reduce'
    WHEN regexp_matches(name, 'all_?gather') THEN 'all_gather'
    WHEN regexp_matches(name, 'all_?to_?all') THEN 'all_to_all'
    WHEN name LIKE '%broadcast%' THEN 'broadcast'
    WHEN name LIKE '%barrier%' THEN 'barrier'
    WHEN regexp_matches(name, 'send|recv') THEN 'send_recv'
    WHEN name IN ('reduce', 'gather', 'scatter') THEN name
END;

-- Bytes of an element, by torch's name of its type; NULL for an unknown one.
CREATE MACRO dtype_bytes(dtype) AS CASE
    WHEN dtype IN ('Byte', 'Char', 'Bool') OR dtype LIKE 'Float8%' THEN 1
    WHEN dtype IN ('Half', 'BFloat16', 'Short', 'UInt16') THEN 2
    WHEN dtype IN ('Float', 'Int', 'UInt32', 'ComplexHalf') THEN 4
    WHEN dtype IN ('Double', 'Long', 'UInt64', 'ComplexFloat') THEN 8
    WHEN dtype = 'ComplexDouble' THEN 16
END;

-- Bus bandwidth / algorithm bandwidth for n ranks, as nccl-tests defines it.
CREATE MACRO bus_factor(collective, n) AS CASE
    WHEN n < 1 THEN NULL
    WHEN collective = 'all_reduce' THEN 2.0::DOUBLE * (n - 1) / n
    WHEN collective IN ('all_gather', 'reduce_scatter', 'all_to_all') THEN (n - 1)::DOUBLE / n
    ELSE 1.0::DOUBLE
END;

-- Communication kernels with the number of the call that they are part of: the same on all ranks and devices of the
-- group. Matched by group and sequence number; by order within the group and collective where the profiler wrote none,
-- and so kernels of the same number. Where it wrote no group, it is the devices of a process that drives several, else
-- all ranks.
CREATE VIEW collective_kernels AS
WITH communication AS (
    SELECT
        k.run_group, k.run_id, k.rank, k.device, k.start_ns, k.dur_ns, k.group_name, k.group_ranks, k.group_size, k.seq,
        coalesce(plain_collective(lower(k.collective)), n.collective, 'other') AS collective,
        nullif(greatest(k.in_elems, k.out_elems), 0) * dtype_bytes(k.dtype) AS bytes
    FROM kernels k JOIN kernel_names n USING (run_id, name)
    WHERE n.family = 'communication'
),
processes AS (
    SELECT run_group, run_id, rank, count(DISTINCT device) > 1 AS several
    FROM communication
    GROUP BY run_group, run_id, rank
),
grouped AS (
    SELECT
        c.*,
        CASE
            WHEN c.group_name IS NOT NULL OR c.group_ranks IS NOT NULL THEN concat_ws(' ', c.group_name, c.group_ranks)
            WHEN p.several THEN concat('devices of rank ', c.rank)
            ELSE 'all ranks'
        END AS members
    FROM communication c
    JOIN processes p ON p.run_id = c.run_id AND p.rank = c.rank AND p.run_group IS NOT DISTINCT FROM c.run_group
),
numbered AS (
    SELECT
        *, row_number() OVER (
            PARTITION BY run_group, run_id, rank, device, members, collective, seq ORDER BY start_ns
        ) AS occurrence
    FROM grouped
)
SELECT
    run_group, run_id, rank, device, collective, members, group_name, group_size, bytes, start_ns, dur_ns,
    dense_rank() OVER (ORDER BY run_group, run_id, members, collective, seq, occurrence) AS call
FROM numbered;
