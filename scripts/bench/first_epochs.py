#!/usr/bin/env python3
"""Measures first batches and epochs of local datasets, with and without a cache.

usage: .venv/bin/python scripts/bench/first_epochs.py [--folder FOLDER] [--rounds 5] [--epochs 6]
           [--hsipack PROGRAM] [--baseline PROGRAM]

Packs 12 cubes of 480 x 640 x 100 and 200 cubes of 64 x 64 x 100 into FOLDER (default:
target/first_epochs). Reads them with `hsipack read`, with the files in the system's cache: whole
cubes, crops, and the small cubes; without a cache, with the default, and with `--cache decoded`.
All of them take turns, ROUNDS times, each in a process of its own. With --baseline, another build
of the command takes its turns in the same run. Prints medians: cubes/s of the first epoch including
the start of the loader, cubes/s of each epoch, and what keeping chunks took and saved. Then it
times the first batch of hsipack.Loader, and single samples (ds[i]) beside np.load of the same
values. Needs the package and the command as scripts/test installs them. Run it on a machine that
does nothing else.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hsipack
import numpy as np

SCRIPTS = Path(__file__).resolve().parents[1]
# Name, dataset, and the options with which it is read.
READS = [
    ("12 cubes", "large", ["--batch-size", "6"]),
    ("crops of 128 x 128", "large", ["--batch-size", "12", "--windows", "random", "128x128"]),
    ("200 small cubes", "small", ["--batch-size", "12"]),
]
CACHES = {"none": [], "auto": [], "decoded": ["--cache-size", "4GB"]}
SIZES = {"large": (12, 480, 640), "small": (200, 64, 64)}


def packed(folder: Path, name: str, command: str) -> Path:
    """The dataset of this name, packed if it is not there."""
    path = folder / f"{name}.hsipack"
    if not path.exists():
        count, rows, columns = SIZES[name]
        raw = folder / "raw"
        shutil.rmtree(raw, ignore_errors=True)
        size = [f"--count={count}", f"--rows={rows}", f"--columns={columns}"]
        cubes = [str(raw / "*.hdr"), str(raw / "*.npy")]
        draw: list[str | Path] = [sys.executable, SCRIPTS / "dev/make_cubes.py", raw, *size]
        pack: list[str | Path] = [command, "convert", *cubes, "-o", path]
        for words in (draw, pack):
            subprocess.run(words, check=True, capture_output=True)
        shutil.rmtree(raw)
    # Reads all files into the system's cache.
    for file in path.rglob("*"):
        if file.is_file():
            file.read_bytes()
    return path


def read(command: str, path: Path, cache: str, epochs: int, options: list[str]) -> dict[str, Any]:
    """Reads some epochs; returns cubes/s and the report about the cache."""
    words = [command, "read", path, "--epochs", epochs, "--cache", cache, *CACHES[cache], *options]
    done = subprocess.run([*map(str, words), "--json"], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    epochs_s = [epoch["seconds"] for epoch in report["per_epoch"]]
    count = report["per_epoch"][0]["samples"]
    return {
        "rates": [count / seconds for seconds in (report["setup_s"] + epochs_s[0], *epochs_s)],
        "keeping_s": report["cache"].get("keeping_s", 0.0),
        "saved_s": report["cache"].get("saved_s", 0.0),
    }


def compare(
    builds: dict[str, str], path: Path, found: argparse.Namespace, words: list[str]
) -> None:
    """Reads a dataset with each build and cache in turns, and prints the medians."""
    rounds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(found.rounds):
        for build, command in builds.items():
            for cache in CACHES:
                done = read(command, path, cache, found.epochs, words)
                rounds.setdefault((build, cache), []).append(done)
    for (build, cache), all_of_it in rounds.items():
        columns = zip(*(one["rates"] for one in all_of_it), strict=True)
        with_start, *rates = [f"{statistics.median(column):.0f}" for column in columns]
        took, saved = (
            statistics.median(one[key] for one in all_of_it) for key in ("keeping_s", "saved_s")
        )
        print(
            f"  {build}, {cache}: {with_start} with the start; {' '.join(rates)}"
            + (f"; keeping took {took:.3f} s, saved {saved:.3f} s" if took else ""),
            flush=True,
        )


def milliseconds(work: Callable[[], object], rounds: int) -> str:
    """Median, least and greatest time of some calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return f"{statistics.median(times):.0f} ms ({min(times):.0f} to {max(times):.0f})"


def first_batch(path: Path, cache: str | None) -> Callable[[], object]:
    """Makes a loader and takes its first batch."""

    def work() -> object:
        with hsipack.Loader(path, batch_size=6, cache=cache) as loader:
            return next(iter(loader))

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--folder", type=Path, default=Path("target/first_epochs"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--hsipack", default="hsipack", help="the command [default: on the PATH]")
    parser.add_argument("--baseline", help="another build of the command, which takes its turns")
    found = parser.parse_args()
    found.folder.mkdir(parents=True, exist_ok=True)
    builds = {"now": found.hsipack}
    if found.baseline:
        builds = {"baseline": found.baseline} | builds
    for title, name, words in READS:
        print(f"{title}, cubes/s", flush=True)
        compare(builds, packed(found.folder, name, found.hsipack), found, words)

    path = packed(found.folder, "large", found.hsipack)
    for cache in (None, "auto"):
        took = milliseconds(first_batch(path, cache), found.rounds)
        print(f"first batch of 6 cubes, cache={cache!r}: {took}")
    samples = hsipack.open(path)
    numbers = iter(range(1 << 30))
    took = milliseconds(lambda: samples[next(numbers) % len(samples)], 4 * found.rounds)
    print(f"ds[i]: {took}")
    file = found.folder / "cube.npy"
    np.save(file, np.asarray(samples[0]["image"]))
    print(f"np.load of the same values: {milliseconds(lambda: np.load(file), 4 * found.rounds)}")


if __name__ == "__main__":
    main()
