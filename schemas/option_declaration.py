"""Declares an option with the field of a struct that holds it: its help text, range, and place in run.json.

The command line, the checks of plans, run.json and the columns of `runs` derive from these declarations.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

LARGEST_INT32 = 2**31 - 1
"""The maximum of a column of ranks or counts."""
LARGEST_INT64 = 2**63 - 1


class RunColumn(NamedTuple):
    """The column of `runs` that holds an option."""

    doc: str
    """May contain `{choices}`, as `Option.help`."""
    name: str = ""
    """If empty, the option's name."""
    type: str = ""
    """Arrow type; if empty, it follows from the option's type."""
    unit: str = ""
    varies: bool = False
    """Runs of one workload may differ in it: `scaling` compares them."""


class Option(NamedTuple):
    """The help and limits of an option, a field `x: Annotated[int, Option(...)] = 1`."""

    help: str
    """`{choices}` is replaced by the values of the field's Literal."""
    panel: str
    """Heading of its section in `--help`."""
    least: int | None = None
    most: int = LARGEST_INT32
    short: str = ""
    """A second name on the command line: `-o`."""
    column: RunColumn | None = None
    recorded: Callable[[Any], Any] | None = None
    """Converts a value to what run.json contains."""


class Declared(NamedTuple):
    """An option and its field."""

    name: str
    hint: Any
    """Its type, possibly with None."""
    kind: type
    """bool, int, str or tuple."""
    choices: tuple[str, ...]
    """Values of its Literal; empty for other types."""
    default: Any
    option: Option

    def text(self, text: str) -> str:
        """Replace `{choices}` in a text: `fp32, tf32 or bf16`."""
        *first, last = self.choices or ("",)
        return text.replace("{choices}", f"{', '.join(first)} or {last}" if first else last)


def declared(struct: type[Any]) -> dict[str, Declared]:
    """Return the options that a struct declares, by name; skips fields without an Option."""
    hints = get_type_hints(struct, include_extras=True)
    found = {}
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        option = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Option)), None)
        if option is not None:
            plain = get_args(hint)[0]
            found[field.name] = Declared(field.name, plain, *_kind(plain), field.default, option)
    return found


def _kind(hint: Any) -> tuple[type, tuple[str, ...]]:
    """The type without None, and the values of a Literal."""
    if get_origin(hint) in (Union, types.UnionType):
        return _kind(next(a for a in get_args(hint) if a is not type(None)))
    if get_origin(hint) is Literal:
        return str, get_args(hint)
    return get_origin(hint) or hint, ()
