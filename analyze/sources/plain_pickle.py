"""Read pickles of plain values: dicts, lists, tuples, text and numbers. Pickles can run code; these cannot.

This interprets the opcodes itself (Python's `pickletools` documents them): the unpickler of the standard library holds
all objects of a file at once, which take nine times the size of a memory snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from struct import Struct
from typing import Any

from analyze.errors import InputError

_LONGEST_NAME = 200
"""Characters that a message repeats of a file."""
_CACHED_LISTS = 64 << 10
"""Distinct lists of references whose values are cached."""

_REFERENCES = re.compile(rb"\x94\(((?:h.|j....)++)e", re.DOTALL)
"""The opcodes of a list of nothing but references to earlier objects, without the first one."""
_UINT16, _UINT32, _INT32, _UINT64, _FLOAT64 = (Struct(code).unpack_from for code in ("<H", "<I", "<i", "<Q", ">d"))
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False, ord(")"): ()}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
"""How many values a tuple has."""


class _NotPlainError(Exception):
    """The pickle has other objects than plain values."""


class PlainPickle:
    """A pickle that is read in bounded memory if its long lists are emptied while they are read.

    `share`: called with the dicts of a list of references to dicts; the result stands for all such lists.
    """

    value: dict[str, Any]
    """The content, once `parts` has ended."""

    def __init__(self, path: Path, what: str, share: Callable[[list[Any]], Any] | None = None):
        self.position = 0
        """Bytes that were read so far."""
        self._path, self._what, self._share = path, what, share
        self._memo: list[Any] = []

    def parts(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield (stack, items) when items are to be added to an outer list, which is the last value of the stack.

        The stack has all incomplete values; behind a dict are its keys and values so far. The caller may clear the
        items: they are not in the content then, and later references to them are None. Raises InputError, which calls
        the file no `what`, if it is not a dict of plain values.
        """
        try:
            with self._path.open("rb") as f, mmap(f.fileno(), 0, access=ACCESS_READ) as data:
                found = yield from self._interpret(data)
        except OSError:
            raise
        except MemoryError as e:
            size = self._path.stat().st_size
            raise InputError(f"{self._path}: a {self._what} of {size:,} bytes does not fit into memory") from e
        # Damaged pickles raise nearly anything.
        except Exception as e:
            said = str(e) if isinstance(e, _NotPlainError) else "damaged"
            raise InputError(f"{self._path}: not a {self._what}: {said} at byte {self.position:,}") from e
        if not isinstance(found, dict):
            raise InputError(f"{self._path}: not a {self._what}: it holds no dict")
        self.value = found

    def _interpret(self, data: mmap) -> Generator[tuple[list[Any], list[Any]], None, Any]:
        """Interpret the opcodes, frequent ones first. Raises nearly anything for a damaged file."""
        stack: list[Any] = []
        marks: list[int] = []  # lengths of the stack
        memo = self._memo
        texts: dict[str, str] = {}  # each once
        shared = lru_cache(_CACHED_LISTS)(self._shared)
        pos = 0
        # A list that grows between references to it would be another stack at each: rows without end.
        complete: set[int] = set()
        forgotten = 0  # cleared items are in memo[forgotten:] only
        try:
            while True:
                op = data[pos]
                pos += 1
                if op in (0x68, 0x6A):  # h: BINGET, j: LONG_BINGET
                    stack.append(value := memo[data[pos] if op == 0x68 else _UINT32(data, pos)[0]])
                    if type(value) is list:
                        complete.add(id(value))
                    pos += 1 if op == 0x68 else 4
                elif op == 0x94:  # MEMOIZE
                    memo.append(stack[-1])
                elif op == 0x8A:  # LONG1
                    end = pos + 1 + data[pos]
                    stack.append(int.from_bytes(data[pos + 1 : end], "little", signed=True))
                    pos = end
                elif op == 0x4B:  # K: BININT1
                    stack.append(data[pos])
                    pos += 1
                elif op == 0x8C:  # SHORT_BINUNICODE
                    end = pos + 1 + data[pos]
                    text = data[pos + 1 : end].decode("utf-8", "surrogatepass")
                    stack.append(texts.setdefault(text, text))
                    pos = end
                elif op == 0x28:  # (: MARK
                    marks.append(len(stack))
                elif op == 0x75:  # u: SETITEMS
                    items = _removed(stack, marks.pop())
                    _update(stack[-1], items)
                elif op == 0x7D:  # }: EMPTY_DICT
                    stack.append({})
                elif op == 0x5D:  # ]: EMPTY_LIST
                    found = _REFERENCES.match(data, pos) if self._share else None
                    value = shared(found[1]) if found else None
                    if found and value is not None:
                        memo.append(value)
                        stack.append(value)
                        pos = found.end()
                    else:
                        stack.append([])
                elif op == 0x65:  # e: APPENDS
                    items = _removed(stack, marks.pop())
                    if len(marks) <= 2:
                        self.position = pos
                        removed = {id(v) for v in items if type(v) is dict}
                        yield stack, items
                        if not items:
                            memo[forgotten:] = [None if id(v) in removed else v for v in memo[forgotten:]]
                            forgotten = len(memo)
                    _extend(stack[-1], items, complete)
                elif op == 0x4A:  # J: BININT
                    stack.append(_INT32(data, pos)[0])
                    pos += 4
                elif op == 0x4D:  # M: BININT2
                    stack.append(_UINT16(data, pos)[0])
                    pos += 2
                elif op in (0x58, 0x8D):  # X: BINUNICODE, BINUNICODE8
                    begin = pos + (4 if op == 0x58 else 8)
                    end = begin + (_UINT32 if op == 0x58 else _UINT64)(data, pos)[0]
                    text = data[begin:end].decode("utf-8", "surrogatepass")
                    stack.append(texts.setdefault(text, text))
                    pos = end
                elif op in _CONSTANTS:
                    stack.append(_CONSTANTS[op])
                elif op == 0x61:  # a: APPEND
                    _extend(stack[-2], [stack.pop()], complete)
                elif op == 0x73:  # s: SETITEM
                    items = _removed(stack, -2)
                    _update(stack[-1], items)
                elif op in _TUPLES or op == 0x74:  # TUPLE1, TUPLE2, TUPLE3, t: TUPLE
                    mark = marks.pop() if op == 0x74 else len(stack) - _TUPLES[op]
                    stack[mark:] = [tuple(stack[mark:])]
                elif op == 0x47:  # G: BINFLOAT
                    stack.append(_FLOAT64(data, pos)[0])
                    pos += 8
                elif op in (0x71, 0x72):  # q: BINPUT, r: LONG_BINPUT
                    index = data[pos] if op == 0x71 else _UINT32(data, pos)[0]
                    if index > len(memo):
                        raise IndexError(index)
                    memo[index : index + 1] = [stack[-1]]
                    pos += 1 if op == 0x71 else 4
                elif op in (0x80, 0x95):  # PROTO, FRAME
                    pos += 1 if op == 0x80 else 8
                elif op == 0x2E:  # .: STOP
                    return stack.pop()
                else:
                    raise _NotPlainError(_refusal(op, data[pos : pos + 200], stack))
        finally:
            self.position = pos

    def _shared(self, run: bytes) -> Any:
        """Return what stands for a list of references; None if one of them is not to a dict."""
        found, pos = [], 0
        while pos < len(run):
            is_short = run[pos] == 0x68
            found.append(self._memo[run[pos + 1] if is_short else _UINT32(run, pos + 1)[0]])
            pos += 2 if is_short else 5
        return self._share(found) if self._share and all(type(v) is dict for v in found) else None


