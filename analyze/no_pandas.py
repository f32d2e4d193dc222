"""For processes that are the package's own alone, and need no pandas.

pyarrow imports it where it is installed, to ask whether what an array is made of is a Series: 0.4 s of CPU for nothing.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ImportError("pandas is not used in this process")


_FINDER = _NoPandas()


def forbid() -> None:
    """Let nothing import pandas from here on."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
