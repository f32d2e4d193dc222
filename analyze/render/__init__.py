"""Write answers as tables, CSV, JSON, Markdown, Parquet or Excel.

`texts` escapes and shortens names, `units` chooses units, `layout` fits a table to a terminal, `listing` wraps a table
of texts, `writing` writes to files and stdout.
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
