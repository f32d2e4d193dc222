"""The command `analyze info`."""

from __future__ import annotations

import sys

from analyze.cli.shared_options import Paths, open_traces


def info(paths: Paths) -> None:
    """Show what recordings contain and which queries they can answer."""
    from analyze import info as about
    from analyze.render import print_lines, terminal_width

    found = open_traces(paths).info()
    print_lines(about.lines(found, paths, terminal_width(sys.stdout)), sys.stdout)
