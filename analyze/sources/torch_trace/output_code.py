"""Kernels in the code that Inductor writes, and the source lines of the nodes that they compute.

Inductor puts a comment above each kernel: `# Topologically Sorted Source Nodes: [x, gelu], Original ATen: [aten.gelu]`.
The nodes are those of Dynamo's graph, whose listing says the source line of each. Both are text: nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_AOT_ID = re.compile(r"# AOT ID: \['(\d+)_(forward|backward|inference)'\]")
_NODES = re.compile(r"\s*# (?:Topologically Sorted )?Source Nodes: \[([^\]]*)\], Original ATen: \[([^\]]*)\]")
_DEFINED = re.compile(r"(\w+) = async_compile\.(\w+)\(")
_EXTERN = re.compile(r"\s+(?:\w+ = )?(extern_kernels\.\w+|torch\.ops\.[\w.]+)\(")
_PLACE = re.compile(r"\s*# File: ([^,\n]{1,500}):(\d{1,9}) in ([^,\n]{1,300}), code: (.*)")
_ASSIGNED = re.compile(r'\s+(\w+)(?:: "[^"]*")? = ')
_KINDS = {"cpp_pybinding": "cpp"}


class SourceLine(NamedTuple):
    """A line of the program."""

    file: str
    line: int
    function: str
    code: str


class KernelCode(NamedTuple):
    """A kernel of a graph."""

    kernel: str
    kind: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]


def graph_of(code: str) -> tuple[int | None, str | None]:
    """Return the number of the graph, and its pass: forward, backward or inference."""
    found = _AOT_ID.match(code)
    return (int(found[1][:18]), found[2]) if found else (None, None)


def kernels_of(code: str) -> Iterator[KernelCode]:
    """Yield the kernels that the code defines, then the library calls in it, each once."""
    nodes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    seen: dict[str, KernelCode] = {}
    for text in code.splitlines():
        if comment := _NODES.match(text):
            nodes, operators = _listed(comment[1]), _listed(comment[2])
            continue
        defined, library = _DEFINED.match(text), _EXTERN.match(text)
        if defined:
            seen[defined[1]] = KernelCode(defined[1], _KINDS.get(defined[2], defined[2]), nodes, operators)
        elif library:
            before = seen.get(library[1], KernelCode(library[1], "library", (), ()))
            both = dict.fromkeys(before.nodes + nodes), dict.fromkeys(before.operators + operators)
            seen[library[1]] = KernelCode(library[1], "library", tuple(both[0]), tuple(both[1]))
        if defined or library:
            nodes = operators = ()
    yield from seen.values()


def lines_of_nodes(graph: str) -> dict[str, SourceLine]:
    """Return the source line of each node in the listing of Dynamo's graph."""
    found: dict[str, SourceLine] = {}
    place: SourceLine | None = None
    for text in graph.splitlines():
        if comment := _PLACE.match(text):
            place = SourceLine(comment[1], min(int(comment[2][:9]), 2**31 - 1), comment[3], comment[4])
        elif (node := _ASSIGNED.match(text)) and place:
            found.setdefault(node[1], place)
    return found


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))
