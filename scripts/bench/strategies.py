#!/usr/bin/env python3
"""Compares strategies 0 and 1 of `hsipack bench` with the same in Python, alternating in one run.

usage: scripts/bench/strategies.py HSIPACK [--cubes N] [--rounds N] [--workers N] [--batch-size N]
                                [--epochs N] [--folder DIR] [--no-augment] [--json FILE]

HSIPACK is the command, built with `--release`. The Python side uses torch's DataLoader with worker
processes. They read NumPy float32 files (np.load) or Blosc frames of float32 (python-blosc), and
apply the published augmentations to each cube with torch's operations. Both sides have the same
cubes, batches, workers, augmentations (one thread for each worker), order (row, column, band) and
prefetching. In each epoch, both warp and flip the same cubes: the package `hsipack`, which
scripts/test installs, draws this for the Python side. Every round has another seed. Files are in
memory. Prints cubes per second of each, and the speed of hsipack's strategies relative to Python
(medians). They should not be slower than Python; otherwise `hsipack bench` would exaggerate the
gain of its last strategy.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import blosc
import numpy as np
import torch
from hsipack.augment import (
    AugmentationSequential,
    RandomAffine,
    RandomHorizontalFlip,
    RandomVerticalFlip,
)
from torch.nn.functional import affine_grid, grid_sample
from torch.utils.data import DataLoader, Dataset, Sampler

Json = dict[str, Any]
STEP_S = 0.001
PAIRS = {"original": "DataLoader + np.load", "+blosc": "DataLoader + python-blosc"}


# For every epoch and cube: whether it is warped, flipped left to right, flipped upside down.
Drawn = list[list[list[bool]]]


def draw(seed: int, epochs: int, cubes: int, shape: Sequence[int]) -> Drawn:
    """Draws what `hsipack bench` does to the cubes with this seed."""
    chain = AugmentationSequential(
        RandomAffine(45.0, (0.0625, 0.0625), (0.9, 1.1), padding_mode="reflection", p=0.5),
        RandomHorizontalFlip(p=0.25),
        RandomVerticalFlip(p=0.25),
        seed=seed,
    )
    drawn = []
    for epoch in range(epochs):
        chain(torch.zeros(cubes, 1, *shape[:2]), ids=list(range(cubes)), epoch=epoch)
        parameters = chain.parameters or {}
        steps = [step["drawn"] for step in parameters["steps"]]
        drawn.append([[step[cube] is not None for step in steps] for cube in range(cubes)])
    return drawn


def augment(cube: torch.Tensor, drawn: list[bool], chance: np.random.Generator) -> torch.Tensor:
    """Applies the published chain to a cube (row, column, band)."""
    rows, columns, _ = cube.shape
    warped, *flipped = drawn
    if warped:
        turn, scale = math.radians(chance.uniform(-45, 45)), chance.uniform(0.9, 1.1)
        x, y = chance.uniform(-0.0625, 0.0625, 2)
        cos, sin = math.cos(turn) / scale, math.sin(turn) / scale
        theta = torch.tensor(
            [[[cos, sin * rows / columns, x], [-sin * columns / rows, cos, y]]],
            dtype=torch.float32,
        )
        image = cube.permute(2, 0, 1)[None]
        grid = affine_grid(theta, list(image.shape), align_corners=False)
        image = grid_sample(image, grid, padding_mode="reflection", align_corners=False)
        cube = image[0].permute(1, 2, 0).contiguous()
    for axis, flip in zip((1, 0), flipped, strict=True):
        if flip:
            cube = cube.flip([axis])
    return cube


class Files(Dataset[torch.Tensor]):
    """One cube from each file."""

    def __init__(
        self, files: list[Path], shape: tuple[int, ...] | None, drawn: Drawn | None
    ) -> None:
        self.files = files
        self.shape = shape
        self.drawn = drawn
        self.chance: np.random.Generator | None = None

    def __getitem__(self, item: tuple[int, int]) -> torch.Tensor:
        epoch, number = item
        if self.chance is None:
            # At its first cube, each worker sets one thread and its own random numbers.
            blosc.set_nthreads(1)
            torch.set_num_threads(1)
            self.chance = np.random.default_rng(os.getpid())
        cube = torch.from_numpy(self.load(self.files[number]))
        if self.drawn is None:
            return cube
        # Cubes loaded ahead after the last epoch are never used, so their draws may repeat.
        return augment(cube, self.drawn[epoch % len(self.drawn)][number], self.chance)

    def load(self, file: Path) -> np.ndarray:
        if self.shape is None:
            values: np.ndarray = np.load(file)
            return values
        values = np.empty(self.shape, np.float32)
        blosc.decompress_ptr(file.read_bytes(), values.ctypes.data)
        return values


class Batches(Sampler[list[tuple[int, int]]]):
    """Shuffled batches of (epoch, cube), for endless epochs without a gap."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        chance = np.random.default_rng(0)
        for epoch in itertools.count():
            order = [(epoch, int(number)) for number in chance.permutation(self.count)]
            for start in range(0, self.count, self.size):
                yield order[start : start + self.size]


