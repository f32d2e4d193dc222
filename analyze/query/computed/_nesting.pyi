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
) -> tuple[bytearray, bytearray, bytearray, bytearray, bytearray, bytearray, bytearray, bytearray]: ...
