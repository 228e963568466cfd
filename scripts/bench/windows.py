#!/usr/bin/env python3
"""Compares patches and spectra around labelled pixels with the code that people write for them.

usage: .venv/bin/python scripts/bench/windows.py [--folder FOLDER] [--rounds N]

Draws a scene of 610 x 340 pixels with 103 bands and nine classes, packs it, and reads it with 2
threads or workers:

  hsipack     Loader(crop=LabelledPatches(...)), otherwise with the defaults
  gather      one vectorised NumPy gather for each batch, from float16 arrays in memory
  DataLoader  torch's DataLoader with 2 workers, over the same arrays; a part of an epoch

These take turns in each round. Prints medians of windows per second. Needs the package and torch,
as scripts/test installs them, but the package as a release build (pip install .).
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

SHAPE = (610, 340, 103)
# Windows that the DataLoader, which is slow, reads in a round.
PART = 40_000


def draw() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Draws a cube and the class ids of its pixels (0: no class)."""
    random = np.random.default_rng(0)
    classes = np.zeros(SHAPE[:2], np.uint8)
    for place in range(108):
        row, column = random.integers(0, 560), random.integers(0, 290)
        rows, columns = random.integers(8, 50, 2)
        classes[row : row + rows, column : column + columns] = 1 + place % 9
    noise = random.random(SHAPE, dtype=np.float32)
    return (0.2 * noise + 0.05 * classes[..., None]).astype(np.float32), classes


class Arrays(Dataset[tuple[torch.Tensor, int]]):
    """Windows of a padded cube, one after the other."""

    def __init__(self, padded: Any, classes: Any, pixels: Any, size: int) -> None:
        self.padded, self.classes, self.pixels, self.size = padded, classes, pixels, size

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        row, column = self.pixels[number]
        window = self.padded[row : row + self.size, column : column + self.size]
        if self.size == 1:
            window = window[0, 0]
        return torch.from_numpy(window.copy()), int(self.classes[row, column])


def rate(epoch: Callable[[], int]) -> float:
    """Windows per second."""
    begun = time.perf_counter()
    windows = epoch()
    return windows / (time.perf_counter() - begun)


def measure(path: Path, cube: Any, classes: Any, size: int, batch: int, rounds: int) -> None:
    """Prints the medians of one size of windows."""
    half = size // 2
    padded = np.pad(cube, ((half, half), (half, half), (0, 0)), mode="reflect")
    pixels = np.argwhere(classes > 0)
    crop = hsipack.LabelledPatches(size, mask="classes")
    loader = hsipack.Loader(path, batch, shuffle=True, crop=crop, device="cpu", num_threads=2)
    slow = DataLoader(Arrays(padded, classes, pixels, size), batch, shuffle=True, num_workers=2)
    offsets = np.arange(size)
    random = np.random.default_rng(0)

    def ours() -> int:
        return sum(len(one["label"]) for one in loader)

    def gather() -> int:
        order, windows = random.permutation(len(pixels)), 0
        for start in range(0, len(order), batch):
            rows, columns = pixels[order[start : start + batch]].T
            if size == 1:
                image = padded[rows, columns]
            else:
                across = columns[:, None, None] + offsets
                image = padded[rows[:, None, None] + offsets[:, None], across]
            labels = torch.from_numpy(classes[rows, columns].astype(np.int64))
            windows += len(torch.from_numpy(image)[: len(labels)])
        return windows

    def workers() -> int:
        windows = 0
        for _, labels in slow:
            windows += len(labels)
            if windows >= PART:
                break
        return windows

    ways = {"hsipack": ours, "gather": gather, "DataLoader": workers}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for epoch in ways.values():
        epoch()
    for _ in range(rounds):
        for name, epoch in ways.items():
            rates[name].append(rate(epoch))
    medians = {name: statistics.median(one) for name, one in rates.items()}
    ours_a_second = medians["hsipack"]
    print(f"{size}x{size}, batches of {batch}, {len(pixels)} windows an epoch, {rounds} rounds")
    for name, one in medians.items():
        times = ours_a_second / one
        print(f"    {name:<11}{one:>12,.0f} windows/s   hsipack is {times:.2f} times as fast")
    print(f"    kept in memory: {loader.report().cache.why}")
    loader.close()


def main() -> None:
    """Draws, packs, measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--folder", type=Path, help="folder for the scene (default: a temporary folder)"
    )
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cube, classes = draw()
        np.save(folder / "scene.npy", cube)
        np.save(folder / "classes.npy", classes)
        path = folder / "scene.hsipack"
        mask = {"classes": f"{folder}/classes.npy"}
        hsipack.convert(folder / "scene.npy", path, mask=mask, resume=True)
        half = cube.astype(np.float16)
        measure(path, half, classes, 9, 512, options.rounds)
        measure(path, half, classes, 1, 8192, options.rounds)


if __name__ == "__main__":
    main()
