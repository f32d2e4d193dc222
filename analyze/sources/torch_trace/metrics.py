"""The columns of `compilations` that torch's metrics of a compilation say, in the names of all its versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyze.sources.plain_values import nanoseconds, text, whole
from analyze.sources.torch_trace.messages import reason_of
from schemas.option_declaration import LARGEST_INT32


def metric_columns(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns; None where the metrics do not say them."""
    restarts = metrics.get("restart_reasons")
    reasons = [said for reason in restarts if (said := text(reason))] if isinstance(restarts, list) else []
    duration_ns = _time(metrics, "duration_us", "entire_frame_compile_time_s")
    if duration_ns is None:  # of a compilation that failed
        duration_ns = _time(metrics, "dynamo_cumulative_compile_time_us")
    return {
        "start_ns": _time(metrics, "start_time_us", "start_time"),
        "dur_ns": duration_ns,
        "backend_ns": _time(metrics, "aot_autograd_cumulative_compile_time_us", "backend_compile_time_s"),
        "inductor_ns": _time(metrics, "inductor_cumulative_compile_time_us", "inductor_compile_time_s"),
        "codegen_ns": _time(metrics, "inductor_code_gen_cumulative_compile_time_us", "code_gen_time_s"),
        "triton_ns": _time(metrics, "triton_compile_time_us"),
        "autotune_ns": _time(metrics, "runtime_triton_autotune_time_us"),
        "restarted_ns": _time(metrics, "dynamo_compile_time_before_restart_us", "dynamo_time_before_restart_s"),
        "function": text(metrics.get("co_name")),
        "file": text(metrics.get("co_filename")),
        "line": whole(metrics.get("co_firstlineno"), LARGEST_INT32),
        "guards": whole(metrics.get("guard_count"), LARGEST_INT32),
        "graph_ops": whole(metrics.get("graph_op_count"), LARGEST_INT32),
        "graph_inputs": whole(metrics.get("graph_input_count"), LARGEST_INT32),
        "restart_reasons": "\n".join(reason_of(said) for said in reasons) or None,
        "fail_type": text(metrics.get("fail_type")),
        "fail_reason": text(metrics.get("fail_reason")),
        "fail_file": text(metrics.get("fail_user_frame_filename")),
        "fail_line": whole(metrics.get("fail_user_frame_lineno"), LARGEST_INT32),
        "recompile_reason": text(metrics.get("recompile_reason")),
    }


def outcome(metrics: Mapping[str, Any]) -> str:
    """Return how the compilation ended."""
    if metrics.get("fail_type") is not None:
        return "failed"
    return "skipped" if metrics.get("has_guarded_code") is False else "compiled"


def _time(metrics: Mapping[str, Any], microseconds: str, seconds: str = "") -> int | None:
    """Return a time in ns, of newer versions of torch in us, of older ones in s."""
    found = nanoseconds(metrics.get(microseconds), 1000)
    return found if found is not None else nanoseconds(metrics.get(seconds), 1_000_000_000)
