-- Which launches took longest on the GPU, and which operator, module and line launched them?
--
-- A row is one kernel. A kernel of the backward pass has the operator, module and line of its forward operator, as in
-- kernel-share. Modules and lines need Python stacks. A communication kernel waits for other ranks: `collective-waits`
-- separates waiting from transfer.
-- @param top int[0..999999] = 20  Number of kernels, per group of runs.
-- @param kernel text = ''         Only kernels whose name contains this.
-- @column run_id id               The run.
-- @column rank index              Process rank.
-- @column device index            GPU.
-- @column stream id               CUDA stream.
-- @column start_ns ns             Start, since the first event of the run.
-- @column dur_ns ns               Duration.
-- @column name text               Kernel.
-- @column family text             Its family.
-- @column op text                 Outermost operator that launched it; for the backward pass, the forward operator.
-- @column module text             Innermost nn.Module there.
-- @column line text               Line of the innermost function of the program there: train.py:42 in train_step.
-- @column backward bool           Whether it is of the backward pass, with a known forward operator.
-- @main run_id, rank, device, start_ns, dur_ns, name, op, module, line, backward
-- @order dur_ns DESC, run_id, rank, start_ns, device, stream
-- @use run_zeros, work_places
-- @by device, stream
-- @needs kernels
-- @pass gpu
-- @plot bars y=name x=dur_ns color=family top=20
-- @drill name kernel-pace kernel={name}
WITH least AS (
    SELECT run_group, list_min(max(dur_ns, greatest($top, 1)::BIGINT)) AS least_ns
    FROM kernels
    WHERE contains(name, $kernel)
    GROUP BY run_group
),
longest AS MATERIALIZED (
    SELECT row_number() OVER () AS number, *
    FROM (
        SELECT f.*
        FROM forward_work f JOIN least l ON l.run_group IS NOT DISTINCT FROM f.run_group
        WHERE f.kind = 'kernel' AND contains(f.name, $kernel) AND f.dur_ns >= l.least_ns
        QUALIFY row_number() OVER (
            PARTITION BY f.run_group ORDER BY f.dur_ns DESC, f.run_id, f.rank, f.start_ns, f.device, f.stream
        ) <= $top
    )
),
points AS MATERIALIZED (
    SELECT l.number, t.track, l.place_ns AS at_ns
    FROM longest l
    JOIN python_threads t ON t.run_id = l.run_id AND t.rank = l.rank AND t.tid IS NOT DISTINCT FROM l.place_tid
),
-- Few points: to look for the calls around them takes less time than to find the innermost of all calls.
modules AS (
    SELECT number, arg_max(name, (start_ns, -end_ns, name)) AS module
    FROM points JOIN module_calls USING (track)
    WHERE start_ns <= at_ns AND end_ns > at_ns
    GROUP BY number
),
lines AS (
    SELECT number, arg_max(name, (start_ns, -end_ns, name)) AS line
    FROM points JOIN line_calls USING (track)
    WHERE start_ns <= at_ns AND end_ns > at_ns
    GROUP BY number
)
SELECT
    l.run_group, l.run_id, l.rank, l.device, l.stream, l.start_ns - z.zero_ns AS start_ns, l.dur_ns, l.name, n.family,
    l.forward_op AS op, modules.module, lines.line, l.backward
FROM longest l
JOIN run_zeros z USING (run_id)
JOIN kernel_names n ON n.run_id = l.run_id AND n.name = l.name
LEFT JOIN modules USING (number)
LEFT JOIN lines USING (number)
