"""Damage anywhere in a store's Parquet files: the same answer, or one sentence and exit code 2."""

import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import run_cli
from support import SAMPLES

import analyze
from analyze.errors import InputError

QUESTIONS = ("kernel-share", "gpu-busy", "launch", "ops", "runs")
POSITIONS = 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "store"
    assert run_cli("ingest", SAMPLES / "resnet18-1gpu", "--store", folder).returncode == 0
    return folder


def _answers(store: Path) -> dict[str, object]:
    """The rows of each question, or the sentence that says why there are none."""
    found: dict[str, object] = {}
    for question in QUESTIONS:
        try:
            found[question] = analyze.open(store).query(question).rows()
        except InputError as e:
            found[question] = str(e)
    return found


def test_damage_never_changes_an_answer(whole: Path, tmp_path: Path) -> None:
    good = _answers(whole)
    assert not any(isinstance(answer, str) for answer in good.values())
    store = tmp_path / "store"
    shutil.copytree(whole, store)
    files = sorted(file.relative_to(store) for file in store.rglob("*.parquet"))
    chosen = random.Random(1)
    noticed = 0
    for n in range(POSITIONS):
        # Elsewhere: a process checks a file of a store once.
        store = store.rename(tmp_path / f"store-{n}")
        path = store / chosen.choice(files)
        data = path.read_bytes()
        at = chosen.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chosen.randrange(8)]) + data[at + 1 :])
        for question, answer in _answers(store).items():
            assert answer == good[question] or (isinstance(answer, str) and str(path) in answer), (path, at)
            noticed += isinstance(answer, str)
        path.write_bytes(data)
    assert noticed > POSITIONS // 2  # no question reads all tables


def test_damaged_file_is_one_sentence(whole: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(whole, store)
    [path] = (store / "kernels").rglob("*.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    result = run_cli("query", "kernel-share", store)
    says = f"analyze: {path}: damaged: its bytes are not those that were written; ingest its run again with --again\n"
    assert (result.returncode, result.stderr) == (2, says)


def test_pages_have_checksums(whole: Path, tmp_path: Path) -> None:
    [path] = (whole / "kernels").rglob("*.parquet")
    data = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(0)
    column = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "start_ns")
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    (damaged := tmp_path / "damaged.parquet").write_bytes(data)
    with pytest.raises(OSError, match="checksum"):
        pq.ParquetFile(damaged, page_checksum_verification=True).read()
