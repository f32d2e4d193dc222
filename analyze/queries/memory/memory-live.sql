-- Who holds the GPU's memory at its peak, or when it ran out?
--
-- From memory snapshots (torch.cuda.memory._dump_snapshot, collect run --memory-history). The history of allocations
-- and frees gives the blocks that were live at that time, and the stack of each allocation. Bytes are those that the
-- program requested; the allocator rounds them up (`memory-fragmentation`). All rows of a device add up to
-- requested_bytes of torch.cuda.memory_stats().
-- @param at peak|oom|snapshot = peak   When: at the peak of requested bytes, the last time that memory ran out, or when
--                                 the snapshot was taken.
-- @param group frame|path|module|layers|category|stream|pool = frame   What a row is: the program's innermost line, all
--                                 its lines, the nn.Module that ran, its module list, what the bytes are for,
--                                 a stream, or a memory pool.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            Device.
-- @column {group} text            Who requested the bytes; (not recorded) if not known.
-- @column blocks count            Live blocks.
-- @column bytes B                 Their requested bytes.
-- @column share_pct %             Share of all live bytes of the device.
-- @column oldest_ns ns            When the oldest of them was allocated, since the run's first event; NULL if before
--                                 the history.
-- @column at_ns ns                That time, since the run's first event.
-- @main run_id, rank, device, {group}, blocks, bytes, share_pct
-- @order run_id, rank, device, bytes DESC, {group}
-- @use allocator, arithmetic, run_zeros
-- @needs a memory snapshot
-- @pass all
-- @plot bars y={group} x=bytes top=15
WITH live AS (
    SELECT l.*, m.start_ns AS moment_ns
    FROM allocator_requests l
    JOIN allocator_moments m ON m.run_id = l.run_id AND m.rank = l.rank AND m.device = l.device
    WHERE m.moment = '{at}' AND l.event <= m.at_event AND coalesce(l.freed_event > m.at_event, true)
)
SELECT
    l.run_group, l.run_id, l.rank, l.device, l.{group} AS {group}, count(*) AS blocks, sum(l.bytes)::BIGINT AS bytes,
    pct(sum(l.bytes), sum(sum(l.bytes)) OVER (PARTITION BY l.run_id, l.rank, l.device)) AS share_pct,
    min(l.start_ns) - any_value(zero_ns) AS oldest_ns, any_value(l.moment_ns) - any_value(zero_ns) AS at_ns
FROM live l
LEFT JOIN run_zeros z ON z.run_id = l.run_id
GROUP BY l.run_group, l.run_id, l.rank, l.device, l.{group}