def _removed(stack: list[Any], start: int) -> list[Any]:
    """Remove the values from a position on, and return them."""
    values = stack[start:]
    del stack[start:]
    return values


def _update(container: Any, items: list[Any]) -> None:
    if type(container) is not dict or len(items) % 2:
        raise TypeError("not the items of a dict")
    pairs = iter(items)
    container.update(zip(pairs, pairs, strict=True))


def _extend(container: Any, items: list[Any], complete: set[int]) -> None:
    if type(container) is not list or id(container) in complete:
        raise TypeError("not the items of a list")
    container += items


def _refusal(op: int, after: bytes, stack: list[Any]) -> str:
    """Return why an opcode is not interpreted."""
    if op in (0x63, 0x93):  # c: GLOBAL, STACK_GLOBAL
        names = stack[-2:] if op == 0x93 else after.decode("utf-8", "replace").split("\n")[:2]
        name = "".join(c if c.isprintable() else "?" for c in ".".join(map(str, names))[:_LONGEST_NAME])
        return f"it refers to {name}: such a pickle could run code,"
    if op in (0x50, 0x51):  # P: PERSID, Q: BINPERSID
        return "it refers to objects outside of the file"
    return f"it has opcode {op:#04x}, which no plain value has,"


def read_plain_pickle(path: Path, what: str) -> dict[str, Any]:
    """Return the dict that a pickle holds. Raises InputError, which calls the file no `what`, for anything else."""
    pickle = PlainPickle(path, what)
    for _ in pickle.parts():
        pass
    return pickle.value
