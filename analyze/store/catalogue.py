"""The catalogue of a store: its runs, and the Parquet files with their rows.

Only files in the catalogue are read, so every change of a store is atomic; `store.py` and `object_storage.py` write
it. The format of the catalogue has its own version. Older versions are read; the next change writes today's version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, TypeVar
from urllib.parse import quote

import msgspec

from analyze.errors import InputError
from analyze.sources.rank_hint import Looked
from analyze.store.file_digest import FileState

STORE_VERSION = 2
"""Increased when older programs cannot read a new store. Every older version can be read."""

PARSER_VERSION = 16
"""Increased when a parser or a table changes. Caches are then ingested again. In other stores, columns that were not
read are NULL until the next ingest."""

RUN_TABLES = ("runs", "kernel_names")
"""Tables of a whole run; their files are listed under rank 0."""

Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_TABLE = r"^[A-Za-z]\w*"
_PARQUET = rf"{_TABLE}/run_id=[^/\\\x00-\x1f\x7f]*/ranks?-[A-Za-z0-9.-]+\.parquet\Z"
ParquetPath = Annotated[str, msgspec.Meta(pattern=_PARQUET)]
"""Path of a Parquet file within a store; the pattern keeps it inside."""
TableName = Annotated[str, msgspec.Meta(pattern=rf"{_TABLE}\Z")]

_LONGEST_NAME = 120

T = TypeVar("T")


class StoredFile(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A raw file as it was when it was ingested."""

    path: str
    bytes: Count
    mtime_ns: int
    digest: str | None = None
    """SHA-256 if it was needed to compare files."""
    etag: str | None = None
    """Entity tag of a file at a URL, if its storage has one."""
    looked: Looked | None = None
    """Format and rank hint of a file outside a run folder."""

    @property
    def state(self) -> FileState:
        """What changes when the file changes."""
        return FileState(self.path, self.bytes, self.mtime_ns, self.etag)


class TableFile(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A Parquet file with rows of one table of a run."""

    path: ParquetPath
    """Relative to the store, with `/` as separator."""
    bytes: Count | None = None
    """None in stores of the first versions."""
    crc32: int | None = None
    """CRC-32 of the file; None in stores of earlier versions."""
    ranks: Annotated[list[Rank], msgspec.Meta(min_length=1)]
    """Ranks whose rows it has, in ascending order."""


class StoredRun(msgspec.Struct, kw_only=True):
    """What the store holds of a run."""

    generation: Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)] = 1
    """How often it was written: what a run was before has files of another name."""
    parser: Count
    """PARSER_VERSION of the program that read it."""
    rules: str
    """Digest of the kernel rules that classified its kernel names."""
    derived: str = ""
    """Digest of what the derived tables are computed by (`derived_digest`); empty in stores that have none."""
    full: str | None = None
    """The run of the full block, if this one is the GPU-only block of the same program."""
    files: list[StoredFile]
    tables: dict[TableName, list[TableFile]] = {}
    """The Parquet files of each table that has rows, in the order of their ranks."""
    world_size: Rank | None = None
    """Number of ranks of the job, if the files say it."""

    @property
    def ranks(self) -> set[int]:
        """Ranks that have rows."""
        return {r for table, files in self.tables.items() if table not in RUN_TABLES for f in files for r in f.ranks}

    @property
    def table_files(self) -> Iterable[TableFile]:
        """The Parquet files of all tables."""
        return (f for files in self.tables.values() for f in files)


class Catalogue(msgspec.Struct, kw_only=True):
    """The content of store.json."""

    version: Count = STORE_VERSION
    runs: dict[str, StoredRun]
    retired: list[ParquetPath] = []
    """Files that the last change replaced. The next change removes them; readers without a lock may still read them."""
    commits: list[str] = []
    """Marks of commits whose shard files may still be in `.shards`; they must not be committed again."""


def path_name(run_id: str) -> str:
    """Return a run id as a folder name; characters that are special in paths, patterns or shells become %XX."""
    name = quote(run_id, safe="").replace("~", "%7E")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:80]}-{hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()}"


def table_path(table: str, run_id: str, ranks: list[int], mark: str = "") -> str:
    """Return the path of a file with rows of these ranks; `mark` distinguishes generations of a run and shards."""
    span = f"rank-{ranks[0]}" if len(ranks) == 1 else f"ranks-{ranks[0]}-{ranks[-1]}"
    return f"{table}/run_id={path_name(run_id)}/{span}{mark and '.'}{mark}.parquet"


def generation_mark(generation: int) -> str:
    """Return the mark of a generation of a run; the first has none."""
    return "" if generation == 1 else f"g{generation}"


def encode(catalogue: Catalogue) -> bytes:
    """Return a catalogue as bytes for `decode`."""
    return msgspec.json.encode(catalogue)


def decode(data: bytes, name: str) -> Catalogue:
    """Read a catalogue of any version up to today's. Raises InputError that begins with `name`."""
    try:
        version = decoded(data, _Version).version
        if version > STORE_VERSION:
            raise InputError(f"{name}: store version {version} is newer than this tracequarry reads; upgrade it")
        if version > 1:
            return decoded(data, Catalogue)
        old = decoded(data, _FirstCatalogue)
        runs = {run_id: run.today(run_id) for run_id, run in old.runs.items()}
        # Through JSON, because only the decoder checks the paths, which are built from run ids.
        return decoded(encode(Catalogue(runs=runs)), Catalogue)
    except ValueError as e:
        raise InputError(f"{name}: not the catalogue of a tracequarry store: {e}") from e


def decoded(data: bytes, kind: type[T]) -> T:
    """Decode JSON of a type. Raises ValueError for any damage."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError as e:
        raise ValueError("nested too deeply") from e


class _Version(msgspec.Struct):
    version: Count


class _FirstRun(msgspec.Struct, kw_only=True):
    """A run in version 1: one file per rank and table, named by rank and generation."""

    generation: Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)] = 1
    encoded: bool = False
    """Whether `path_name` names its folders; the first stores used the id itself."""
    parser: Count
    rules: str
    files: list[StoredFile]
    tables: dict[TableName, list[Rank]]
    """Ranks that have rows, by table; [0] for the tables without a rank."""
    sizes: dict[str, list[Count]] = {}
    """Bytes of the Parquet files, in the order of `tables`; empty in older stores."""
    world_size: Rank | None = None

    def today(self, run_id: str) -> StoredRun:
        """Return the run in today's version."""
        folder = path_name(run_id) if self.encoded or "/" in run_id else run_id
        end = f".{generation_mark(self.generation)}".rstrip(".")
        tables = {}
        for table, ranks in self.tables.items():
            sizes: list[int | None] = [*self.sizes.get(table, ())] or [None] * len(ranks)
            tables[table] = [
                TableFile(path=f"{table}/run_id={folder}/rank-{rank}{end}.parquet", bytes=size, ranks=[rank])
                for rank, size in zip(ranks, sizes, strict=True)
            ]
        return StoredRun(
            generation=self.generation,
            parser=self.parser,
            rules=self.rules,
            files=self.files,
            tables=tables,
            world_size=self.world_size,
        )


class _FirstCatalogue(msgspec.Struct, kw_only=True):
    version: Count
    runs: dict[str, _FirstRun]
