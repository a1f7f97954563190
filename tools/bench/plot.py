"""Line plots as SVG, without a library: series over a logarithmic axis.

A plot is small and reads in light and dark: strokes and texts have colours of their own, the ground
is a light panel. Every point is drawn, and says its value when a pointer rests on it.
"""

import math
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 72, 20, 64, 48
COLOURS = ["#0b62c4", "#c2410c", "#15803d", "#7e22ce", "#525252"]
TICKS_WANTED = 5


class Axis:
    """Values to positions, and the values to write at it."""

    def __init__(self, values, low_at, high_at, logarithmic):
        self.low_at, self.high_at = low_at, high_at
        if logarithmic:
            low, high = min(values), max(values)
            self.low = math.floor(math.log10(low) + 1e-9)
            self.high = max(self.low + 1, math.ceil(math.log10(high) - 1e-9))
            self.ticks = [10.0**power for power in range(self.low, self.high + 1)]
            self.scale = math.log10
        else:
            step = nice_step(max(values) or 1)
            count = max(1, math.ceil(max(values) / step - 1e-9))
            self.low, self.high = 0, count * step
            self.ticks = [number * step for number in range(count + 1)]
            self.scale = float

    def at(self, value):
        share = (self.scale(value) - self.low) / (self.high - self.low)
        return self.low_at + share * (self.high_at - self.low_at)


def nice_step(high):
    """1, 2 or 5 times a power of ten, such that some TICKS_WANTED steps reach `high`."""
    raw = high / TICKS_WANTED
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= raw)


def short(value):
    """1000000 as 1M; three digits at most."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def lines(title, x_label, y_label, series, log_y=False):
    """An SVG document. `series` is {name: [(x, y)]}; x is drawn on a logarithmic axis.

    Points without a value (None) are left out, and with `log_y` those that aren't above zero.
    """
    series = {
        name: [(x, y) for x, y in points if y is not None and (y > 0 or not log_y)]
        for name, points in series.items()
    }
    every = [point for points in series.values() for point in points]
    if not every:
        return None
    across = Axis([x for x, _ in every], LEFT, WIDTH - RIGHT, True)
    up = Axis([y for _, y in every], HEIGHT - BOTTOM, TOP, log_y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12" '
        f'fill="#262626" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fafafa"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
        *grid(across, up),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">'
        f"{escape(x_label)}</text>",
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text>',
    ]
    beside = LEFT
    for colour, (name, points) in zip(COLOURS, series.items()):
        parts += drawn(across, up, colour, name, points)
        parts.append(f'<rect x="{beside}" y="38" width="14" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{beside + 20}" y="45">{escape(name)}</text>')
        beside += 44 + 7 * len(name)
    return "\n".join([*parts, "</svg>", ""])


def grid(across, up):
    for value in across.ticks:
        x = f"{across.at(value):.1f}"
        yield f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}" stroke="#e5e5e5"/>'
        yield f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(value)}</text>'
    for value in up.ticks:
        y = f"{up.at(value):.1f}"
        yield f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#e5e5e5"/>'
        yield f'<text x="{LEFT - 6}" y="{y}" dy="4" text-anchor="end">{short(value)}</text>'


def drawn(across, up, colour, name, points):
    places = [(f"{across.at(x):.1f}", f"{up.at(y):.1f}", x, y) for x, y in sorted(points)]
    path = " ".join(f"{x},{y}" for x, y, _, _ in places)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y, over, value in places:
        yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}">'
        yield f"<title>{escape(name)}: {short(over)}, {short(value)}</title></circle>"
