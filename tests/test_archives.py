"""Archives of traces and run folders are read as the folders that they contain."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from commands import run_cli
from support import SAMPLES
from traces import kernel, write_trace

import analyze

RUN = SAMPLES / "slow-loader"
TOTAL = "SELECT count(*) AS n, sum(dur_ns) AS ns FROM kernels"


def zipped(folder: Path, archive: Path) -> Path:
    return Path(shutil.make_archive(str(archive), "zip", folder.parent, folder.name))


def tarred(folder: Path, archive: Path) -> Path:
    return Path(shutil.make_archive(str(archive), "tar", folder.parent, folder.name))


def gzipped_tar(folder: Path, archive: Path) -> Path:
    return Path(shutil.make_archive(str(archive), "gztar", folder.parent, folder.name))


def zstandard(path: Path) -> Path:
    """Compress a file, as zstd does."""
    packed = path.with_name(f"{path.name}.zst")
    with pa.CompressedOutputStream(str(packed), "zstd") as out:
        out.write(path.read_bytes())
    path.unlink()
    return packed


def tar_zst(folder: Path, archive: Path) -> Path:
    return zstandard(tarred(folder, archive))


def job(folder: Path) -> Path:
    """A folder with the traces of two ranks: kernels of 3 and 5 us."""
    for rank, dur in enumerate((3, 5)):
        said = {"backend": "nccl", "rank": rank, "world_size": 2}
        write_trace(folder / f"{rank}.json", [kernel("k", 0, dur)], distributedInfo=said)
    return folder


@pytest.mark.parametrize("pack", [zipped, tarred, gzipped_tar, tar_zst])
def test_an_archive_answers_like_its_folder(tmp_path: Path, pack: Callable[[Path, Path], Path]) -> None:
    archive = pack(job(tmp_path / "job"), tmp_path / "packed")
    with analyze.open(archive) as traces:
        assert sorted(traces.sql("SELECT rank, sum(dur_ns) FROM kernels GROUP BY rank").rows()) == [
            (0, 3000),
            (1, 5000),
        ]
        [run] = traces.info().runs
        assert run.columns["source"] == f"{archive}/job" and list(traces.warnings) == []


def test_a_run_folder_in_an_archive(tmp_path: Path) -> None:
    """Of a node and a user that are not here: run.json names its files by their place in the folder."""
    with gzip.open(RUN / "torch/rank-0.trace.json.gz", "rt") as file:
        kernels = file.read().count('"cat": "kernel"')
    with analyze.open(zipped(RUN, tmp_path / "pasted")) as traces:
        assert traces.sql(TOTAL).rows()[0][0] == kernels > 0


def test_files_are_named_by_their_archive(tmp_path: Path) -> None:
    """One of two traces is damaged; the second ingest finds nothing new."""
    folder = tmp_path / "job"
    write_trace(folder / "good.json", [kernel("k", 0, 3)])
    (folder / "bad.json").write_text("[nothing")
    archive = zipped(folder, tmp_path / "packed")
    first, second = (analyze.ingest(archive, store=tmp_path / "store") for _ in range(2))
    warning = f"{archive}/job/bad.json: not a Chrome trace: no event could be read from it; left out"
    assert first.warnings == second.warnings == [warning]
    assert (len(first.ingested), len(second.unchanged)) == (1, 1)
    os.utime(archive, (1, 1))
    assert len(analyze.ingest(archive, store=tmp_path / "store").ingested) == 1


def test_a_compressed_trace(tmp_path: Path) -> None:
    path = zstandard(write_trace(tmp_path / "t.json", [kernel("k", 0, 3)]))
    assert analyze.open(path).sql(TOTAL).rows() == [(1, 3_000)]


def test_an_archive_at_a_url(tmp_path: Path) -> None:
    """It is downloaded again only if it changed; `ingest` looks into it, and reads none of its files twice."""
    archive = zipped(job(tmp_path / "job"), tmp_path / "packed")
    with served(tmp_path) as (address, downloads):
        for _ in range(2):
            assert analyze.open(f"{address}/packed.zip").sql(TOTAL).rows() == [(2, 8_000)]
        assert downloads.count("/packed.zip") == 1  # the others look for a store
        first, second = (analyze.ingest(f"{address}/packed.zip", store=tmp_path / "store") for _ in range(2))
        assert (len(first.ingested), len(second.ingested), len(second.unchanged)) == (1, 0, 1)
        os.utime(archive, (1, 1))
        assert len(analyze.ingest(f"{address}/packed.zip", store=tmp_path / "store").ingested) == 1
        downloads.clear()
        assert analyze.open(f"{address}/packed.zip").sql(TOTAL).rows() == [(2, 8_000)]
        assert downloads.count("/packed.zip") == 1


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of a server of a folder, and the paths that it sent."""
    sent: list[str] = []

    class Recorded(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.path)
            super().do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Recorded, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", sent
    server.shutdown()
    server.server_close()


