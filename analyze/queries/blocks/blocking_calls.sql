-- Calls that return only when the GPU, a stream or an event is done, and copies that wait for themselves.
-- @use api_roles
-- @view blocking_calls  a row is such a call.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column name text             Name.
-- @column api text              runtime or driver.
-- @column waits_for text        device, stream, event or copy.
-- @column start_ns ns           Start.
-- @column end_ns ns             End.
CREATE VIEW blocking_calls AS
SELECT run_id, rank, run_group, name, api, waits_for, start_ns, start_ns + dur_ns AS end_ns
FROM cuda_calls JOIN api_roles USING (name)
WHERE api <> 'sync' AND waits_for IS NOT NULL;
