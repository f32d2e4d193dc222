-- Which CUDA calls make the CPU wait for the GPU?
--
-- Calls that block their thread until GPU work is done: synchronisations of a device, a stream or an event, and copies
-- that are not asynchronous (cudaMemcpy and its kin). `flagged` are the ones that `nsys analyze -r cuda_api_sync`
-- lists; an event's synchronisation waits for part of the work only and is what that rule recommends instead.
-- Asynchronous copies that block all the same are in `memcpy-sync`.
-- @use arithmetic
-- @needs CUDA calls that synchronise
-- @column name text               CUDA runtime or driver function.
-- @column waits_for text          device, stream, event or copy.
-- @column calls count             Calls.
-- @column total_ns ns             Time in them.
-- @column avg_ns ns               Mean.
-- @column max_ns ns               Longest.
-- @column api_time_pct %          Share of the time in all CUDA calls.
-- @column flagged bool            Whether Nsight Systems' rule lists it.
-- @order total_ns DESC, name
WITH classified AS (
    SELECT
        run_group, name, dur_ns,
        CASE
            WHEN regexp_matches(name, '^(cudaDeviceSynchronize|cudaThreadSynchronize|cuCtxSynchronize)') THEN 'device'
            WHEN regexp_matches(name, '^(cudaStreamSynchronize|cuStreamSynchronize)') THEN 'stream'
            WHEN regexp_matches(name, '^(cudaEventSynchronize|cuEventSynchronize)') THEN 'event'
            WHEN regexp_matches(name, '^(cudaMemcpy|cuMemcpy)') AND name NOT ILIKE '%async%' THEN 'copy'
        END AS waits_for,
        sum(dur_ns) OVER (PARTITION BY run_group) AS api_ns
    FROM cuda_calls
    WHERE api <> 'sync'
)
SELECT
    run_group, name, waits_for, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns, avg(dur_ns) AS avg_ns,
    max(dur_ns) AS max_ns, pct(sum(dur_ns), any_value(api_ns)) AS api_time_pct,
    name LIKE 'cudaDeviceSynchronize%' OR name LIKE 'cudaStreamSynchronize%' AS flagged
FROM classified
WHERE waits_for IS NOT NULL
GROUP BY run_group, name, waits_for
