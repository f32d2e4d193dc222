"""Starts the recorder once the program has imported torch. `site/sitecustomize.py` calls `install`."""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .attached_recorder import AttachedRecorder
from .compile_log import switch_on
from .marks import mark
from .watching_recorder import WatchingRecorder

CONFIG_VARIABLE = "TRACEQUARRY_ATTACH"
"""Holds the settings as JSON: collect.profilers.block_profiler.BlockProfiler.config."""


def is_launcher() -> bool:
    """Whether this process only starts others (torchrun): recording it would create a CUDA context on the GPU."""
    # The script or module precedes the program's own arguments, which may contain a launcher's name. The module of -m
    # is in orig_argv only ("-mNAME" or "-m NAME"), which Python has from 3.10 on.
    argv = getattr(sys, "orig_argv", sys.argv)
    target = argv[max(0, len(argv) - len(sys.argv))] if argv else ""
    return Path(target).name == "torchrun" or target.endswith(("torch.distributed.run", "torch.distributed.launch"))


class _TorchImportHook(importlib.abc.MetaPathFinder):
    """Import hook that calls `callback` once the module `torch` has been executed."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._searching = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch" or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._callback()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Start recording when the program imports torch. Does nothing without settings, or in a launcher."""
    text = os.environ.get(CONFIG_VARIABLE)
    if not text or is_launcher():
        return
    config = json.loads(text)
    mark(config, "no torch")
    if config.get("compile_log"):
        switch_on(config["work"])

    def start() -> None:
        mark(config, "killed")  # unless it comes to its end
        try:
            recorder = WatchingRecorder if config.get("rules") else AttachedRecorder
            recorder(config).start()
        except Exception:
            traceback.print_exc()

    sys.meta_path.insert(0, _TorchImportHook(start))
