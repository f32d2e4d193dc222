"""Describes the node and the program's repository without torch: packages, variables, driver, git."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from collect.injected.packages import installed_packages
from collect.redact import safe_variables
from schemas.files import is_file
from schemas.isolation import run_tool, which
from schemas.manifest import Manifest

TIMEOUT_S = 10.0


def output_of(program: str, *arguments: str, **variables: str) -> str | None:
    """Return the output of a command; None if it is missing, fails or times out. `variables` are added for it."""
    path = which(program)
    if path is None:
        return None
    try:
        done = run_tool(
            [os.path.abspath(path), *arguments],  # noqa: PTH100 (Path.resolve would follow links)
            capture_output=True,
            env={**os.environ, **variables},
            timeout=TIMEOUT_S,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None


def has_gpu() -> bool:
    """Whether the node has an NVIDIA GPU, without importing torch."""
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"))


def driver_version() -> str | None:
    """Version of the NVIDIA driver, or None."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        text = ""
    if found := re.search(r"Kernel Module\D*(\d+(?:\.\d+)+)", text):
        return found[1]
    output = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return output.splitlines()[0].strip() if output else None


# A repository's configuration can make git run programs. The commands below could run the file system monitor, hooks,
# transports that fetch missing objects of a partial clone, and filters (see git_state). An empty core.fsmonitor turns
# the monitor off in every version.
_GIT_OPTIONS = ("--no-pager", "-c", "core.fsmonitor=", "-c", f"core.hooksPath={os.devnull}")
_GIT_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",  # reads the index only
    "GIT_TERMINAL_PROMPT": "0",
}


def program_folder(program: Sequence[str], directory: str | None = None) -> Path | None:
    """Return the folder of the script that a command runs, else the one it runs in; None if that was deleted."""
    with suppress(OSError):
        folder = Path(directory or ".").resolve(strict=True)
        with suppress(OSError, ValueError):
            scripts = (folder / a for a in program if a.endswith((".py", ".sh")))
            if script := next(filter(is_file, scripts), None):
                return script.resolve().parent
        return folder
    return None


def git_state(folder: Path | None) -> tuple[str | None, bool | None]:
    """Return the commit of a folder, and whether files differ from it; (None, None) outside a repository.

    Runs no program that the repository configures. Whether files differ is None if that needs such a program.
    """
    if folder is None:
        return None, None
    git = partial(_git, folder)
    commit = git("rev-parse", "--verify", "HEAD")
    names = git("config", "--null", "--name-only", "--list")
    if commit is None or names is None:
        return commit, None
    # filter.NAME.clean and filter.NAME.process convert a file to its committed form. git fails where it needs a filter
    # that is required but has no command.
    drivers = {name[len("filter.") :].rpartition(".")[0] for name in names.split("\0") if name.startswith("filter.")}
    if not all(re.fullmatch(r"[\w.-]+", driver, re.ASCII) for driver in drivers):
        return commit, None  # `-c` splits at the first =, which such a name may contain
    settings = [f"filter.{d}.{setting}" for d in drivers for setting in ("clean=", "process=", "required=true")]
    changes = git(
        *(part for setting in settings for part in ("-c", setting)),
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--ignore-submodules=dirty",  # git would use their configuration
        "--no-renames",
    )
    return commit, None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    return output_of("git", "-C", str(folder), *_GIT_OPTIONS, *arguments, **_GIT_VARIABLES)


def describe_node(manifest: Manifest, directory: str | None = None) -> None:
    """Fill in the manifest's fields on the node, and on the repository of the program, which runs in `directory`."""
    manifest.host = socket.gethostname()
    manifest.python_version = platform.python_version()
    manifest.driver_version = driver_version()
    manifest.packages = installed_packages()
    manifest.torch_version = manifest.packages.get("torch")
    manifest.torchvision_version = manifest.packages.get("torchvision")
    manifest.environment = safe_variables(os.environ)
    manifest.git_commit, manifest.git_dirty = git_state(program_folder(manifest.program or (), directory))
