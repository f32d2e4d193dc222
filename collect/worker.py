"""`python -m collect.worker SPEC.json`: one training process.

Trains the workload of the spec under the spec's profiler and leaves a report (collect.spec.RankReport). Exit code 0
when all went well, 2 for bad input, 130 when interrupted, 1 otherwise.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from types import FrameType

import msgspec

from collect.errors import CollectError
from collect.failure import sentence
from collect.spec import RankReport, WorkerSpec, write_report


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived; like KeyboardInterrupt no library is to catch it."""


def _on_signal(number: int, frame: FrameType | None) -> None:
    # Once only: what is recorded is then written, and a second signal must not cut that short.
    for known in (signal.SIGINT, signal.SIGTERM):
        signal.signal(known, signal.SIG_IGN)
    raise Interrupted


def _die_with_parent() -> None:
    """Have Linux end this process when its launcher is killed, so that no rank is left holding a GPU."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGTERM)


def main() -> int:
    """Run the worker; see the module."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=WorkerSpec)
    report = RankReport(rank=int(os.environ.get("RANK", "0")), host=socket.gethostname())
    ranked = spec.options.parallel == "ddp"
    if ranked:
        _die_with_parent()
    code = 0
    try:
        from collect.train import train

        train(spec, report)
        report.ok = True
    except Interrupted:
        report.reason, code = "interrupted", 130
    except CollectError as e:
        report.reason, code = str(e), e.exit_code
        report.usage = e.exit_code == 2
    except Exception as e:
        traceback.print_exc()
        report.reason, code = sentence(e), 1
    write_report(Path(spec.scratch), report)
    if code and ranked:
        # The other ranks may hang in a collective that this one left: leave without waiting for them.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
