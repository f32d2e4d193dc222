"""Compute for 50 ms, wait 100 ms for a lock that another thread holds, read a file and sleep 60 ms."""

import sys
import threading
import time
from pathlib import Path

lock = threading.Lock()
held = threading.Event()


def hold() -> None:
    """Hold the lock for 100 ms."""
    with lock:
        held.set()
        time.sleep(0.1)


def spin(seconds: float) -> int:
    """Compute."""
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        count += 1
    return count


spin(0.05)
other = threading.Thread(target=hold)
other.start()
held.wait()
with lock:
    pass
Path(sys.executable).read_bytes()
time.sleep(0.06)
