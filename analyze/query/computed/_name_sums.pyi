from typing import Any

def sums(
    n: int,
    order: Any,
    process: Any,
    name: Any,
    kind: Any,
    length: Any,
    self: Any,
    folded: Any,
    gpu: Any,
    total_gpu: Any,
    /,
) -> bytes: ...
