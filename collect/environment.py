"""Describes the node and the working directory without torch: packages, variables, driver, git."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import socket
import subprocess
from pathlib import Path

from collect.redact import safe_variables
from schemas.isolation import run_tool, which
from schemas.manifest import Manifest

PACKAGES = re.compile(
    r"tracequarry|torch|torchvision|torchaudio|triton|pytorch-triton|numpy|pillow|msgspec|typer|rich"
    r"|(nvidia-)?(cuda|cudnn|nccl|cublas|cupti|nvtx)\S*|nvidia-\S+",
    re.I,
)
"""Distributions that can affect a measurement."""
TIMEOUT_S = 10.0


def installed_packages() -> dict[str, str]:
    """Versions of the distributions that can affect a measurement, by name."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name and PACKAGES.fullmatch(name):
            found[name.lower()] = distribution.version
    return dict(sorted(found.items()))


def output_of(program: str, *arguments: str, **variables: str) -> str | None:
    """Return what a command prints; None if it is missing, fails or times out. `variables` are added for it."""
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


def git_state() -> tuple[str | None, bool | None]:
    """Return the commit of the current directory, and whether files differ from it; (None, None) outside a repository.

    Runs no program that the repository configures. Whether files differ is None if that needs such a program.
    """
    commit = _git("rev-parse", "--verify", "HEAD")
    names = _git("config", "--null", "--name-only", "--list")
    if commit is None or names is None:
        return commit, None
    # filter.NAME.clean and filter.NAME.process convert a file to its committed form. git fails where it needs a filter
    # that is required but has no command.
    drivers = {name[len("filter.") :].rpartition(".")[0] for name in names.split("\0") if name.startswith("filter.")}
    if not all(re.fullmatch(r"[\w.-]+", driver, re.ASCII) for driver in drivers):
        return commit, None  # `-c` splits at the first =, which such a name may contain
    settings = [f"filter.{d}.{setting}" for d in drivers for setting in ("clean=", "process=", "required=true")]
    changes = _git(
        *(part for setting in settings for part in ("-c", setting)),
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--ignore-submodules=dirty",  # git would use their configuration
        "--no-renames",
    )
    return commit, None if changes is None else bool(changes)


def _git(*arguments: str) -> str | None:
    try:
        here = str(Path.cwd())
    except FileNotFoundError:  # the directory was deleted
        return None
    return output_of("git", "-C", here, *_GIT_OPTIONS, *arguments, **_GIT_VARIABLES)


def describe_node(manifest: Manifest) -> None:
    """Fill in the manifest's fields on the node and the working directory."""
    manifest.host = socket.gethostname()
    manifest.python_version = platform.python_version()
    manifest.driver_version = driver_version()
    manifest.packages = installed_packages()
    manifest.torch_version = manifest.packages.get("torch")
    manifest.torchvision_version = manifest.packages.get("torchvision")
    manifest.environment = safe_variables(os.environ)
    manifest.git_commit, manifest.git_dirty = git_state()
