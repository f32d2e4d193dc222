-- Launches profiled by Nsight Compute, joined to the operators in a torch.profiler run of the same workload by kernel
-- name and order.
-- @use ncu, op_flops

-- @macro bare_name(short_name)  a short kernel name without namespaces, which the two profilers demangle differently.
CREATE MACRO bare_name(short_name) AS regexp_replace(short_name, '^(\w+::)+', '');

-- @table run_pairs  a row is an Nsight Compute run with the torch.profiler run of its workload.
-- A pass of the same `collect run`, else the first run with the same settings (and the same program, if it is not the
-- collector's). Settings that a bare CSV lacks match anything. With --by, runs of different workloads are paired within
-- a group only.
-- @column ncu_run id              The run under Nsight Compute.
-- @column torch_run id            The run under torch.profiler.
-- @column phase text              Phase that ncu was limited to; NULL for all.
CREATE TABLE run_pairs AS
WITH _runs AS (
    SELECT
        *, run_id IN (SELECT run_id FROM launch_flops) AS profiled, run_id IN (SELECT run_id FROM cpu_ops) AS traced,
        -- The phase that the collector limited ncu to; NULL for all.
        nullif(regexp_extract(coalesce(command, ''), '--ncu-phase[ =](\w+)', 1), '') AS phase,
        nullif(regexp_extract(coalesce(command, ''), ' -- (.+)$', 1), '') AS program
    FROM runs
)
SELECT n.run_id AS ncu_run, t.run_id AS torch_run, n.phase
FROM _runs n JOIN _runs t
    ON n.profiled AND t.traced AND (
        n.workload_id = t.workload_id
        OR n.run_group IS NOT DISTINCT FROM t.run_group
        AND (n.workload_id IS NULL OR n.program IS NOT DISTINCT FROM t.program)
        AND (n.model IS NULL OR n.model = t.model)
        AND (n.batch_size IS NULL OR n.batch_size = t.batch_size)
        AND (n.precision IS NULL OR n.precision = t.precision)
        AND (n.image_size IS NULL OR n.image_size = t.image_size)
        AND (n.channels_last IS NULL OR n.channels_last = t.channels_last)
        AND (n.compiled IS NULL OR n.compiled = t.compiled)
        AND (n.parallelism IS NULL OR (n.parallelism, n.gpus) = (t.parallelism, t.gpus))
    )
QUALIFY row_number() OVER (
    PARTITION BY n.run_id
    ORDER BY n.workload_id = t.workload_id DESC, n.run_group IS NOT DISTINCT FROM t.run_group DESC, t.run_id
) = 1;

-- @view traced_launches  a row is a kernel of the torch run of a pair.
-- @column ncu_run id              The other run.
-- @columns rank, device
-- @column bare_name text          Short name without namespaces.
-- @column turn index              Number among the launches of the kernel on its device, in the phase that ncu was
--                                 limited to.
-- @column call index              Call in op_calls in which its operator began.
CREATE VIEW traced_launches AS
WITH _named AS (
    SELECT
        p.ncu_run, w.rank, w.device, w.start_ns, bare_name(n.short_name) AS bare_name,
        CASE WHEN w.op_id > 0 THEN w.flop_call END AS call
    FROM run_pairs p
    JOIN gpu_work w ON w.run_id = p.torch_run AND w.kind = 'kernel' AND (p.phase IS NULL OR w.phase = p.phase)
    JOIN kernel_names n ON n.run_id = w.run_id AND n.name = w.name
)
SELECT
    ncu_run, rank, device, bare_name,
    row_number() OVER (PARTITION BY ncu_run, rank, device, bare_name ORDER BY start_ns) AS turn, call
FROM _named;

-- @table op_launches  a row is a launch of ncu with its operator call in the torch run.
-- @column * of launch_flops
-- @column short_name text         Kernel's short name.
-- @column family text             Kernel family.
-- @column bare_name text          Short name without namespaces.
-- @column turn index              Number among the launches of the name on its device.
-- @column torch_run id            The torch run.
-- @column matched bool            Whether the torch run has such a launch.
-- @column call_id id              The operator's call; NULL for kernels of other operators.
-- @column op_name text            Operator.
-- @column op text                 Kind of operator, as in sized_calls.
-- @column input_dims text         Shapes of its inputs, as JSON.
-- @column model_flops FLOP        Model FLOPs of the call, from its shapes.
-- @column call_start_ns ns        Start of the call.
CREATE TABLE op_launches AS
WITH _profiled AS (
    SELECT
        f.*, n.short_name, n.family, bare_name(n.short_name) AS bare_name,
        row_number() OVER (
            PARTITION BY f.run_id, f.rank, f.device, bare_name(n.short_name) ORDER BY f.launch_id
        ) AS turn
    FROM launch_flops f JOIN kernel_names n ON n.run_id = f.run_id AND n.name = f.kernel
    WHERE f.launch_id IS NOT NULL
)
SELECT
    l.*, p.torch_run, t.ncu_run IS NOT NULL AS matched, c.call_id, c.name AS op_name, c.op, c.input_dims, c.model_flops,
    c.start_ns AS call_start_ns
FROM _profiled l
JOIN run_pairs p ON p.ncu_run = l.run_id
LEFT JOIN traced_launches t
    ON t.ncu_run = l.run_id AND t.rank = l.rank AND t.device = l.device
    AND t.bare_name = l.bare_name AND t.turn = l.turn
LEFT JOIN op_calls c
    ON c.run_id = p.torch_run AND c.rank = l.rank AND c.call = t.call;
