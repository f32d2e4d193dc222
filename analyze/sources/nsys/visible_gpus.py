"""Which GPUs of the machine a program could use, in the order of its CUDA devices."""

from __future__ import annotations

from analyze.sources.nsys.capture import Capture, parse_number
from analyze.sources.nsys.open_export import Tables, rows


def visible_gpus(tables: Tables, capture: Capture) -> list[int]:
    """Return the ids (TARGET_INFO_GPU) of the GPUs in CUDA_VISIBLE_DEVICES; none if it is unset or not understood.

    CUDA device 0 of the program is the first one. A program that sets the variable itself is not known.
    """
    gpus = list(rows(tables, "TARGET_INFO_GPU", ["id", "cuDevice", "uuid"]))
    found: list[int] = []
    for entry in capture.environment.get("CUDA_VISIBLE_DEVICES", "").split(","):
        number, uuid = parse_number(entry.strip()), entry.strip().removeprefix("GPU-")
        named = [
            gpu["id"]
            for gpu in gpus
            if gpu["id"] is not None
            and (gpu["cuDevice"] == number if number is not None else uuid and (gpu["uuid"] or "").startswith(uuid))
        ]
        if len(named) != 1:
            return []
        found += named
    return found
