"""Rows of the table `kernel_names`: kernel names classified by the rules of `schemas`."""

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
"""The column with kernel names, by table."""
_FILES = ("kernel_rules.toml", "kernel_rules.py")
_MANY, _LONG = 1024, 1 << 18
"""Names, and their characters, from which they are classified in bulk."""
_LOOKAROUND = re.compile(r"\(\?<?[=!][^()]*\)")
"""(?=x), (?!x), (?<=x), (?<!x) in a regex."""


@cache
def rules_digest() -> str:
    """Return a digest of the rules; names that were classified by other rules are classified again."""
    folder = Path(schemas.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for name in _FILES:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def rows(run_id: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return a row of `kernel_names` for each name."""
    from schemas.kernel_rules import classify

    return [{"run_id": run_id, "name": name, **classify(name)._asdict()} for name in names]


def batch(names: Sequence[str]) -> pa.RecordBatch:
    """Return the rows without run_id as a batch; runs in worker processes, as there may be millions of names."""
    import pyarrow as pa

    from analyze.sources.interface import batch_schema
    from schemas.kernel_rules import KernelClass, classify, classify_all

    # A few names likely occur in other runs, and `classify` caches them.
    at_a_time = len(names) >= _MANY or sum(map(len, names)) >= _LONG
    classes = classify_all(names, first_matches) if at_a_time else [classify(name) for name in names]
    columns = {"name": names, **dict(zip(KernelClass._fields, zip(*classes, strict=True), strict=False))}
    schema = batch_schema("kernel_names")
    arrays = [pa.array(columns.get(f.name, ()), pa.string()).dictionary_encode() for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def first_matches(kind: str, words: Collection[str]) -> dict[str, int]:
    """Return the first matching rule (`Ranks` of `schemas.kernel_rules`) of many words.

    Arrow's RE2 takes 2 us a word, Python's `re` 50 us. RE2 has no lookaround, so it is removed from the patterns, and
    what matches is checked with `re`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from schemas.kernel_rules import rules

    table = rules()[kind]
    found = dict.fromkeys(words, len(table))
    # RE2 and Python differ in what \w is outside ASCII.
    others = [word for word in words if not word.isascii()]
    left = pa.array([word for word in words if word.isascii()], pa.string())
    for rank, rule in enumerate(table):
        may_match = pc.match_substring_regex(left, _LOOKAROUND.sub("", rule.pattern.pattern))
        matched = {word for word in [*left.filter(may_match).to_pylist(), *others] if rule.pattern.search(word)}
        if matched:
            found |= dict.fromkeys(matched, rank)
            others = [word for word in others if word not in matched]
            left = pa.array([word for word in left.to_pylist() if word not in matched], pa.string())
    return found
