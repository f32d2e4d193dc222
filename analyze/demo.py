"""The sample recording that the package contains: `analyze demo` shows it."""

from __future__ import annotations

from pathlib import Path

from analyze.errors import InternalError

NAME = "slow-loader"
_PACKAGE = Path(__file__).parent
_PLACES = (_PACKAGE / "samples" / NAME, _PACKAGE.parent / "sample_traces" / NAME)
"""In the installed package (setup.py copies it), in the source tree."""


def recording() -> Path:
    """Return the run folder of the sample: a training on one H100 whose GPU waits for data."""
    for place in _PLACES:
        if place.is_dir():
            return place
    raise InternalError(f"the sample {NAME} is missing from this installation")
