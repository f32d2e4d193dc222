"""Rows of `kernel_names`: what the rules of `schemas` say of the kernel names of a run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import schemas

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {"kernels": "name", "ncu_metrics": "kernel", "gpu_summary": "name", "metric_summary": "kernel"}
"""Where kernel names stand, by table."""
_FILES = ("kernel_rules.toml", "kernel_rules.py")
_MANY, _LONG = 1024, 1 << 18
"""Names, and characters of all of them, from which they are classified all at a time."""
_BESIDE = re.compile(r"\(\?<?[=!][^()]*\)")
"""(?=x), (?!x), (?<=x), (?<!x) in a regex."""


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


def batch(names: Sequence[str]) -> pa.RecordBatch:
    """The same as a batch, without run_id (in a worker process: there may be millions of names)."""
    import pyarrow as pa

    from analyze.sources.base import batch_schema
    from schemas.kernel_rules import KernelClass, classify, classify_all

    # Few names are likely those of another run, too, of which each is known.
    at_a_time = len(names) >= _MANY or sum(map(len, names)) >= _LONG
    classes = classify_all(names, first_matches) if at_a_time else [classify(name) for name in names]
    columns = {"name": names, **dict(zip(KernelClass._fields, zip(*classes, strict=True), strict=False))}
    schema = batch_schema("kernel_names")
    arrays = [pa.array(columns.get(f.name, ()), pa.string()).dictionary_encode() for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def first_matches(kind: str, words: Collection[str]) -> dict[str, int]:
    """The `Ranks` of `schemas.kernel_rules`, of many words at a time.

    RE2, which is a part of Arrow, finds for 2 us a word what may match; Python's own search of all rules takes 50 us.
    It knows no assertion about what stands beside a match, so these are left out, and what it finds is searched again.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from schemas.kernel_rules import rules

    table = rules()[kind]
    found = dict.fromkeys(words, len(table))
    # Of letters that are not ASCII, RE2 and Python do not mean the same by \w.
    others = [word for word in words if not word.isascii()]
    left = pa.array([word for word in words if word.isascii()], pa.string())
    for rank, rule in enumerate(table):
        may_match = pc.match_substring_regex(left, _BESIDE.sub("", rule.pattern.pattern))
        matched = {word for word in [*left.filter(may_match).to_pylist(), *others] if rule.pattern.search(word)}
        if matched:
            found |= dict.fromkeys(matched, rank)
            others = [word for word in others if word not in matched]
            left = pa.array([word for word in left.to_pylist() if word not in matched], pa.string())
    return found