def refused(path: Path) -> str:
    """The one line that a command ends with."""
    ran = run_cli("info", path)
    [line] = ran.stderr.splitlines()
    assert ran.returncode == 2 and line.startswith(f"analyze: {path}")
    return line.removeprefix(f"analyze: {path}").removeprefix(": ")


@pytest.mark.parametrize("name", ["../out.json", "/tmp/out.json", "a/../../out.json", "..\\out.json", "C:\\out.json"])
def test_paths_outside_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, "[]")
    assert refused(tmp_path / "a.zip") == f"refused: {name!r} is a path outside the archive"
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    assert "is a path outside the archive" in refused(tmp_path / "a.tar.gz")
    assert not (tmp_path / "out.json").exists()


def test_links_are_left_out(tmp_path: Path) -> None:
    secret = write_trace(tmp_path / "secret.json", [kernel("secret", 0, 9)])
    trace = write_trace(tmp_path / "t.json", [kernel("k", 0, 3)])
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(trace, "t.json")
        for name, kind in (
            ("soft.json", tarfile.SYMTYPE),
            ("\udcff", tarfile.SYMTYPE),
            ("hard.json", tarfile.LNKTYPE),
            ("pipe", tarfile.FIFOTYPE),
        ):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, str(secret)
            tar.addfile(link)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(trace, "t.json")
        info = zipfile.ZipInfo("soft.json")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, str(secret))
    for name, count in (("a.tar", 4), ("a.zip", 1)):
        with analyze.open(tmp_path / name) as traces:
            assert traces.sql("SELECT name FROM kernels").rows() == [("k",)]
            assert f"{tmp_path / name}: {count} links and special files are left out: soft.json" in traces.warnings[0]
            assert traces.warnings[0].encode()


def test_bombs_are_refused(tmp_path: Path) -> None:
    """257 MiB of zeros, more than a small archive may become."""
    zeros = bytes(1 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("t.json", "w") as file:
        for _ in range(257):
            file.write(zeros)
    with pa.CompressedOutputStream(str(tmp_path / "t.json.zst"), "zstd") as out:
        for _ in range(257):
            out.write(zeros)
    for name in ("a.zip", "t.json.zst"):
        assert refused(tmp_path / name).startswith("refused: more than 268 MB unpacked")


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE])
def test_many_entries_are_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("t")
    member.type = kind
    with gzip.open(tmp_path / "a.tar.gz", "wb", 1) as out:
        out.write(member.tobuf() * 20_001)
    assert refused(tmp_path / "a.tar.gz").startswith("refused: it has more than 20,000 files and folders")


def test_folders_of_files_are_counted(tmp_path: Path) -> None:
    """250 files, each in 80 folders of its own: 20,250 files and folders."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(250):
            archive.writestr(f"{number}/" * 80 + "t.json", "")
    assert refused(tmp_path / "a.zip").startswith("refused: it has more than 20,000 files and folders")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("f/" * 100 + "t.json", "")
    assert refused(tmp_path / "a.zip") == "refused: it has more than 100 folders in each other"


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_is_one_sentence(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("t.json", b"[]" * 1000)
    packed = bytearray((tmp_path / "a.zip").read_bytes())
    packed[45:70] = bytes(byte ^ 255 for byte in packed[45:70])  # the header has 36 bytes
    (tmp_path / "a.zip").write_bytes(packed)
    assert refused(tmp_path / "a.zip").startswith("cannot be unpacked: ")


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tar.zst", "a.json.zst"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", bytes(700)])
def test_damaged_archives_are_one_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert (
        "cannot be unpacked" in (said := refused(tmp_path / name))
        or "no run folder and no file" in said
        or "is empty" in said
    )


def test_an_encrypted_member_is_one_sentence(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("t.json", "[]")
    packed = bytearray((tmp_path / "a.zip").read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.index(signature) + flags] |= 1
    (tmp_path / "a.zip").write_bytes(packed)
    assert "password" in refused(tmp_path / "a.zip")


def test_other_archives_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.7z").write_bytes(b"7z\xbc\xaf")
    assert refused(tmp_path / "a.7z") == "an archive: unpack it first, and give the folder"


def test_an_archive_is_read_by_one_machine(tmp_path: Path) -> None:
    archive = zipped(job(tmp_path / "job"), tmp_path / "packed")
    ran = run_cli("ingest", archive, "--store", tmp_path / "store", "--shard", "0/2")
    assert ran.returncode == 2 and "several processes cannot share an archive" in ran.stderr
