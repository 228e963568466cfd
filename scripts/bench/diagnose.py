#!/usr/bin/env python3
"""Plants bottlenecks, and checks whether `hsipack diagnose` names them and predicts the gains.

usage: scripts/bench/diagnose.py [--runs N] [--rounds N] [--time S] [--hsipack COMMAND]
                               [--json FILE]

COMMAND is hsipack (default: $HSIPACK, or `hsipack` on the PATH). Packs small cubes twice, with a
fast and a slow codec, and measures the time of decoding without `diagnose` (`hsipack read`). Then
makes each part in turn take 2 and 1.3 times as long as the rest:

  disk       by a rate limit
  decode     by a short step and a slow codec
  augment    by a short step
  copy       by a slow emulated bus
  step       by a longer step; then diagnose must name no part

The same holds for a pipeline without a bottleneck. Decoding and augmentation are
measured right before they are planted, and again after the run. If such a part then takes less than
1.1 times as long as the rest, the machine has become so much faster that there is no bottleneck.
These runs are set aside, counted, and repeated. Every run is one process; the cases take turns.
Prints how often the right part was named, and how far the predicted gains were from the measured
gains (`--verify`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]

BATCH = 6
# Seconds of a step that takes longer than everything else.
STEP = 0.04
# Largest accepted error of a predicted gain.
WITHIN = 0.15
# After a run, a planted part must take at least STILL times as long as the rest. A run is made at
# most TRIES times.
STILL, TRIES = 1.1, 4
# The augmentations of the case `augment`: warps of every sample.
AUGMENT: list[Json] = [
    {"op": "affine", "degrees": 45, "padding": "reflection", "p": 1.0},
    {"op": "hflip", "p": 1.0},
]


@dataclass
class Case:
    """A planted bottleneck."""

    name: str
    factor: float
    # The part that diagnose should name; several parts if they cannot be told apart.
    culprits: tuple[str | None, ...]
    dataset: Path
    options: list[str]
    # Seconds of a step, unless it is derived from the time of another part.
    step: float = STEP
    # Measures the seconds of the planted part.
    part: Callable[[], float] | None = None
    # Whether part and step follow each other, so that together they take `factor` steps.
    serial: bool = False
    # Runs after which there was no bottleneck any longer.
    set_aside: int = 0
    # Runs that diagnose measured more than once, and runs in which the machine's speed never
    # stayed constant.
    again: int = 0
    unsteady: int = 0
    named: list[str | None] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    gains: list[tuple[float, float]] = field(default_factory=list)

    def step_for(self, part: float) -> float:
        """The seconds of a step that makes a part of these seconds the bottleneck."""
        return part / (self.factor - self.serial)

    def factor_of(self, part: float, step: float) -> float:
        """How many times as long as the step the time is that it waits for."""
        return part / step + self.serial

    @property
    def right(self) -> int:
        """The number of runs that named the right part."""
        return sum(name in self.culprits for name in self.named)


class Bench:
    """The command, and the files that it is tested with."""

    def __init__(self, command: str, folder: Path, rounds: int, seconds: float) -> None:
        self.command = command
        self.folder = folder
        self.rounds = rounds
        self.seconds = seconds
        self.augment = folder / "augment.json"
        self.augment.write_text(json.dumps(AUGMENT))

    def run(self, *arguments: str | Path) -> Json:
        """Runs a command, and returns the JSON that it prints."""
        done = subprocess.run(
            [self.command, *map(str, arguments), "--json"], capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"error: {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        report: Json = json.loads(done.stdout)
        return report

    def pack(self, name: str, codec: list[str]) -> Path:
        """Packs a dataset of small cubes."""
        cubes, packed = self.folder / "cubes", self.folder / f"{name}.hsipack"
        if not cubes.exists():
            print("drawing cubes")
            size = ["--count", "48", "--rows", "160", "--columns", "160", "--bands", "100"]
            drawing = [sys.executable, str(ROOT / "scripts/dev/make_cubes.py"), str(cubes), *size]
            subprocess.run(drawing, check=True, stdout=subprocess.DEVNULL)
        self.run("convert", cubes, "-o", packed, "--exclude", "*/masks/*", *codec)
        return packed

    def decoding(self, dataset: Path, threads: int) -> float:
        """Seconds to decode a batch."""
        options = ["--batch-size", str(BATCH), "--threads", str(threads), "--epochs", "6"]
        rates = [self.run("read", dataset, *options)["later_epochs"]["cubes_per_s"] for _ in "123"]
        return float(BATCH / statistics.median(rates))

    def diagnose(self, dataset: Path, step: float, rounds: int, *options: str) -> Json:
        """Runs `hsipack diagnose`."""
        return self.run(
            *("diagnose", str(dataset), "--step-time", f"{step * 1e6:.0f}us"),
            *("--batch-size", str(BATCH), "--device", "cpu"),
            *("--rounds", str(rounds), "--time", f"{self.seconds * 1e3:.0f}ms"),
            *options,
        )

    def augmenting(self, dataset: Path) -> float:
        """Seconds to augment a batch, from the levels of a few rounds."""
        report = self.diagnose(dataset, STEP, 2, "--augment", str(self.augment))
        costs = {row["level"]: row["cost_s"] for row in report["rows"]}
        return float(costs["augment"])


def cases(bench: Bench, fast: Path, slow: Path) -> list[Case]:
    """The cases to run."""
    stored = sum(path.stat().st_size for path in fast.rglob("*") if path.is_file()) / 48 * BATCH
    bytes_ = BATCH * 160 * 160 * 100 * 2
    decoding, augmenting = bench.decoding(slow, 1), bench.augmenting(fast)
    print(
        f"a batch of {BATCH}: decoding with one thread and zstd {decoding * 1e3:.1f} ms, "
        f"augmenting {augmenting * 1e3:.1f} ms, {stored / 1e6:.1f} MB stored"
    )
    made = [Case("nothing", 1.0, (None,), fast, [])]
    for factor in (2.0, 1.3):
        rate = ["--rate-limit", f"{stored / (STEP * factor):.0f}B/s"]
        bus = ["--emulate-bus", f"{bytes_ / (STEP * factor):.0f}B/s"]
        one = ["--threads", "1"]
        augment = ["--augment", str(bench.augment)]
        made += [
            Case("disk", factor, ("read",), fast, rate),
            Case("decode", factor, ("decode",), slow, one, part=lambda: bench.decoding(slow, 1)),
            Case(
                *("augment", factor, ("augment",), fast, augment),
                part=lambda: bench.augmenting(fast),
                serial=True,
            ),
            Case("copy", factor, ("copy",), fast, bus),
            Case("step", factor, (None,), fast, [], step=STEP * factor),
        ]
    return made


def planted_run(bench: Bench, case: Case, number: int) -> Json:
    """Diagnoses until the planted bottleneck is still there after the run, at most TRIES times."""
    options = (*case.options, "--verify")
    if case.part is None:
        return bench.diagnose(case.dataset, case.step, bench.rounds, *options)
    for again in range(TRIES):
        step = case.step_for(case.part())
        report = bench.diagnose(case.dataset, step, bench.rounds, *options)
        factor = case.factor_of(case.part(), step)
        if factor >= STILL or again + 1 == TRIES:
            break
        case.set_aside += 1
        print(f"  run {number}: {case.name} {case.factor}: set aside: {factor:.2f} now", end="")
        print(f"; named {report['culprit']}")
    return report


def try_once(bench: Bench, case: Case, number: int) -> None:
    """Runs a case, and prints a line if the result is wrong."""
    report = planted_run(bench, case, number)
    case.named.append(report["culprit"])
    rows = {row["level"]: round(row["batch_s"] * 1e3, 2) for row in report["rows"]}
    where = f"  run {number}: {case.name} {case.factor}"
    if case.named[-1] not in case.culprits:
        sure = "" if report["settled"] else ", unsure"
        print(f"{where}: named {case.named[-1]}{sure}: {rows}")
    verified = report["verified"]
    case.again += report["attempts"] > 1
    case.unsteady += verified is not None and not verified["steady"]
    if verified and verified["error"] is not None:
        predicted = report["remedy"]["predicted_gain"]
        case.errors.append(verified["error"])
        case.gains.append((predicted, verified["gain"]))
        if abs(verified["error"]) > WITHIN:
            gains = f"predicted {predicted:.2f}x, measured {verified['gain']:.2f}x"
            print(f"{where}: {gains}{'' if verified['steady'] else ', unsure'}: {rows}")


def main() -> None:
    """Packs, runs all cases in turn, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=110, help="number of runs [default: 110]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each run [default: 5]")
    parser.add_argument("--time", type=float, default=0.2, help="seconds of a level [default: 0.2]")
    parser.add_argument("--hsipack", default=os.environ.get("HSIPACK", "hsipack"))
    parser.add_argument("--json", type=Path, help="write all results to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hsipack-diagnose-") as folder:
        bench = Bench(arguments.hsipack, Path(folder), arguments.rounds, arguments.time)
        fast = bench.pack("fast", [])
        slow = bench.pack("slow", ["--codec", "zstd", "--level", "9"])
        planted = cases(bench, fast, slow)
        start = time.monotonic()
        for number, case in zip(range(arguments.runs), itertools.cycle(planted)):
            try_once(bench, case, number)
            if arguments.json:
                results = [vars(case) | {"part": None} for case in planted]
                arguments.json.write_text(json.dumps(results, default=str))
        print(f"{arguments.runs} runs in {time.monotonic() - start:.0f} s")
    show(planted)


