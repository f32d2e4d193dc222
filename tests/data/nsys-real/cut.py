"""Cut a real export to what tests need: `python cut.py EXPORT.sqlite CUT.sqlite.gz`.

It deletes facts of the machine, other processes, texts that nothing refers to, and rows outside of a time window.
"""

import gzip
import sqlite3
import sys
from pathlib import Path

KEPT_ENUMS = ("ENUM_CUDA_MEMCPY_OPER", "ENUM_CUDA_MEM_KIND", "ENUM_CUDA_UNIF_MEM_MIGRATION", "ENUM_NSYS_EVENT_CLASS")
DROPPED = ("ANALYSIS_DETAILS", "ProcessStreams", "ThreadNames")
TEXTS = ("nameId", "demangledName", "shortName", "mangledName", "symbol", "module", "textId")

SQL = """
DELETE FROM META_DATA_EXPORT WHERE name NOT LIKE 'EXPORT_PRODUCT%' AND name NOT LIKE 'EXPORT_SCHEMA%';
DELETE FROM META_DATA_CAPTURE WHERE name NOT LIKE '%:COMMAND' AND name NOT LIKE '%:ARGUMENT%'
    AND name NOT LIKE 'GPU_METRICS%' AND value NOT LIKE 'CUDA_VISIBLE_DEVICES=%';
DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name != 'NvDriverVersion';
DELETE FROM PROCESSES WHERE globalPid NOT IN (SELECT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL);
UPDATE TARGET_INFO_GPU SET uuid = NULL;
UPDATE StringIds SET value = replace(value, '/opt/torch/.venv/lib/python3.12/site-packages/', '/site-packages/');
UPDATE StringIds SET value = replace(value, '/opt/nsys/', '/nsys/');
"""

# The matrix products are between 5.26 and 5.35 s. The first generic event is not a sample.
SAMPLES = """
DELETE FROM GPU_METRICS WHERE timestamp NOT BETWEEN 5160000000 AND 5360000000;
DELETE FROM GENERIC_EVENTS WHERE rawTimestamp NOT BETWEEN 5160000000 AND 5360000000 AND rawTimestamp > 0;
"""

# Three of 71 threads, while the program uses the GPU. Stack 1 is of the first call, 432 of the last one.
THREADS = """
DELETE FROM SCHED_EVENTS WHERE start NOT BETWEEN 4480000000 AND 4960000000
    OR globalTid & 0xFFFFFF NOT IN (8396, 8418, 8488);
DELETE FROM COMPOSITE_EVENTS WHERE start NOT BETWEEN 4680000000 AND 4960000000;
DELETE FROM SAMPLING_CALLCHAINS WHERE id NOT IN (SELECT id FROM COMPOSITE_EVENTS);
DELETE FROM OSRT_API WHERE start NOT BETWEEN 4480000000 AND 4960000000 AND eventClass = 27;
DELETE FROM OSRT_CALLCHAINS WHERE id NOT IN (SELECT callchainId FROM OSRT_API);
DELETE FROM CUDA_CALLCHAINS WHERE id NOT IN (1, 432) AND id NOT IN (
    SELECT callchainId + 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON StringIds.id = nameId
    WHERE callchainId > 0 AND value NOT LIKE 'cuCtxGetDevice%');
DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE callchainId > 0 AND callchainId + 1 NOT IN
    (SELECT id FROM CUDA_CALLCHAINS);
"""


def main(export: str, to: str) -> None:
    """Cut a copy of the export and pack it."""
    db = sqlite3.connect(":memory:")
    with sqlite3.connect(f"file:{export}?mode=ro", uri=True) as whole:
        whole.backup(db)
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        if table in DROPPED or (table.startswith("ENUM_") and table not in KEPT_ENUMS):
            db.execute(f"DROP TABLE {table}")
    db.executescript(SQL + (SAMPLES if "GPU_METRICS" in tables else THREADS if "SCHED_EVENTS" in tables else ""))
    columns = {
        (table, column)
        for table in set(tables) - set(DROPPED)
        for _, column, *_ in db.execute(f"PRAGMA table_info({table})")
        if column in TEXTS
    }
    used = " UNION ".join(f"SELECT {column} FROM {table} WHERE {column} NOTNULL" for table, column in sorted(columns))
    db.execute(f"DELETE FROM StringIds WHERE id NOT IN ({used})")
    db.commit()
    db.execute("VACUUM")
    Path(to).write_bytes(gzip.compress(db.serialize(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
