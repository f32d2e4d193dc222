-- Collectives: which kernels are one call, and what is known of it.
-- @macro plain_collective(name)  a collective's plain name; NULL if it is none of them.
-- What the profiler calls it may be allreduce, _allgather_base or nccl:reduce_scatter_tensor_coalesced. Sends and
-- receives, alone or in a batch, are send_recv.
CREATE MACRO plain_collective(name) AS CASE
    WHEN regexp_matches(name, 'reduce_?scatter') THEN 'reduce_scatter'
    WHEN regexp_matches(name, 'all_?reduce') THEN 'all_reduce'
    WHEN regexp_matches(name, 'all_?gather') THEN 'all_gather'
    WHEN regexp_matches(name, 'all_?to_?all') THEN 'all_to_all'
    WHEN name LIKE '%broadcast%' THEN 'broadcast'
    WHEN name LIKE '%barrier%' THEN 'barrier'
    WHEN regexp_matches(name, 'send|recv') THEN 'send_recv'
    WHEN regexp_matches(name, '^(nccl:)?_?reduce(_oop)?$') THEN 'reduce'
    WHEN name IN ('gather', 'nccl:gather') THEN 'gather'
    WHEN name IN ('scatter', 'nccl:scatter') THEN 'scatter'
END;

-- @macro kernel_collective(written, of_name)  the collective of a kernel: what the profiler wrote, since all_to_all
-- runs as NCCL's SendRecv kernel; else what the kernel's own name says.
CREATE MACRO kernel_collective(written, of_name) AS coalesce(plain_collective(lower(written)), of_name, 'other');

-- @macro dtype_bytes(dtype)  bytes of an element, by torch's name of its type; NULL for an unknown one.
CREATE MACRO dtype_bytes(dtype) AS CASE
    WHEN dtype IN ('Byte', 'Char', 'Bool') OR dtype LIKE 'Float8%' THEN 1
    WHEN dtype IN ('Half', 'BFloat16', 'Short', 'UInt16') THEN 2
    WHEN dtype IN ('Float', 'Int', 'UInt32', 'ComplexHalf') THEN 4
    WHEN dtype IN ('Double', 'Long', 'UInt64', 'ComplexFloat') THEN 8
    WHEN dtype = 'ComplexDouble' THEN 16
END;

-- @macro bus_factor(collective, n)  bus bandwidth / algorithm bandwidth for n ranks, as nccl-tests defines it.
CREATE MACRO bus_factor(collective, n) AS CASE
    WHEN n < 1 THEN NULL
    WHEN collective = 'all_reduce' THEN 2.0::DOUBLE * (n - 1) / n
    WHEN collective IN ('all_gather', 'reduce_scatter', 'all_to_all') THEN (n - 1)::DOUBLE / n
    ELSE 1.0::DOUBLE
END;

-- @macro leaves_early(collective)  whether a rank may leave the collective before all have come: the root of a
-- broadcast, who sends or gets nothing.
CREATE MACRO leaves_early(collective) AS collective IN ('broadcast', 'reduce', 'gather', 'scatter', 'all_to_all');

