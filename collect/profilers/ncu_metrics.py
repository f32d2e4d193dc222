"""Choose the Nsight Compute metrics to count, by purpose and GPU."""

from __future__ import annotations

import re

TIME_AND_DRAM = ("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum")
FLOP_INSTRUCTIONS = tuple(
    f"smsp__sass_thread_inst_executed_op_{p}{op}_pred_on.sum" for p in "fdh" for op in ("add", "mul", "fma")
)
"""Thread instructions in single, double and half precision (half: packed pairs)."""
TENSOR_OPS = "sm__ops_path_tensor_src_"
"""Prefix of the metrics that count tensor core operations, a multiply-add as 2; one for each input type."""
TENSOR_FLOAT = re.compile(r"(bf16|fp\d+|tf32)(_|$)")
"""Input types that count as floating point."""
TENSOR_INSTRUCTIONS = re.compile(r"sm__inst_executed_pipe_tensor\w*")
"""Tensor core instructions by kind, for GPUs without operation counters."""
CACHE_BYTES = ("lts__t_bytes.sum", "l1tex__t_bytes.sum")
PEAKS = (
    "dram__bytes.sum.peak_sustained",
    "lts__t_bytes.sum.peak_sustained",
    "l1tex__t_bytes.sum.peak_sustained",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
    "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained",
    "sm__sass_thread_inst_executed_op_hfma_pred_on.sum.peak_sustained",
)
"""Rates per cycle from which the roofs are computed, as in the roofline sections of Nsight Compute."""
CLOCKS = tuple(f"{unit}__cycles_elapsed.avg.per_second" for unit in ("sm", "smsp", "dram", "lts", "l1tex"))
SECONDS_PER_KERNEL = {"flops": 0.2, "roofline": 0.4, "full": 2.0}
"""Rough time per kernel with all its replays; `full` was measured on an H200."""
FULL_PASSES = 38
"""Replays per kernel of `--set full`, measured on an H200."""
COUNTERS_PER_PASS = 4
"""Rough number of metrics that fit into one replay."""


def known_metrics(listing: str) -> set[str]:
    """Parse the base names of metrics, one at the start of each line, from `ncu --query-metrics`."""
    return set(re.findall(r"^\s*((?:\w+?)__\w+)", listing, re.M))


def tensor_metrics(known: set[str]) -> list[str]:
    """Return metrics that together count each tensor core operation once; empty if the GPU has none."""
    names = sorted(m for m in known if m.startswith(TENSOR_OPS) and TENSOR_FLOAT.match(m[len(TENSOR_OPS) :]))
    # `src_fp16` includes `src_fp16_dst_fp32`, which includes `src_fp16_dst_fp32_sparsity_on`: use the outermost.
    outer = [m for m in names if not any(m.startswith(other + "_") for other in names if other != m)]
    if outer:
        return [m + ".sum" for m in outer]
    return sorted(m + ".sum" for m in known if TENSOR_INSTRUCTIONS.fullmatch(m))


def choose_metrics(purpose: str, known: set[str]) -> tuple[list[str], list[str]]:
    """Return the metrics to count, and those left out because this ncu or GPU does not have them.

    `purpose` is `flops` or `roofline`; `known` comes from known_metrics(), empty if ncu did not list any.
    """
    tensor = tensor_metrics(known)
    wanted = [*TIME_AND_DRAM, *FLOP_INSTRUCTIONS, *tensor]
    if purpose == "roofline":
        wanted += [*CACHE_BYTES, *PEAKS, *(f"{m}.peak_sustained" for m in tensor), *CLOCKS]
    if not known:
        return wanted, []
    chosen = [m for m in wanted if _is_known(m, known)]
    return chosen, [m for m in wanted if m not in chosen]


def _is_known(metric: str, known: set[str]) -> bool:
    base = metric.partition(".")[0]
    unit = re.match(r"(?:\w+?__)(?:sass_)?", base)
    # Some versions list no SASS metrics but accept them.
    if unit and unit[0].endswith("sass_") and not any(m.startswith(unit[0]) for m in known):
        return True
    return base in known


def estimate_passes(purpose: str, metrics: list[str]) -> int:
    """Estimate how often ncu will replay each kernel."""
    return FULL_PASSES if purpose == "full" else max(1, -(-len(metrics) // COUNTERS_PER_PASS))
