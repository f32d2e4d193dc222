-- Pages of managed memory move on demand
--
-- Saving: Time in which pages of managed memory move between host and device, mean over the GPUs: kernels and the host
-- wait for the pages that they touch.
-- Overlaps: layout, tf32
-- See: memcpy
-- Try: cudaMemPrefetchAsync before the pages are used, or cudaMemAdvise (preferred location, accessed by, read mostly).
-- @column run_id id               The run.
-- @column saving_ns ns            Time that it could save at most, per GPU.
-- @column evidence text           The numbers that it rests on.
-- @column rank index              Rank of the longest stretch that it is about.
-- @column device index            GPU of that.
-- @column start_ns ns             Its start.
-- @column end_ns ns               Its end.
-- @column source text             Line of the program that most of its time comes from; NULL if not known.
-- @order run_id
-- @use intervals, run_gpus, time_owners
-- @needs memcpys of managed memory
WITH moved AS (
    SELECT * FROM tracked_memcpys WHERE managed
),
disjoint AS (
    SELECT track, start_ns, end_ns FROM intervals_union('moved')
),
spent AS (
    SELECT * FROM run_times('disjoint')
),
total AS (
    SELECT run_id, count(*) AS moves, sum(bytes) AS bytes FROM moved GROUP BY run_id
)
SELECT
    g.run_group, run_id, s.ns / gpus AS saving_ns,
    printf('%s of pages, %.1f MiB, take %s', counted(moves, 'move', 'moves'), t.bytes / 1048576, ms(s.ns)) AS evidence,
    s.longest.rank, s.longest.device, s.longest.start_ns, s.longest.end_ns, s.source
FROM spent s JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
