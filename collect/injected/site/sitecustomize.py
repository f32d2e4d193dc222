"""Attaches torch.profiler to a Python program without changing it.

Python imports a module of this name at start-up. `collect run --profiler torch -- COMMAND` puts this folder first on
PYTHONPATH. Works on Python 3.8 and later, in any environment, with the standard library alone.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path


def _run_shadowed_sitecustomize(here: Path) -> None:
    """Run the environment's own sitecustomize, which this file shadows, if there is one."""
    path = [p for p in sys.path if Path(p or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _attach(package: Path) -> None:
    """Import collect.injected under a private name: the program may have a package `collect` of its own."""
    name = "_tracequarry_injected"
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    importlib.import_module(name + ".attach").install()


_here = Path(__file__).resolve().parent
try:
    if os.environ.get("TRACEQUARRY_ATTACH"):
        _attach(_here.parent)
finally:
    _run_shadowed_sitecustomize(_here)
