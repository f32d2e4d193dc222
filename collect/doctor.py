"""`collect doctor`: checks what this node can record, and says how to fix what it cannot."""

from __future__ import annotations

import importlib.metadata
import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from collect.node_facts import driver_version, has_gpu, output_of
from collect.profilers import PROFILERS
from collect.profilers.ncu import PERMISSION_FIX
from schemas.checks import Check
from schemas.isolation import python
from schemas.tools import Tool
from schemas.urls import url_of

LOW_DISK_BYTES = 5 << 30
"""A study of a few dozen runs fills this."""
GIB = 1 << 30


def run_checks(output: Path) -> list[Check]:
    """Run all checks, in the order in which they depend on each other."""
    torch, checks = _torch()
    checks += _torchvision()
    checks += _gpus(torch)
    checks += [_tool(p.tool) for p in PROFILERS.values() if p.tool]
    if has_gpu():
        checks.append(_counter_permission())
    if torch is not None:
        checks.append(_attaching())
    return [*checks, check_output(output)]


def _torch() -> tuple[Any, list[Check]]:
    try:
        import torch
    except Exception as e:
        fix = "pip install 'tracequarry[collect]'"
        return None, [Check(name="torch", status="missing", found=str(e), fix=fix, required=True)]
    found = [str(torch.__version__)]
    if torch.version.cuda:
        found.append(f"CUDA {torch.version.cuda}")
        cudnn = _try(torch.backends.cudnn.version)
        found += [f"cuDNN {cudnn}"] if cudnn else []
        nccl = _try(torch.cuda.nccl.version)
        if nccl:
            found.append(f"NCCL {'.'.join(map(str, nccl)) if isinstance(nccl, tuple) else nccl}")
    return torch, [Check(name="torch", status="ok", found=", ".join(found), required=True)]


def _try(query: Callable[[], Any]) -> Any:
    try:
        return query()
    except Exception:
        return None


def _torchvision() -> list[Check]:
    try:
        import torchvision
    except Exception as e:
        fix = "pip install a torchvision that matches torch (https://pytorch.org/get-started)"
        return [Check(name="torchvision", status="missing", found=str(e), fix=fix, required=True)]
    return [Check(name="torchvision", status="ok", found=str(torchvision.__version__), required=True)]


def _gpus(torch: Any) -> list[Check]:
    driver = driver_version()
    checks = [
        Check(name="driver", status="ok", found=driver)
        if driver
        else Check(
            name="driver",
            status="missing",
            found="no NVIDIA driver",
            fix="install the driver; until then train on the CPU (--device cpu)",
        )
    ]
    if torch is None:
        return checks
    if not torch.cuda.is_available():
        fix = "train on the CPU (--device cpu)"
        if has_gpu() and not torch.version.cuda:
            fix = "this torch is built for the CPU; install a CUDA build (https://pytorch.org/get-started)"
        elif has_gpu():
            fix = (
                f"this torch needs a driver for CUDA {torch.version.cuda}; update the driver, or install another torch"
            )
        return [*checks, Check(name="GPUs", status="missing", found="none that torch can use", fix=fix)]
    count = torch.cuda.device_count()
    for index in range(count):
        p = torch.cuda.get_device_properties(index)
        found = f"{p.name}, {p.total_memory / GIB:.0f} GiB, compute capability {p.major}.{p.minor}"
        checks.append(Check(name=f"GPU {index}", status="ok", found=found))
    checks.append(_gpu_only())
    if count > 1:
        checks.append(_peer_access(torch, count))
    return checks


def _gpu_only() -> Check:
    """Check that GPU work can be recorded alone."""
    from collect.injected.gpu_activities import PACKAGE, unavailable

    if reason := unavailable():
        fix = f"pip install {PACKAGE}, of the major version of torch's CUDA; torch.profiler costs more"
        return Check(name="GPU only", status="warn", found=reason, fix=fix)
    return Check(name="GPU only", status="ok", found=f"{PACKAGE} {importlib.metadata.version(PACKAGE)}")


