#!/usr/bin/env python3
"""Measures how long a training step waits for batches that the CPU converts and augments.

usage: .venv/bin/python scripts/bench/prepare.py [--folder FOLDER] [--rounds 5] [--batches 40]
           [--baseline FOLDER]

Packs 12 cubes of 480 x 640 x 100 into FOLDER (default: target/prepare), and keeps them decoded in
memory. Iterates over hsipack.Loader with batches on the CPU: as they are stored, converted, and
converted and augmented. First without a step, then with one that takes as long as such a batch did
without preparing ahead, on another processor (it sleeps). --baseline is the folder of another build
of the package, which takes its turns in the same run. Each turn is a process of its own. Prints
medians: ms a batch, and with a step, how much of it is waiting. Run it on a machine that does
nothing else.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1]
CASES = {
    "cubes as stored": ("(480, 640)", 6, "{}"),
    "cubes to float32": ("None", 6, "{'dtype': 'float32'}"),
    "crops to float32, augmented": (
        "(128, 128)",
        12,
        "{'dtype': 'float32', 'normalize': 'standardize', 'augment': ["
        "a.RandomHorizontalFlip(), a.RandomAffine(20), a.RandomGaussianNoise(std=0.01)]}",
    ),
    "patches of 9 x 9 to float32, augmented": (
        "hsipack.RandomCrop((9, 9), per_cube=400)",
        64,
        "{'dtype': 'float32', 'augment': [a.RandomHorizontalFlip(), a.RandomRotation(90)]}",
    ),
    "patches of 9 x 9 as stored": ("hsipack.RandomCrop((9, 9), per_cube=400)", 64, "{}"),
}


def turn(path: Path, case: str, step_ms: float, batches: int) -> None:
    """Iterates over a loader of the package on the path. Prints ms a batch and ms of waiting."""
    import hsipack
    import hsipack.augment as a

    crop, size, options = CASES[case]
    names = {"hsipack": hsipack, "a": a}
    loader = hsipack.Loader(
        path,
        size,
        crop=eval(crop, names),
        shuffle=True,
        seed=1,
        device="cpu",
        cache="decoded",
        cache_size=8 << 30,
        **eval(options, names),
    )

    iteration = iter(loader)

    def batch() -> Any:
        nonlocal iteration
        while True:
            for taken in iteration:
                return taken
            iteration = iter(loader)

    start = loader.epoch
    # Until everything is in memory, and the threads have their memory.
    while loader.epoch < start + 2:
        batch()
    waited = 0.0
    begin = time.perf_counter()
    for _ in range(batches):
        asked = time.perf_counter()
        batch()
        waited += time.perf_counter() - asked
        if step_ms:
            time.sleep(step_ms * 1e-3)
    total = time.perf_counter() - begin
    loader.close()
    print(json.dumps([1e3 * total / batches, 1e3 * waited / batches]))


def run(build: Path | None, words: list[str]) -> tuple[float, float]:
    """A turn in a process of its own, with a build of the package."""
    environment = dict(os.environ)
    if build is not None:
        environment["PYTHONPATH"] = str(build)
    done = subprocess.run(
        [sys.executable, __file__, "--turn", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    total, waited = json.loads(done.stdout)
    return total, waited


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--folder", type=Path, default=Path("target/prepare"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--baseline", type=Path, help="a folder with another build of the package")
    parser.add_argument("--turn", nargs=4, help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.turn:
        path, case, step_ms, batches = found.turn
        return turn(Path(path), case, float(step_ms), int(batches))
    found.folder.mkdir(parents=True, exist_ok=True)
    path = found.folder / "cubes.hsipack"
    if not path.exists():
        raw = found.folder / "raw"
        shutil.rmtree(raw, ignore_errors=True)
        draw = [sys.executable, str(SCRIPTS / "dev/make_cubes.py"), str(raw), "--count=12"]
        pack = ["hsipack", "convert", str(raw / "*.hdr"), str(raw / "*.npy"), "-o", str(path)]
        for words in (draw, pack):
            subprocess.run(words, check=True, capture_output=True)
        shutil.rmtree(raw)
    builds = {"baseline": found.baseline, "now": None} if found.baseline else {"now": None}
    first = next(iter(builds.values()))
    for case in CASES:
        few = str(found.batches if "patches" not in case else 20 * found.batches)
        alone = statistics.median(
            run(first, [str(path), case, "0", few])[0] for _ in range(found.rounds)
        )
        print(f"{case}: step of {alone:.2f} ms", flush=True)
        for step in (0.0, alone):
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in builds}
            for _ in range(found.rounds):
                for name, build in builds.items():
                    times[name].append(run(build, [str(path), case, str(step), few]))
            for name, rounds in times.items():
                total, waited = (statistics.median(column) for column in zip(*rounds, strict=True))
                least, most = min(one[0] for one in rounds), max(one[0] for one in rounds)
                shown = f"{total:.2f} ms a batch ({least:.2f} to {most:.2f})"
                kind = f"with the step, waiting {waited:.2f} ms" if step else "without a step"
                print(f"  {name}, {kind}: {shown}", flush=True)


if __name__ == "__main__":
    main()
