"""What a call of CUDA, HIP or XPU's runtime does for the GPU, by its name: launches, blocks, copies.

The rules are in `api_roles.toml`; this module reads them.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

ROLES = ("launch", "sync", "stream_wait", "copy", "copy_async")
"""What a call can do; api_roles.toml says what each means."""

WAITS_FOR = ("device", "stream", "event", "copy")
"""What a call that blocks its thread can wait for."""

_RULES_FILE = Path(__file__).with_name("api_roles.toml")


class Rule(NamedTuple):
    """One table of the rule file: the calls that match have this role."""

    role: str
    waits_for: str | None
    pattern: re.Pattern[str]
    matches: tuple[str, ...]
    examples: tuple[str, ...]


@cache
def rules() -> tuple[Rule, ...]:
    """The rules in the order in which they are tried."""
    document = tomllib.loads(_RULES_FILE.read_text(encoding="utf-8"))
    return tuple(_rule(table) for table in document["rule"])


def _rule(table: dict[str, Any]) -> Rule:
    role, waits_for, matches, examples = (table.get(k) for k in ("role", "waits_for", "match", "example"))
    known = role in ROLES and (waits_for is None or waits_for in WAITS_FOR) and matches and examples
    if set(table) - {"role", "waits_for", "match", "example"} or not (known and matches and examples and role):
        raise ValueError(f"{_RULES_FILE.name}: bad [[rule]] table {table}")
    return Rule(role, waits_for, re.compile("|".join(f"(?:{m})" for m in matches)), tuple(matches), tuple(examples))


@lru_cache(maxsize=1 << 12)
def matching_rule(name: str) -> Rule | None:
    """The rule that decides about the name of a call; None for one that no rule knows."""
    return next((rule for rule in rules() if rule.pattern.match(name)), None)
