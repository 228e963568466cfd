"""The tables, and whether hsipack reaches its target speeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from peers.report import markdown
from peers.served.roster import (
    BARE,
    BY_HAND,
    LITDATA,
    MOSAIC,
    OURS,
    OURS_IN_MEMORY,
    OURS_ON_BOTH,
    OURS_ON_DISK,
)

Json = dict[str, Any]
ALL_OURS = (OURS, OURS_ON_DISK, OURS_IN_MEMORY, OURS_ON_BOTH)
# The targets: how many times as fast as the others hsipack must be, in later epochs and in total.
LATER, IN_ALL = 5.0, 2.0

HEAD = [
    "loader",
    "first batch s",
    "first epoch cubes/s",
    "min-max",
    "second",
    "third",
    "three epochs s",
    "stored MB",
    "fetched MB, each epoch",
    "peak GB",
    "CPU s/cube",
    "server, link",
    "later epochs from",
    "setting",
]


def judge(rows: list[Json], count: int) -> tuple[list[Json], list[Json]]:
    """Adds the results of the rounds to the rows, and judges each target."""
    rows = [row | figures(row, count) for row in rows]
    there = {row["key"]: row for row in rows if "reason" not in row}
    others = [row for key, row in there.items() if key not in (*ALL_OURS, BARE)]
    verdicts = []

    def ask(
        what: str, ours: str, other: str, wanted: float, seconds: Callable[[Json], float]
    ) -> None:
        if ours in there and other in there:
            times = ratio(there[ours], there[other], seconds)
            verdicts.append(
                {
                    "what": what,
                    "ours": there[ours]["title"],
                    "peer": there[other]["title"],
                    "wanted": wanted,
                    "times": times,
                    "met": times >= wanted,
                }
            )

    for ours in ALL_OURS:
        for row in others:
            ask("first epoch", ours, row["key"], 1.0, lambda one: float(one["epochs_s"][0]))
        ask("first batch", ours, BY_HAND, 1.0, lambda one: float(one["first_batch_s"]))
    for ours in (OURS_ON_DISK, OURS_IN_MEMORY, OURS_ON_BOTH):
        for key in (LITDATA, MOSAIC):
            ask("second epoch", ours, key, LATER, lambda one: float(one["epochs_s"][1]))
        kept = [row for row in others if ours != OURS_ON_DISK or row["keeps"] != "memory"]
        if kept:
            best = min(kept, key=lambda row: float(row["seconds"]))
            ask("three epochs", ours, best["key"], IN_ALL, lambda one: float(one["seconds"]))
    return rows, verdicts


def ratio(ours: Json, other: Json, seconds: Callable[[Json], float]) -> float:
    """How many times as fast: the median of the ratios of each round, because the load of a machine
    changes slowly.
    """
    pairs = zip(ours["rounds"], other["rounds"], strict=True)
    return statistics.median(seconds(theirs) / seconds(own) for own, theirs in pairs)


def figures(row: Json, count: int) -> Json:
    """The medians of the rounds, and the spread of the first epoch's rate."""
    if "reason" in row:
        return {}
    rounds = row["rounds"]
    first = [count / one["epochs_s"][0] for one in rounds]
    cubes = count * len(rounds[0]["epochs_s"])

    def median(of: Callable[[Json], float]) -> float:
        return statistics.median(map(of, rounds))

    return {
        "first_batch_s": median(lambda one: one["first_batch_s"]),
        "first_epoch": statistics.median(first),
        "least": min(first),
        "most": max(first),
        "second_epoch": median(lambda one: count / one["epochs_s"][1]),
        "third_epoch": median(lambda one: count / one["epochs_s"][2]),
        "fetched_bytes": [
            statistics.median(one["fetched_bytes"][epoch] for one in rounds)
            for epoch in range(len(rounds[0]["fetched_bytes"]))
        ],
        "peak_bytes": median(lambda one: one["peak_bytes"]),
        "seconds": median(lambda one: one["seconds"]),
        "cpu_s_per_cube": median(lambda one: one["cpu_s"] / cubes),
        "others_cpu_s_per_cube": median(
            lambda one: (one["server_cpu_s"] + one["link_cpu_s"]) / cubes
        ),
    }


def table(results: Json) -> str:
    """The report in Markdown, for a page of docs/benchmarks and for a terminal."""
    task, machine = results["task"], results["machine"]
    rows, columns, bands = results["shape"]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB; "
        f"Python {machine['python']}",
        ", ".join(f"{name} {version}" for name, version in results["libraries"].items()),
        f"{results['server']}, {results['latency_ms']} ms a request; {task['count']} cubes of "
        f"{rows} x {columns} x {bands}, batches of {task['batch']} on the host, {task['workers']} "
        f"workers or threads, shuffled; medians of {results['rounds']} interleaved rounds "
        "(ratios: of each round's)",
    ]
    for link in results["links"]:
        lines += ["", f"Link: {link['link']}", ""]
        lines += markdown([HEAD, *(cells(row) for row in link["rows"])])
        lines += ["", *(line for row in link["rows"] for line in trials(row))]
        lines += ["", *(verdict(one) for one in link["verdicts"])]
    return "\n".join(lines)


def cells(row: Json) -> list[str]:
    """One line of the table."""
    if "reason" in row:
        return [row["title"], *["-"] * (len(HEAD) - 2), row["reason"]]
    return [
        row["title"],
        f"{row['first_batch_s']:.2f}",
        f"{row['first_epoch']:.1f}",
        f"{row['least']:.1f}-{row['most']:.1f}",
        f"{row['second_epoch']:.1f}",
        f"{row['third_epoch']:.1f}",
        f"{row['seconds']:.1f}",
        f"{row['stored_bytes'] / 1e6:.0f}",
        ", ".join(f"{fetched / 1e6:.0f}" for fetched in row["fetched_bytes"]),
        f"{row['peak_bytes'] / 1e9:.1f}",
        f"{row['cpu_s_per_cube']:.3f}",
        f"{row['others_cpu_s_per_cube']:.3f}",
        row["keeps"] or "the server",
        row["setting"]["name"],
    ]


def trials(row: Json) -> list[str]:
    """The results of each setting that was tried."""
    lines = []
    for one in row.get("tried", []):
        came = f"failed: {one['error']}" if "error" in one else f"{one['seconds']:.1f} s"
        lines.append(f"- {row['title']}: {one['name']}: {came}; {one['why']}")
    return lines


def verdict(one: Json) -> str:
    """One line on a target."""
    return (
        f"{'yes' if one['met'] else 'NO '}  {one['what']}: {one['ours']} is {one['times']:.2f}x "
        f"{one['peer']} (wanted: at least {one['wanted']:g}x)"
    )
