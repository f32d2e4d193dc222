-- The call that launched each correlation id, with its thread: the outermost one where a driver call runs inside a
-- runtime call.
CREATE VIEW launch_calls AS
WITH outermost AS (
    SELECT
        run_id, rank, correlation_id,
        arg_min({'group': run_group, 'tid': tid, 'name': name, 'start': start_ns, 'dur': dur_ns}, start_ns) AS call
    FROM cuda_calls
    WHERE correlation_id IS NOT NULL AND api <> 'sync'
    GROUP BY run_id, rank, correlation_id
)
SELECT
    run_id, rank, correlation_id, call."group" AS run_group, call.tid AS tid, call.name AS name,
    call.start AS start_ns, call.dur AS dur_ns
FROM outermost;
