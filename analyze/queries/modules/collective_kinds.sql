-- Kinds of collectives, and what depends on the kind alone.

-- @macro plain_collective(name)  the plain name of a collective; NULL if it is none.
-- The profiler may write allreduce, _allgather_base or nccl:reduce_scatter_tensor_coalesced. Sends and receives, single
-- or batched, are send_recv.
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

-- @macro kernel_collective(written, of_name)  the collective of a kernel: as the profiler recorded it, since an
--   all_to_all runs as NCCL's SendRecv kernel; else by the kernel's name.
CREATE MACRO kernel_collective(written, of_name) AS coalesce(plain_collective(lower(written)), of_name, 'other');

-- @macro dtype_bytes(dtype)  bytes per element, by torch's name of the type; NULL for an unknown one.
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

-- @macro leaves_early(collective)  whether a rank may leave the collective before all have arrived: the root of a
--   broadcast, or a rank that sends or receives nothing.
CREATE MACRO leaves_early(collective) AS collective IN ('broadcast', 'reduce', 'gather', 'scatter', 'all_to_all');

-- @macro ends_together(collective)  whether no rank can leave the collective before all have arrived, so that all leave
--   at about the same time.
CREATE MACRO ends_together(collective) AS
    collective IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier');

-- @macro whole_list(text)  the numbers of a list as the profiler writes it; NULL if the list is truncated.
CREATE MACRO whole_list(text) AS
    CASE WHEN regexp_full_match(text, '\[[-0-9, ]*\]') THEN try_cast(text AS BIGINT[]) END;
