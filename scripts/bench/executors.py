#!/usr/bin/env python3
"""Compares packing over an executor with packing in one process that has as many threads.

usage: PYTHON scripts/bench/executors.py [--count 24] [--rounds 5] [--workers 2] [--folder FOLDER]

PYTHON needs the package hsipack as a release build (pip install .), dask and distributed. Draws
cubes of 480x640x100 into FOLDER (default: target/executors). Packs them in turns with
hsipack.convert alone, with a pool of processes, and with a Dask cluster on this machine; pool and
cluster are started beforehand. Prints the medians, and their ratios to the first.
"""

import argparse
import importlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import hsipack


def packed(folder: Path, options: dict[str, Any]) -> float:
    """Packs, and returns the seconds."""
    out = folder / "out.hsipack"
    shutil.rmtree(out, ignore_errors=True)
    start = time.monotonic()
    leave: dict[str, Any] = {"exclude": "*_instrument.npy", "shard_size": 128_000_000}
    hsipack.convert(folder / "cubes", out, **leave, **options)
    return time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("target/executors"))
    options = parser.parse_args()
    cubes = options.folder / "cubes"
    if len(list(cubes.glob("scene_*"))) < options.count:
        shutil.rmtree(cubes, ignore_errors=True)
        draw = Path(__file__).parents[1] / "dev/make_cubes.py"
        subprocess.run([sys.executable, draw, cubes, "--count", str(options.count)], check=True)
    distributed = importlib.import_module("distributed")
    spawn = get_context("spawn")
    with (
        ProcessPoolExecutor(options.workers, mp_context=spawn) as pool,
        distributed.LocalCluster(
            n_workers=options.workers, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        ways: dict[str, dict[str, Any]] = {
            "alone": {"num_threads": options.workers},
            "processes": {"executor": pool},
            "dask": {"executor": client},
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for round in range(options.rounds + 1):
            for name, how in ways.items():
                took = packed(options.folder, how)
                # Skip the first round, which reads cubes from the disk and starts processes.
                if round > 0:
                    seconds[name].append(took)
    medians = {name: statistics.median(all) for name, all in seconds.items()}
    for name, median in medians.items():
        ratio = medians["alone"] / median
        all = ", ".join(f"{one:.2f}" for one in seconds[name])
        print(f"{name:10} {median:6.2f} s  {ratio:.3f} of alone's speed  ({all})")
    print(json.dumps({"count": options.count, "workers": options.workers, "seconds": seconds}))


if __name__ == "__main__":
    main()
