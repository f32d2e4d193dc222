"""Imported by the process that commands of `collect` are forked from: what each of them would make for itself."""

from functools import cache

import typer.main

from collect.cli import app

typer.main.get_command = cache(typer.main.get_command)
typer.main.get_command(app)