def python_side(spec: Json) -> float:
    """Cubes per second of torch's DataLoader."""
    shape = tuple(spec["shape"]) if spec["blosc"] else None
    files = [Path(file) for file in spec["files"]]
    batches = Batches(len(files), spec["batch"])
    loader: DataLoader[Any] = DataLoader(
        Files(files, shape, spec["drawn"]),
        batch_sampler=batches,
        num_workers=spec["workers"],
        prefetch_factor=2,
        persistent_workers=True,
    )
    stream = iter(loader)
    per_epoch = math.ceil(len(files) / spec["batch"])

    def run(epochs: int) -> float:
        start = time.perf_counter()
        for _ in range(epochs * per_epoch):
            batch = next(stream)
            time.sleep(STEP_S)
            del batch
        return time.perf_counter() - start

    run(1)
    return float(spec["epochs"] * len(files) / run(spec["epochs"]))


def measure_python(spec: Json) -> float:
    """The same, measured in a process of its own."""
    command = [sys.executable, __file__, "--python-side", json.dumps(spec)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1])


def measure_hsipack(words: list[str], options: argparse.Namespace) -> Json:
    """Runs `hsipack bench`, and returns its report."""
    command = [
        str(options.hsipack), "bench", "--work-dir", str(options.folder), "--keep", "--json",
        "--cubes", str(options.cubes), "--workers", str(options.workers),
        "--batch-size", str(options.batch_size), "--epochs", str(options.epochs),
        "--step-time", f"{STEP_S}s", "--device", "cpu", "--repeats", "1", *words,
    ]  # fmt: skip
    if options.no_augment:
        command.append("--no-augment")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    report: Json = json.loads(done.stdout)
    return report


def write_frames(files: list[Path], codec: str, folder: Path) -> list[Path]:
    """Writes Blosc frames of the cubes with the codec of strategy 1, such as `lz4hc 9 byte`."""
    cname, level, _ = codec.split()
    folder = folder / f"frames-{cname}-{level}"
    folder.mkdir(exist_ok=True)
    frames = []
    for file in files:
        frame = folder / f"{file.stem}.blosc"
        if not frame.exists():
            cube = np.load(file)
            packed = blosc.compress_ptr(
                cube.ctypes.data, cube.size, 4, int(level), blosc.SHUFFLE, cname
            )
            frame.write_bytes(packed)
        frames.append(frame)
    return frames


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--python-side":
        print(python_side(json.loads(sys.argv[2])))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("hsipack", type=Path, help="the command, built with --release")
    parser.add_argument("--cubes", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=3, help="epochs measured in a round")
    parser.add_argument("--folder", type=Path, default=Path("bench"), help="folder for cubes")
    parser.add_argument("--no-augment", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    # A relative path must not be looked for in PATH.
    options.hsipack = options.hsipack.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    print("writing files", file=sys.stderr, flush=True)
    data = measure_hsipack(["--strategies", "0,1", "--warmup-epochs", "0"], options)["data"]
    size = data["shape"]
    npy = sorted(Path(data["original"]).glob("*.npy"))
    spec: Json = {
        "shape": [size["rows"], size["columns"], size["bands"]],
        "batch": options.batch_size,
        "workers": options.workers,
        "epochs": options.epochs,
    }
    codec = data["codecs"][1]
    print(f"+blosc is {codec}, the fastest codec tried", file=sys.stderr, flush=True)
    files = {"original": npy, "+blosc": write_frames(npy, codec, options.folder)}
    rates: dict[str, list[float]] = {name: [] for pair in PAIRS.items() for name in pair}
    for number in range(options.rounds):
        epochs = 1 + options.epochs
        drawn = draw(number, epochs, len(npy), spec["shape"]) if not options.no_augment else None
        for strategy, python in PAIRS.items():
            print(f"round {number + 1}: {strategy}", file=sys.stderr, flush=True)
            report = measure_hsipack(["--strategies", strategy, "--seed", str(number)], options)
            rates[strategy].append(report["strategies"][0]["cubes_per_s"]["mean"])
            own = {
                "files": [str(file) for file in files[strategy]],
                "blosc": strategy != "original",
                "drawn": drawn,
            }
            rates[python].append(measure_python(spec | own))
    for strategy, python in PAIRS.items():
        ours, theirs = (statistics.median(rates[name]) for name in (strategy, python))
        pairs = zip(rates[strategy], rates[python], strict=True)
        ratios = [one / other for one, other in pairs]
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{strategy:10} {ours:6.2f} cubes/s   {python:26} {theirs:6.2f} cubes/s   "
              f"{statistics.median(ratios):.2f}x (rounds: {each})")  # fmt: skip
    if options.json is not None:
        options.json.write_text(json.dumps({"cubes_per_s": rates, "settings": spec}) + "\n")


if __name__ == "__main__":
    main()
