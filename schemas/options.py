"""How an option is declared: with its field of a struct stand its help, its range and how it is kept.

The command line, the checks of a plan, run.json and the columns of `runs` derive from there.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

LARGEST_INT32 = 2**31 - 1
"""The most that a column of ranks or counts holds."""
LARGEST_INT64 = 2**63 - 1


class RunColumn(NamedTuple):
    """The column of `runs` that holds an option."""

    doc: str
    """`{choices}` as in `Option.help`."""
    name: str = ""
    """The option's, where it is empty."""
    type: str = ""
    """Arrow type; by the option's type, where it is empty."""
    unit: str = ""
    varies: bool = False
    """Runs that differ in it can be of one workload: `scaling` compares them."""


class Option(NamedTuple):
    """What an option is, beside the name, type and default of its field: `x: Annotated[int, Option(...)] = 1`."""

    help: str
    """`{choices}` in it stands for the values of the field's Literal."""
    panel: str
    """Heading that it stands under in `--help`."""
    least: int | None = None
    most: int = LARGEST_INT32
    short: str = ""
    """A second name on the command line: `-o`."""
    column: RunColumn | None = None
    recorded: Callable[[Any], Any] | None = None
    """What of a value is written down in run.json, if not all of it."""


class Declared(NamedTuple):
    """An option as its field declares it."""

    name: str
    hint: Any
    """Its type, perhaps with None."""
    kind: type
    """bool, int, str or tuple."""
    choices: tuple[str, ...]
    """Values of its Literal; empty for other types."""
    default: Any
    option: Option

    def text(self, text: str) -> str:
        """A text about it with its choices filled in: `fp32, tf32 or bf16`."""
        *first, last = self.choices or ("",)
        return text.replace("{choices}", f"{', '.join(first)} or {last}" if first else last)


def declared(struct: type[Any]) -> dict[str, Declared]:
    """The options that a struct declares, by name; fields without an Option are none."""
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
    """What a value is that is not None, and the values of a Literal."""
    if get_origin(hint) in (Union, types.UnionType):
        return _kind(next(a for a in get_args(hint) if a is not type(None)))
    if get_origin(hint) is Literal:
        return str, get_args(hint)
    return get_origin(hint) or hint, ()
