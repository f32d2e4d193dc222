-- How fast are the collectives of a long run, and who waits, as NCCL Inspector logs them?
--
-- From logs of NCCL Inspector (NCCL_PROFILER_PLUGIN, NCCL_INSPECTOR_ENABLE=1,
-- NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=500), one for each process. An operation is a
-- call over the ranks whose logs have it: same communicator, same number. Its duration is the shortest of the ranks:
-- the others also wait for the last one. Bandwidths are those that NCCL Inspector computes, of that rank. After an
-- all_to_all NCCL may log durations of earlier operations. Those of verbose logs that are impossible are left out.
-- @param each size|operation = operation   What a row is: an operation of a communicator, or one with a size.
-- @column run_id id               The run.
-- @column communicator text       Its name, else its id.
-- @column comm_size count         Its ranks.
-- @column operation text          AllReduce, AllGather, Send ...
-- @column message_bytes B         With each=size: the larger of a rank's input and output.
-- @column algorithms text         Algorithms and protocols of NCCL.
-- @column calls count             Operations.
-- @column logged_ranks count      Ranks whose logs have them, at most.
-- @column bytes B                 Sum of the sizes.
-- @column total_ns ns             Sum of the durations.
-- @column avg_ns ns               Mean duration.
-- @column max_ns ns               Longest.
-- @column busbw_gb_per_s GB/s     Bus bandwidth over all calls that have one.
-- @column waiting_ns ns           How long a rank waited for others in them, mean of the ranks; empty if only one is
--                                 logged.
-- @column last_rank index         Rank of the communicator that was last most often; empty if only one is logged, or
--                                 all took equally long.
-- @main run_id, communicator, comm_size, operation, message_bytes, algorithms, calls, total_ns, busbw_gb_per_s,
--   waiting_ns, last_rank
-- @order run_id, total_ns DESC, communicator, operation, message_bytes
-- @use arithmetic
-- @needs a log of NCCL Inspector
-- @pass all
-- @plot bars y=operation x=total_ns
WITH calls AS (
    SELECT
        run_group, run_id, comm_id, any_value(comm_name) AS comm_name, max(comm_size) AS comm_size, operation,
        max(bytes) AS bytes, count(*) AS ranks, CASE WHEN count(dur_ns) = count(*) THEN min(dur_ns) END AS dur_ns,
        CASE WHEN count(dur_ns) = count(*) AND count(*) > 1 THEN avg(dur_ns) - min(dur_ns) END AS waiting_ns,
        arg_min(busbw_gb_per_s, (dur_ns, comm_rank)) AS busbw_gb_per_s,
        CASE WHEN count(dur_ns) = count(*) AND min(dur_ns) < max(dur_ns) THEN arg_min(comm_rank, (dur_ns, comm_rank))
        END AS last_rank,
        any_value(concat_ws(' ', algorithm, protocol)) AS algorithm
    FROM nccl_records
    -- A send and its receive have numbers of their own on each rank.
    GROUP BY run_group, run_id, comm_id, operation, is_p2p, seq, CASE WHEN is_p2p THEN rank END
)
SELECT
    run_group, run_id, coalesce(any_value(comm_name), comm_id) AS communicator, comm_size, operation,
    CASE '{each}' WHEN 'size' THEN bytes END AS message_bytes,
    nullif(string_agg(DISTINCT algorithm, ', ' ORDER BY algorithm), '') AS algorithms, count(*) AS calls,
    max(ranks) AS logged_ranks, sum(bytes)::BIGINT AS bytes, sum(dur_ns)::BIGINT AS total_ns, avg(dur_ns) AS avg_ns,
    max(dur_ns) AS max_ns, mean_over(busbw_gb_per_s, dur_ns) AS busbw_gb_per_s,
    sum(waiting_ns)::BIGINT AS waiting_ns, mode(last_rank) AS last_rank
FROM calls
GROUP BY run_group, run_id, comm_id, comm_size, operation, 6
