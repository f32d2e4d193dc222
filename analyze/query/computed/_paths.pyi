from typing import Any

def number(
    n: int,
    order: Any,
    parent: Any,
    self: Any,
    process: Any,
    name: Any,
    kind: Any,
    start: Any,
    length: Any,
    path: Any,
    /,
) -> bytes: ...
