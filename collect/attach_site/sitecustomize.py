"""Attaches the torch profiler to a Python program that knows nothing of it.

Python imports a module of this name at start-up; `collect run --profiler torch -- COMMAND` puts this folder first on
PYTHONPATH. Works on any Python 3.8 or newer, in any environment, with nothing but the standard library.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path


def _run_shadowed_sitecustomize(here: Path) -> None:
    """Import the sitecustomize that this file hides, if there is one."""
    path = [p for p in sys.path if Path(p or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _attach(package: Path) -> None:
    """Load collect.attach under a private name, so that a `collect` of the program's own is not hidden."""
    alias = "_tracequarry_collect"
    spec = importlib.util.spec_from_file_location(
        alias, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    spec.loader.exec_module(module)
    importlib.import_module(alias + ".attach").install()


_here = Path(__file__).resolve().parent
try:
    if os.environ.get("TRACEQUARRY_ATTACH"):
        _attach(_here.parent)
finally:
    _run_shadowed_sitecustomize(_here)
