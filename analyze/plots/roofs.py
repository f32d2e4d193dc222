"""What the figure of a roofline shows: its roofs, and the kernels under them."""

from __future__ import annotations

from dataclasses import dataclass

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
    roof_pct: float | None


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
