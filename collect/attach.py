"""Runs torch.profiler inside a program of the user's own, without changing it.

Loaded by `attach_site/sitecustomize.py`. Waits for the program to import torch; what is recorded then is
`collect.attached_recorder`'s to say.

What runs inside the program uses the standard library and torch alone: it may run in another Python than `collect`
does.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from .attached_recorder import AttachedRecorder

CONFIG_VARIABLE = "TRACEQUARRY_ATTACH"
"""Holds the JSON of the settings: folder, work, steps, warmup, undisturbed and the profiler's options."""


def _is_launcher() -> bool:
    """Whether this process only starts others (torchrun): recording it would put a CUDA context on the GPU."""
    # What Python runs stands before the program's own arguments, which may name a launcher, too. The module of -m is in
    # orig_argv alone, "-mNAME" in one piece or in two; Python before 3.10 has no such.
    shown = getattr(sys, "orig_argv", sys.argv)
    what = shown[max(0, len(shown) - len(sys.argv))] if shown else ""
    return Path(what).name == "torchrun" or what.endswith(("torch.distributed.run", "torch.distributed.launch"))


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Import hook that calls `then` once the module `torch` has been imported, not only asked for (find_spec)."""

    def __init__(self, then: Any) -> None:
        self.then = then
        self.busy = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch" or self.busy:
            return None
        self.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy = False
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.then()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Wait for the program to import torch, then start recording. Does nothing without the settings."""
    text = os.environ.get(CONFIG_VARIABLE)
    if not text or _is_launcher():
        return
    config = json.loads(text)

    def start() -> None:
        try:
            AttachedRecorder(config).start()
        except Exception:
            traceback.print_exc()

    sys.meta_path.insert(0, _AfterTorch(start))
