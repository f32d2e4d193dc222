"""Imported by the process that commands of `analyze` are forked from: what each of them would make for itself."""

from functools import cache

import typer.main

from analyze.cli import app
from analyze.query.blocks import built_in
from analyze.query.query_files import catalog

typer.main.get_command = cache(typer.main.get_command)
typer.main.get_command(app)
catalog()
built_in()
