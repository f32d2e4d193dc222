"""`python tee.py LOG SOURCE TARGET [SOURCE TARGET]`: copies the output of a program to that of `collect`, and to a log.

The arguments are file descriptors. Targets get all bytes at once, the log whole lines. This is a process, not a thread
of `collect`: jobs that the program leaves behind may write for longer than `collect` runs.
"""

from __future__ import annotations

import os
import selectors
import sys
from contextlib import suppress


def main(log: str, *descriptors: str) -> None:
    """Copy until all sources have ended."""
    numbers = [int(d) for d in descriptors]
    targets = dict(zip(numbers[::2], numbers[1::2], strict=True))
    lines = dict.fromkeys(targets, b"")
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    with selectors.DefaultSelector() as selector:
        for source in targets:
            selector.register(source, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = b""
                with suppress(OSError):  # a terminal ends so
                    data = os.read(key.fd, 1 << 16)
                whole, newline, rest = (lines[key.fd] + data).rpartition(b"\n")
                lines[key.fd] = rest
                with suppress(OSError):  # a full disk does not stop the program
                    _write(written, whole + newline if data else rest)
                if not data or not _is_copied(targets[key.fd], data):
                    # Without a reader, the program's next write fails as it does without `collect`.
                    selector.unregister(key.fd)
                    os.close(key.fd)


def _is_copied(target: int, data: bytes) -> bool:
    try:
        _write(target, data)
    except OSError:
        return False
    return True


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


if __name__ == "__main__":
    main(*sys.argv[1:])
