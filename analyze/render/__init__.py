"""Answers as text: tables for people, CSV, JSON, Markdown, Parquet and Excel for machines.

`texts` spells out and shortens names, `units` chooses units, `layout` fits a table to a terminal,
`listing` does of texts alone, `writing` writes.
"""

from analyze.render.layout import terminal_width
from analyze.render.listing import listing_lines
from analyze.render.texts import hanging, visible
from analyze.render.units import formatted, is_text
from analyze.render.writing import FORMATS, bold_for, output_format, print_lines, to_stdout, write, write_with

__all__ = [
    "FORMATS",
    "bold_for",
    "formatted",
    "hanging",
    "is_text",
    "listing_lines",
    "output_format",
    "print_lines",
    "terminal_width",
    "to_stdout",
    "visible",
    "write",
    "write_with",
]
