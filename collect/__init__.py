"""Records training workloads with profilers on a GPU node. Never imports `analyze`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collect.recorder import Recorder

__all__ = ["Recorder"]


def __getattr__(name: str) -> Any:
    """Import Recorder when it is first used: `collect --help` does not need it."""
    if name == "Recorder":
        from collect.recorder import Recorder

        return Recorder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
