"""Digests of what derived tables are computed by: a stored one that differs is derived again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import schemas
from analyze.derive import DERIVED
from schemas import api_roles

if TYPE_CHECKING:
    from analyze.store.catalogue import StoredRun

_RULE_FILES = ("kernel_rules.toml", "kernel_rules.py")


@cache
def rules_digest() -> str:
    """Return a digest of the rules of kernel names; names that were classified by others are classified again."""
    folder = Path(schemas.__file__).parent
    return _digest(b"".join((folder / name).read_bytes() for name in _RULE_FILES))


@cache
def derived_version() -> str:
    """Return a digest of the versions of all derived tables and of the rules that they follow."""
    roles = [(rule.role, rule.waits_for, rule.matches) for rule in api_roles.rules()]
    versions = repr(sorted((one.name, one.version) for one in DERIVED)) + rules_digest() + repr(roles)
    return _digest(versions.encode())


def derived_digest(runs: Mapping[str, StoredRun], full: str | None) -> str:
    """Return a digest of what the derived tables of a run are computed by; `full` is its full block, if it has one.

    For a GPU-only block they are computed from its full block, too.
    """
    if full is None or full not in runs:
        return derived_version()
    states = repr([f.state for f in runs[full].files])
    return _digest((derived_version() + states).encode())


def is_stale(runs: Mapping[str, StoredRun], run_id: str) -> bool:
    """Return whether the stored derived tables of a run are of another version or another full block."""
    return runs[run_id].derived != derived_digest(runs, runs[run_id].full)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
