-- What does the time of a run, or of a step, consist of: which chain of CPU time, launches, GPU work and waits?
--
-- The critical path of each rank, walked backwards from the end (docs/critical-path.md has the rules). Its pieces are
-- laid end to end, so total_ns adds up to window_ns exactly; a piece's share is the most that could be saved if it took
-- no time, since another chain may then be the longest. Work that is not on the path (hidden behind it) is not listed.
-- Kinds: cpu; launch (from the end of the launch call to the start of the work); kernel, communication, copy; gap
-- (between two pieces of GPU work, the second queued); stream_wait (the same, for work of another stream); sync (from
-- the end of the GPU work to the return of the call that waited for it); profiler (what of cpu and sync the profiler's
-- own work took, by its overhead ranges); other (what no rule explains).
-- @param window span|step = span  The whole recording of a rank, or each step from its start on the CPU to the next
--                                 one's.
-- @param group kind|name = kind   What a row is: a kind of piece, or one of a name (CPU time by the innermost
--                                 operator).
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column step index              Training step; empty for the whole.
-- @column kind text               cpu, launch, kernel, communication, copy, gap, stream_wait, sync, profiler
--                                 or other.
-- @column name text               Operator or range, launch call, kernel, synchronising call, or what the profiler did;
--                                 empty with group = kind.
-- @column pieces count            Pieces of the path.
-- @column total_ns ns             Their length.
-- @column path_pct %              Share of the window.
-- @column window_ns ns            Length of the window, and of the path.
-- @main run_id, rank, step, kind, name, pieces, total_ns, path_pct
-- @order run_id, rank, step, total_ns DESC, kind, name
-- @use arithmetic, cpu_events, critical_path_{window}, innermost, intervals
-- @needs operators, CUDA calls and GPU work; with window=step also training steps
-- @plot bars y=run_id,rank,step x=total_ns parts=kind
-- @drill kind critical-path window={window} group=name kind={kind} rank={rank}
-- @drill step breakdown window=step step={step} rank={rank}
WITH path AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY run_id, rank, step, seq) AS piece, * FROM critical_path_{window}
),
threads AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY run_id, rank, tid)::INTEGER AS track, run_id, rank, tid
    FROM (SELECT DISTINCT run_id, rank, tid FROM path WHERE kind = 'cpu')
    WHERE '{group}' = 'name'
),
cpu AS (
    SELECT track, piece, start_ns, start_ns + dur_ns AS end_ns
    FROM path JOIN threads USING (run_id, rank, tid)
    WHERE kind = 'cpu'
),
events AS (
    SELECT track, name, start_ns, start_ns + dur_ns AS end_ns
    FROM cpu_events JOIN threads USING (run_id, rank, tid)
    WHERE kind NOT IN ('async', 'overhead', 'python')
),
busy AS MATERIALIZED (
    SELECT row_number() OVER () AS window_id, * FROM innermost('events')
),
parts AS MATERIALIZED (
    SELECT c.piece, b.name, c.end_ns - c.start_ns AS dur_ns
    FROM intervals_cut('cpu', 'busy') c JOIN busy b USING (window_id)
),
named AS (
    SELECT
        p.run_group, run_id, rank, step, p.kind,
        CASE WHEN '{group}' = 'name' THEN coalesce(p.name, '(no event)') END AS name, piece,
        p.dur_ns - coalesce((SELECT sum(dur_ns) FROM parts q WHERE q.piece = p.piece), 0) AS dur_ns
    FROM path p
    UNION ALL
    SELECT p.run_group, run_id, rank, step, p.kind, q.name, piece, q.dur_ns
    FROM parts q JOIN path p USING (piece)
),
sums AS (
    SELECT run_group, run_id, rank, step, kind, name, count(DISTINCT piece) AS pieces, sum(dur_ns)::BIGINT AS total_ns
    FROM named
    WHERE dur_ns > 0
    GROUP BY ALL
)
SELECT
    *, (sum(total_ns) OVER whole)::BIGINT AS window_ns, pct(total_ns, sum(total_ns) OVER whole) AS path_pct
FROM sums
WINDOW whole AS (PARTITION BY run_group, run_id, rank, step)
