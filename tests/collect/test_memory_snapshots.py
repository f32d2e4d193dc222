"""Memory snapshots that `collect` writes. Without a GPU torch counts nothing: its statistics are given."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
from support import sql

torch = pytest.importorskip("torch")

from collect.injected.memory_snapshots import MemorySnapshot  # noqa: E402


def test_snapshots_have_what_torch_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch returns an OrderedDict, which is no plain value: a reader would refuse it."""
    stats = [OrderedDict(), OrderedDict({"allocated_bytes.all.peak": 7 << 30, "num_ooms": 1})]
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: stats[device])
    path = tmp_path / "rank-0.memory_snapshot.pickle"
    MemorySnapshot(path, on_oom=False, history=False)._write({"segments": [], "device_traces": [[], []]})
    assert sql(path, "SELECT device, name, value FROM allocator_stats ORDER BY name") == [
        {"device": 1, "name": "allocated_bytes.all.peak", "value": 7 << 30},
        {"device": 1, "name": "num_ooms", "value": 1},
    ]
