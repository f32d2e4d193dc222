from typing import Any

def tree(
    n: int,
    process: Any,
    kind: Any,
    name: Any,
    owner: Any,
    stray: Any,
    thread: Any,
    op: Any,
    start: Any,
    length: Any,
    launched: Any,
    order: Any,
    parent: Any,
    last: Any,
    depth: Any,
    self: Any,
    folded: Any,
    gpu: Any,
    total_gpu: Any,
    /,
) -> None: ...
