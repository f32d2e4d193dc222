"""Read dumps of PyTorch's flight recorder: the last collectives of each rank of a job that hung, a file for each rank.

A dump is a pickle, or JSON (`torch._C._distributed_c10d._dump_nccl_trace_json`), which has no stacks.

torch writes them when a collective times out (TORCH_NCCL_DUMP_ON_TIMEOUT), as nccl_trace_rank_N or as
TORCH_FR_DUMP_TEMP_FILE says. Like torchfrtrace, this takes the rank from the digits at the end of the name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.sources.interface import LOG_NAME, FileReport, Source, TableBatch, row_batches
from analyze.sources.plain_pickle import read_plain_pickle
from analyze.sources.plain_values import text, warn_of_losses, whole
from analyze.sources.rank_hint import RankHint
from schemas.option_declaration import LARGEST_INT32

_PICKLE = rb"\x80[\x02-\x05].{0,64}version.*pg_config"
_JSON = (
    rb'\s*\{\s*("\w+_version"\s*:\s*"[^"]*"\s*,\s*)?"(entries"\s*:.*"collective_seq_id|nccl_comm_state|pg_config)"\s*:'
)

SOURCES = (
    Source(
        "flight_recorder",
        __name__,
        "flight_recorder",
        re.compile(rf"{LOG_NAME.pattern}|.*\.json$", re.IGNORECASE),
        re.compile(rb"\A(" + _PICKLE + rb"|" + _JSON + rb")", re.DOTALL),
        says_rank=True,
    ),
)


def read_rank_hint(path: Path) -> RankHint:
    """Return the rank that the name says, and the size of the largest group. Raises InputError."""
    dump = _read_dump(path)
    sizes = [len(ranks) for group in _groups(dump) if (ranks := _ranks(group.get("ranks")))]
    rank = re.search(r"(\d{1,9})$", path.name.removesuffix(".json"))
    return RankHint(int(rank[1]) if rank else None, max(sizes, default=None))


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the records, frames and groups of a rank. A record without a state or a name is dropped, with a warning.

    Raises InputError.
    """
    dump = _read_dump(path)
    # JSON without a record has no entries.
    entries = dump.get("entries", [] if "pg_config" in dump else None)
    if not isinstance(entries, list):
        raise InputError(f"{path}: not a flight recorder dump: it has no list entries")
    records: list[dict[str, Any]] = []
    frames: list[dict[str, Any]] = []
    lost = 0
    for entry in entries:
        record = _record(entry) if isinstance(entry, dict) else None
        if record is None:
            lost += 1
            continue
        stack = entry.get("frames")
        for depth, frame in enumerate(stack if isinstance(stack, list) else ()):
            if isinstance(frame, dict):
                place = {"file": text(frame.get("filename")), "function": text(frame.get("name"))}
                line = whole(frame.get("line"), LARGEST_INT32)
                frames.append({"record": len(records), "depth": depth, "line": line, **place})
        records.append(record | {"record": len(records)})
    warn_of_losses(path, report, lost, "records")
    status = dump.get("pg_status")
    groups = [_group(group, status if isinstance(status, dict) else {}) for group in _groups(dump)]
    yield from row_batches({"flight_records": records, "flight_frames": frames, "flight_groups": groups})


def _read_dump(path: Path) -> dict[str, Any]:
    """Return a dump. Raises InputError."""
    with path.open("rb") as f:
        is_pickle = f.read(1) == b"\x80"
    if is_pickle:
        return read_plain_pickle(path, "flight recorder dump")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not a flight recorder dump: {e}") from e
    if not isinstance(found, dict):
        raise InputError(f"{path}: not a flight recorder dump: it holds no object")
    return found


def _record(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    group = entry.get("process_group")
    name, description = group if isinstance(group, tuple | list) and len(group) == 2 else (None, None)
    is_p2p = entry.get("is_p2p") is True
    row = {
        "group_name": text(name),
        "group_desc": text(description),
        "operation": text(entry.get("profiling_name")),
        "seq": whole(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id")),
        "is_p2p": is_p2p,
        "in_sizes": _json(entry.get("input_sizes")),
        "in_dtypes": _json(entry.get("input_dtypes")),
        "out_sizes": _json(entry.get("output_sizes")),
        "out_dtypes": _json(entry.get("output_dtypes")),
        "state": text(entry.get("state")),
        "created_ns": whole(entry.get("time_created_ns")),
        # JSON says 0 for never.
        "started_ns": whole(entry.get("time_discovered_started_ns")) or None,
        "completed_ns": whole(entry.get("time_discovered_completed_ns")) or None,
        "timeout_ns": None if (ms := whole(entry.get("timeout_ms"), LARGEST_INT32)) is None else ms * 1_000_000,
    }
    return None if any(row[name] is None for name in ("group_name", "operation", "seq", "state")) else row


def _groups(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    config = dump.get("pg_config")
    return [g for g in config.values() if isinstance(g, dict)] if isinstance(config, dict) else []


def _group(group: Mapping[str, Any], status: Mapping[Any, Any]) -> dict[str, Any]:
    name = text(group.get("name"))
    known = status.get(name)
    last = known if isinstance(known, dict) else {}
    return {
        "group_name": name,
        "group_desc": text(group.get("desc")),
        "ranks": _json(_ranks(group.get("ranks"))),
        **{
            f"last_{what}": _number(last.get(f"last_{what}_collective"))
            for what in ("enqueued", "started", "completed")
        },
    }


def _number(value: object) -> int | None:
    """Return a number, which JSON has as text."""
    return whole(int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value, re.ASCII) else value)


def _ranks(value: object) -> list[int] | None:
    """Return the ranks of a group, which torch writes as JSON text; None if they cannot be read."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
    if not isinstance(found, list) or any(whole(rank, LARGEST_INT32) is None for rank in found):
        return None
    return found


def _json(value: object) -> str | None:
    try:
        return None if value is None else json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None
