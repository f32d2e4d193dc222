"""A verdict as Markdown, for a comment on a pull request."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from typing import Any

from analyze.query.result import Result
from analyze.render import visible, write

WIDTH = 50
"""Characters of the figure of intervals."""
FARTHEST_PCT = 100.0
"""The figure ends there."""
PARTS = 10
"""Parts of the step that are listed."""


def comment(
    measures: Result,
    parts: Result | None,
    *,
    margin: float,
    failures: Sequence[str],
    unsure: Sequence[str],
    machine: Sequence[str],
    notes: Sequence[str],
) -> str:
    """Return the text: what failed, the measures with their intervals, the parts of the step, and notes.

    `machine`: differences of the GPUs that may be why times differ.
    `parts`: the rows of the level `step`, if there are any.
    """
    rows = measures.dicts()
    step = next((row for row in rows if row["measure"] == "step_time"), None)
    lines = [f"### Performance: {step['verdict'] if step else 'no step time'}", ""]
    lines += [_sentence(step), ""] if step else []
    lines += [f"- **failed**: {_escaped(text)}" for text in failures]
    lines += [f"- **cannot tell**: {_escaped(text)}" for text in unsure]
    lines += [f"- **not blamed on the code**: {_escaped(text)}" for text in machine]
    lines += ["", _markdown(measures), ""]
    if figure := intervals(rows, margin):
        lines += [
            "95 % intervals of the change; `|` is no change, dots are the margin:",
            "",
            "```text",
            *figure,
            "```",
            "",
        ]
    if parts is not None:
        lines += ["<details><summary>Which parts of the step changed</summary>", "", _markdown(parts), "</details>", ""]
    if notes:
        lines += ["<details><summary>Notes</summary>", "", *(f"- {_escaped(n)}" for n in notes), "", "</details>", ""]
    return "\n".join(lines)


def _sentence(step: dict[str, Any]) -> str:
    """Return one sentence on how the step time changed."""
    said = f"A step takes {step['a']:.4g} ms in A (before) and {step['b']:.4g} ms in B (after)"
    if step["change_pct"] is not None:
        said += f": {step['change_pct']:+.2f} %"
    if step.get("low_pct") is None or step.get("high_pct") is None:
        return f"{said}."
    return f"{said}, with 95 % confidence from {step['low_pct']:+.2f} to {step['high_pct']:+.2f} %."


def intervals(rows: Sequence[dict[str, Any]], margin: float) -> list[str]:
    """Draw the interval of each row with one, as `[---o---]`, on one scale."""
    known = [r for r in rows if r.get("low_pct") is not None and r.get("high_pct") is not None]
    if not known:
        return []
    low = max(-FARTHEST_PCT, min(-margin, *(r["low_pct"] for r in known)) - 0.1)
    high = min(FARTHEST_PCT, max(margin, *(r["high_pct"] for r in known)) + 0.1)

    def at(value: float) -> int:
        return round((min(max(value, low), high) - low) / (high - low) * (WIDTH - 1))

    names = max(len(r["measure"]) for r in known)
    drawn = []
    for row in known:
        line = [" "] * WIDTH
        line[at(-margin) : at(margin) + 1] = "." * (at(margin) - at(-margin) + 1)
        first, last = at(row["low_pct"]), at(row["high_pct"])
        line[first : last + 1] = "-" * (last - first + 1)
        line[first], line[last] = "[", "]"
        line[at(0)] = "|"
        line[at(row["change_pct"])] = "o"
        drawn.append(f"{row['measure']:{names}}  {''.join(line)}  {row['change_pct']:+.2f} %")
    scale = f"{low:+.1f} %".ljust(WIDTH - 8) + f"{high:+.1f} %".rjust(8)
    return [*drawn, f"{'':{names}}  {scale}"]


def _markdown(answer: Result) -> str:
    text = io.StringIO()
    write(answer, "markdown", None, text)
    return text.getvalue()


def _escaped(text: str) -> str:
    return html.escape(visible(text), quote=False).replace("|", "\\|").replace("`", "\\`")
