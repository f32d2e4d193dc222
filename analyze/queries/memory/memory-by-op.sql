-- Which operators allocate and free memory?
--
-- The memory columns of torch.profiler's key_averages() of the same trace (profile_memory): what was allocated less
-- what was freed while a call ran, on whatever thread (total), and the same without its children's (self). Added up
-- over all calls, so these are no peaks: an operator whose outputs are freed by another has more the longer is
-- recorded. `memory-peak` has what was there at a time. Of a step and of an epoch they are those of the recording x
-- steps / recorded steps; steps of an epoch as in `epochs`.
-- @param per recording|step|epoch = recording   What the sums are of.
-- @param images int[0..1000000000000] = 0 Images of an epoch; 0 for those that the run's data has.
-- @param python no|yes = no       Whether Python functions (with_stack) take self memory from what is below them.
-- @column name text               Operator, range or CUDA call.
-- @column kind text               op, range, async (a collective's range), call or overhead.
-- @column calls count             Calls.
-- @column self_device_bytes B     On GPUs, without its children's.
-- @column total_device_bytes B    On GPUs.
-- @column self_cpu_bytes B        In the CPU's memory, without its children's.
-- @column total_cpu_bytes B       In the CPU's memory.
-- @order self_device_bytes DESC, self_cpu_bytes DESC, name, kind
-- @use epoch_steps
-- @needs allocator events (profile_memory=True), and operators, ranges or CUDA calls
-- @plot bars y=name x=self_device_bytes top=15
SELECT
    run_group, name, kind, sum(round(COLUMNS('^calls$|_bytes$') * times))::BIGINT
FROM op_sums JOIN recorded_times('{per}', $images) USING (run_id, rank)
WHERE kind <> 'python' AND python = ('{python}' = 'yes') AND self_device_bytes IS NOT NULL
GROUP BY run_group, name, kind
