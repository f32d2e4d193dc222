"""What is known of the node and the working directory without torch: packages, variables, driver, git."""

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
"""Distributions that bear on a measurement."""
TIMEOUT_S = 10.0


def installed_packages() -> dict[str, str]:
    """Name -> version of the distributions that bear on a measurement."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name and PACKAGES.fullmatch(name):
            found[name.lower()] = distribution.version
    return dict(sorted(found.items()))


def ask(program: str, *arguments: str, **variables: str) -> str | None:
    """What a command prints; None when it is missing, fails or takes too long. `variables` are set for it."""
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


def driver_version() -> str | None:
    """Version of the NVIDIA driver; None without one."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        text = ""
    if found := re.search(r"Kernel Module\D*(\d+(?:\.\d+)+)", text):
        return found[1]
    said = ask("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return said.splitlines()[0].strip() if said else None


# A repository's own configuration names programs that git runs. Those that the two commands below could run are: the
# monitor of its files, hooks, the transports by which a partial clone fetches missing objects, and the filters of
# git_state(). An empty core.fsmonitor turns it off in every version.
_GIT_OPTIONS = ("--no-pager", "-c", "core.fsmonitor=", "-c", f"core.hooksPath={os.devnull}")
_GIT_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",  # reads the index without writing it
    "GIT_TERMINAL_PROMPT": "0",
}


def git_state() -> tuple[str | None, bool | None]:
    """Commit of the current directory, and whether files differ from it; (None, None) outside a repository.

    Runs no program that the repository names. Whether files differ is None where only such a program can say.
    """
    commit = _git("rev-parse", "--verify", "HEAD")
    names = _git("config", "--null", "--name-only", "--list")
    if commit is None or names is None:
        return commit, None
    # filter.NAME.clean and filter.NAME.process turn a file into what is committed. A required one without a command
    # makes git fail where it is needed.
    drivers = {name[len("filter.") :].rpartition(".")[0] for name in names.split("\0") if name.startswith("filter.")}
    if not all(re.fullmatch(r"[\w.-]+", driver, re.ASCII) for driver in drivers):
        return commit, None  # `-c` takes what is before the first = as the name
    settings = [f"filter.{d}.{setting}" for d in drivers for setting in ("clean=", "process=", "required=true")]
    changes = _git(
        *(part for setting in settings for part in ("-c", setting)),
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--ignore-submodules=dirty",  # to look into them, git would run with their configuration
        "--no-renames",
    )
    return commit, None if changes is None else bool(changes)


def _git(*arguments: str) -> str | None:
    try:
        here = str(Path.cwd())
    except FileNotFoundError:  # it was removed
        return None
    return ask("git", "-C", here, *_GIT_OPTIONS, *arguments, **_GIT_VARIABLES)


def describe_node(manifest: Manifest) -> None:
    """Fill in the manifest's fields about the node and the working directory."""
    manifest.host = socket.gethostname()
    manifest.python_version = platform.python_version()
    manifest.driver_version = driver_version()
    manifest.packages = installed_packages()
    manifest.torch_version = manifest.packages.get("torch")
    manifest.torchvision_version = manifest.packages.get("torchvision")
    manifest.environment = safe_variables(os.environ)
    manifest.git_commit, manifest.git_dirty = git_state()
