-- Are FSDP modules gathered in time, and what do gathering and reduction cost?
--
-- The all_gathers that unshard a module, in the forward and again in the backward pass, and the reduce_scatters of its
-- gradients (under hybrid sharding, also all_reduces), by the ranges that torch's FSDP opens around them. Exposed time
-- has no concurrent compute; it is transfer, waiting for other ranks, or unknown, as in `comm-exposed`. A module needs
-- its parameters when their first use (FSDP2: the copy out of the gathered buffer; FSDP1: its first kernel) has been
-- launched and the previous work on its stream is done. Slack is from the end of the all_gather to that moment:
-- negative slack is a stall of that length. Lead is from the launch of the all_gather to that moment: short without
-- prefetching. FSDP2 names the modules; those of FSDP1 are numbered in the order of the forward pass (inferred).
-- @param each no|yes = no         Whether a row is one collective of a module instead of all of them.
-- @param per module|rank = module What a row is: a module over all GPUs, or a module on each rank.
-- @column run_id id               The run.
-- @column rank index              With per=rank or each=yes: process rank.
-- @column step index              With each=yes: training step in which it was launched.
-- @column place index             Position of the module in the order of their first all_gathers, from 0.
-- @column module text             Name of the module, (root) for the outermost, or #n for FSDP1; empty if not known.
-- @column inferred bool           Whether the module is inferred.
-- @column pass text               forward or backward; empty if no range says.
-- @column collective text         all_gather, reduce_scatter or all_reduce.
-- @column calls count             Kernels.
-- @column bytes B                 The larger of their input and output; empty if not known for one of them.
-- @column total_ns ns             Sum of durations.
-- @column exposed_ns ns           Part of total_ns without concurrent compute.
-- @column transfer_ns ns          Part of exposed_ns: transfer.
-- @column waiting_ns ns           Part of exposed_ns: waiting for ranks that have not arrived.
-- @column unknown_ns ns           Part of exposed_ns: kernels whose call is not known.
-- @column lead_ns ns              All_gathers: mean time from the launch to the moment of need.
-- @column slack_ns ns             All_gathers: smallest time from the end to the moment of need; negative if late.
-- @column late count              All_gathers that end after the moment of need.
-- @column stall_ns ns             Sum of their delays.
-- @column resharded bool          Forward pass: whether the module is gathered again in the backward pass; empty if not
--                                 known, or without a recorded backward pass.
-- @column start_ns ns             With each=yes: start, since the first event of the run.
-- @main run_id, rank, step, module, pass, collective, calls, bytes, total_ns, exposed_ns, waiting_ns, lead_ns,
--     slack_ns, late, stall_ns, resharded
-- @order run_id, rank, start_ns, place, pass DESC, collective
-- @use exposed_comm, fsdp, gpu_timeline, run_zeros, steps
-- @needs communication kernels that FSDP launched, its ranges and the calls that launched them
-- @rows if FSDP launched collectives
-- @full ranges and launch calls
-- @plot bars y=run_id,rank,step,module,pass,collective x=transfer_ns,waiting_ns,unknown_ns top=64 per=step
WITH exposed AS (
    SELECT
        track, owner.call AS call, sum(end_ns - start_ns) AS exposed_ns,
        sum(end_ns - start_ns) FILTER (owner.part = 'transfer') AS transfer_ns,
        sum(end_ns - start_ns) FILTER (owner.part = 'waiting') AS waiting_ns,
        sum(end_ns - start_ns) FILTER (owner.part = 'unknown') AS unknown_ns
    FROM exposed_comm
    GROUP BY track, owner.call
),
modules AS (
    SELECT
        run_id, module, min(start_ns) AS first_ns,
        bool_or(pass = 'backward' AND collective = 'all_gather') AS gathered_again,
        bool_or(pass = 'backward') AS went_back
    FROM fsdp_kernels
    WHERE module IS NOT NULL
    GROUP BY run_id, module
),
places AS (
    SELECT *, row_number() OVER (PARTITION BY run_id ORDER BY first_ns, module) - 1 AS place FROM modules
),
timed AS (
    SELECT
        k.*, p.place, coalesce(e.exposed_ns, 0) AS exposed_ns, coalesce(e.transfer_ns, 0) AS transfer_ns,
        coalesce(e.waiting_ns, 0) AS waiting_ns, coalesce(e.unknown_ns, 0) AS unknown_ns,
        k.needed_ns - k.launch_ns AS lead_ns, k.needed_ns - k.own_start_ns - k.dur_ns AS slack_ns,
        CASE WHEN k.needed_ns IS NOT NULL THEN
            greatest(least(k.own_start_ns + k.dur_ns, k.used_ns) - k.needed_ns, 0)
        END AS stall_ns,
        CASE WHEN k.pass = 'forward' AND p.went_back THEN p.gathered_again END AS resharded,
        k.own_start_ns - z.zero_ns AS since_ns,
        CASE WHEN k.launch_ns < s.end_ns THEN s.step END AS step
    FROM fsdp_kernels k
    JOIN gpu_tracks t ON t.run_id = k.run_id AND t.rank = k.rank AND t.device IS NOT DISTINCT FROM k.device
    JOIN run_zeros z ON z.run_id = k.run_id
    LEFT JOIN exposed e ON e.track = t.track AND e.call = k.call
    LEFT JOIN places p ON p.run_id = k.run_id AND p.module = k.module
    ASOF LEFT JOIN step_windows s ON s.run_id = k.run_id AND s.rank = k.rank AND k.launch_ns >= s.start_ns
)
SELECT
    k.run_group, k.run_id, CASE WHEN '{per}' = 'rank' OR '{each}' = 'yes' THEN k.rank END AS rank,
    CASE WHEN '{each}' = 'yes' THEN step END AS step, place, module, by_order AS inferred, pass, collective,
    count(*) AS calls, CASE WHEN count(bytes) = count(*) THEN sum(bytes)::BIGINT END AS bytes,
    sum(dur_ns)::BIGINT AS total_ns, sum(exposed_ns)::BIGINT AS exposed_ns, sum(transfer_ns)::BIGINT AS transfer_ns,
    sum(waiting_ns)::BIGINT AS waiting_ns, sum(unknown_ns)::BIGINT AS unknown_ns,
    round(avg(lead_ns))::BIGINT AS lead_ns, min(slack_ns) AS slack_ns,
    CASE WHEN count(slack_ns) > 0 THEN count(*) FILTER (slack_ns < 0) END AS late,
    sum(stall_ns)::BIGINT AS stall_ns, bool_or(resharded) AS resharded,
    CASE WHEN '{each}' = 'yes' THEN min(since_ns) END AS start_ns
FROM timed k
GROUP BY k.run_group, k.run_id, place, module, by_order, pass, collective,
    CASE WHEN '{per}' = 'rank' OR '{each}' = 'yes' THEN k.rank END, CASE WHEN '{each}' = 'yes' THEN k.step END,
    CASE WHEN '{each}' = 'yes' THEN k.call END
