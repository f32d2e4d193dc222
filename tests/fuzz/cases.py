"""Inputs: the damaged file that a source, a seed and a number stand for, and the count that it must obey."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz import corpus, laws, mutate


@dataclass
class Input:
    """What is given to `ingest`.

    `there`: rows by a count of its own, None where there is none; `kept`: the rows of the store that are of these;
    `exact`: the rows themselves are whole; `do`: what the worker does with it.
    """

    path: Path
    there: int | None = None
    kept: Callable[[laws.Kept], int] = laws.all_kept
    exact: bool = False
    do: str = "ingest"


def make(source: str, seed: int, number: int, folder: Path) -> Input:
    """Write one input below a folder; the same arguments give the same input."""
    return SOURCES[source](random.Random(f"{source}/{seed}/{number}"), folder)


def _text(data: bytes, rng: random.Random, more: list[mutate.Mutation] | None = None) -> tuple[bytes, bool]:
    if rng.random() < 0.1:
        for _ in range(rng.randint(1, 3)):
            data = rng.choice(mutate.HARMLESS)(data, rng)
        return data, True
    data = mutate.damage(data, rng, more)
    if rng.random() < 0.2:
        data = rng.choice(mutate.HARMLESS)(data, rng)
    return data, False


def _ncu(rng: random.Random, folder: Path) -> Input:
    data, exact = _text(rng.choice(corpus.ncu()), rng)
    path = folder / "rank-0.ncu.csv"
    path.write_bytes(data)
    return Input(path, laws.ncu_rows(data), exact=exact)


def _nvprof(rng: random.Random, folder: Path) -> Input:
    chosen = rng.choice(corpus.nvprof())
    data, exact = _text(chosen, rng)
    path = folder / "out.123"
    path.write_bytes(data)
    # Rows of a kind that no table holds are reported, damaged or not.
    kinds = (b"OpenACC", b"Unified Memory")
    return Input(path, laws.nvprof_rows(data), exact=exact and not any(k in chosen for k in kinds))


def _step_metrics(rng: random.Random, folder: Path) -> Input:
    data = mutate.damage(rng.choice(corpus.step_metrics()), rng)
    run = corpus.copy_run(folder / "run")
    manifest = json.loads((run / "run.json").read_bytes())
    manifest["passes"][0]["files"] = [{"path": "s.csv", "kind": "step_metrics", "rank": 0}]
    (run / "run.json").write_text(json.dumps(manifest))
    (run / "s.csv").write_bytes(data)
    return Input(run, laws.step_rows(data))


def _chrome(rng: random.Random, folder: Path) -> Input:
    data, path = rng.choice(corpus.chrome()), folder / "rank-0.trace.json"
    how = rng.random()
    if how < 0.25:
        path = path.with_name(path.name + ".gz")
        path.write_bytes(mutate.damage(gzip.compress(data, mtime=0), rng))
        return Input(path)
    data = _odd_event(data, rng) if how < 0.5 else mutate.damage(data, rng, mutate.JSON)
    path.write_bytes(data)
    return Input(path, laws.chrome_kernels(data), lambda kept: kept.get("kernels", 0))


def _producers(rng: random.Random, folder: Path) -> Input:
    chosen, path = rng.choice(corpus.producers()), folder / "t.json"
    data = _odd_event(chosen, rng) if rng.random() < 0.3 else mutate.damage(chosen, rng, mutate.JSON)
    path.write_bytes(data)
    # Of Ascend's traces, events of other processes than the known ones are analyses, which no table has.
    return Input(path, None if b"Ascend" in chosen else laws.producer_rows(data))


def _rocprof_json(rng: random.Random, folder: Path) -> Input:
    data, path = corpus.rocprof_json(), folder / "1_results.json"
    data = _odd_record(data, rng) if rng.random() < 0.7 else mutate.damage(data, rng, mutate.JSON)
    path.write_bytes(data)
    return Input(path, laws.rocprof_records(data))


_ODD: list[Any] = [
    None, True, "abc", "", [], {}, [1], {"a": 1}, -1, 2**63, 2**64, -(2**63) - 1, 1.5, 1e308, "NaN", "²", "7", "\ud800",
]  # fmt: skip


def _odd_event(data: bytes, rng: random.Random) -> bytes:
    """Strict JSON whose values are not what they should be."""
    trace = json.loads(data)
    _make_odd(trace["traceEvents"], "args", rng)
    return json.dumps(trace).encode()


def _odd_record(data: bytes, rng: random.Random) -> bytes:
    """The same of rocprofv3."""
    file = json.loads(data)
    process = file["rocprofiler-sdk-tool"][0]
    lists = [*process["buffer_records"].values(), process["agents"], process["kernel_symbols"]]
    _make_odd(rng.choice(lists), "correlation_id", rng)
    return json.dumps(file).encode()


def _make_odd(records: list[dict[str, Any]], inner: str, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 3, 20])):
        one = rng.choice(records)
        place = one[inner] if isinstance(one.get(inner), dict) and rng.random() < 0.4 else one
        if place:
            key = rng.choice(list(place))
            if rng.random() < 0.2:
                del place[key]
            else:
                place[key] = rng.choice(_ODD)


def _run(rng: random.Random, folder: Path) -> Input:
    run = corpus.copy_run(folder / "run")
    path = run / "run.json"
    if rng.random() < 0.5:
        path.write_bytes(mutate.damage(path.read_bytes(), rng, mutate.JSON))
        return Input(run)
    manifest = json.loads(path.read_bytes())
    for _ in range(rng.choice([1, 1, 3])):
        passes = manifest.get("passes")
        place = rng.choice([manifest, manifest, passes[0] if isinstance(passes, list) and passes else manifest])
        if isinstance(place, dict) and place:
            place[rng.choice(list(place))] = rng.choice([*_ODD, "../../x", "/etc/passwd", "a\0b", "x" * 300, "*"])
    path.write_bytes(json.dumps(manifest).encode())
    return Input(run)


# -- Nsight Systems ---------------------------------------------------------------------------------------------------

_VALUES: list[Any] = [
    None, "abc", "", "12", "²", b"\xff\x00", b"12", 1.5, 1e300, float("inf"), 2.0, -1, 0, 2**31, 2**32, 2**63 - 1,
    -(2**63),
]  # fmt: skip


def _nsys(rng: random.Random, folder: Path) -> Input:
    how = rng.random()
    if how < 0.15:
        return _nsys_folder(rng, folder)
    path = folder / "node-0.sqlite"
    shutil.copyfile(corpus.nsys_sqlite(), path)
    return _database(rng, how, path, laws.nsys_rows, laws.gpu_kept)


def _rocpd(rng: random.Random, folder: Path) -> Input:
    path = corpus.write_rocpd(folder / "1_results.sqlite")
    return _database(rng, rng.uniform(0.15, 1), path, laws.rocpd_rows, laws.all_kept)


def _database(
    rng: random.Random,
    how: float,
    path: Path,
    count: Callable[[Path], int | None],
    kept: Callable[[laws.Kept], int],
) -> Input:
    """Damage a database: its bytes or its content."""
    folder = path.parent
    if how < 0.4:
        kinds = [mutate.flip_bit] * 5 + [mutate.truncate, mutate.zero_span, mutate.delete_span, mutate.insert_bytes]
        data = path.read_bytes()
        for _ in range(rng.choice([1, 1, 5, 50])):
            data = rng.choice(kinds)(data, rng)
        path.write_bytes(data)
        # What SQLite counts in a damaged file is no law; and it is slow to count in some.
        return Input(path)
    log = rng.random() < 0.15
    db = sqlite3.connect(path)
    if log:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
    for _ in range(rng.choice([1, 1, 2, 4])):
        _damage_export(db, rng)
    db.commit()
    if log:
        # Copied while it is open: what was changed is in the log alone.
        copy = folder / "copy"
        copy.mkdir()
        for file in list(folder.glob(path.name + "*")):
            shutil.copyfile(file, copy / file.name)
        path = copy / path.name
    db.close()
    return Input(path, count(_second(path, folder)), kept)


def _second(path: Path, folder: Path) -> Path:
    """A copy to count in: opening a file with a log changes both."""
    to = folder / "counted"
    to.mkdir()
    for file in path.parent.glob(path.name + "*"):
        shutil.copyfile(file, to / file.name)
    return to / path.name


def _damage_export(db: sqlite3.Connection, rng: random.Random) -> None:
    tables = [t for (t,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    known = [t for t in tables if t in corpus.NSYS_TABLES or t.startswith("rocpd_")]
    events = [
        t
        for t in known
        if t.startswith(("CUPTI_", "NVTX_", "CUDA_GPU_", *map("rocpd_{}_".format, corpus.ROCPD_EVENTS)))
    ]
    table = rng.choice(rng.choice([events, events, known, tables]) or tables)
    columns = [(name, type_) for _, name, type_, *_ in db.execute(f'PRAGMA table_info("{table}")')]
    names = [name for name, _ in columns]
    how = rng.choice(["value"] * 8 + ["rows", "repeat", "drop table", "drop column", "types", "types", "view", "swap"])
    if how == "value" and "start" in names:
        # Without the declared types, as any value may stand in a damaged or foreign file.
        _declare(db, table, [(n, "") for n in names])
        for _ in range(rng.choice([1, 3, 30])):
            column = rng.choice(
                [rng.choice(names), rng.choice([n for n in names if n in ("start", "end", "bytes", "size")])]
            )
            row = f'(SELECT rowid FROM "{table}" LIMIT 1 OFFSET {rng.randrange(200)})'
            db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = {row}', (rng.choice(_VALUES),))
    elif how in ("value", "rows"):
        db.execute(f'DELETE FROM "{table}" WHERE rowid % ? = 0', (rng.randint(1, 5),))
    elif how == "repeat":
        _declare(db, table, columns)
        db.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')
    elif how == "drop table":
        db.execute(f'DROP TABLE "{table}"')
    elif how == "drop column":
        dropped = rng.choice(names)
        kept = [c for c in columns if c[0] != dropped]
        if kept:
            _declare(db, table, kept)
    elif how == "types":
        _declare(db, table, [(n, rng.choice([t, t, "TEXT", "REAL", "BLOB", "VARCHAR(9)", ""])) for n, t in columns])
    elif how == "view":
        db.execute(f'ALTER TABLE "{table}" RENAME TO "real_{table}"')
        db.execute(f'CREATE VIEW "{table}" AS SELECT * FROM "real_{table}"')
    else:
        _declare(db, table, columns)
        a, b = rng.choice(names), rng.choice(names)
        db.execute(f'UPDATE "{table}" SET "{a}" = "{b}", "{b}" = "{a}"')


def _declare(db: sqlite3.Connection, table: str, columns: list[tuple[str, str]]) -> None:
    """The same table with these columns and types, and no constraints."""
    declared = ", ".join(f'"{name}" {type_}' for name, type_ in columns)
    chosen = ", ".join(f'"{name}"' for name, _ in columns)
    db.execute(f'ALTER TABLE "{table}" RENAME TO "old"')
    db.execute(f'CREATE TABLE "{table}" ({declared})')
    db.execute(f'INSERT INTO "{table}" SELECT {chosen} FROM "old"')
    db.execute('DROP TABLE "old"')


def _nsys_folder(rng: random.Random, folder: Path) -> Input:
    suffix = rng.choice([".parquet", ".arrow"])
    export = folder / "export"
    corpus.write_nsys_folder(export, suffix)
    for _ in range(rng.choice([1, 1, 3])):
        file = rng.choice(sorted(export.glob(f"*{suffix}")))
        how = rng.random()
        if how < 0.1:
            file.unlink()
        elif how < 0.2:
            file.write_bytes(b"")
        else:
            kinds = [mutate.flip_bit] * 4 + [mutate.truncate, mutate.zero_span, mutate.insert_bytes]
            file.write_bytes(rng.choice(kinds)(file.read_bytes(), rng))
        if not any(export.glob(f"*{suffix}")):
            break
    return Input(export / f"META_DATA_EXPORT{suffix}")


# -- the store --------------------------------------------------------------------------------------------------------


def _store(rng: random.Random, folder: Path) -> Input:
    """A store, one of whose files is damaged: it is opened and asked, and its run is ingested again."""
    from tests.fuzz.worker import ingest

    store = folder / "store"
    run = corpus.copy_run(folder / "run")
    ingest(run, store)
    file = rng.choice([store / "store.json", *sorted(store.rglob("*.parquet"))])
    more = mutate.JSON if file.suffix == ".json" else None
    file.write_bytes(mutate.damage(file.read_bytes(), rng, more))
    return Input(store, do="store")


# -- dumps and logs of torch and NCCL ---------------------------------------------------------------------------------


def _odd_value(found: Any, rng: random.Random) -> None:
    """Replace, remove or repeat a value somewhere in a list or dict."""
    while True:
        key = rng.choice(list(found)) if isinstance(found, dict) else rng.randrange(len(found))
        inner = found[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            found = inner
            continue
        how = rng.random()
        if how < 0.2:
            del found[key]
        elif how < 0.4 and isinstance(found, list):
            found.insert(key, inner)
        else:
            found[key] = rng.choice(_ODD)
        return


def _pickle(found: dict[str, Any], rng: random.Random, path: Path) -> bool:
    """Write a damaged dump; return whether its objects can still be counted."""
    for _ in range(rng.randint(1, 4)):
        _odd_value(found, rng)
    data, is_whole = pickle.dumps(found, protocol=4), rng.random() < 0.8
    path.write_bytes(data if is_whole else mutate.damage(data, rng))
    return is_whole


def _memory_snapshot(rng: random.Random, folder: Path) -> Input:
    path, found = folder / "snapshot.pickle", corpus.memory_snapshot()
    is_whole = _pickle(found, rng, path)
    there = laws.snapshot_rows(found) if is_whole else None
    tables = ("allocator_events", "allocator_blocks", "allocator_stats")
    return Input(path, there, lambda kept: sum(kept.get(table, 0) for table in tables))


def _flight_recorder(rng: random.Random, folder: Path) -> Input:
    path, found = folder / "nccl_trace_rank_0", corpus.flight_recorder(rng)
    is_whole = _pickle(found, rng, path)
    entries = found.get("entries")
    there = len(entries) if is_whole and isinstance(entries, list) else None
    return Input(path, there, lambda kept: kept.get("flight_records", 0))


def _nccl_inspector(rng: random.Random, folder: Path) -> Input:
    data = mutate.damage(corpus.nccl_inspector(), rng)
    path = folder / "inspector.log"
    path.write_bytes(data)
    return Input(path, laws.inspector_rows(data), lambda kept: kept.get("nccl_records", 0))


def _torch_trace(rng: random.Random, folder: Path) -> Input:
    data = mutate.damage(corpus.torch_trace(), rng, mutate.JSON)
    path = folder / "rank_0.log"
    path.write_bytes(data)
    return Input(path, laws.compilation_rows(data), lambda kept: kept.get("compilations", 0))


SOURCES: dict[str, Callable[[random.Random, Path], Input]] = {
    "chrome": _chrome, "nsys": _nsys, "ncu": _ncu, "nvprof": _nvprof, "run": _run, "store": _store,
    "step_metrics": _step_metrics, "producers": _producers, "rocprof_json": _rocprof_json, "rocpd": _rocpd,
    "memory_snapshot": _memory_snapshot, "flight_recorder": _flight_recorder,
    "nccl_inspector": _nccl_inspector, "torch_trace": _torch_trace,
}  # fmt: skip
