"""The `analyze` command: its subcommands, and how errors are reported."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, NoReturn

import typer

from analyze.cli import signals, terminal
from analyze.cli.advise import advise
from analyze.cli.baseline import baseline
from analyze.cli.cache import cache
from analyze.cli.commit import commit
from analyze.cli.compact import compact
from analyze.cli.compare import compare
from analyze.cli.demo import demo
from analyze.cli.doctor import doctor
from analyze.cli.flame import flame
from analyze.cli.info import info
from analyze.cli.ingest import ingest
from analyze.cli.mcp import mcp
from analyze.cli.pivot import pivot
from analyze.cli.plot import plot
from analyze.cli.query import query
from analyze.cli.report import report
from analyze.cli.serve import serve
from analyze.cli.shared_options import QueryCommand, SidesCommand, app
from analyze.cli.sql import sql
from analyze.cli.study import study
from analyze.cli.tables import tables
from analyze.cli.trace import trace
from analyze.errors import InputError, InternalError, MachineError
from analyze.shell import command
from schemas.files import os_error_sentence
from schemas.urls import is_remote

COMMANDS = (
    info,
    query,
    sql,
    tables,
    compare,
    pivot,
    advise,
    plot,
    report,
    study,
    trace,
    flame,
    mcp,
    serve,
    ingest,
    commit,
    compact,
    cache,
    demo,
    doctor,
)
"""In the order of `analyze --help`."""

for command_function in COMMANDS:
    # The list of commands shows short_help in full, and truncates docstrings.
    summary = (command_function.__doc__ or "").partition("\n\n")[0]
    own_class = SidesCommand if command_function in (compare, report) else None
    of_query = command_function in (query, pivot, plot)
    app.command(cls=QueryCommand if of_query else own_class, short_help=" ".join(summary.split()))(command_function)

app.add_typer(baseline)


def _print_version(asked: bool) -> None:
    if asked:
        from schemas.extras import installed_version

        typer.echo(f"analyze {installed_version('tracequarry') or '(not installed)'}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def _with_command(arguments: list[str]) -> list[str]:
    """Return the arguments, with the command `info` in front of a path. Raises InputError for the name of a query."""
    first = arguments[0] if arguments else "-"
    commands = {c.name or (c.callback.__name__ if c.callback else "") for c in app.registered_commands}
    if first.startswith("-") or first in {*commands, *(g.name for g in app.registered_groups)}:
        return arguments
    from analyze.query.query_files import catalog

    if first in catalog():
        raise InputError(f"{first} is a query; run it with: analyze query {command(arguments)}")
    return ["info", *arguments] if os.path.lexists(first) or is_remote(first) else arguments


def main() -> None:
    """Run the command that the process was started with."""
    signals.watch()
    if sys.platform == "win32":  # there, pipes and files use the region's code page, which lacks ─ and Σ
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")
    run(sys.argv[1:])


def run(arguments: list[str]) -> NoReturn:
    """Run a command and exit.

    Bad input and faults of the machine are one sentence and exit code 2; faults of this program a traceback, a sentence
    that asks to report it, and exit code 1.
    """
    try:
        app(_with_command(arguments), prog_name="analyze")
    except (InputError, MachineError) as e:
        _exit_if_signalled()
        _fail(str(e))
    except MemoryError:
        _fail("out of memory")
    except OSError as e:  # where nothing above expects one
        _exit_if_signalled()
        _fail(os_error_sentence(e))
    except UnicodeError as e:
        if isinstance(e, UnicodeEncodeError) and not e.encoding.startswith("utf"):
            _fail(f"the output has characters that {e.encoding} cannot encode; set PYTHONIOENCODING=utf-8")
        _fail(f"an argument or a name is not valid UTF-8: {e}")
    except KeyboardInterrupt:
        _exit_if_signalled()
        sys.exit(130)
    except Exception as e:
        _exit_if_signalled()
        duckdb = sys.modules.get("duckdb")
        if duckdb is None or not isinstance(e, duckdb.Error) or isinstance(e, duckdb.InternalException):
            _fail_internally(e)
        from analyze.query.sql_checks import sentence

        _fail(sentence(e))
    sys.exit()


def _exit_if_signalled() -> None:
    """Exit for a signal, which DuckDB turns into an error of its own."""
    if signals.received:
        sys.exit(128 + signals.received[-1])


def _fail_internally(error: Exception) -> NoReturn:
    """Print that this is a fault of tracequarry, and how to report it."""
    import traceback

    traceback.print_exception(error)
    what = str(error) if isinstance(error, InternalError) else "internal error"
    terminal.say(f"analyze: {what}; this is a fault of tracequarry: please report it with these lines and the command")
    sys.exit(1)


def _fail(message: str) -> NoReturn:
    terminal.say(f"analyze: {message}")
    sys.exit(2)
