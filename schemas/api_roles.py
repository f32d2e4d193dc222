"""Classifies calls of the CUDA, HIP and XPU runtimes by name: launches, synchronisation, copies.

The rules are in `api_roles.toml`.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

ROLES = ("launch", "sync", "stream_wait", "copy", "copy_async")
"""The roles of a call; api_roles.toml defines them."""

WAITS_FOR = ("device", "stream", "event", "copy")
"""Kinds of work that a blocking call can wait for."""

_RULES_FILE = Path(__file__).with_name("api_roles.toml")


class ApiRule(NamedTuple):
    """A table of the rule file: calls that match have this role."""

    role: str
    waits_for: str | None
    pattern: re.Pattern[str]
    matches: tuple[str, ...]
    examples: tuple[str, ...]


@cache
def rules() -> tuple[ApiRule, ...]:
    """Return the rules in the order in which they are tried."""
    document = tomllib.loads(_RULES_FILE.read_text(encoding="utf-8"))
    return tuple(_rule(table) for table in document["rule"])


def _rule(table: dict[str, Any]) -> ApiRule:
    role, waits_for, matches, examples = (table.get(k) for k in ("role", "waits_for", "match", "example"))
    known = role in ROLES and (waits_for is None or waits_for in WAITS_FOR)
    if set(table) - {"role", "waits_for", "match", "example"} or not (known and matches and examples and role):
        raise ValueError(f"{_RULES_FILE.name}: bad [[rule]] table {table}")
    return ApiRule(role, waits_for, re.compile("|".join(f"(?:{m})" for m in matches)), tuple(matches), tuple(examples))


@lru_cache(maxsize=1 << 12)
def matching_rule(name: str) -> ApiRule | None:
    """Return the first rule that matches the name of a call, or None."""
    return next((rule for rule in rules() if rule.pattern.match(name)), None)