def _peer_access(torch: Any, count: int) -> Check:
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    without = [f"{a}->{b}" for a, b in pairs if not torch.cuda.can_device_access_peer(a, b)]
    if not without:
        return Check(name="peer access", status="ok", found=f"between all {count} GPUs")
    return Check(
        name="peer access",
        status="warn",
        found=f"not {', '.join(without)}",
        fix="copies go through host memory; see `nvidia-smi topo -m`; disabling ACS or the IOMMU may allow peer access",
    )


def _tool(tool: Tool) -> Check:
    name, path, fix = tool.name, tool.find(), f"{tool.product}: {tool.url}"
    if path is None:
        return Check(name=name, status="missing", found="not on PATH", fix=f"install {fix}")
    version = re.search(r"\d{4}\.\d+(?:\.\d+)*", output_of(path, "--version") or "")
    if version is None:
        return Check(name=name, status="warn", found=f"{path} does not run", fix=f"reinstall {fix}")
    return Check(name=name, status="ok", found=f"{version[0]} ({path})")


def _counter_permission() -> Check:
    name = "GPU counters"
    if os.geteuid() == 0:
        return Check(name=name, status="ok", found="allowed: root")
    try:
        params = Path("/proc/driver/nvidia/params").read_text()
    except OSError:
        params = ""
    setting = re.search(r"RmProfilingAdminOnly:\s*(\d)", params)
    if setting is None:
        return Check(name=name, status="warn", found="the driver does not say who may use them", fix=PERMISSION_FIX)
    if setting[1] == "0":
        return Check(name=name, status="ok", found="allowed for every user")
    return Check(name=name, status="missing", found="administrators only", fix=PERMISSION_FIX)


def _attaching() -> Check:
    """Record a training of ten steps on two ranks as a program of the user's own, and check what came of it."""
    from rich.console import Console

    from collect.option_checks import make_options
    from collect.run import run
    from collect.signals import Signals
    from schemas.manifest import read_manifest

    name, steps = "attaching", 3
    launcher = python("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2")
    toy = Path(__file__).with_name("workload") / "toy.py"
    with tempfile.TemporaryDirectory() as output, Signals() as signals:
        program = (*launcher, str(toy))
        values = {"program": program, "output": output, "echo": False, "warmup": 2, "steps": steps}
        said = io.StringIO()
        result = run(make_options(values), ["collect", "doctor"], Console(file=said, width=1000), signals)
        passes = read_manifest(result.folder).passes if result.folder else []
    missing = re.findall(r"torch: (torch \S+ has no .*)", said.getvalue())
    fix = "; ".join([*missing, "record with --profiler nsys, or report it"])
    if result.reason or not passes:
        return Check(name=name, status="warn", found=f"a training of 10 steps: {result.reason}", fix=fix)
    done = passes[0]
    blocks = [r.rank for r in done.ranks if r.aligned and r.undisturbed_step_ns and r.recorded_step_ns]
    expected, found = (steps, [0, 1], [0, 1]), (done.counted_steps, [r.rank for r in done.ranks], blocks)
    if found != expected:
        text = "{} steps, ranks {}, both blocks of ranks {}"
        return Check(
            name=name, status="warn", found=f"{text.format(*found)}; expected {text.format(*expected)}", fix=fix
        )
    status: Literal["ok", "warn"] = "warn" if missing else "ok"
    return Check(name=name, status=status, found=f"{steps} of 10 steps on 2 ranks", fix="; ".join(missing))


def check_output(output: Path) -> Check:
    """Check that runs can be written to a folder, without importing torch."""
    if url := url_of(output):
        return Check(name="output", status="missing", found=f"{url} is a URL", fix="choose a folder as --output")
    folder = output.expanduser().absolute()
    while not os.path.exists(folder):  # noqa: PTH110 (Path.exists raises in unreadable folders before Python 3.14)
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{free / GIB:.1f} GiB free in {folder}"
    if not os.access(folder, os.W_OK):
        return Check(name="output", status="missing", found=f"cannot write to {folder}", fix="choose another --output")
    if free < LOW_DISK_BYTES:
        return Check(name="output", status="warn", found=found, fix="free some space, or choose another --output")
    return Check(name="output", status="ok", found=found)
