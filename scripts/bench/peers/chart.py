"""A bar for each loader, as a self-contained SVG for light and dark pages."""

from __future__ import annotations

from html import escape
from typing import Any

from peers.roster import OURS, RUST

Json = dict[str, Any]
WIDTH = 860
LEFT = 292
RIGHT = 150
TOP = 62
STEP = 30
BAR = 17
# Plain colours, then those for dark pages, so that programs without CSS variables can draw it.
STYLE = """
svg { color-scheme: light dark; font: 13px system-ui, sans-serif }
text { fill: #1b1f24 } .soft { fill: #59636e; font-size: 12px } .head { font-weight: 600;
  font-size: 15px } .end { text-anchor: end } .mid { text-anchor: middle }
.page { fill: #fff } .line { stroke: #d1d9e0 } .bar { fill: #8c959f } .ours { fill: #0969da }
.too { fill: #54aeff } .spread { stroke: #1b1f24; stroke-width: 1.4 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .soft { fill: #9198a1 } .page { fill: #0d1117 } .line { stroke: #3d444d }
  .bar { fill: #6e7681 } .ours { fill: #4493f8 } .too { fill: #1f6feb } .spread { stroke: #f0f6fc }
}
"""


def draw(results: Json) -> str:
    """Cubes per second, the fastest first. A line at the end of a bar is the spread of rounds."""
    rows = [row for row in results["rows"] if "reason" not in row]
    rows.sort(key=lambda row: -float(row["cubes_per_s"]))
    absent = [row for row in results["rows"] if "reason" in row]
    most = max((row["most"] for row in rows), default=1.0)
    step = tick(most)
    scale = (WIDTH - LEFT - RIGHT) / (step * -(-most // step))
    bottom = TOP + STEP * len(rows)
    height = bottom + 34 + 18 * len(absent)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'width="{WIDTH}" height="{height}">',
        f"<title>{escape(title(results))}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" class="page"/>',
        f'<text class="head" x="16" y="26">{escape(title(results))}</text>',
        f'<text class="soft" x="16" y="46">{escape(subtitle(results))}</text>',
        *axis(most, step, scale, bottom),
        *(part for number, row in enumerate(rows) for part in bar(row, number, scale)),
    ]
    for number, row in enumerate(absent):
        text = shortened(f"{row['title']}: {row['reason']}", 120)
        parts.append(
            f'<text class="soft" x="16" y="{bottom + 46 + 18 * number}">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def title(results: Json) -> str:
    rows, columns, bands = results["shape"]
    return f"Cubes of {rows} x {columns} x {bands} delivered per second"


def subtitle(results: Json) -> str:
    task, machine = results["task"], results["machine"]
    return (
        f"batches of {task['batch']} on the host, {task['workers']} workers, files in memory; "
        f"median and range of {results['rounds']} rounds; {machine['cpu']}"
    )


def axis(most: float, step: float, scale: float, bottom: int) -> list[str]:
    """Lines at round numbers."""
    parts = []
    for number in range(round(-(-most // step)) + 1):
        x = LEFT + number * step * scale
        parts.append(
            f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{bottom}"/>'
            f'<text class="soft mid" x="{x:.1f}" y="{bottom + 17}">{number * step:g}</text>'
        )
    return parts


def bar(row: Json, number: int, scale: float) -> list[str]:
    """Name, bar, spread and figures of one loader."""
    kind = {OURS: "ours", RUST: "too"}.get(row["key"], "bar")
    y = TOP + STEP * number + (STEP - BAR) / 2
    base = y + BAR - 4
    least, most = (LEFT + scale * row[key] for key in ("least", "most"))
    figures = f"{row['cubes_per_s']:.1f}"
    if row.get("hsipack_times") and row["key"] != RUST:
        figures += f"  (hsipack {row['hsipack_times']:.1f}x)"
    tip = shortened(row["setting"]["name"], 200)
    return [
        f"<g><title>{escape(row['title'])}: {escape(tip)}</title>",
        f'<text class="end" x="{LEFT - 10}" y="{base:.1f}">{escape(row["title"])}</text>',
        f'<rect class="{kind}" x="{LEFT}" y="{y:.1f}" width="{scale * row["cubes_per_s"]:.1f}" '
        f'height="{BAR}" rx="2"/>',
        f'<line class="spread" x1="{least:.1f}" x2="{most:.1f}" y1="{y + BAR / 2:.1f}" '
        f'y2="{y + BAR / 2:.1f}"/>',
        f'<text x="{most + 8:.1f}" y="{base:.1f}">{escape(figures)}</text></g>',
    ]


def tick(most: float) -> float:
    """A round step between lines, for at most eight lines."""
    step = 1.0
    while most / step > 8:
        step *= 2.5 if str(step).lstrip("0.").startswith("2") else 2
    return step


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
