"""`python -m collect.workload.worker SPEC.json`: one training process.

Trains the workload of the spec under its profiler and writes a report (collect.rank_reports.RankReport). Exit code: 0
success, 1 failure, 2 bad input, 130 interrupted.
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

from collect.failure import sentence
from collect.rank_reports import RankReport, write_report
from collect.workload.spec import WorkerSpec
from schemas.errors import InputError, ReportedError


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived; like KeyboardInterrupt, `except Exception` does not catch it."""


def _on_signal(number: int, frame: FrameType | None) -> None:
    # Only once: a second signal must not interrupt writing the recording.
    for known in (signal.SIGINT, signal.SIGTERM):
        signal.signal(known, signal.SIG_IGN)
    raise Interrupted


def _die_with_parent() -> None:
    """Make Linux signal this process when its launcher is killed, so that no rank keeps holding a GPU."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGTERM)


def main() -> int:
    """Run the worker; see the module's docstring."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=WorkerSpec)
    report = RankReport(rank=int(os.environ.get("RANK", "0")), host=socket.gethostname())
    ranked = spec.options.parallel == "ddp"
    if ranked:
        _die_with_parent()
    code = 0
    try:
        from collect.workload.train import train

        train(spec, report)
        report.ok = True
    except Interrupted:
        report.reason, code = "interrupted", 130
    except ReportedError as e:
        report.reason, code = str(e), e.exit_code
        report.bad_input = isinstance(e, InputError)
    except Exception as e:
        traceback.print_exc()
        report.reason, code = sentence(e), 1
    write_report(Path(spec.scratch), report)
    if code and ranked:
        # Do not wait for the other ranks, which may hang in a collective that this one has left.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
