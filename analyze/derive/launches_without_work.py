"""The calls of a rank that should launch a kernel or CUDA graph, and have no recorded GPU work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from analyze.derive.interface import Derived
from analyze.derive.launch_calls import launch_calls
from analyze.derive.numpy_columns import ints, nullable, text_codes, texts
from analyze.derive.threads import distinct, find
from schemas.api_roles import matching_rule
from schemas.table_declaration import INTERVAL, LINK, declare_table

if TYPE_CHECKING:
    import pyarrow as pa

READS = {
    "cuda_calls": ("pid", "tid", "api", "name", "start_ns", "dur_ns", "correlation_id"),
    "gpu_work": ("correlation_id",),
}


def launches_without_work(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of launches_without_work, from the columns READS of a rank's tables."""
    import pyarrow as pa

    calls = tables["cuda_calls"]
    (name,), names = text_codes([calls.column("name")])
    launches = np.array([*map(_launches, names.to_pylist()), False])
    ids = distinct(ints(calls, "correlation_id")[launches[name]])
    without = ids[find(distinct(ints(tables["gpu_work"], "correlation_id")), ids) < 0]
    found, names = launch_calls(calls, without)
    kept = launches[found.name]
    return pa.table(
        {
            "correlation_id": nullable(found.id[kept]),
            "tid": nullable(found.tid[kept]),
            "name": texts(found.name[kept], names),
            "start_ns": nullable(found.start[kept]),
            "dur_ns": nullable(found.dur[kept]),
        }
    )


def _launches(name: str) -> bool:
    rule = matching_rule(name)
    return rule is not None and rule.role == "launch"


DERIVED = (
    Derived(
        declare_table(
            "launches_without_work",
            "a call that should launch a kernel or CUDA graph, without recorded GPU work: the runtime's, if a driver "
            "call inside it has its correlation id. Ids that several processes or several calls used are left out",
            LINK[0],
            ("tid", "int64", "", "thread"),
            ("name", "string", "", "runtime or driver function"),
            *INTERVAL,
        ),
        version=1,
        reads=READS,
        compute=launches_without_work,
    ),
)
