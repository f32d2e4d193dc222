"""The command `analyze serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from analyze.cli.shared_options import Block, Paths, Profiler, QueryFolders, Where, open_traces


def serve(
    paths: Paths,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Addresses other than loopback require a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="Port; 0: any free port. Default: 8321, or a free port if it is taken."
        ),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Require a token also on loopback, if the machine has other users.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Stop a query after this many seconds.")] = 60.0,
    where: Where = None,
    profiler: Profiler = None,
    block: Block = None,
    queries: QueryFolders = None,
) -> None:
    """Serve recordings in a browser: the report, every query, and SQL. Ctrl-C stops it."""
    from analyze.serve.server import browse, check

    check()
    traces = open_traces(paths, where, profiler, queries, block)
    traces.serve(host, port, token, time_limit, lambda address: browse(address, open_))
