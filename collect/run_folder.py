"""The run folder: its name, its permissions, and a run.json that is valid at any time."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from collect.failure import is_disk_full, os_failure, os_sentence
from collect.injected.trace_files import UNFINISHED
from collect.options import RunOptions
from collect.redact import Redactor
from schemas.errors import MachineError
from schemas.manifest import Manifest, ManifestError, read_manifest, write_manifest

RESERVE_NAME = ".reserve"
RESERVE_BYTES = 256 << 10
"""Space reserved for the last run.json, in case the run fills the disk; many times the size of one."""
MAX_NAME = 80
"""Characters of a run id that name the workload; a folder's name has at most 255 bytes."""


def make_private(folder: Path, exist_ok: bool = False) -> None:
    """Create a folder that other users cannot enter, and its missing parents. Raises as Path.mkdir."""
    try:
        folder.mkdir(mode=0o700)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private(folder.parent, exist_ok=True)
        make_private(folder, exist_ok)
    except FileExistsError:
        if not exist_ok or not folder.is_dir():
            raise


def remove_unfinished(folder: Path) -> None:
    """Remove incomplete files of a killed process."""
    for path in (p for pattern in UNFINISHED for p in folder.glob(pattern)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove_access_of_others(folder: Path) -> None:
    """Remove other users' permissions from all files below a folder: copies that keep permissions are private, too.

    Profilers, and recorders inside a program, write with the program's umask.
    """
    for path in folder.rglob("*"):
        with suppress(OSError):  # owned by another user
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o700)


def utc_now() -> str:
    """The current time in the manifest's format."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def run_id(options: RunOptions) -> str:
    """Return a unique name that sorts by time and names the workload: 20261120-160501-resnet18-b32-g1-fp32-3f9a.

    The user's program is named instead of options; a part of a job on several nodes is named after its host.
    """
    if options.job is not None:
        return f"{_plain(socket.gethostname())}-{secrets.token_hex(4)}"
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    if options.program:
        scripts = [Path(a).stem for a in options.program if a.endswith((".py", ".sh"))]
        name = (scripts or [Path(options.program[0]).stem])[0]
    else:
        name = f"{options.model}-b{options.batch_size}-g{options.gpus}-{options.precision}"
    return f"{stamp}-{_plain(name)}-{secrets.token_hex(2)}"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME]


def _redacted(manifest: Manifest) -> Manifest:
    """The manifest without secrets in command lines and in tools' messages."""
    redactor = Redactor()
    return msgspec.structs.replace(
        manifest,
        command=redactor.arguments(manifest.command),
        program=redactor.anything(manifest.program),
        reason=redactor.anything(manifest.reason),
        packages={redactor.tokens(name): redactor.tokens(version) for name, version in manifest.packages.items()},
        passes=[
            msgspec.structs.replace(
                p,
                command=redactor.arguments(p.command),
                reason=redactor.anything(p.reason),
                options=redactor.anything(p.options),
            )
            for p in manifest.passes
        ],
    )


def left_running(output: Path, command: list[str]) -> RunFolder | None:
    """Return the last run below `output` with this command line whose status is still running, or None."""
    redacted = Redactor().arguments(command)
    found: list[RunFolder] = []
    for path in output.iterdir():
        with suppress(ManifestError):
            manifest = read_manifest(path)
            if manifest.status == "running" and manifest.command == redacted:
                found.append(RunFolder(path, manifest, []))
    return max(found, key=lambda run: run.manifest.start, default=None)


class RunFolder:
    """A run folder on disk and its manifest."""

    def __init__(self, path: Path, manifest: Manifest, created: list[Path]) -> None:
        """Open an existing folder; create() makes one. `created`: parents that did not exist before."""
        self.path = path
        self.manifest = manifest
        self._created = created

    @classmethod
    def create(cls, options: RunOptions, command: list[str]) -> RunFolder:
        """Create the folder below `options.output`, with a run.json of status running.

        Raises MachineError or InputError when it cannot be written.
        """
        output = Path(options.output).expanduser()
        parents = [output / options.job, output] if options.job is not None else [output]
        created = [path for path in parents if not os.path.exists(path)]  # noqa: PTH110 (as in doctor)
        manifest = Manifest(run_id=run_id(options), job=options.job, start=utc_now(), command=command)
        folder = parents[0] / manifest.run_id
        try:
            make_private(folder)
            (folder / RESERVE_NAME).touch(mode=0o600, exist_ok=False)
            with (folder / RESERVE_NAME).open("wb") as f:
                f.write(bytes(RESERVE_BYTES))
            write_manifest(folder, _redacted(manifest))
        except OSError as e:
            with suppress(OSError):
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()
            raise os_failure(e, "--output: cannot write to ") from e
        return cls(folder, manifest, created)

    def sibling(self, number: int) -> RunFolder:
        """Create the folder of another run next to this one, with the same manifest but no passes. Raises OSError."""
        run_id = f"{self.manifest.run_id}-{number}"
        path = self.path.parent / run_id
        make_private(path)
        return RunFolder(path, msgspec.structs.replace(self.manifest, run_id=run_id, job=None, passes=[]), [])

    def save(self) -> None:
        """Write run.json; on a full disk the previous one stays. Raises MachineError."""
        try:
            write_manifest(self.path, _redacted(self.manifest))
        except OSError as e:
            if not is_disk_full(e):
                raise MachineError(f"run.json cannot be written: {os_sentence(e)}") from e

    def save_failure(self, reason: str) -> None:
        """Write at once that the run failed: a scheduler may kill this process before it can finish."""
        self.manifest.status, self.manifest.reason = "failed", reason
        for one in self.manifest.passes:
            if one.status == "running":
                one.status, one.reason = "failed", reason
        self.save()

    def finish(self) -> None:
        """Write the last run.json, using the reserved space if the disk is full."""
        self.manifest.end = utc_now()
        with suppress(OSError):
            (self.path / RESERVE_NAME).unlink()
        self.save()

    def abandon(self, reason: str) -> None:
        """Mark a run as failed whose process has vanished; its end time is unknown."""
        with suppress(OSError):
            (self.path / RESERVE_NAME).unlink()
        self.save_failure(reason)

    def discard(self) -> None:
        """Remove the folder of a run that bad input prevented from starting."""
        for path in sorted(self.path.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self.path.rmdir()
        with suppress(OSError):  # another node may be using them
            for path in self._created:
                path.rmdir()
