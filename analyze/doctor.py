"""Check what this installation of `analyze` can do, and how to add what it cannot."""

from __future__ import annotations

import os
import platform
import sys

from analyze.browser import has_browser
from analyze.cpus import cpus
from analyze.errors import InputError
from analyze.ingestion.cached_stores import contents
from analyze.store.file_digest import printable, printable_text
from schemas import extras
from schemas.checks import Check
from schemas.tools import NCU, NSYS, Tool

_OF_COLLECT = ("collect", "dev", "docs")
"""Extras that do not change what `analyze` can do."""


def run_checks() -> list[Check]:
    """Run all checks."""
    return [*_versions(), *_extras(), _tool(NSYS), _tool(NCU), _browser(), _cache(), _terminal()]


def _versions() -> list[Check]:
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {cpus()} CPUs"
    found = [
        Check(name="tracequarry", status="ok", found=extras.installed_version("tracequarry") or "(not installed)"),
        Check(name="Python", status="ok", found=python),
    ]
    for package in ("duckdb", "pyarrow"):
        try:
            __import__(package)
        except Exception as e:  # a damaged library raises anything
            check = Check(name=package, status="missing", found=str(e), fix=f"pip install {package}", required=True)
        else:
            check = Check(name=package, status="ok", found=str(extras.installed_version(package)), required=True)
        found.append(check)
    return found


def _extras() -> list[Check]:
    found = []
    for extra, packages in extras.packages().items():
        if extra in _OF_COLLECT:
            continue
        versions = {package: extras.installed_version(package) for package in packages}
        if lacking := [package for package, known in versions.items() if known is None]:
            text, fix = f"without {', '.join(lacking)}", f"pip install 'tracequarry[{extra}]'"
            found.append(Check(name=f"extra {extra}", status="missing", found=text, fix=fix))
        else:
            text = ", ".join(f"{package} {known}" for package, known in versions.items())
            found.append(Check(name=f"extra {extra}", status="ok", found=text))
    return found


def _tool(tool: Tool) -> Check:
    if path := tool.find():
        return Check(name=tool.name, status="ok", found=printable_text(path))
    suffix = {"nsys": ".nsys-rep", "ncu": ".ncu-rep"}[tool.name]
    fix = f"export {suffix} files where it is installed, or install {tool.product}: {tool.url}"
    return Check(name=tool.name, status="missing", found=f"not on PATH; {suffix} files need it", fix=fix)


def _browser() -> Check:
    if has_browser():
        return Check(name="browser", status="ok", found="found")
    fix = "open reports on another machine: each is one file"
    return Check(name="browser", status="missing", found="no browser, or no display", fix=fix)


def _cache() -> Check:
    """Check that recordings can be cached; the folder may not exist yet."""
    fix = "set TRACEQUARRY_CACHE to a folder that you can write to"
    try:
        there = contents()
        size = f"{sum(e.bytes for e in there.entries) / 1e6:,.1f} of at most {there.limit / 1e6:,.1f} MB"
    except (InputError, OSError) as e:
        return Check(name="cache", status="missing", found=printable_text(str(e)), fix=fix, required=True)
    folder = there.folder.absolute()
    while not os.path.lexists(folder):
        folder = folder.parent
    name = printable(there.folder)
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return Check(name="cache", status="missing", found=f"cannot write to {name}", fix=fix, required=True)
    return Check(name="cache", status="ok", found=f"{name}: {size}")


def _terminal() -> Check:
    encoding = (sys.stdout.encoding or "unknown").upper()
    if encoding.replace("-", "") != "UTF8":
        fix = "set PYTHONIOENCODING=utf-8"
        return Check(name="terminal", status="warn", found=f"encoding {encoding}", fix=fix)
    return Check(name="terminal", status="ok", found=f"encoding {encoding}")
