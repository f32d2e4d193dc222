-- Which operators allocate and free memory?
--
-- The memory columns of torch.profiler's key_averages() for the same trace (profile_memory): bytes allocated - bytes
-- freed while a call ran, on any thread (total), and the same without its children (self). Summed over all calls, these
-- are not peaks: an operator whose outputs are freed by another one accumulates over the recording. `memory-peak` has
-- the memory in use. For a step or an epoch: the sums of the recording x steps / recorded steps. Steps of an epoch as
-- in `epochs`.
-- @param per recording|step|epoch = recording   Period that the sums are for.
-- @param images int[0..1000000000000] = 0   Images of an epoch; 0: those of the run's dataset.
-- @param python no|yes = no       Whether Python functions (with_stack) are nodes of the tree, so that their memory is
--                                 not self memory of the operators and ranges around them.
-- @column name text               Operator, range or CUDA call.
-- @column kind text               op, range, async (a collective's range), call or overhead.
-- @column calls count             Calls.
-- @column self_device_bytes B     On GPUs, without children.
-- @column total_device_bytes B    On GPUs, with children.
-- @column self_cpu_bytes B        In CPU memory, without children.
-- @column total_cpu_bytes B       In CPU memory, with children.
-- @order self_device_bytes DESC, self_cpu_bytes DESC, name, kind
-- @use steps
-- @needs allocator events (profile_memory=True), and operators, ranges or CUDA calls
-- @plot bars y=name x=self_device_bytes top=15
SELECT
    run_group, name, kind, sum(round(COLUMNS('^calls$|_bytes$') * times))::BIGINT
FROM op_sums JOIN recorded_times('{per}', $images) USING (run_id, rank)
WHERE kind <> 'python' AND python = ('{python}' = 'yes') AND self_device_bytes IS NOT NULL
GROUP BY run_group, name, kind
