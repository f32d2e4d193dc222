-- Launches that wait for their turn on a stream.
-- @table queue_lanes  a row is a stream with work; a number is found faster than run, rank, device and stream are.
-- @column lane index            Its number.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device index          GPU.
-- @column stream id             CUDA stream.
CREATE TABLE queue_lanes AS
SELECT row_number() OVER (ORDER BY run_id, rank, device, stream)::INTEGER AS lane, *
FROM (SELECT DISTINCT run_group, run_id, rank, device, stream FROM gpu_work);

-- @view queued_launches  a row is a launch call whose work the trace holds, on a stream.
-- It is queued from the start of the call to the start of its first work there (kernel, memcpy or memset).
-- @column lane index            The stream in queue_lanes.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column device index          GPU.
-- @column stream id             CUDA stream.
-- @column correlation_id id     Joins the call and the work that it launched.
-- @column start_ns ns           Start of the call.
-- @column end_ns ns             Start of the work, and of the call at least.
CREATE VIEW queued_launches AS
WITH _launched AS (
    SELECT
        lane, w.correlation_id, w.call_start_ns AS start_ns, greatest(w.start_ns, w.call_start_ns) AS end_ns
    FROM gpu_work w
    JOIN queue_lanes q
        ON q.run_id = w.run_id AND q.rank = w.rank AND q.device IS NOT DISTINCT FROM w.device
        AND q.stream IS NOT DISTINCT FROM w.stream
    WHERE w.call_start_ns IS NOT NULL
),
-- Nearly every call launches one: sorted, the first of each is found in a third of the time that groups take.
_turns AS (
    SELECT
        *, lane IS DISTINCT FROM lag(lane) OVER () OR correlation_id IS DISTINCT FROM lag(correlation_id) OVER ()
            AS is_first
    FROM (SELECT * FROM _launched ORDER BY lane, correlation_id, end_ns, start_ns)
)
SELECT lane, run_group, run_id, rank, device, stream, correlation_id, start_ns, end_ns
FROM _turns JOIN queue_lanes USING (lane)
WHERE is_first;
