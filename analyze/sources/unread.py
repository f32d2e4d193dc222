"""Files of profilers that no source reads, by their names, and what to read instead."""

from __future__ import annotations

import re

_INSTEAD = (
    (
        re.compile(r".*\.xplane\.pb(\.gz)?", re.IGNORECASE),
        "an XPlane of JAX; read the .trace.json.gz next to it: jax.profiler.trace(..., create_perfetto_trace=True)",
    ),
    (
        re.compile(r".*\.(pftrace|perfetto-trace)(\.gz)?", re.IGNORECASE),
        "a protobuf trace of Perfetto; of rocprofv3, record with --output-format rocpd or json",
    ),
    (
        re.compile(
            r"(.*_)?(kernel|memory_copy|hip_api|hip_runtime_api|hsa_api|marker_api|rccl_api)_trace\.csv", re.IGNORECASE
        ),
        "a table of rocprofv3; record with --output-format rocpd or json, which have calls and kernels together",
    ),
    (
        re.compile(
            r"(ascend_pytorch_profiler(_\d+)?|msprof_\d+)\.db|kernel_details\.csv|op_summary_\d+\.csv", re.IGNORECASE
        ),
        "a table of Ascend's profilers; read the trace_view.json or msprof_*.json next to it",
    ),
    (re.compile(r".*\.hatchet", re.IGNORECASE), 'sums of Triton Proton; proton.start(..., data="trace") has kernels'),
    (re.compile(r".*\.nvvp", re.IGNORECASE), "a recording of nvprof for the Visual Profiler; record with --csv"),
)


def what_instead(name: str) -> str | None:
    """Return what a file is and what to read instead; None if its name says nothing."""
    return next((sentence for pattern, sentence in _INSTEAD if pattern.fullmatch(name)), None)
