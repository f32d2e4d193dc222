"""File locks: shared readers, an exclusive writer, and no lock of a killed process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_cli, run_cli_under
from support import ROOT
from traces import kernel, write_trace

from analyze.store.file_lock import locked
from analyze.store.safe_folder import Folder


def free(path: Path, *, shared: bool = False) -> bool:
    handle = locked(Folder(path.parent), path.name, shared=shared, wait=False, create=False)
    if handle is not None:
        os.close(handle)
    return handle is not None


def test_readers_share_and_a_writer_is_exclusive(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert locked(Folder(path.parent), path.name, shared=True, create=False) is None and not path.exists()
    writer = locked(Folder(path.parent), path.name)
    assert writer is not None and not free(path) and not free(path, shared=True)
    os.close(writer)
    readers = [locked(Folder(path.parent), path.name, shared=True) for _ in range(2)]
    assert free(path, shared=True) and not free(path)
    for reader in readers:
        assert reader is not None
        os.close(reader)
    assert free(path)


@pytest.mark.parametrize("shared", [True, False])
def test_killed_process_holds_no_lock(tmp_path: Path, shared: bool) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys; from pathlib import Path; from analyze.store.file_lock import locked; "
        "from analyze.store.safe_folder import Folder; path = Path(sys.argv[1]); "
        f"handle = locked(Folder(path.parent), path.name, shared={shared}); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    assert not free(path) and free(path, shared=True) == shared
    holder.kill()
    holder.communicate()
    assert free(path)


def test_reader_without_write_permission_locks_a_store(unprivileged: Path) -> None:
    path = unprivileged / "lock"
    path.touch(0o444)
    path.parent.chmod(0o555)
    reader = locked(Folder(path.parent), path.name, shared=True, create=False)
    assert reader is not None and not free(path)
    os.close(reader)
    path.parent.chmod(0o755)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds what is locked in /proc")
def test_store_without_file_locks_is_read_only(tmp_path: Path) -> None:
    store = tmp_path / "store"
    trace = write_trace(tmp_path / "trace.json", [kernel("k", 0, 1)])
    run_cli("ingest", trace, "--store", store)
    # As on a Lustre that is mounted without `flock`.
    hook = (
        f"if event == 'fcntl.flock' and {str(store)!r} in os.readlink('/proc/self/fd/%d' % args[0]):\n"
        "    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))"
    )
    asked = run_cli_under(hook, "sql", "SELECT name FROM kernels", store, "-f", "csv")
    assert (asked.returncode, asked.stdout) == (0, "name\nk\n"), asked.stderr
    refused = run_cli_under(hook, "ingest", trace, "--store", store, "--again")
    reason = "cannot be written: cannot be locked: "
    assert refused.returncode == 2 and reason in refused.stderr and "Function not implemented" in refused.stderr
