"""The table, and whether hsipack reaches its target speeds."""

from __future__ import annotations

import statistics
from typing import Any

from peers.roster import OURS, RING, RING_SAME_CODEC, RUST

Json = dict[str, Any]
# The targets: hsipack must be at least this many times as fast as each of these peers, and as the
# other peers.
AT_LEAST = {RUST: 0.95, RING: 2.2, RING_SAME_CODEC: 1.1}
AT_LEAST_OTHERS = 3.0

HEAD = [
    "loader",
    "cubes/s",
    "min-max",
    "GB/s fp16",
    "hsipack is",
    "stored ratio",
    "CPU s/cube",
    "peak memory",
    "setting",
]


def judge(rows: list[Json]) -> tuple[list[Json], list[Json]]:
    """Adds the results of the rounds to the rows, and judges each target."""
    rows = [row | figures(row) for row in rows]
    ours = next((row for row in rows if row["key"] == OURS and "reason" not in row), None)
    verdicts = []
    for row in rows:
        if ours is None or "reason" in row or row["key"] == OURS:
            continue
        row["hsipack_times"] = times(ours, row)
        wanted = AT_LEAST.get(row["key"], AT_LEAST_OTHERS)
        met = row["hsipack_times"] >= wanted
        verdicts.append(
            {"peer": row["title"], "wanted": wanted, "times": row["hsipack_times"], "met": met}
        )
    return rows, verdicts


def times(ours: Json, other: Json) -> float:
    """How many times as fast: the median of the ratios of each round, because the load of a machine
    changes slowly.
    """
    pairs = zip(ours["rounds"], other["rounds"], strict=True)
    ratios: list[float] = [one["cubes_per_s"] / two["cubes_per_s"] for one, two in pairs]
    return statistics.median(ratios)


def figures(row: Json) -> Json:
    """The medians of the rounds, and the spread of the rate."""
    if "reason" in row:
        return {}
    rates = [one["cubes_per_s"] for one in row["rounds"]]
    rate = statistics.median(rates)
    return {
        "cubes_per_s": rate,
        "least": min(rates),
        "most": max(rates),
        "gb_per_s": rate * row["cube_bytes"] / 1e9,
        "cpu_s_per_cube": statistics.median(one["cpu_s_per_cube"] for one in row["rounds"]),
        "peak_bytes": max(one["peak_bytes"] for one in row["rounds"]),
    }


def table(results: Json) -> str:
    """The report in Markdown, for a page of docs/benchmarks and for a terminal."""
    task, machine = results["task"], results["machine"]
    rows, columns, bands = results["shape"]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB; "
        f"Python {machine['python']}",
        ", ".join(f"{name} {version}" for name, version in results["libraries"].items()),
        f"{task['count']} cubes of {rows} x {columns} x {bands}, batches of {task['batch']} on the "
        f"host, {task['workers']} workers or threads, files in memory, shuffled, no augmentation; "
        f"medians of {results['rounds']} interleaved rounds (ratios: of each round's)",
        "",
        *markdown([HEAD, *(cells(row) for row in results["rows"])]),
        "",
        *(chosen(row) for row in results["rows"] if "reason" not in row),
        *(failure for row in results["rows"] for failure in failures(row)),
        "",
        *(verdict(one) for one in results["verdicts"]),
    ]
    return "\n".join(lines)


def cells(row: Json) -> list[str]:
    """One line of the table."""
    if "reason" in row:
        return [row["title"], *["-"] * (len(HEAD) - 2), row["reason"]]
    times = f"{row['hsipack_times']:.2f}x" if "hsipack_times" in row else ""
    return [
        row["title"],
        f"{row['cubes_per_s']:.1f}",
        f"{row['least']:.1f}-{row['most']:.1f}",
        f"{row['gb_per_s']:.2f}",
        times,
        f"{row['ratio_stored']:.2f}",
        f"{row['cpu_s_per_cube']:.3f}",
        f"{row['peak_bytes'] / 2**20:.0f} MiB",
        row["setting"]["name"],
    ]


def chosen(row: Json) -> str:
    """The chosen setting, and which others it was compared with."""
    setting, tried = row["setting"], row["tried"]
    rates = [one["cubes_per_s"] for one in tried if "error" not in one]
    best = "the only setting"
    if len(tried) > 1:
        best = f"fastest of {len(tried)} tried ({min(rates):.1f} to {max(rates):.1f} cubes/s)"
    return f"- {row['title']}: {setting['name']}: {best}; {setting['why']}"


def failures(row: Json) -> list[str]:
    """Settings that failed, each with its error."""
    failed = [one for one in row["tried"] if "error" in one]
    return [f"- {row['title']}: {one['name']}: failed: {one['error']}" for one in failed]


def verdict(one: Json) -> str:
    """One line on a target."""
    return (
        f"{'yes' if one['met'] else 'NO '}  {one['times']:.2f}x {one['peer']} "
        f"(wanted: at least {one['wanted']:g}x)"
    )


def markdown(rows: list[list[str]]) -> list[str]:
    """A table with aligned columns; numbers are aligned to the right."""
    last = len(rows[0]) - 1
    widths = [max(len(row[column]) for row in rows) for column in range(last)]

    def line(row: list[str]) -> str:
        padded = [
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=False))
        ]
        return "| " + " | ".join([*padded, row[last]]) + " |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return [line(rows[0]), "| " + " | ".join([*rule, "---"]) + " |", *map(line, rows[1:])]
