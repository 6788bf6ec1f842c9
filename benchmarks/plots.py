"""Plots as SVG, readable on a light and a dark page: no background, and colours of middle lightness."""

import html
import math
from collections.abc import Mapping, Sequence

WIDTH = 760
INK, LINES = "#808080", "#80808040"
COLOURS = {
    "ours": "#4a7bf0",
    "ours-uvicorn": "#86a5f2",
    "official": "#e08a1e",
    "official-sse": "#b8925c",
    "fastmcp": "#b05fc4",
    "typescript": "#1f9e89",
    "mcp-lite": "#d9534f",
    "mcp-lite-sse": "#cf8684",
    "bare": "#8f8f8f",
    "bare-front": "#a9a9a9",
    "tokens": "#4a7bf0",
    "sessions": "#e08a1e",
}

Point = tuple[float, float]


def bars(title: str, groups: Mapping[str, Sequence[tuple[str, str, float, str]]]) -> str:
    """Horizontal bars in groups; each bar is a name for its colour, a label, a value, and what stands at its end."""
    most = max((value for rows in groups.values() for _, _, value, _ in rows), default=1.0)
    drawn, y = "", 18.0
    for group, rows in groups.items():
        drawn += _text(0, y, group, size=14, bold=True)
        y += 10
        for name, label, value, end in rows:
            length = max(1.0, 400 * value / most)
            drawn += _text(186, y + 12, label, anchor="end")
            drawn += f'<rect x="194" y="{y}" width="{length:.1f}" height="16" rx="2" fill="{_colour(name)}"/>'
            drawn += _text(200 + length, y + 12, end)
            y += 21
        y += 26
    return _svg(title, WIDTH, y - 24, drawn)


def lines(
    title: str,
    panels: Mapping[str, Mapping[str, tuple[str, Sequence[Point]]]],
    *,
    across: str,
    up: str,
    columns: int = 1,
) -> str:
    """Lines over logarithmic axes, a panel for each of the mapping; by name for its colour, a label and points."""
    width = (WIDTH - 24 * (columns - 1)) / columns
    height = 300 if columns == 1 else 230
    every = [point for panel in panels.values() for _, points in panel.values() for point in points]
    if not every:
        return _svg(title, WIDTH, 20, "")
    xs, ys = ([point[at] for point in every] for at in (0, 1))
    box = (min(xs), max(xs), 10 ** math.floor(math.log10(min(ys))), 10 ** math.ceil(math.log10(max(ys) * 1.001)))
    drawn = ""
    for number, (name, panel) in enumerate(panels.items()):
        left, top = (number % columns) * (width + 24), (number // columns) * (height + 20)
        drawn += f'<g transform="translate({left:.1f} {top})">{_panel(name, panel, box, width, height, across, up)}</g>'
    rows = math.ceil(len(panels) / columns)
    labels = {name: label for panel in panels.values() for name, (label, _) in panel.items()}
    legend, end = _legend(labels, rows * (height + 20))
    return _svg(title, WIDTH, end, drawn + legend)


def _panel(
    name: str,
    panel: Mapping[str, tuple[str, Sequence[Point]]],
    box: tuple[float, float, float, float],
    width: float,
    height: float,
    across: str,
    up: str,
) -> str:
    left, right, top, bottom = 54.0, width - 12, 30.0, height - 34
    least_x, most_x, least_y, most_y = box

    def place(point: Point) -> Point:
        along = math.log(point[0] / least_x) / (math.log(most_x / least_x) or 1)
        above = math.log(point[1] / least_y) / (math.log(most_y / least_y) or 1)
        return left + (right - left) * along, bottom - (bottom - top) * above

    drawn = _text(0, 14, f"{name}: {up}" if name else up, bold=bool(name))
    power = least_y
    while power <= most_y * 1.001:
        _, y = place((least_x, power))
        drawn += f'<path d="M{left} {y:.1f}H{right:.1f}" stroke="{LINES}"/>'
        drawn += _text(left - 6, y + 4, number(power), anchor="end")
        power *= 10
    for x in sorted({point[0] for _, points in panel.values() for point in points}):
        drawn += _text(place((x, least_y))[0], bottom + 16, number(x), anchor="middle")
    drawn += _text(right, bottom + 31, across, anchor="end")
    for each, (_, points) in panel.items():
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, points))
        drawn += f'<polyline points="{path}" fill="none" stroke="{_colour(each)}" stroke-width="2"/>'
        drawn += "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_colour(each)}"/>' for x, y in map(place, points)
        )
    return drawn


def _legend(labels: Mapping[str, str], y: float) -> tuple[str, float]:
    """What the colours mean, in as many rows as it takes, and where it ends."""
    drawn, x = "", 0.0
    for name, label in labels.items():
        width = 30 + 6.6 * len(label)
        if x + width > WIDTH:
            x, y = 0.0, y + 20
        drawn += f'<rect x="{x:.0f}" y="{y}" width="12" height="12" rx="2" fill="{_colour(name)}"/>'
        drawn += _text(x + 17, y + 11, label)
        x += width
    return drawn, y + 16


def number(value: float) -> str:
    """A number of an axis in few characters."""
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value / 1e3:g} k" if value >= 1e3 else f"{value:g}"


def _colour(name: str) -> str:
    return COLOURS.get(name, COLOURS.get(name.rsplit("-", 1)[0], INK))


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    shown = html.escape(text)
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{weight}>{shown}</text>'


def _svg(title: str, width: float, height: float, drawn: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img"'
        f' font-family="system-ui, sans-serif" fill="{INK}"><title>{html.escape(title)}</title>{drawn}</svg>\n'
    )
