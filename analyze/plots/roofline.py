"""The roofline of what Nsight Compute profiled: what the figure shows, from the queries `roofline` and `roofs`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analyze.errors import InputError
from analyze.plots import output_format
from analyze.whole_file import write_whole

if TYPE_CHECKING:
    from analyze.engine import Engine

LEVELS = ("dram", "l2", "l1")
LEVEL_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
NUMBERED = 10
"""So many kernels, those of the longest time, are numbered and listed beside the figure."""


@dataclass(frozen=True)
class Roof:
    """A roof: FLOP/s of a compute roof, bytes/s of a memory roof."""

    name: str
    rate: float
    source: str

    @property
    def label(self) -> str:
        """As people call it: tensor_tf32 -> tensor tf32, l2 -> L2."""
        return LEVEL_NAMES.get(self.name, self.name.replace("_", " "))


@dataclass(frozen=True)
class Point:
    """A kernel at one memory level."""

    kernel: str
    family: str
    level: str
    launches: int
    dur_ns: int
    flops: int
    bytes: int
    flops_per_byte: float
    flops_per_s: float
    peak_roof: str
    bound: str | None
    pct_of_roof: float | None


@dataclass(frozen=True)
class Roofline:
    """What the figure shows."""

    title: str
    points: list[Point]
    """With FLOPs and bytes, so that they have a place on logarithmic axes; the longest time first."""
    compute: list[Roof]
    """The roofs that a point is held to, and fp32; lowest first."""
    memory: list[Roof]
    """Of the levels shown, the slowest first."""
    total_ns: int
    """Time of all kernels, those without a place included."""
    unplaced: int
    """Kernels without FLOPs or bytes."""
    unplaced_ns: int

    @property
    def numbered(self) -> list[Point]:
        """The points with a number, at the first of the levels shown."""
        first = self.memory[0].name if self.memory else LEVELS[0]
        at_level = [p for p in self.points if p.level == first] or self.points
        return at_level[:NUMBERED]

    @property
    def families(self) -> list[str]:
        """Families of the points, that of the longest time first."""
        times: dict[str, int] = {}
        for p in self.points:
            times[p.family] = times.get(p.family, 0) + p.dur_ns
        return sorted(times, key=lambda f: (-times[f], f))

    @property
    def limits(self) -> tuple[float, float, float, float]:
        """x and y limits: all points, the ridges and the roofs, with room around."""
        ridges = [c.rate / m.rate for c in self.compute for m in self.memory]
        xs = [p.flops_per_byte for p in self.points] + ridges
        ys = [p.flops_per_s for p in self.points] + [c.rate for c in self.compute]
        return min(xs) / 4, max(xs) * 6, min(ys) / 4, max(ys) * 3

    @property
    def note(self) -> str:
        """What has no place, and where the roofs are from; in one line."""
        sources = sorted({r.source for r in self.compute + self.memory})
        roofs = {"report": "the report's own peaks and clocks", "published": "published peaks (schemas/devices.toml)"}
        parts = [f"Roofs: {' and '.join(roofs[s] for s in sources)}." if sources else "Roofs: none known."]
        parts.append("The area of a point is its share of the time.")
        if self.unplaced:
            share = 100 * self.unplaced_ns / self.total_ns if self.total_ns else 0
            parts.append(f"{self.unplaced} more without FLOPs or bytes ({share:.1f} % of the time) have no place here.")
        return " ".join(parts)


def load(engine: Engine, group: str = "kernel", level: str = "dram") -> Roofline:
    """What the figure shows of an engine's runs; `level` may be `all`.

    Raises InputError where there is nothing to show, or several GPUs.
    """
    from analyze.query_files import find

    answer = engine.query(find("roofline"), {"group": group, "level": level}, sort="-dur_ns,kernel,run_id,level")
    rows = answer.arrow().to_pylist()
    if not rows:
        raise InputError(
            "plot roofline: no launch here has FLOPs, bytes and a duration; record with collect run --profiler ncu "
            "--ncu-metrics roofline"
        )
    roofs = engine.query(find("roofs")).arrow().to_pylist()
    gpus = [
        name for (name,) in engine.execute(
            "SELECT DISTINCT gpu_name FROM runs WHERE run_id IN (SELECT run_id FROM ncu_metrics) ORDER BY 1"
        ).fetchall()
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
    runs = engine.execute(
        "SELECT model, batch_size, precision, run_id FROM runs WHERE run_id IN (SELECT run_id FROM ncu_metrics)"
    ).fetchall()
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
