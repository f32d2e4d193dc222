"""Output files are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyze.atomic_output import write_atomically
from analyze.errors import InputError, MachineError
from schemas.files import write_synced


def test_symlinked_output_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    out = tmp_path / "out.csv"
    for name in ("out.csv.part", ".out.csv.part"):
        (tmp_path / name).symlink_to(victim)
    write_atomically(out, lambda part: part.write_text("rows"))
    write_synced(tmp_path / "store.json", b"{}")
    assert out.read_text() == "rows" and victim.read_text() == "mine"
    # A link in the place itself is what the user named; of a store's own file, it is replaced.
    out.unlink()
    out.symlink_to(tmp_path / "latest.csv")
    write_atomically(out, lambda part: part.write_text("new rows"))
    assert out.is_symlink() and (tmp_path / "latest.csv").read_text() == "new rows"
    (tmp_path / "store.json").unlink()
    (tmp_path / "store.json").symlink_to(victim)
    write_synced(tmp_path / "store.json", b"{}")
    assert not (tmp_path / "store.json").is_symlink() and victim.read_text() == "mine"


def test_failed_output_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("before")

    def half(part: Path) -> None:
        part.write_text("ha")
        raise InputError("no more rows")

    with pytest.raises(InputError, match="no more rows"):
        write_atomically(out, half)
    assert list(tmp_path.iterdir()) == [out] and out.read_text() == "before"


def test_long_file_name(tmp_path: Path) -> None:
    out = tmp_path / ("x" * 250 + ".csv")
    write_atomically(out, lambda part: part.write_text("rows"))
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", r"'\.': not the name of a file"),
        ("/dev/full", "/dev/full: cannot be written: No space left on device"),
        ("/no/such/folder/x", "cannot be written: No such file or directory"),
        ("/tmp", "/tmp: cannot be written: it is a folder"),
    ],
)
def test_unwritable_output_is_one_sentence(path: str, says: str) -> None:
    with pytest.raises((InputError, MachineError), match=says):
        write_atomically(Path(path), lambda part: part.write_text("rows"))


def test_output_file_rejects_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it become a folder `s3:`."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^s3://bucket/out\.csv: cannot be written: -o takes a local file"):
        write_atomically(Path("s3://bucket/out.csv"), lambda part: part.write_text("rows"))
    assert not list(tmp_path.iterdir())
