-- The call that launched each correlation id.
CREATE VIEW launches AS
SELECT run_id, rank, correlation_id, min(start_ns) AS start_ns, arg_min(dur_ns, start_ns) AS dur_ns, arg_min(name, start_ns) AS name
FROM cuda_calls
WHERE correlation_id IS NOT NULL AND api <> 'sync'
GROUP BY run_id, rank, correlation_id;
