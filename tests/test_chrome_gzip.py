"""Damaged gzip files: every byte before the damage is read."""

from __future__ import annotations

import gzip
import zlib
from io import BytesIO
from pathlib import Path

import pytest
from support import SAMPLES
from test_chrome_law import load

from analyze.sources.gunzip import Gunzip

SAMPLE = gzip.decompress((SAMPLES / "resnet18-ncu/torch/rank-0.trace.json.gz").read_bytes())
PACKED = gzip.compress(SAMPLE)


def decompress(data: bytes, size: int = 100_000) -> tuple[bytes, Gunzip]:
    stream = Gunzip(BytesIO(data))
    out = b""
    while more := stream.read(size):
        assert len(more) <= size
        out += more
    return out, stream


@pytest.mark.parametrize("size", [1_000, 1 << 20])
def test_whole_members_are_read(size: int) -> None:
    named = BytesIO()
    with gzip.GzipFile("trace.json", "wb", fileobj=named, mtime=0) as f:
        f.write(SAMPLE[100:])
    out, stream = decompress(gzip.compress(SAMPLE[:100]) + named.getvalue() + b"\0" * 512, size)
    assert out == SAMPLE and stream.stopped is None and stream.odd is None


def test_every_byte_before_a_truncation_is_read() -> None:
    for cut in (len(PACKED) // 3, len(PACKED) // 2, len(PACKED) - 9, len(PACKED) - 3):
        out, stream = decompress(PACKED[:cut])
        # zlib itself, fed byte by byte, says how far it can be unpacked.
        assert out == zlib.decompressobj(wbits=31).decompress(PACKED[:cut])
        assert stream.stopped == "the gzip stream is truncated"


@pytest.mark.parametrize("at", [0.2, 0.5, 0.8])
def test_every_byte_before_an_invalid_block_is_read(at: float) -> None:
    # Sound up to there, where a block of the type that deflate reserves begins: its bytes are all of the first part.
    before = SAMPLE[: int(len(SAMPLE) * at)]
    packer = zlib.compressobj(wbits=31)
    compressed = packer.compress(before) + packer.flush(zlib.Z_FULL_FLUSH) + b"\xff" * 300_000
    out, stream = decompress(compressed)
    assert out == before and stream.stopped and "invalid block type" in stream.stopped


@pytest.mark.parametrize("back", [8, 4])
def test_wrong_checksum_or_length_loses_nothing(tmp_path: Path, back: int) -> None:
    damaged = bytearray(PACKED)
    damaged[-back] ^= 1
    path = tmp_path / "t.json.gz"
    sound, none = load(path, PACKED)
    assert none == ""
    rows, warning = load(path, bytes(damaged))
    assert rows == sound
    assert "the gzip checksum does not match" in warning and "could not be read" not in warning
    # Members behind the one that is wrong are read, too.
    half = len(SAMPLE) // 2
    first = bytearray(gzip.compress(SAMPLE[:half]))
    first[-back] ^= 1
    assert load(path, bytes(first) + gzip.compress(SAMPLE[half:]))[0] == sound


def test_flipped_bit_near_the_end_is_a_warning(tmp_path: Path) -> None:
    damaged = bytearray(PACKED)
    damaged[-30] ^= 0x55
    path = tmp_path / "t.json.gz"
    sound, _ = load(path, PACKED)
    rows, warning = load(path, bytes(damaged))
    assert len(rows["kernels"]) == len(sound["kernels"]) and "gzip" in warning


def test_bytes_after_a_gzip_stream_are_a_warning(tmp_path: Path) -> None:
    assert "bytes that are not gzip follow" in load(tmp_path / "t.json.gz", PACKED + b"hello")[1]
