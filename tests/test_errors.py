"""Bad input, machine errors and internal errors are three types, each reported in its own way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import complaints, run_cli, run_cli_under
from support import SAMPLES
from traces import event, write_trace

import analyze
from schemas.errors import InputError, InternalError, MachineError, ReportedError

ONE = SAMPLES / "resnet18-1gpu"


def test_the_kinds_of_error_are_unrelated() -> None:
    kinds = (InputError, MachineError, InternalError)
    assert all(issubclass(kind, ReportedError) for kind in kinds)
    assert [(a, b) for a in kinds for b in kinds if a is not b and issubclass(a, b)] == []
    assert (analyze.InputError, analyze.MachineError, analyze.InternalError) == kinds


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        analyze.open(tmp_path / "none")
    done = run_cli("info", tmp_path / "none")
    assert done.returncode == 2 and len(complaints(done)) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_full_disk_is_a_fault_of_the_machine() -> None:
    says = "/dev/full: cannot be written: No space left on device"
    with analyze.open(ONE) as traces, pytest.raises(MachineError, match=f"^{says}$"):
        traces.trace("/dev/full")
    done = run_cli("trace", ONE, "-o", "/dev/full")
    assert (done.returncode, complaints(done)) == (2, [f"analyze: {says}"])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_missing_permission_is_a_fault_of_the_machine(unprivileged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(unprivileged / "cache"))
    trace = write_trace(unprivileged / "t.json", [event("cpu_op", "aten::add", 0, 1)])
    closed = unprivileged / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    with pytest.raises(MachineError, match=r"Permission denied$"):
        analyze.ingest(trace, store=closed / "store")
    for arguments in (["ingest", trace, "--store", closed / "store"], ["query", "ops", trace, "-o", closed / "x.csv"]):
        done = run_cli(*arguments)
        [said] = complaints(done)
        assert done.returncode == 2 and said.endswith(": cannot be written: Permission denied"), said
    assert not list(closed.iterdir())


def test_too_little_memory_is_a_machine_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with analyze.open(ONE) as traces:
        monkeypatch.setenv("TRACEQUARRY_MEMORY", "400MB")
        with pytest.raises(MachineError, match=r"(?i)out of memory"):
            traces.sql("SELECT list(range) FROM range(200_000_000)").rows()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("RuntimeError('a part is missing')", "internal error"),
        ("InternalError('the parts contradict each other')", "the parts contradict each other"),
    ],
)
def test_an_internal_error_asks_for_a_bug_report(error: str, says: str) -> None:
    hook = (
        "if event == 'open' and 'store.json' in str(args[0]):\n"
        f"    from analyze.errors import InternalError\n    raise {error}"
    )
    done = run_cli_under(hook, "info", ONE)
    assert done.returncode == 1
    assert complaints(done)[0] == "Traceback (most recent call last):"
    asks = "this is a fault of tracequarry: please report it with these lines and the command"
    assert complaints(done)[-1] == f"analyze: {says}; {asks}"
