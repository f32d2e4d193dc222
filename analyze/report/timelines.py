"""The timelines of a page: of one run, or of two on a common start of their first steps, one above the other.

Times are in ns since the first event of the first run; those of the other are shifted. Lanes say by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

from analyze.report.timeline import Moment, Timeline
from analyze.report.timeline_window import MOST, window


class Timelines:
    """The timelines of some runs, each with its label in the page; a run alone needs none."""

    def __init__(self, runs: Sequence[tuple[str, Timeline]]):
        self._runs = [(label, timeline) for label, timeline in runs if timeline]

    def __bool__(self) -> bool:
        """Return whether there is anything to draw."""
        return bool(self._runs)

    @property
    def runs(self) -> list[tuple[str, str]]:
        """Return label and id of each run."""
        return [(label, timeline.run_id) for label, timeline in self._runs]

    @cached_property
    def _lanes(self) -> list[tuple[int, int]]:
        """Run and own number of each lane: rank by rank, so that the same ranks are near each other."""
        lanes = [(r, n, lane) for r, (_, t) in enumerate(self._runs) for n, lane in enumerate(t.lanes)]
        lanes.sort(key=lambda of: (of[2].rank, of[0], of[1]))
        return [(r, n) for r, n, _ in lanes]

    @cached_property
    def _numbers(self) -> dict[tuple[int, int], int]:
        """Number of each lane, by run and own number."""
        return {own: number for number, own in enumerate(self._lanes)}

    @cached_property
    def _shifts(self) -> list[int]:
        """What is added to the times of each run, so that their first steps start together."""
        starts = [timeline.first_step for _, timeline in self._runs]
        return [starts[0] - start for start in starts]

    def _span(self, shifts: Sequence[int]) -> tuple[int, int]:
        spans = [(t.span[0] + s, t.span[1] + s) for (_, t), s in zip(self._runs, shifts, strict=True)]
        return min(s for s, _ in spans), max(e for _, e in spans)

    def window(
        self,
        from_ns: int | None = None,
        to_ns: int | None = None,
        width: int = 1_000,
        shifts: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """Return the events that overlap a window, by default all, in at most MOST rectangles.

        `width`: cells of the window, if it has more events than that. Raises InputError for an empty window.
        """
        shifts = self._shifts if shifts is None else shifts
        first, last = span = self._span(shifts)
        start, end = first if from_ns is None else from_ns, last if to_ns is None else to_ns
        found: dict[str, Any] = {"span": span, "from": start, "to": end, "cell": 0, "lanes": [{}] * len(self._lanes)}
        parts: dict[str, list[Any]] = {name: [] for name in ("rows", "names", "states", "samples", "steps", "gaps")}
        for run, ((label, timeline), shift) in enumerate(zip(self._runs, shifts, strict=True)):
            data = window(timeline, start - shift, end - shift, width, MOST // len(self._runs))
            numbers = [self._numbers[run, n] for n in range(len(data["lanes"]))]
            self._place(data, numbers, len(parts["names"]), shift)
            found["cell"] = max(found["cell"], data["cell"])
            for number, lane in zip(numbers, data["lanes"], strict=True):
                found["lanes"][number] = lane | {"run": label, "shift": shift}
            data["steps"] = [(number, at, dur, rank, label) for number, at, dur, rank in data["steps"]]
            for name, items in parts.items():
                items += data[name]
        return found | parts

    @staticmethod
    def _place(data: dict[str, Any], numbers: Sequence[int], names: int, shift: int) -> None:
        """Change lanes, names and times of the events of a run to those of the page."""
        for of in (*data["rows"], *data["states"], *data["samples"]):
            of["lane"] = numbers[of["lane"]]
            of["t"][:1] = [t + shift for t in of["t"][:1]]  # the others are differences
        for row in data["rows"]:
            for column in ("n", "op", "api"):
                if column in row:
                    row[column] = [n + names if n >= 0 else n for n in row[column]]
            if "thread" in row:
                row["thread"] = [numbers[n] if n >= 0 else n for n in row["thread"]]
        data["gaps"] = [(numbers[lane], start + shift, dur) for lane, start, dur in data["gaps"]]
        data["steps"] = [(number, start + shift, dur, rank) for number, start, dur, rank in data["steps"]]

    def find(self, text: str, place: int) -> dict[str, Any]:
        """Return an event whose name has a text or whose kernel family it is, and how many there are.

        `place`: in the order of the runs and of their starts, from 1. The start is since the first event of its run.
        """
        found = [timeline.find(text, 1) for _, timeline in self._runs]
        ends = [*accumulate(f["hits"] for f in found)]
        for run, (end, hit) in enumerate(zip(ends, found, strict=True)):
            before = end - hit["hits"]
            if before < place <= end:
                hit = hit if place == before + 1 else self._runs[run][1].find(text, place - before)
                return hit | {"hits": ends[-1], "lane": self._numbers[run, hit["lane"]]}
        return {"hits": 0}

    def moment(
        self, run_id: str, rank: int, device: int | None, start_ns: int | None, end_ns: int | None
    ) -> Moment | None:
        """Return where a stretch of time of a GPU or, without one, of a rank is drawn."""
        for run, (_, timeline) in enumerate(self._runs):
            if timeline.run_id == run_id and (own := timeline.moment(rank, device, start_ns, end_ns)):
                return own._replace(lane=self._numbers[run, own.lane])
        return None

    def in_file(self, around: Moment | None = None) -> dict[str, Any]:
        """Return the events for a report: of the whole runs if they are few, else of two steps or of one.

        `around`: what the steps hold; by default those in the middle. The first of these steps start together.
        """
        windows: list[tuple[int | None, int | None, list[int]]] = [(None, None, self._shifts)]
        run = self._lanes[around.lane][0] if around else 0
        at = self._runs[run][1].step_at(around.start if around else None)
        for steps in (2, 1):
            found = [timeline.steps_window(at, steps) for _, timeline in self._runs]
            starts = [w[0] if w else t.first_step for w, (_, t) in zip(found, self._runs, strict=True)]
            if any(found):
                longest = max(end - start for start, end in filter(None, found))
                shifts = [starts[0] - start for start in starts]
                windows.append((starts[0], starts[0] + longest, shifts))
        for start, end, shifts in windows:
            first, last = self._span(shifts)
            start, end = first if start is None else start, last if end is None else end
            count = sum(t.count(start - s, end - s) for (_, t), s in zip(self._runs, shifts, strict=True))
            if count <= MOST:
                break
        return self.window(start, end, shifts=shifts)
