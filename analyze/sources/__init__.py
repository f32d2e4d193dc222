"""One module per raw format: reads a raw file into Arrow record batches of the tables in `schemas`.

To add a format, write a module with `read(path, report, mapper)` (see `base`) and add a line to `SOURCES`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from analyze.sources.compressed import decompressed, head, is_gzip, plain_name
from analyze.sources.encodings import as_utf8, is_utf16, utf8_head
from analyze.sources.interface import FileReport, Mapper, TableBatch, inline_map
from analyze.sources.remote import RawPath, fetched


class Source(NamedTuple):
    """A raw format.

    `kind`: its name in run.json (schemas.manifest.FILE_KINDS). `module`: the module here that reads it. `profiler`: the
    profiler of a run of bare files; None for files that occur in run folders only. `name`: pattern of bare file names
    without .gz. `begins`: pattern for the first 64 KiB of a bare file. `splits`: its `read` distributes the chunks of a
    large file through the mapper. `exported`: suffixes of exports that are read instead of the file. `folder`: the file
    stands for all files of its folder. `beside`: suffixes of other files that belong to it. `unpacks`: its `read` takes
    a .gz itself.
    """

    kind: str
    module: str
    profiler: str | None
    name: re.Pattern[str] | None = None
    begins: re.Pattern[bytes] | None = None
    splits: bool = False
    exported: tuple[str, ...] = ()
    folder: bool = False
    beside: tuple[str, ...] = ()
    unpacks: bool = False


# Triton Proton writes .chrome_trace.
# Logs have any name: out.757751, alexnet_k80.log, rank-0.ncu.csv.
_LOG_NAME = re.compile(
    r"(?!.*\.(json|gz|zip|tar|parquet|arrow|sqlite(-\w+)?|nsys-rep|ncu-rep|nvvp|py|so|pth?|png|jpe?g)$)", re.I
)
# A table, or a log with more than the path of the report.
_NCU = (
    rb'"ID","Process ID",|(?:\A|[\r\n])(?:ID,Process ID,|"?Process ID"?,"?Process Name"?,)'
    rb"|\A(?s:(?!.*\n==PROF== Report:).*)(?:\A|(?<=[\r\n]))(?:==PROF== |==ERROR== |\[\d+\] \S+@\S+\s)"
)
_NVPROF = (
    rb"(^|[\r\n])(==(\d+|=+)== (NVPROF is profiling|(Profiling|Metric|Event) result:|API calls:)"
    rb'|"?(Type"?[,\t]"?)?Time\(%\)"?[,\t]"?Time"?[,\t]| *(Type +)?Time\(%\) +Time +Calls '
    rb'|"Start","Duration","(Grid X|Name)"|"Device","Kernel","Invocations",)'
)

SOURCES = (
    Source(
        "chrome_trace",
        "chrome.reader",
        "torch",
        re.compile(r".*\.(json|chrome_trace)$", re.I),
        splits=True,
        unpacks=True,
    ),
    Source("nsys_sqlite", "nsys.reader", "nsys", re.compile(r".*\.sqlite$", re.I), beside=("-journal", "-wal")),
    Source("nsys_report", "nsys.reader", "nsys", re.compile(r".*\.(nsys-rep|qdrep)$", re.I), exported=(".sqlite",)),
    Source("nsys_tables", "nsys.reader", "nsys", re.compile(r"META_DATA_EXPORT\.(parquet|arrow)$"), folder=True),
    Source("ncu_csv", "ncu.reader", "ncu", _LOG_NAME, re.compile(_NCU)),
    Source("ncu_report", "ncu.report", "ncu", re.compile(r".*\.ncu-rep$", re.I), exported=(".ncu.csv", ".csv")),
    Source("nvprof_log", "nvprof.reader", "nvprof", _LOG_NAME, re.compile(_NVPROF)),
    Source("step_metrics", "step_metrics", None),
    Source("gpu_samples", "gpu_samples", None),
)
BY_KIND = {s.kind: s for s in SOURCES}

_HEAD_BYTES = 64 << 10
_SQLITE = b"SQLite format 3\0"


def detect(path: RawPath) -> Source | None:
    """Return the format of a bare file by name and beginning, or None. Raises InputError."""
    if _is_database(path):
        return BY_KIND["nsys_sqlite"]
    for source in SOURCES:
        if source.name is None or not source.name.match(plain_name(path)) or (source.folder and is_gzip(path)):
            continue
        if source.begins is None or source.begins.search(utf8_head(path, _HEAD_BYTES)):
            return source
    return None


def _is_database(path: RawPath) -> bool:
    """Return whether a file begins like an SQLite database; an export may have any name (report.db)."""
    return _LOG_NAME.match(plain_name(path)) is not None and head(path, len(_SQLITE)) == _SQLITE


@contextmanager
def on_disk(
    kind: str, path: RawPath, folder: Path | None = None, tell: Callable[[int], object] | None = None
) -> Iterator[Path]:
    """Yield the raw file itself, or a copy of a remote one with its companions (`analyze.sources.remote.fetched`)."""
    if isinstance(path, Path):
        yield path
        return
    source = BY_KIND[kind]
    if source.folder:
        beside = [p for p in path.parent.iterdir() if p.suffix == path.suffix and p.is_file()]
    else:
        beside = [p for end in source.beside if (p := path.with_name(path.name + end)).is_file()]
    with fetched(path, beside, folder, tell) as copy:
        yield copy


def load(kind: str) -> None:
    """Import the reader of a format."""
    importlib.import_module(f"analyze.sources.{BY_KIND[kind].module}")


def read(kind: str, path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the rows of a raw file. Raises InputError if the file is not of its kind."""
    source = BY_KIND[kind]
    module = importlib.import_module(f"analyze.sources.{source.module}")
    if source.unpacks and not is_utf16(path):
        yield from module.read(path, report, mapper)
        return
    problems: list[str] = []
    with decompressed(path, problems) as plain, as_utf8(plain, problems) as text:
        yield from module.read(text, report, mapper)
    report.warnings += problems
