"""Line plots as SVG, side by side: no fonts to find, no library, the same bytes every time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_COLOURS = ("#4477aa", "#66ccee", "#228833", "#ee6677", "#222222", "#aa3377")
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _GAP = 380, 300, 60, 40, 50, 30


@dataclass(frozen=True)
class Panel:
    """One plot: lines of points (x, y), x and y shares of 0 to 1."""

    title: str
    x: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def draw(panels: Sequence[Panel]) -> str:
    """The SVG of all panels, with one legend."""
    width = len(panels) * (_WIDTH + _LEFT + _GAP)
    height = _TOP + _HEIGHT + _BOTTOM + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    for number, panel in enumerate(panels):
        parts += _panel(panel, number * (_WIDTH + _LEFT + _GAP) + _LEFT, names)
    for number, name in enumerate(names):
        x, y = _LEFT + number * 110, height - 15
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 20}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 26}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, left: int, names: Sequence[str]) -> list[str]:
    bottom = _TOP + _HEIGHT
    parts = [f'<text x="{left}" y="{_TOP - 14}" font-weight="bold">{escape(panel.title)}</text>']
    for tick in range(6):
        x, y = left + _WIDTH * tick / 5, bottom - _HEIGHT * tick / 5
        parts.append(f'<line x1="{left}" y1="{y:g}" x2="{left + _WIDTH}" y2="{y:g}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:g}" text-anchor="end">{tick * 20}%</text>')
        parts.append(f'<text x="{x:g}" y="{bottom + 18}" text-anchor="middle">{tick * 20}%</text>')
    parts.append(f'<text x="{left + _WIDTH / 2:g}" y="{bottom + 36}" text-anchor="middle">{escape(panel.x)}</text>')
    for name, points in panel.lines.items():
        colour = _COLOURS[names.index(name) % len(_COLOURS)]
        at = [(left + _WIDTH * x, bottom - _HEIGHT * y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in at]
    return parts
