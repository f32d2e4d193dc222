"""The first screen of a page: its title, the facts about runs, the main figures, and the data quality in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from analyze import health
from analyze.plots.figure import cut, label, quantity
from analyze.plots.theme import MEANINGS
from analyze.report.page import ComparedFigure, Share, Tile
from analyze.report.report import Report
from analyze.summary import Measure, measures, percent

_FACTS = (
    ("model", "model"), ("batch size", "batch_size"), ("precision", "precision"), ("GPUs", "gpus"),
    ("parallelism", "parallelism"), ("data", "dataset"), ("GPU model", "gpu_name"), ("PyTorch", "torch_version"),
    ("CUDA", "cuda_version"), ("driver", "driver_version"), ("cuDNN", "cudnn_version"), ("NCCL", "nccl_version"),
    ("recorded by", "profiler"), ("host", "host"), ("started", "start_time"),
)  # fmt: skip
"""Facts of a run: label and column of runs."""


def title(report: Report) -> str:
    """Return the default title: workload and GPU."""
    if report.several:
        models = list(dict.fromkeys(r["model"] for r in report.timed if r["model"]))
        of = f": {', '.join(models[:3])}" if models else ""
        return cut(f"{len(report.timed or report.runs)} runs{of}", 120)
    run = (report.timed or report.runs)[0]
    what = [run["model"], f"batch {run['batch_size']}" if run["batch_size"] else None, run["precision"]]
    named = " ".join(str(w) for w in what if w) or str(run["run_id"])
    gpus = f"{run['gpus']} x " if (run["gpus"] or 1) > 1 else ""
    return cut(f"{named} on {gpus}{run['gpu_name']}" if run["gpu_name"] else named, 120)


def facts(report: Report) -> list[tuple[str, str]]:
    """Return the facts about the runs: workload, GPU, software."""
    chosen = {r["run_id"] for r in report.runs} & set(report.engine.run_ids)
    rows = [r for r in report.engine.dicts("SELECT * FROM runs ORDER BY run_id") if r["run_id"] in chosen]
    counters = sum(r["profiler"] == "ncu" for r in rows)
    both = f"{len(rows) - counters:,} timed, {counters:,} with counters"
    number = [("runs", both if 0 < counters < len(rows) else f"{len(rows):,}")] if report.several else []
    one = () if report.several else (("command", "command"), ("file", "source"), ("run", "run_id"))
    return [*number, *((name, text) for name, column in (*_FACTS, *one) if (text := _values(rows, column)))]


def _values(rows: Iterable[Mapping[str, Any]], column: str) -> str:
    """Return the values of a column of runs as text."""
    known = sorted({value for r in rows if (value := r.get(column)) not in (None, "")})
    if column == "start_time" and len(known) > 1:
        return f"{quantity(known[0], 'time')} to {quantity(known[-1], 'time')}"
    found = list(dict.fromkeys(quantity(v, "time" if column == "start_time" else "index") for v in known))
    return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "")


def main_figures(report: Report) -> list[Tile]:
    """Return the main figures of the one run that was timed; none of several runs, which have a table of them."""
    rows = {r["run_id"]: r for r in report.run_query("summary").dicts()}
    known = [rows[r["run_id"]] for r in report.timed or report.runs if r["run_id"] in rows]
    if len(known) != 1 or report.several:
        return []
    links = report.links
    return tiles(measures(known[0]), (lambda query: links.query(query, {})) if links else None)


def tiles(measures: Iterable[Measure], link: Callable[[str], str] | None) -> list[Tile]:
    """Return the strip. `link` returns the address of a query; None: there are no other pages."""
    return [
        Tile(m.name, *m.text.partition(" ")[::2], m.detail, link(m.query) if link else "", _shares(m)) for m in measures
    ]


def _shares(measure: Measure) -> list[Share]:
    shares, start = [], 0.0
    for name, pct in measure.parts:
        shares.append(Share(name, percent(pct), f"{start:.2f}", f"{pct:.2f}", MEANINGS[name]))
        start += pct
    return shares


def compared(rows: Iterable[Mapping[str, Any]]) -> list[ComparedFigure]:
    """Return the figures of two recordings from the rows of `compare`."""
    return [
        ComparedFigure(
            label(r["measure"]),
            quantity(r["a"], r["unit"]),
            quantity(r["b"], r["unit"]),
            "" if r["change_pct"] is None else f"{r['change_pct']:+.1f} %",
            "" if r["low_pct"] is None else f"{r['low_pct']:+.1f} to {r['high_pct']:+.1f} %",
            r["verdict"],
            {"slower": "worse", "faster": "better"}.get(r["verdict"], ""),
        )
        for r in rows
    ]


def checks(report: Report) -> list[dict[str, str]]:
    """Return the data-quality checks; of several runs only notes and warnings, with the number of runs."""
    found = health.of_rows(report.run_query("health").rows)
    several = report.several or len({f.run_id for f in found}) > 1
    return [
        {
            "fact": f.fact,
            "verdict": f.verdict,
            "value": cut(f.shown),
            "impact": cut((f.impact or "").replace("\n", "; ")),
        }
        for f in (health.cautions(found) if several else found)
    ]


def quality(checks: Sequence[Mapping[str, str]]) -> tuple[str, list[Mapping[str, str]]]:
    """Return the data quality in a sentence, and the checks to list: those that are not ok, else all."""
    if not checks:
        return "", []
    found = {v: [c for c in checks if c["verdict"] == v] for v in ("warning", "note")}
    if not any(found.values()):
        unknown = sum(c["verdict"] == "unknown" for c in checks)
        return f"no warnings in {len(checks)} checks" + (f" ({unknown} unknown)" if unknown else ""), list(checks)
    counts = [f"{len(of)} {verdict}{'s' if len(of) > 1 else ''}" for verdict, of in found.items() if of]
    listed = [c for of in found.values() for c in of]
    return f"{', '.join(counts)}: {', '.join(dict.fromkeys(c['fact'] for c in listed))}", listed
