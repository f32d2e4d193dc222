"""Time of each interval macro on generated kernels: `python benchmarks/intervals.py --kernels 10000000`.

Eight devices; a kernel starts about every us and lasts up to 1.2 us, so half of the neighbours overlap; a tenth are
communication. The table is in memory: what is measured is the sort and the window functions.
"""

from __future__ import annotations

import argparse
import resource
import time

import duckdb

from analyze.query.modules import modules

_KERNELS = """
CREATE TABLE kernels AS
SELECT
    (i % 8)::INTEGER AS track, (i // 8 * 1000 + hash(i) % 300)::BIGINT AS start_ns,
    start_ns + (hash(i + 1) % 1200)::BIGINT AS end_ns, 1 AS value,
    CASE WHEN hash(i) % 10 = 0 THEN 'comm' ELSE 'compute' END AS class
FROM range(?) t(i);
"""
_OTHERS = """
CREATE VIEW comm AS SELECT * FROM kernels WHERE class = 'comm';
CREATE VIEW compute AS SELECT * FROM kernels WHERE class = 'compute';
CREATE TABLE windows AS
SELECT t.i AS track, w.i AS window_id, w.i * 1000000 AS start_ns, start_ns + 1000000 AS end_ns
FROM range(8) t(i), range((SELECT max(end_ns) // 1000000 + 1 FROM kernels)) w(i);
CREATE VIEW pieces AS SELECT *, track AS window_id FROM kernels;
CREATE VIEW launches AS SELECT track, start_ns AS at_ns FROM kernels;
"""
_LENGTH = "sum(end_ns - start_ns)"
QUESTIONS = {
    "union": f"SELECT {_LENGTH} FROM intervals_union('kernels')",
    "length": "SELECT sum(covered_ns) FROM intervals_coverage('kernels')",
    "sweep": f"SELECT {_LENGTH} FILTER (n > 1), max(total) FROM intervals_overlap_sum('kernels')",
    "intersection": f"SELECT {_LENGTH} FROM intervals_intersect('compute', 'comm')",
    "subtraction": f"SELECT {_LENGTH} FROM intervals_subtract('comm', 'compute')",
    "cut": f"SELECT {_LENGTH} FROM intervals_clip('kernels', 'windows')",
    "points in ranges": "SELECT count(inside.window_id) FROM points_in_intervals('launches', 'windows')",
    "class lengths": "SELECT sum(busy_ns), sum(kernel_ns), sum(compute_ns) FROM gpu_class_lengths('pieces')",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=int, default=10_000_000)
    options = parser.parse_args()
    connection = duckdb.connect()
    for block in modules(["intervals", "gpu_classes"]).values():
        connection.execute(block)
    connection.execute(_KERNELS, [options.kernels])
    connection.execute(_OTHERS)
    for name, sql in QUESTIONS.items():
        began = time.perf_counter()
        connection.execute(sql).fetchall()
        print(f"{name:18}{time.perf_counter() - began:6.1f} s")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
