"""The roofline as one HTML page: inline SVG, and a little script for what the pointer is on. It loads nothing."""

from __future__ import annotations

import json
import math
from html import escape

from analyze.plots import COLOURS, duration, si
from analyze.plots.data import LEVEL_NAMES, Point, Roofline

_WIDTH, _HEIGHT = 980, 640
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 16, 40, 52
_SMALLEST, _LARGEST = 3.0, 22.0
"""Radii of points."""

_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:16px;color:#222;max-width:1000px}
svg{width:100%;height:auto} .grid{stroke:#e6e6e6} .roof{stroke:#333;stroke-width:1.6;fill:none}
.point{stroke:#fff;stroke-width:.8;fill-opacity:.75;cursor:pointer} .point:hover{stroke:#000;fill-opacity:1}
.off{display:none} .label{font-size:12px;fill:#222} .tick{font-size:11px;fill:#555}
#legend span{cursor:pointer;margin-right:14px;white-space:nowrap} #legend i{display:inline-block;width:11px;height:11px;
border-radius:6px;margin-right:4px} #legend .hidden{opacity:.35}
#tip{position:absolute;pointer-events:none;background:#fff;border:1px solid #bbb;padding:6px 9px;font-size:12px;
max-width:430px;box-shadow:0 2px 6px #0003;display:none;overflow-wrap:anywhere}
table{border-collapse:collapse;font-size:12.5px;margin-top:12px} td,th{padding:2px 10px 2px 0;text-align:right}
td:first-child,th:first-child{text-align:left;overflow-wrap:anywhere} tr:hover{background:#f4f4f4}
p{color:#555;font-size:12.5px}
"""

_SCRIPT = """
const tip=document.getElementById('tip'),points=JSON.parse(document.getElementById('points').textContent);
document.querySelectorAll('.point').forEach(e=>{
 e.addEventListener('pointermove',m=>{tip.textContent='';
  points[e.dataset.i].forEach((line,k)=>{
   const d=document.createElement(k?'div':'b');d.textContent=line;tip.appendChild(d)});
  tip.style.display='block';const w=tip.offsetWidth;
  tip.style.left=(m.pageX+14+w>document.documentElement.clientWidth?m.pageX-14-w:m.pageX+14)+'px';
  tip.style.top=(m.pageY+12)+'px'});
 e.addEventListener('pointerleave',()=>tip.style.display='none')});
document.querySelectorAll('#legend span').forEach(s=>s.addEventListener('click',()=>{
 s.classList.toggle('hidden');
 document.querySelectorAll('.point').forEach(e=>{if(e.dataset.f===s.dataset.f)e.classList.toggle('off')})}));
"""


def render(data: Roofline) -> str:
    """The whole page."""
    x0, x1, y0, y1 = data.limits
    plane = _Plane(x0, x1, y0, y1)
    parts = [
        *_grid(plane),
        *_roofs(plane, data),
        *(_circle(plane, data, i, p) for i, p in enumerate(data.points)),
    ]
    legend = "".join(
        f'<span data-f="{escape(f)}"><i style="background:{COLOURS[f]}"></i>{escape(f)}</span>' for f in data.families
    )
    tips = json.dumps([_tip(data, p) for p in data.points]).replace("<", "\\u003c")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(data.title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h3>{escape(data.title)}</h3>\n"
        f'<div id="legend">{legend}</div>\n'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(data.title)}">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
        f"<p>{escape(data.note)} A click on a family hides it.</p>\n{_table(data)}\n"
        f'<div id="tip"></div>\n<script type="application/json" id="points">{tips}</script>\n'
        f"<script>{_SCRIPT}</script>\n"
        "</body></html>\n"
    )


class _Plane:
    """Places on the page."""

    def __init__(self, x0: float, x1: float, y0: float, y1: float):
        self.x0, self.x1, self.y0, self.y1 = x0, x1, y0, y1

    def x(self, value: float) -> float:
        share = math.log(value / self.x0) / math.log(self.x1 / self.x0)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        share = math.log(value / self.y0) / math.log(self.y1 / self.y0)
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)


def _decades(low: float, high: float) -> list[float]:
    return [10.0**e for e in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def _grid(plane: _Plane) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for x in _decades(plane.x0, plane.x1):
        at = plane.x(x)
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{at}" y="{bottom + 16}" text-anchor="middle">{x:g}</text>')
    for y in _decades(plane.y0, plane.y1):
        at = plane.y(y)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{si(y, "FLOP/s")}</text>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text class="label" x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">'
        "arithmetic intensity (FLOP/byte)</text>"
    )
    return parts


def _roofs(plane: _Plane, data: Roofline) -> list[str]:
    parts: list[str] = []
    if not data.compute:
        return parts
    top = data.compute[-1].rate
    for i, roof in enumerate(data.memory):
        start, end = max(plane.x0, plane.y0 / roof.rate), top / roof.rate
        xa, ya, xb, yb = plane.x(start), plane.y(start * roof.rate), plane.x(end), plane.y(top)
        angle = math.degrees(math.atan2(yb - ya, xb - xa))
        at = 0.06 + 0.02 * i
        parts.append(f'<line class="roof" x1="{xa}" y1="{ya}" x2="{xb}" y2="{yb}"/>')
        parts.append(
            f'<text class="label" transform="translate({xa + at * (xb - xa):.1f},{ya + at * (yb - ya):.1f}) '
            f'rotate({angle:.1f})" dy="-5">{escape(roof.label)} {si(roof.rate, "B/s")}</text>'
        )
    fastest = max((m.rate for m in data.memory), default=0.0)
    for roof in data.compute:
        start = max(plane.x0, roof.rate / fastest) if fastest else plane.x0
        at_y = plane.y(roof.rate)
        parts.append(f'<line class="roof" x1="{plane.x(start)}" x2="{_WIDTH - _RIGHT}" y1="{at_y}" y2="{at_y}"/>')
        parts.append(
            f'<text class="label" x="{_WIDTH - _RIGHT - 4}" y="{at_y - 5}" text-anchor="end">'
            f"{escape(roof.label)} {si(roof.rate, 'FLOP/s')}</text>"
        )
    return parts


def _circle(plane: _Plane, data: Roofline, index: int, p: Point) -> str:
    radius = max(_SMALLEST, _LARGEST * math.sqrt(p.dur_ns / data.total_ns)) if data.total_ns else _SMALLEST
    place = f'cx="{plane.x(p.flops_per_byte)}" cy="{plane.y(p.flops_per_s)}" r="{radius:.1f}"'
    return f'<circle class="point" data-i="{index}" data-f="{escape(p.family)}" fill="{COLOURS[p.family]}" {place}/>'


def _tip(data: Roofline, p: Point) -> list[str]:
    share = 100 * p.dur_ns / data.total_ns if data.total_ns else 0
    lines = [
        p.kernel,
        f"{p.family}, {p.launches} launches, {duration(p.dur_ns)} ({share:.1f} % of the time)",
        f"{si(p.flops_per_s, 'FLOP/s')} at {p.flops_per_byte:.3g} FLOP/byte of {LEVEL_NAMES[p.level]}",
        f"{si(p.flops, 'FLOP')}, {si(p.bytes, 'B')}",
    ]
    if p.pct_of_roof is not None:
        lines.append(f"{p.pct_of_roof:.3g} % of its roof ({p.bound}, {p.peak_roof.replace('_', ' ')})")
    return lines


def _table(data: Roofline) -> str:
    heads = ("kernel", "time", "% of time", "FLOP/byte", "FLOP/s", "% of roof", "bound")
    rows = []
    for p in data.points:
        share = 100 * p.dur_ns / data.total_ns if data.total_ns else 0
        roof = "" if p.pct_of_roof is None else f"{p.pct_of_roof:.3g}"
        cells = (p.kernel if len(p.kernel) < 120 else p.kernel[:119] + "…", duration(p.dur_ns), f"{share:.1f}",
                 f"{p.flops_per_byte:.3g}", si(p.flops_per_s, "FLOP/s"), roof, p.bound or "")  # fmt: skip
        rows.append("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>")
    return "<table><tr>" + "".join(f"<th>{h}</th>" for h in heads) + "</tr>\n" + "\n".join(rows) + "\n</table>"
