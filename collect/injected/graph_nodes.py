"""Reads the nodes of a CUDA graph while it is captured: what each runs, in the order in which they were created.

Kineto records the launch calls of a capture without the names of their kernels. The driver knows them.
"""

from __future__ import annotations

import ctypes
from typing import Any

from .torch_internals import find

KINDS = {0: "kernel", 1: "memcpy", 2: "memset"}
"""Names of CUgraphNodeType; other nodes ("other") run nothing that a profiler records."""
_ACTIVE = 1
"""CU_STREAM_CAPTURE_STATUS_ACTIVE"""


class _KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("sizes", ctypes.c_uint * 7),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


def captured_nodes(stream: int) -> list[tuple[str, str | None]]:
    """Return kind and kernel name of each node that a stream has captured so far. Raises OSError."""
    cuda = ctypes.CDLL("libcuda.so.1")
    status, graph = ctypes.c_int(), ctypes.c_void_p()
    _check(
        cuda.cuStreamGetCaptureInfo_v2(
            ctypes.c_void_p(stream), ctypes.byref(status), None, ctypes.byref(graph), None, None
        )
    )
    if status.value != _ACTIVE:
        return []
    count = ctypes.c_size_t()
    _check(cuda.cuGraphGetNodes(graph, None, ctypes.byref(count)))
    nodes = (ctypes.c_void_p * count.value)()
    _check(cuda.cuGraphGetNodes(graph, nodes, ctypes.byref(count)))
    found = []
    for node in nodes:
        kind = ctypes.c_int()
        _check(cuda.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
        known = KINDS.get(kind.value, "other")
        found.append((known, _kernel_name(cuda, node) if known == "kernel" else None))
    return found


def _kernel_name(cuda: Any, node: int | None) -> str | None:
    """Return the demangled name of the kernel of a node, as profilers write it."""
    params, name = _KernelParams(), ctypes.c_char_p()
    _check(cuda.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), ctypes.byref(params)))
    failed = True
    if params.kernel:
        failed = cuda.cuKernelGetName(ctypes.byref(name), ctypes.c_void_p(params.kernel))
    if failed and params.function:
        failed = cuda.cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(params.function))
    if failed or not name.value:
        return None
    demangle = find("torch._C._demangle") or str
    return str(demangle(name.value.decode()))


def _check(result: int) -> None:
    if result:
        raise OSError(f"the CUDA driver returned error {result}")
