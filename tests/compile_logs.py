"""Write TORCH_TRACE logs by hand."""

from __future__ import annotations

import hashlib
import json
from typing import Any

PREFIX = "V1126 04:09:31.008000 502 torch/_dynamo/utils.py:2126] "
SECOND_US = 1_000_000


def record(
    payload: str | None = None, compile_id: tuple[int, int] | None = (0, 0), attempt: int = 0, **data: Any
) -> str:
    """A record as torch writes it."""
    if compile_id:
        data |= {"frame_id": compile_id[0], "frame_compile_id": compile_id[1], "attempt": attempt}
    if payload is None:
        return f"{PREFIX}{json.dumps(data)}\n"
    data["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    return f"{PREFIX}{json.dumps(data)}\n" + "".join(f"\t{line}\n" for line in payload.split("\n"))


def phase(name: str, start_us: int, end_us: int, *inside: str, **where: Any) -> str:
    """A phase of the compiler, with what is logged in it."""
    begin, end = (
        record(json.dumps({"name": name, "ts": ts, "ph": ph, "args": {}}, indent=0), chromium_event={}, **where)
        for ph, ts in (("B", start_us), ("E", end_us))
    )
    return begin + "".join(inside) + end


def artifact(name: str, payload: str, **where: Any) -> str:
    return record(payload, artifact={"name": name, "encoding": "string"}, **where)


def metrics(start_us: int, duration_us: int, kind: str = "compilation_metrics", **more: Any) -> str:
    """The last record of a compilation; times in us, by torch's names."""
    where = {name: more.pop(name) for name in ("compile_id", "attempt") if name in more}
    frame, number = where.get("compile_id", (0, 0))
    return record(
        **{kind: {"compile_id": f"{frame}/{number}", "start_time_us": start_us, "duration_us": duration_us, **more}},
        **where,
    )


STRINGS = record(str=["/home/me/train.py", 0], compile_id=None) + record(
    str=["/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", 1], compile_id=None
)
STACK = [
    {"line": 40, "name": "<module>", "filename": 0}, {"line": 1787, "name": "_call_impl", "filename": 1},
    {"line": 12, "name": "forward", "filename": 0},
]  # fmt: skip
