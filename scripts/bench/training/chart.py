"""Accuracy of each training, and the time of an epoch, as an SVG for light and dark pages."""

from __future__ import annotations

import math
from html import escape

from peers.chart import STYLE

from training.summary import BASELINES
from training.tasks import Json

WIDTH = 860
LEFT, GAP, RIGHT = 140, 40, 84
PANEL = (WIDTH - LEFT - GAP - RIGHT) / 2
TOP, STEP, BAR = 92, 26, 14
DOTS = ".dot { fill: #0969da; fill-opacity: .55 }"


class Axis:
    """Round numbers from `least` to `most` over a panel that begins at `x`."""

    def __init__(self, least: float, most: float, x: float) -> None:
        self.step = tick(most - least)
        self.first = math.floor(least / self.step + 1e-9) * self.step
        self.count = max(1, math.ceil((most - self.first) / self.step - 1e-9))
        self.x = x

    def at(self, value: float) -> float:
        return self.x + PANEL * (value - self.first) / (self.step * self.count)

    def draw(self, top: float, bottom: float) -> list[str]:
        parts = []
        for number in range(self.count + 1):
            value = self.first + number * self.step
            x = self.at(value)
            parts.append(
                f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.0f}" y2="{bottom:.0f}"/>'
                f'<text class="soft mid" x="{x:.1f}" y="{bottom + 16:.0f}">{value:.6g}</text>'
            )
        return parts


def draw(results: Json) -> str:
    """A row of two panels for each task."""
    parts: list[str] = []
    top = 0.0
    for task in results["tasks"].values():
        parts += panels(task, top)
        top += TOP + STEP * len(task["ways"]) + 40
    cache = "files from the disk" if results["drop_cache"] else "files in memory"
    gpu = f"{results['gpu']}; " if results["gpu"] else ""
    note = (
        f"{results['seeds']} seeds; {cache}; {results['workers']} workers or threads; {gpu}"
        f"{results['machine']['cpu']}, {results['machine']['cores']} cores"
    )
    height = top + 24
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}">',
            "<title>Accuracy of trainings, and seconds an epoch</title>",
            f"<style>{STYLE}{DOTS}</style>",
            f'<rect width="{WIDTH}" height="{height:.0f}" class="page"/>',
            *parts,
            f'<text class="soft" x="16" y="{top + 8:.0f}">{escape(note)}</text>',
            "</svg>",
            "",
        ]
    )


def panels(task: Json, above: float) -> list[str]:
    """Accuracies on the left, times on the right."""
    name, title = next(iter(task["measures"].items()))
    top = above + TOP
    bottom = top + STEP * len(task["ways"])
    finals = {
        way: [100 * run["scores"][name][-1] for run in runs] for way, runs in task["runs"].items()
    }
    every = [value for values in finals.values() for value in values]
    # On a GPU, the last one is the faster one.
    baseline = next((way for way in reversed(BASELINES) if way in task["ways"]), "")
    against = f" and times {baseline}" if baseline else ""
    right = LEFT + PANEL + GAP
    scores = Axis(min(every), max(every), LEFT)
    seconds = Axis(0, max(way["epoch_s"] for way in task["ways"].values()), right)
    parts = [
        words("head", 16, above + 30, task["title"]),
        words("soft", LEFT, above + 56, f"{title} after the last epoch, in %:"),
        words("soft", LEFT, above + 72, "a dot for each seed, a line for the mean"),
        words("soft", right, above + 56, f"seconds an epoch{against} (medians):"),
        square("ours", right, above + 63),
        words("soft", right + 14, above + 72, "training"),
        square("bar", right + 76, above + 63),
        words("soft", right + 90, above + 72, "waiting for batches"),
        *scores.draw(top, bottom),
        *seconds.draw(top, bottom),
    ]
    for number, (way, found) in enumerate(task["ways"].items()):
        y = top + STEP * number + STEP / 2
        parts += [
            f'<text class="end" x="{LEFT - 10}" y="{y + 4:.1f}">{escape(way)}</text>',
            *dots(scores, finals[way], 100 * found["final"][name]["mean"], y),
            *bar(seconds, found, baseline, y),
        ]
    return parts


def words(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'


def square(kind: str, x: float, y: float) -> str:
    return f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="10" height="10"/>'


def dots(axis: Axis, values: list[float], mean: float, y: float) -> list[str]:
    """One dot for each seed, and a line for the mean."""
    x = axis.at(mean)
    return [
        *(
            f'<circle class="dot" cx="{axis.at(value):.1f}" cy="{y:.1f}" r="4"/>'
            for value in values
        ),
        f'<line class="spread" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 8:.1f}" y2="{y + 8:.1f}"/>',
    ]


def bar(axis: Axis, found: Json, baseline: str, y: float) -> list[str]:
    """The time in which the network computes, and the time in which it waits."""
    whole, wait = found["epoch_s"], found["wait_s"]
    start, middle, end = (axis.at(value) for value in (0, whole - wait, whole))
    figures = f"{whole:.2f}"
    if baseline in found["times_as_fast"]:
        figures += f"  ({found['times_as_fast'][baseline]['median']:.2f}x)"
    row = f'y="{y - BAR / 2:.1f}" height="{BAR}"'
    return [
        f'<rect class="ours" x="{start:.1f}" width="{middle - start:.1f}" {row}/>',
        f'<rect class="bar" x="{middle:.1f}" width="{end - middle:.1f}" {row}/>',
        f'<text class="soft" x="{end + 6:.1f}" y="{y + 4:.1f}">{escape(figures)}</text>',
    ]


def tick(extent: float) -> float:
    """A round step between lines, for at most six lines."""
    if extent <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(extent / 5))
    return next(step * power for step in (1, 2, 5, 10, 20) if step * power * 5 >= extent * 0.999)
