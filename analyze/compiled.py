"""Modules of C, which are there where they could be compiled when the package was installed or its wheel built.

What one does, NumPy does too, slower and with the same result: elsewhere, and with TRACEQUARRY_COMPILED=0 in the
environment.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

SWITCH = "TRACEQUARRY_COMPILED"


def if_compiled(name: str) -> ModuleType | None:
    """The module of a name; None where it is not compiled or switched off."""
    if os.environ.get(SWITCH) == "0":
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
