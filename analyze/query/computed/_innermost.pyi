from typing import Any

def times(
    n: int,
    lane: Any,
    start: Any,
    end: Any,
    label: Any,
    m: int,
    of_lane: Any,
    begin: Any,
    until: Any,
    /,
) -> bytes: ...
