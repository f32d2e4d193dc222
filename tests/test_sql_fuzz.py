"""Random SQL against the checks of user SQL; `tests/fuzz/sql.py` runs many more."""

from __future__ import annotations

from pathlib import Path

from fuzz.sql import fuzz


def test_only_single_selects_run_and_nothing_is_written(tmp_path: Path) -> None:
    passed = fuzz(tmp_path, statements=2000, seed=35)
    # How many texts pass depends on the length of the folder's path, where the texts are cut.
    assert passed["bare"] == 2000 and passed["select"] > 25
