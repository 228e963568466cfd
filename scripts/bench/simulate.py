#!/usr/bin/env python3
"""Compares the predictions of `hsipack simulate --from` with runs of `hsipack read`.

usage: scripts/bench/simulate.py HSIPACK DATASET ... [--batch-size N] [--rounds N] [--seconds S]
                              [--read OPTIONS] [--json FILE]

HSIPACK is the command. Each DATASET is read without a step, with steps of half, once and twice the
time to load a batch, and with reads limited so that they take twice as long as decoding. Each run
is simulated from the statistics that it prints. Prints the batches per second of run and
simulation, for the epochs after the first. Every prediction should be within 10 %.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

Json = dict[str, Any]
WITHIN = 0.10


def run(*command: str) -> Json:
    """Runs a command, and returns the JSON that it prints. Its other output matters only if it
    fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr.rstrip()}")
    return dict(json.loads(done.stdout))


def microseconds(seconds: float) -> str:
    return f"{max(1, round(seconds * 1e6))}us"


class Cases:
    """One dataset, read in several ways."""

    def __init__(
        self, hsipack: str, dataset: str, batch_size: int, seconds: float, more: list[str]
    ):
        self.read = [hsipack, "read", dataset, "--batch-size", str(batch_size), "--json", *more]
        self.hsipack = hsipack
        self.dataset = dataset
        self.seconds = seconds
        first = run(*self.read, "--epochs", "20")
        later = first["later_epochs"]
        self.batches = first["batches_per_epoch"]
        self.load_s = later["seconds"] / later["batches"]
        self.stored = first["stored_bytes"] / first["batches"]

    def options(self) -> dict[str, tuple[list[str], float]]:
        """The ways by name: options of `hsipack read`, and the expected seconds of a batch."""
        ways: dict[str, tuple[list[str], float]] = {"none": ([], self.load_s)}
        for times in (0.5, 1.0, 2.0):
            step = times * self.load_s
            ways[f"{step * 1e3:.3g} ms"] = (
                ["--step-time", microseconds(step)],
                max(step, self.load_s),
            )
        rate = self.stored / (2.0 * self.load_s)
        limited = ["--rate-limit", f"{round(rate)}B/s", "--step-time", microseconds(self.load_s)]
        name = f"{self.load_s * 1e3:.3g} ms, reads at {rate / 1e6:.3g} MB/s"
        ways[name] = (limited, 2.0 * self.load_s)
        return ways

    def measure(self, name: str, options: list[str], batch_s: float) -> Json:
        epochs = max(3, round(self.seconds / (batch_s * self.batches)))
        real = run(*self.read, *options, "--epochs", str(epochs))
        later = real["later_epochs"]
        rate = later["batches"] / later["seconds"]
        with tempfile.TemporaryDirectory() as folder:
            statistics = Path(folder, "run.json")
            statistics.write_text(json.dumps(real))
            duration = microseconds(later["seconds"])
            simulated = run(
                self.hsipack,
                "simulate",
                "--from",
                str(statistics),
                "--duration",
                duration,
                "--json",
            )
        promised = simulated["batches_per_s"]
        return {
            "dataset": self.dataset,
            "step": name,
            "batches": later["batches"],
            "real_per_s": rate,
            "simulated_per_s": promised,
            "error": promised / rate - 1.0,
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("hsipack", metavar="HSIPACK")
    parser.add_argument("datasets", metavar="DATASET", nargs="+")
    parser.add_argument("--batch-size", type=int, default=6, metavar="N", help="default: 6")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument(
        "--seconds", type=float, default=4.0, metavar="S", help="seconds a run, about; default: 4"
    )
    parser.add_argument(
        "--read",
        type=shlex.split,
        default=[],
        metavar="OPTIONS",
        help="more options for hsipack read, such as '--device cuda --decode device'",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs to this file")
    args = parser.parse_args()

    runs: list[Json] = []
    print("| dataset | step | real | simulated | error |\n|---|---|---:|---:|---:|")
    for dataset in args.datasets:
        cases = Cases(args.hsipack, dataset, args.batch_size, args.seconds, args.read)
        for name, (options, batch_s) in cases.options().items():
            for _ in range(args.rounds):
                done = cases.measure(name, options, batch_s)
                runs.append(done)
                columns = [Path(dataset).name, name]
                columns += [f"{done[key]:.4g}" for key in ("real_per_s", "simulated_per_s")]
                print("| " + " | ".join(columns) + f" | {done['error']:+.1%} |", flush=True)
    near = sum(abs(one["error"]) <= WITHIN for one in runs)
    print(f"\n{near} of {len(runs)} within {WITHIN:.0%}")
    if args.json:
        args.json.write_text(json.dumps(runs, indent=1) + "\n")
    return 0 if near == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
