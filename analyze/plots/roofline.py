"""The roofline of what Nsight Compute profiled: its figure, from the queries `roofline` and `roofs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analyze.errors import InputError
from analyze.plots import output_format
from analyze.plots.data import LEVELS, Point, Roof, Roofline
from analyze.whole_file import write_whole

if TYPE_CHECKING:
    from analyze.query.engine import Engine


def load(engine: Engine, group: str = "kernel", level: str = "dram") -> Roofline:
    """What the figure shows of an engine's runs; `level` may be `all`.

    Raises InputError where there is nothing to show, or several GPUs.
    """
    from analyze.query.query_files import find

    answer = engine.query(find("roofline"), {"group": group, "level": level}, sort="-dur_ns,kernel,run_id,level")
    rows = answer.arrow().to_pylist()
    if not rows:
        raise InputError(
            "plot roofline: no launch here has FLOPs, bytes and a duration; record with collect run --profiler ncu "
            "--ncu-metrics roofline"
        )
    roofs = engine.query(find("roofs")).arrow().to_pylist()
    gpus = [
        name for (name,) in engine.rows(
            "SELECT DISTINCT gpu_name FROM runs WHERE run_id IN (SELECT run_id FROM ncu_metrics) ORDER BY 1"
        )
    ]  # fmt: skip
    if len(gpus) > 1:
        raise InputError(
            f"plot roofline: the runs are of several GPUs ({', '.join(map(str, gpus))}); choose one: "
            "--where \"gpu_name = '...'\""
        )
    placed = [r for r in rows if (r["flops"] or 0) > 0 and (r["bytes"] or 0) > 0]
    if not placed:
        raise InputError("plot roofline: no kernel here executes floating-point operations and moves bytes")
    if group != "launch" and len({r["run_id"] for r in rows}) > 1:
        # A kernel has a point for each run; the launches' names tell their runs themselves.
        for r in rows:
            r["kernel"] = f"{r['kernel']} ({r['run_id']})"
    points = [Point(**{name: r[name] for name in Point.__dataclass_fields__}) for r in placed]
    levels = sorted({p.level for p in points}, key=LEVELS.index)
    at_first = [r for r in rows if r["level"] == levels[0]]
    unplaced = [r for r in at_first if r not in placed]
    held_to = {p.peak_roof for p in points} | {"fp32"}
    return Roofline(
        title=_title(engine, gpus),
        points=points,
        compute=_highest(roofs, "flops_per_s", 1.0, held_to),
        memory=_highest(roofs, "gb_per_s", 1e9, set(levels)),
        total_ns=sum(r["dur_ns"] for r in at_first),
        unplaced=len(unplaced),
        unplaced_ns=sum(r["dur_ns"] for r in unplaced),
    )


def _highest(rows: list[dict[str, object]], column: str, factor: float, names: set[str]) -> list[Roof]:
    found: dict[str, Roof] = {}
    for r in rows:
        rate, name = r[column], str(r["roof"])
        if isinstance(rate, float) and name in names and (name not in found or rate * factor > found[name].rate):
            found[name] = Roof(name, rate * factor, str(r["source"]))
    return sorted(found.values(), key=lambda r: r.rate)


def _title(engine: Engine, gpus: list[str | None]) -> str:
    runs = engine.rows(
        "SELECT model, batch_size, precision, run_id FROM runs WHERE run_id IN (SELECT run_id FROM ncu_metrics)"
    )
    settings = {row[:3] for row in runs}
    model, batch_size, precision = next(iter(settings)) if len(settings) == 1 else (None, None, None)
    what = [model, f"batch {batch_size}" if batch_size else None, precision]
    named = " ".join(str(w) for w in what if w) or (runs[0][3] if len(runs) == 1 else f"{len(runs)} runs")
    return f"Roofline: {named}" + (f" on {gpus[0]}" if gpus and gpus[0] else "")


def write(data: Roofline, output: Path) -> None:
    """Draw to a file whose suffix says the form: svg, png or html. Raises InputError."""
    form = output_format(output)
    if form == "html":
        from analyze.plots import roofline_html

        page = roofline_html.render(data)
        write_whole(output, lambda part: part.write_text(page, encoding="utf-8"))
    else:
        from analyze.plots import roofline_matplotlib

        write_whole(output, lambda part: roofline_matplotlib.draw(data, part, form))
