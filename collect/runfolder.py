"""The run folder: its name, and a run.json that stays valid JSON whatever happens."""

from __future__ import annotations

import os
import re
import secrets
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from collect.errors import CollectError, UsageError
from collect.failure import is_disk_full, os_sentence
from collect.options import RunOptions
from collect.redact import Redactor
from schemas.manifest import Manifest, ManifestError, read_manifest, write_manifest

RESERVE_NAME = ".reserve"
RESERVE_BYTES = 256 << 10
"""Kept free for the last run.json, in case the run fills the disk; many times the size of one."""


LONGEST_NAME = 80
"""Characters of a run id that say what was run; a folder's name has 255 bytes."""


def make_private(folder: Path, exist_ok: bool = False) -> None:
    """Make a folder that others cannot enter, and those around it that are missing. As Path.mkdir."""
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


def hide_from_others(folder: Path) -> None:
    """Take from others the rights to all files below a folder, so that copies that keep the rights are private, too.

    Profilers, and recorders inside a program, write under its umask.
    """
    for path in folder.rglob("*"):
        with suppress(OSError):  # of another user
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o700)


def utc_now() -> str:
    """The time as the manifest has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def run_id(options: RunOptions) -> str:
    """A name that sorts by time, reads as what was run, and is taken only once.

    20261120-160501-resnet18-b32-g1-fp32-3f9a; a program of the user's own is named instead of its options, of a job on
    several nodes this one's host.
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
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:LONGEST_NAME]


def _redacted(manifest: Manifest) -> Manifest:
    """The manifest as it is written: without the secrets of command lines and of what tools said."""
    redactor = Redactor()
    return msgspec.structs.replace(
        manifest,
        command=redactor.arguments(manifest.command),
        program=redactor.anything(manifest.program),
        reason=redactor.anything(manifest.reason),
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
    """The last run below `output` of this command line that says it is running; None if there is none."""
    noted = Redactor().arguments(command)
    found: list[RunFolder] = []
    for path in output.iterdir():
        with suppress(ManifestError):
            manifest = read_manifest(path)
            if manifest.status == "running" and manifest.command == noted:
                found.append(RunFolder(path, manifest, []))
    return max(found, key=lambda run: run.manifest.start, default=None)


class RunFolder:
    """A run folder on disk and its manifest."""

    def __init__(self, path: Path, manifest: Manifest, made: list[Path]) -> None:
        """Of an existing folder; create() makes one. `made`: folders around it that were not there before."""
        self.path = path
        self.manifest = manifest
        self._made = made

    @classmethod
    def create(cls, options: RunOptions, command: list[str]) -> RunFolder:
        """Make the folder below `options.output`, with a run.json that says `running`.

        Raises UsageError when the output folder cannot be written, CollectError when its disk is full.
        """
        output = Path(options.output).expanduser()
        around = [output / options.job, output] if options.job is not None else [output]
        made = [path for path in around if not os.path.exists(path)]  # noqa: PTH110 (as in doctor)
        manifest = Manifest(run_id=run_id(options), job=options.job, start=utc_now(), command=command)
        folder = around[0] / manifest.run_id
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
            if is_disk_full(e):
                raise CollectError(os_sentence(e)) from e
            raise UsageError(f"--output: cannot write to {os_sentence(e)}") from e
        return cls(folder, manifest, made)

    def save(self) -> None:
        """Write run.json; on a full disk the previous one stays."""
        try:
            write_manifest(self.path, _redacted(self.manifest))
        except OSError as e:
            if not is_disk_full(e):
                raise CollectError(f"run.json cannot be written: {os_sentence(e)}") from e

    def note_failure(self, reason: str) -> None:
        """Say in run.json that it failed, before all else that is to be done: whoever ends it may not wait for that."""
        self.manifest.status, self.manifest.reason = "failed", reason
        for one in self.manifest.passes:
            if one.status == "running":
                one.status, one.reason = "failed", reason
        self.save()

    def finish(self) -> None:
        """Write the last run.json, into the space that was kept for it if need be."""
        self.manifest.end = utc_now()
        with suppress(OSError):
            (self.path / RESERVE_NAME).unlink()
        self.save()

    def abandon(self, reason: str) -> None:
        """Say that a run failed whose process is gone; when it ended is not known."""
        with suppress(OSError):
            (self.path / RESERVE_NAME).unlink()
        self.note_failure(reason)

    def discard(self) -> None:
        """Remove the folder of a run that bad input kept from starting."""
        for path in sorted(self.path.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self.path.rmdir()
        with suppress(OSError):  # another node may be at work there
            for path in self._made:
                path.rmdir()
