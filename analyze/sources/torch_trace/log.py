"""Read the records of a TORCH_TRACE log. A damaged one is counted as lost, with its payload.

A record is a line `V1126 04:09:31.052000 502 torch/_dynamo/utils.py:2126] {JSON}`. The lines of its payload follow,
each behind a tab; `has_payload` is their MD5.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from analyze.sources.interface import FileReport
from analyze.sources.text_lines import LINE_LIMIT, LostRows

_PREFIX = re.compile(rb"[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d{1,9} +\d+ [^\]\n]{1,500}\] (?=\{)")
_NO_RECORD = "no record of torch's log"
_NO_JSON = "its JSON is damaged"
_TOO_LONG = "it is longer than 16 MB"


class Record(NamedTuple):
    """A record: the number of its line, its JSON, and its payload as text; empty if nobody needs it."""

    line: int
    data: dict[str, Any]
    payload: str


def records(path: Path, report: FileReport, needed: frozenset[str]) -> Iterator[Record]:
    """Yield the records with a key of `needed`; records of `artifact` are chosen by name."""
    lost = LostRows(path, report)
    edited = 0
    with path.open("rb") as file:
        for record, is_intact in _records(file, lost, needed, report):
            edited += not is_intact
            yield record
    lost.warn()
    if edited:
        report.warnings.append(
            f"{path.name}: payloads of records that are not what torch wrote (their MD5 differs), but edited or "
            f"damaged: {edited:,}; they are read as they are"
        )


def _records(
    file: IO[bytes], lost: LostRows, needed: frozenset[str], report: FileReport
) -> Iterator[tuple[Record, bool]]:
    """Yield each record, and whether its payload has the MD5 that it states."""
    number, line = 1, file.readline(LINE_LIMIT)
    end = b"\r\n" if line.endswith(b"\r\n") else b"\n"
    while line:
        at, whole = number, line.endswith(b"\n") or len(line) < LINE_LIMIT
        while not line.endswith(b"\n") and (more := file.readline(LINE_LIMIT)):
            line = line[: 1 << 10] + more[-1:]
        data = _parse(line, at, whole, lost)
        number += 1
        is_needed = data is not None and not needed.isdisjoint(_names(data))
        wants = data is not None and is_needed and "has_payload" in data
        digest, size = hashlib.md5(usedforsecurity=False), 0
        payload: list[bytes] = []
        while (line := file.readline(LINE_LIMIT)).startswith(b"\t"):
            number += 1
            while True:
                if wants:
                    size += len(line)
                    digest.update((b"\n" if payload else b"") + line.removeprefix(b"\t").removesuffix(end))
                    payload.append(line.removeprefix(b"\t") if size < LINE_LIMIT else b"")
                if line.endswith(b"\n") or not (line := file.readline(LINE_LIMIT)):
                    break
        report.position = file.tell()
        if data is None or not is_needed:
            continue
        if wants and size >= LINE_LIMIT:
            lost.add(at, _TOO_LONG)
        else:
            is_intact = not wants or digest.hexdigest() == data["has_payload"]
            yield Record(at, data, b"".join(payload).decode("utf-8", "replace")), is_intact


def _parse(line: bytes, at: int, whole: bool, lost: LostRows) -> dict[str, Any] | None:
    found = _PREFIX.match(line)
    if not found or not whole:
        if line.strip():
            lost.add(at, _NO_RECORD if whole else _TOO_LONG)
        return None
    try:
        data = json.loads(line[found.end() :].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        lost.add(at, _NO_JSON)
        return None
    return data


def _names(data: dict[str, Any]) -> set[str]:
    artifact = data.get("artifact")
    name = artifact.get("name") if isinstance(artifact, dict) else None
    return {*data, *([name] if isinstance(name, str) else [])}
