"""Rows of `kernel_names`: what the rules of `schemas` say of the kernel names of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import schemas

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {"kernels": "name", "ncu_metrics": "kernel", "gpu_summary": "name", "metric_summary": "kernel"}
"""Where kernel names stand, by table."""
_FILES = ("kernel_rules.toml", "kernel_rules.py")


@cache
def rules_digest() -> str:
    """Digest of the rules: names classified under another one are classified again."""
    folder = Path(schemas.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for name in _FILES:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def rows(run_id: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """One row for each name, in the columns of `kernel_names`."""
    from schemas.kernel_rules import classify

    return [{"run_id": run_id, "name": name, **classify(name)._asdict()} for name in names]


def batch(names: list[str]) -> pa.RecordBatch:
    """The same as a batch, without run_id (in a worker process: there may be a million names)."""
    import pyarrow as pa

    from analyze.sources.base import batch_schema

    return pa.RecordBatch.from_pylist(rows("", names), schema=batch_schema("kernel_names"))
