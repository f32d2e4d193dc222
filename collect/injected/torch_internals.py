"""The internals of torch that the recorder uses or replaces, looked up in one place.

Tried with torch 2.3.1, 2.6.0, 2.11.0, 2.13.0 and 2.15.0. `collect doctor` says which ones another version lacks, and
what follows.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

INTERNALS = {
    "torch.optim.Optimizer.profile_hook_step": "steps of optimizers are not counted",
    "torch.autograd.profiler.profile._prepare_trace": "a torch.profiler that the program starts itself is not noticed",
    "torch.cuda._lazy_init": "the first use of CUDA is not noticed",
    "torch.cuda.CUDAGraph": "captures of CUDA graphs are not recorded",
    "torch.nn.modules.module.register_module_forward_pre_hook": "calls of modules are not noticed",
    "torch._C._current_graph_task_id": "optimizers that step in the backward pass end their steps too early",
    "torch._C._autograd._clear_callbacks": "processes forked from a recorded one grow as they run",
    "torch._C._cuda_attach_out_of_memory_observer": "no memory snapshot is taken when memory runs out",
    "torch.cuda.memory._record_memory_history": "no history of allocations is recorded",
    "torch.cuda.memory._set_memory_metadata": "memory snapshots do not say which module allocated a block",
    "torch._C._distributed_c10d._dump_nccl_trace": "no flight recorder dump is written at Ctrl-C",
    "torch.cuda.memory._snapshot": "no memory snapshot is taken",
    "torch.distributed.distributed_c10d._get_default_store": "ranks do not begin their blocks of steps together",
    "torch.nn.modules.module._has_any_global_hook": "",
    "torch._C._dynamo.eval_frame.set_code_exec_strategy": "",
    "torch._C._dynamo.eval_frame._FrameExecStrategy": "",
    "torch._C._dynamo.eval_frame._FrameAction": "",
    "torch._C._dynamo.eval_frame.skip_code": "",
    "torch._lazy_modules": "",
    "torch._C._cuda_hasPrimaryContext": "only the current GPU is idle at the ends of a block of steps",
    "torch._C._demangle": "kernels of a GPU-only recording have mangled names",
    "torch._C._profiler._ExperimentalConfig": "operators of one thread only are recorded",
    "torch.autograd.profiler.profile.toggle_collection_dynamic": "the end of a long recording clears all callbacks",
}
"""Each internal, and what follows if this version of torch lacks it; empty if nothing does."""


@functools.lru_cache
def find(path: str) -> Any:
    """Return one of INTERNALS, or None if this version of torch lacks it."""
    assert path in INTERNALS
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        try:
            return functools.reduce(getattr, parts[length:], module)
        except AttributeError:
            return None
    return None


def missing() -> list[str]:
    """Say for each internal that this version of torch lacks what follows."""
    import torch

    optional = {
        "_cuda_": torch.version.cuda,
        "_nccl_": torch.version.cuda,
        "distributed": torch.distributed.is_available(),
    }
    not_built = [part for part, built in optional.items() if not built]
    return [
        f"torch {torch.__version__} has no {path}: {then}"
        for path, then in INTERNALS.items()
        if then and not any(part in path for part in not_built) and not find(path)
    ]
