-- Calls that return only when the GPU, a stream or an event is done, and copies that wait for themselves.
CREATE VIEW blocking_calls AS
SELECT run_id, rank, name, start_ns, start_ns + dur_ns AS end_ns
FROM cuda_calls JOIN api_roles USING (name)
WHERE api <> 'sync' AND waits_for IS NOT NULL;
