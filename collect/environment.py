"""What is known of the node and the working directory without torch: packages, variables, driver, git."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
from pathlib import Path

from collect.redact import safe_variables
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


def ask(*argv: str) -> str | None:
    """What a command prints; None when it is missing, fails or takes too long."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


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


def git_state() -> tuple[str | None, bool | None]:
    """Commit of the working directory, and whether files differ from it; (None, None) outside a repository."""
    commit = ask("git", "rev-parse", "HEAD")
    if commit is None:
        return None, None
    changes = ask("git", "status", "--porcelain", "--untracked-files=no")
    return commit, None if changes is None else bool(changes)


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
