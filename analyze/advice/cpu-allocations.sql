-- Memory is allocated in every operator
--
-- Saving: Self time of operators that allocate (aten::empty, aten::resize_ ...), mean over the ranks; of recordings on
-- CPUs only. The time of the first access to new pages is in the operators that write them.
-- Overlaps: cpu-operators, cpu-data-wait
-- See: memory-by-op
-- Try: torch.inference_mode() for inference, in-place operators and out=, fewer temporaries (torch.compile), an
-- allocator that keeps pages (jemalloc or tcmalloc by LD_PRELOAD).
-- @use cpu_only, findings
-- @needs operators
WITH sums AS (
    SELECT
        run_id, count(*) AS calls, sum(self_ns) AS ns,
        arg_max({'rank': rank, 'device': NULL::INTEGER, 'start_ns': start_ns, 'end_ns': start_ns + dur_ns},
            (self_ns, -start_ns, -rank)) AS longest
    FROM cpu_only_operators
    WHERE regexp_matches(name, '^aten::(empty|resize_|new_empty|empty_like|empty_strided)')
    GROUP BY run_id
),
events AS (
    SELECT run_id, count(*) AS events, sum(bytes) FILTER (bytes > 0) AS bytes
    FROM memory_events WHERE device_type = 'cpu'
    GROUP BY run_id
)
SELECT
    g.run_group, run_id, s.ns / g.ranks AS saving_ns,
    printf('%s, %s self time', counted(s.calls, 'allocating operator', 'allocating operators'), ms(s.ns))
        || coalesce(printf('; %d allocator events, %.1f MiB allocated', e.events, e.bytes / 1048576), '') AS evidence,
    unnest(s.longest), NULL AS source
FROM sums s JOIN run_spans g USING (run_id) LEFT JOIN events e USING (run_id)
