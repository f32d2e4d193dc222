-- Managed memory pages migrate on demand
--
-- Saving: Time in which pages of managed memory migrate between host and device or a GPU handles page faults, mean over
-- the GPUs. Kernels and the host wait for the pages that they access.
-- Overlaps: layout, tf32
-- See: memcpy
-- Try: cudaMemPrefetchAsync before the pages are used, or cudaMemAdvise (preferred location, accessed by, read mostly).
-- @use findings, gpu_timeline, intervals
-- @needs memcpys of managed memory
WITH moved AS (
    SELECT * FROM tracked_memcpys WHERE managed
),
faults AS (
    SELECT t.track, run_id, c.start_ns, c.start_ns + c.dur_ns AS end_ns, c.value
    FROM counters c JOIN gpu_tracks t USING (run_id, rank, device)
    WHERE c.name = 'GPU page faults' AND c.dur_ns IS NOT NULL
),
waited AS (
    SELECT track, start_ns, end_ns FROM moved UNION ALL SELECT track, start_ns, end_ns FROM faults
),
disjoint AS (
    SELECT track, start_ns, end_ns FROM intervals_union('waited')
),
spent AS (
    SELECT * FROM run_times('disjoint')
),
total AS (
    SELECT run_id, count(*) AS moves, sum(bytes) AS bytes FROM moved GROUP BY run_id
),
faulted AS (
    SELECT run_id, ', ' || counted(sum(value)::BIGINT, 'page fault', 'page faults') || ' of GPUs' AS note
    FROM faults
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, s.ns / gpus AS saving_ns,
    printf('%s (%.1f MiB)%s, %s in total',
        counted(moves, 'page migration', 'page migrations'), t.bytes / 1048576, coalesce(f.note, ''), ms(s.ns)
    ) AS evidence,
    s.longest.rank, s.longest.device, s.longest.start_ns, s.longest.end_ns, s.source
FROM spent s JOIN total t USING (run_id) JOIN run_gpus g USING (run_id) LEFT JOIN faulted f USING (run_id)
