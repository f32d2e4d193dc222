"""The command `analyze ingest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import analyze
from analyze.cli import completion, terminal
from analyze.cli.shared_options import parse_params
from analyze.errors import InputError


def ingest(
    paths: Annotated[
        list[Path], typer.Argument(help="Run folders, folders of these, or raw trace files. URLs are possible.")
    ],
    store: Annotated[
        Path, typer.Option("--store", "-s", help="The store: a folder or URL; created if it does not exist.")
    ],
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Number of processes. Default: one per CPU.")
    ] = None,
    as_one_run: Annotated[
        bool,
        typer.Option(
            "--as-one-run",
            help="Treat files outside run folders as the ranks of one run; file names give the rank numbers.",
        ),
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Read files again even if they have not changed.")] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            help="I/N: read only shard I (0 to N-1) of the raw files. `analyze commit` makes all shards visible.",
        ),
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option(
            "--launcher",
            help="Start the shards, then commit: local or dask (on this machine), dask:ADDRESS, slurm.",
            autocompletion=completion.launchers,
        ),
    ] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", min=1, help="Number of shards. Default: one per file, at most 256.")
    ] = None,
    launcher_option: Annotated[
        list[str] | None,
        typer.Option(
            "--launcher-option",
            help="Option of the launcher, for example slurm_partition=long or timeout_min=60; repeatable.",
        ),
    ] = None,
    print_script: Annotated[
        bool, typer.Option("--print", help="With --launcher slurm: print the sbatch script, and submit nothing.")
    ] = False,
) -> None:
    """Read raw profiler files into a Parquet store."""
    from time import perf_counter

    from analyze.ingestion.process_pool import only_reads
    from analyze.ingestion.progress import progress_bar

    options = parse_params(launcher_option or [], "--launcher-option")
    if print_script:
        if launcher != "slurm":
            raise InputError("ingest: --print needs --launcher slurm")
        script = analyze.slurm_script(
            *paths, store=store, jobs=jobs, as_one_run=as_one_run, again=again, shards=shards, launcher_options=options
        )
        typer.echo(script)
        return
    began = perf_counter()
    if launcher is None:
        only_reads()
    with progress_bar() as progress:
        result = analyze.ingest(
            *paths, store=store, jobs=jobs, as_one_run=as_one_run, again=again, shard=shard, launcher=launcher,
            shards=shards, launcher_options=options, progress=progress,
        )  # fmt: skip
    terminal.ingested(store, result, perf_counter() - began)
