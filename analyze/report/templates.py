"""How a page becomes self-contained HTML: templates, style and script."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from analyze.plots import drawing
from analyze.plots.theme import DARK, LIGHT
from analyze.report.page import Page

_HERE = Path(__file__).parent


@cache
def environment(*folders: Path) -> Any:
    """Return the templates of folders and of this one, with escaping."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, _HERE]), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    # JSON without `<`, to be embedded in a page.
    made.filters["embedded"] = lambda value: jinja2.utils.markupsafe.Markup(_json(value))
    return made


def style() -> str:
    """Return the style sheet of pages."""
    return _themes() + _texts("report.css", "timeline.css")


def script() -> str:
    """Return the script of pages."""
    return _texts("timeline_events.js", "timeline_canvas.js", "timeline_details.js", "timeline.js", "report.js")


def _texts(*names: str) -> str:
    return "".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def render(page: Page) -> str:
    """Return the page as self-contained HTML."""
    sheet, runtime, own = style(), drawing.runtime(), script()
    # Escape the end of a script and the start of a comment.
    runtime, own = (text.replace("</script", "<\\/script").replace("<!--", "\\x3c!--") for text in (runtime, own))
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src {_hash(runtime)} {_hash(own)}; style-src {_hash(sheet)}"
    )
    return str(
        environment()
        .get_template("template.html.j2")
        .render(page=page, policy=policy, style=sheet, runtime=runtime, script=own)
    )


def _themes() -> str:
    """Return the theme colours as CSS properties: the system's unless one is chosen; light in print."""

    def block(selector: str, theme: Mapping[str, str]) -> str:
        return f"{selector}{{{''.join(f'--{k}:{v};' for k, v in theme.items())}}}"

    dark = f"@media screen and (prefers-color-scheme:dark){{{block(':root:not([data-theme=light])', DARK)}}}"
    chosen = f"@media screen{{{block(':root[data-theme=dark]', DARK)}}}"
    return "\n".join([block(":root", LIGHT), dark, chosen, ""])


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
