-- @use gpu_classes, gpu_tracks, gpu_windows
-- Per run: how many GPUs (of all ranks) the trace has, and means over them. What one GPU of several could save is worth
-- its part of that: findings divide by `gpus`.
CREATE VIEW run_gpus AS
SELECT
    t.run_group, t.run_id, count(*) AS gpus, avg(last_ns - first_ns) AS span_ns,
    avg(last_ns - first_ns - busy_ns) AS idle_ns, avg(kernel_ns - compute_ns) AS exposed_comm_ns,
    avg(comm_ns) AS comm_ns, avg(busy_ns - kernel_ns) AS exposed_copy_ns, avg(copy_ns) AS copy_ns
FROM gpu_class_lengths('gpu_pieces_span') JOIN gpu_tracks t ON t.track = window_id
GROUP BY t.run_group, t.run_id;

-- A time as text.
CREATE MACRO ms(ns) AS printf('%.3f ms', coalesce(ns, 0)::DOUBLE / 1e6);
