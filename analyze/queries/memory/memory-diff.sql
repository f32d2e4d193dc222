-- What does a memory snapshot hold that an earlier one did not?
--
-- Each snapshot is compared with the previous one of the same rank and device in the recordings; the first one with the
-- start of its history. Bytes are requested ones, of blocks that the program holds. All rows of a snapshot add up to
-- the change of what it holds.
-- @param group frame|path|module|layers|category|stream|pool = frame   What a row is: the program's innermost line, all
--                                 its lines, the nn.Module that ran, its module list, what the bytes are for,
--                                 a stream, or a memory pool.
-- @column run_id id               The snapshot.
-- @column before_run_id id        The snapshot that it is compared with; NULL: the start of its history.
-- @column rank index              Process rank.
-- @column device index            Device.
-- @column {group} text            Who requested the bytes; (not recorded) if not known.
-- @column before_blocks count     Blocks held before.
-- @column blocks count            Blocks held.
-- @column before_bytes B          Their bytes before.
-- @column bytes B                 Their bytes.
-- @column change_bytes B          The difference.
-- @main run_id, rank, device, {group}, before_bytes, bytes, change_bytes
-- @order run_id, rank, device, change_bytes DESC, {group}
-- @use allocator
-- @needs a memory snapshot
-- @pass all
-- @plot bars y={group} x=change_bytes top=15
WITH snapshots AS (
    SELECT
        b.run_group, b.run_id, b.rank, b.device,
        lag(b.run_id) OVER (PARTITION BY b.rank, b.device ORDER BY m.start_ns, b.run_id) AS before_run_id
    FROM (SELECT DISTINCT run_group, run_id, rank, device FROM allocator_blocks) b
    JOIN allocator_moments m USING (run_id, rank, device)
    WHERE m.moment = 'snapshot'
),
held AS (
    SELECT
        run_id, rank, device, bytes, event < 0 AS is_older, freed_event IS NULL AS is_held, {group} AS owner
    FROM allocator_requests
    WHERE event < 0 OR freed_event IS NULL
),
sides AS (
    SELECT s.run_id, s.rank, s.device, h.owner, 0 AS before, h.bytes
    FROM snapshots s JOIN held h ON h.run_id = s.run_id AND h.rank = s.rank AND h.device = s.device
    WHERE h.is_held
    UNION ALL
    SELECT s.run_id, s.rank, s.device, h.owner, 1, h.bytes
    FROM snapshots s
    JOIN held h ON h.run_id = coalesce(s.before_run_id, s.run_id) AND h.rank = s.rank AND h.device = s.device
    WHERE CASE WHEN s.before_run_id IS NULL THEN h.is_older ELSE h.is_held END
)
SELECT
    s.run_group, s.run_id, s.before_run_id, s.rank, s.device, owner AS {group},
    count(*) FILTER (before = 1) AS before_blocks, count(*) FILTER (before = 0) AS blocks,
    coalesce(sum(bytes) FILTER (before = 1), 0)::BIGINT AS before_bytes,
    coalesce(sum(bytes) FILTER (before = 0), 0)::BIGINT AS bytes,
    sum(CASE before WHEN 0 THEN bytes ELSE -bytes END)::BIGINT AS change_bytes
FROM sides JOIN snapshots s USING (run_id, rank, device)
GROUP BY s.run_group, s.run_id, s.before_run_id, s.rank, s.device, owner