-- @view collective_kernels  a row is a communication kernel with the number of the call that it may be part of.
-- The number is the same on all ranks and devices of the group. By group and sequence number; by order within the group
-- and collective where the profiler wrote none, and so kernels of the same number. A group is its name, ranks and size
-- together, since ranks may give a name to groups of their own. Where none was written, it is the devices of a process
-- that drives several, else all ranks of the job. A send or receive is a call of its own: it has a peer, not a group.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device index          GPU.
-- @column collective text       all_reduce, broadcast, send_recv ...
-- @column group_name text       Process group, where the profiler names it.
-- @column members count         How many the group has; NULL if not known.
-- @column one_process bool      Whether the group is the devices of one process.
-- @column seq index             Sequence number that the profiler wrote.
-- @column bytes B               The larger of its input and output; NULL without the profiler's metadata.
-- @column start_ns ns           Start.
-- @column dur_ns ns             Length.
-- @column call index            The call.
CREATE VIEW collective_kernels AS
WITH _communication AS (
    SELECT
        k.run_group, k.run_id, k.rank, k.device, k.start_ns, k.dur_ns, k.group_name, k.group_ranks, k.group_size, k.seq,
        kernel_collective(k.collective, n.collective) AS collective,
        nullif(greatest(k.in_elems, k.out_elems), 0) * dtype_bytes(k.dtype) AS bytes,
        k.group_name IS NOT NULL OR k.group_ranks IS NOT NULL AS named
    FROM kernels k JOIN kernel_names n USING (run_id, name)
    WHERE n.family = 'communication'
),
_processes AS (
    SELECT run_group, run_id, rank, count(DISTINCT device) AS devices
    FROM _communication
    GROUP BY run_group, run_id, rank
),
_grouped AS (
    SELECT
        c.* EXCLUDE (named, group_size), NOT named AND p.devices > 1 AS one_process,
        CASE
            WHEN named THEN coalesce(group_size, len(try_cast(group_ranks AS BIGINT[])))
            WHEN p.devices > 1 THEN p.devices
            WHEN greatest(r.world_size, r.ranks) > 1 OR r.world_size = 1 THEN greatest(r.world_size, r.ranks)
        END AS members,
        CASE WHEN collective = 'send_recv' OR NOT named AND p.devices > 1 THEN c.rank END AS only_rank,
        CASE WHEN collective = 'send_recv' THEN c.device END AS only_device
    FROM _communication c
    JOIN _processes p ON p.run_id = c.run_id AND p.rank = c.rank AND p.run_group IS NOT DISTINCT FROM c.run_group
    JOIN (SELECT run_id, world_size, ranks FROM runs) r ON r.run_id = c.run_id
),
_numbered AS (
    SELECT
        *, row_number() OVER (
            PARTITION BY run_group, run_id, rank, device, group_name, group_ranks, members, collective, seq
            ORDER BY start_ns
        ) AS occurrence
    FROM _grouped
)
SELECT
    run_group, run_id, rank, device, collective, group_name, members, one_process, seq, bytes, start_ns, dur_ns,
    dense_rank() OVER (
        ORDER BY
            run_group, run_id, group_name, group_ranks, members, only_rank, only_device, collective, seq, occurrence
    ) AS call
FROM _numbered;

-- @macro judged_calls(t)  communication kernels with what is known of their call.
-- `status` is
--   matched         all members of the group are there, and a moment at which all were in it; or no such moment, where
--                   a rank may leave early and the match does not rest on the order in which ranks were recorded;
--   incomplete      members are missing, or how many there are is not known;
--   unmatched       no moment at which all were in it (kernels of different calls, or clocks that differ), or more
--                   kernels than members (groups of one name);
--   point_to_point  a send or receive, whose peer is not known.
-- `wait_ns`, of matched calls: from the kernel's start to the latest start of the call, or to its own end if that is
-- earlier.
-- @column * of t
-- @column ranks count           Kernels of the call.
-- @column last_start_ns ns      Latest start of the call.
-- @column first_end_ns ns       Earliest end of it.
-- @column status text           What is known.
-- @column wait_ns ns            Of matched calls: from the kernel's start to the latest start, or to its own end if
--                               that is earlier.
CREATE MACRO judged_calls(t) AS TABLE
WITH _met AS (
    SELECT
        *, count(*) OVER calls AS ranks, max(start_ns) OVER calls AS last_start_ns,
        min(start_ns + dur_ns) OVER calls AS first_end_ns
    FROM query_table(t)
    WINDOW calls AS (PARTITION BY call)
),
_judged AS (
    SELECT
        *, CASE
            WHEN collective = 'send_recv' THEN 'point_to_point'
            WHEN ranks > members THEN 'unmatched'
            WHEN ranks < members OR members IS NULL THEN 'incomplete'
            WHEN ranks = 1 OR last_start_ns < first_end_ns THEN 'matched'
            WHEN leaves_early(collective) AND (one_process OR seq IS NOT NULL) THEN 'matched'
            ELSE 'unmatched'
        END AS status
    FROM _met
)
SELECT *, CASE WHEN status = 'matched' THEN least(last_start_ns - start_ns, dur_ns) END AS wait_ns FROM _judged;
