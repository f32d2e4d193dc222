-- Which chain of CPU time, launches, GPU work and waits determines the time of a run or step?
--
-- The critical path of each rank, followed backwards from its end (docs/critical-path.md has the rules). The pieces are
-- contiguous, so total_ns adds up to window_ns exactly. The share of a piece is an upper bound of the saving: without
-- it, another chain may be the longest. Work that is hidden behind the path is not listed. Kinds: cpu; launch (end of
-- the launch call to start of the work); kernel, communication, copy; gap (between two pieces of GPU work, the second
-- already queued); stream_wait (the same, for work of another stream); sync (end of the GPU work to return of the call
-- that waited for it); profiler (the part of cpu and sync in the profiler's overhead ranges); other (no rule applies).
-- @param window span|step = span  The whole recording of a rank, or each step: from its start on the CPU to that of the
--                                 next.
-- @param group kind|name = kind   What a row is: a kind of piece, or a kind and name (CPU time by innermost operator).
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column step index              Training step; empty for the whole.
-- @column kind text               cpu, launch, kernel, communication, copy, gap, stream_wait, sync, profiler
--                                 or other.
-- @column name text               Operator or range, launch call, kernel, synchronizing call, or activity of the
--                                 profiler; empty for group=kind.
-- @column pieces count            Pieces of the path.
-- @column total_ns ns             Sum of their lengths.
-- @column path_pct %              Share of the window.
-- @column window_ns ns            Length of the window, and of the path.
-- @main run_id, rank, step, kind, name, pieces, total_ns, path_pct
-- @order run_id, rank, step, total_ns DESC, kind, name
-- @use arithmetic, steps
-- @needs operators, CUDA calls or GPU work; with window=step also training steps
-- @full operators and launch calls
-- @plot bars y=run_id,rank,step x=total_ns parts=kind per=step
-- @drill kind critical-path window={window} group=name kind={kind} rank={rank}
-- @drill step breakdown window=step step={step} rank={rank}
WITH pieces AS (
    SELECT
        run_id, rank, run_group, turn, kind, CASE WHEN '{group}' = 'name' THEN coalesce(name, '(no event)') END AS name,
        dur_ns
    FROM critical_path
    WHERE kind <> 'cpu' OR '{group}' = 'kind'
    UNION ALL
    SELECT run_id, rank, run_group, turn, 'cpu', coalesce(name, '(no event)'), dur_ns
    FROM critical_path_cpu
    WHERE '{group}' = 'name'
),
totals AS (
    SELECT run_id, rank, run_group, turn, kind, name, count(*) AS pieces, sum(dur_ns)::BIGINT AS total_ns
    FROM pieces
    WHERE (turn IS NULL) = ('{window}' = 'span')
    GROUP BY run_id, rank, run_group, turn, kind, name
)
SELECT
    t.run_group, run_id, rank, s.step, kind, name, pieces, total_ns,
    (sum(total_ns) OVER whole)::BIGINT AS window_ns, pct(total_ns, sum(total_ns) OVER whole) AS path_pct
FROM totals t LEFT JOIN step_ranges s USING (run_id, rank, turn)
WINDOW whole AS (PARTITION BY run_id, rank, turn)