def show(planted: list[Case]) -> None:
    """Prints the table."""
    print(f"{'planted':<9}{'times':>6}{'right':>9}  {'predicted':>9}{'measured':>9}{'error':>15}")
    for case in planted:
        line = f"{case.name:<9}{case.factor:>6}{case.right:>6}/{len(case.named):<3}"
        if case.gains:
            predicted = statistics.median(gain for gain, _ in case.gains)
            measured = statistics.median(gain for _, gain in case.gains)
            error = statistics.median(case.errors)
            worst = max(case.errors, key=abs)
            line += f" {predicted:>8.2f}x{measured:>8.2f}x{error:>+7.1%}, worst {worst:+.1%}"
        print(line)
    runs = sum(len(case.named) for case in planted)
    right = sum(case.right for case in planted)
    errors = [abs(error) for case in planted for error in case.errors]
    within = sum(error <= WITHIN for error in errors)
    aside = sum(case.set_aside for case in planted)
    again = sum(case.again for case in planted)
    unsteady = sum(case.unsteady for case in planted)
    print(f"{aside} runs set aside, after which there was no bottleneck any longer")
    print(f"{again} runs that diagnose measured more than once, {unsteady} that it called unsure")
    print(f"right in {right} of {runs} runs ({right / runs:.1%}); ", end="")
    print(f"predicted gain within 15 % of the measured one in {within} of {len(errors)}")


if __name__ == "__main__":
    main()
