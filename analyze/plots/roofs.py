"""Data of a roofline figure: roofs and kernels."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("dram", "l2", "l1")
LEVEL_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
NUMBERED = 10
"""Number of kernels, the longest first, that are numbered and listed next to the figure."""


@dataclass(frozen=True)
class Roof:
    """A roof: FLOP/s of a compute roof, bytes/s of a memory roof."""

    name: str
    rate: float
    source: str

    @property
    def label(self) -> str:
        """Return its display name: tensor_tf32 is tensor tf32, l2 is L2."""
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
    roof_pct: float | None


@dataclass(frozen=True)
class Roofline:
    """A roofline: kernels, roofs and totals."""

    title: str
    points: list[Point]
    """Kernels with FLOPs and bytes above 0, by time, longest first."""
    compute: list[Roof]
    """Compute roofs of the points, and fp32; lowest first."""
    memory: list[Roof]
    """Memory roofs of the shown levels, slowest first."""
    without_roof: list[str]
    """Memory levels that are not shown: their roof is not known."""
    total_ns: int
    """Time of all kernels, also of those without a point."""
    unplaced: int
    """Kernels without FLOPs or bytes."""
    unplaced_ns: int

    @property
    def numbered(self) -> list[Point]:
        """Return the numbered points, at the first shown level."""
        first = self.memory[0].name if self.memory else LEVELS[0]
        at_level = [p for p in self.points if p.level == first] or self.points
        return at_level[:NUMBERED]

    @property
    def families(self) -> list[str]:
        """Return the families of the points by time, longest first."""
        times: dict[str, int] = {}
        for p in self.points:
            times[p.family] = times.get(p.family, 0) + p.dur_ns
        return sorted(times, key=lambda f: (-times[f], f))

    @property
    def limits(self) -> tuple[float, float, float, float]:
        """Return the limits of x and y: all points, ridges and roofs, with a margin."""
        ridges = [c.rate / m.rate for c in self.compute for m in self.memory]
        xs = [p.flops_per_byte for p in self.points] + ridges
        ys = [p.flops_per_s for p in self.points] + [c.rate for c in self.compute]
        return min(xs) / 4, max(xs) * 6, min(ys) / 4, max(ys) * 3

    @property
    def note(self) -> str:
        """Return a line with the source of the roofs, and the kernels without a point."""
        sources = sorted({r.source for r in self.compute + self.memory})
        roofs = {"report": "peaks and clocks of the report", "published": "published peaks (schemas/devices.toml)"}
        parts = [f"Roofs: {' and '.join(roofs[s] for s in sources)}." if sources else "Roofs: none known."]
        parts.append("The area of a point is its share of the time.")
        if self.without_roof:
            levels = ", ".join(LEVEL_NAMES[level] for level in self.without_roof)
            parts.append(f"Not shown: points of {levels}, whose roof is not known.")
        if self.unplaced:
            share = 100 * self.unplaced_ns / self.total_ns if self.total_ns else 0
            kernels = "1 kernel" if self.unplaced == 1 else f"{self.unplaced} kernels"
            parts.append(f"Not shown: {kernels} without FLOPs or bytes ({share:.1f} % of the time).")
        return " ".join(parts)
