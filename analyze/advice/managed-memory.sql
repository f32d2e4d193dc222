-- Managed memory pages migrate on demand
--
-- Saving: Time in which pages of managed memory migrate between host and device, mean over the GPUs. Kernels and the
-- host wait for the pages that they access.
-- Overlaps: layout, tf32
-- See: memcpy
-- Try: cudaMemPrefetchAsync before the pages are used, or cudaMemAdvise (preferred location, accessed by, read mostly).
-- @use findings, intervals
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
    printf('%s (%.1f MiB), %s in total',
        counted(moves, 'page migration', 'page migrations'), t.bytes / 1048576, ms(s.ns)) AS evidence,
    s.longest.rank, s.longest.device, s.longest.start_ns, s.longest.end_ns, s.source
FROM spent s JOIN total t USING (run_id) JOIN run_gpus g USING (run_id)
