"""The command `analyze mcp`."""

from __future__ import annotations

import analyze
from analyze.cli import terminal
from analyze.cli.shared_options import Paths, QueryFolders


def mcp(paths: Paths, queries: QueryFolders = None) -> None:
    """Serve the queries to an agent over the Model Context Protocol (MCP), on stdin and stdout."""
    from analyze.agents import server

    traces = analyze.open(*paths, queries=queries or ())
    terminal.warn(traces.warnings)
    server(traces).run("stdio")
