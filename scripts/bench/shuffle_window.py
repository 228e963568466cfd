#!/usr/bin/env python3
"""Measures windows of data that do not fit into memory, with and without a shuffle window.

usage: .venv/bin/python scripts/bench/shuffle_window.py [--folder FOLDER] [--rounds N] [--scenes N]

Draws 64 scenes of 305 x 340 pixels with 103 bands and nine classes, packs them, and reads them with
2 threads and a cache of a quarter of their decoded size:

  cubes          whole cubes without a cache: every chunk is decoded once, with little other work
  window         the defaults: shuffle_window="auto"
  all            shuffle_window="all", without a cache: a part of an epoch

These take turns in each round, for spectra, 9 x 9 patches and random crops. Prints medians of
windows per second, how often a chunk is decoded in an epoch, and the rate of decoding compared with
whole cubes. Needs the package as scripts/test installs it, but as a release build (pip install .).
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

SHAPE = (305, 340, 103)
# Seconds after which reading a part of an epoch ends.
PART_S = 20.0


def draw(folder: Path, scenes: int) -> None:
    """Writes cubes and the class ids of their pixels (0: no class)."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    noise = random.random(SHAPE, dtype=np.float32)
    for scene in range(scenes):
        classes = np.zeros(SHAPE[:2], np.uint8)
        for place in range(54):
            row, column = random.integers(0, 255), random.integers(0, 290)
            rows, columns = random.integers(8, 50, 2)
            classes[row : row + rows, column : column + columns] = 1 + place % 9
        cube = 0.2 * np.roll(noise, scene * 7, axis=(0, 1, 2)) + 0.05 * classes[..., None]
        np.save(folder / f"scene{scene:02}.npy", cube.astype(np.float32))
        np.save(folder / f"scene{scene:02}_classes.npy", classes)


class Way:
    """A loader, and the measurements of its epochs."""

    def __init__(self, loader: hsipack.Loader, part_s: float | None = None) -> None:
        self.loader, self.part_s = loader, part_s
        self.rates: list[float] = []
        self.chunk_rates: list[float] = []
        self.decoded: list[float] = []

    def epoch(self) -> None:
        """Reads an epoch, or a part of one."""
        before = self._chunks()
        begun, windows = time.perf_counter(), 0
        for batch in self.loader:
            windows += len(batch["id"])
            if self.part_s is not None and time.perf_counter() - begun > self.part_s:
                break
        seconds = time.perf_counter() - begun
        chunks = self._chunks() - before
        self.rates.append(windows / seconds)
        self.chunk_rates.append(chunks / seconds)
        self.decoded.append(chunks)

    def _chunks(self) -> int:
        """The number of chunks decoded so far."""
        loader: dict[str, Any] = self.loader.stats().to_dict()["loader"]
        return int(loader["chunks"]) - int(loader["cached_chunks"])


def measure(path: Path, quarter: int, name: str, batch: int, crop: Any, rounds: int) -> None:
    """Prints the medians of one kind of windows."""
    shared: dict[str, Any] = {"num_threads": 2, "output": "numpy", "masks": []}
    shuffled = {**shared, "shuffle": True, "crop": crop}
    loader: Callable[..., hsipack.Loader] = hsipack.Loader
    cubes = Way(loader(path, 1, cache=None, copy=False, **shared))
    window = Way(loader(path, batch, cache_size=quarter, copy=False, **shuffled))
    everywhere = loader(path, batch, cache=None, shuffle_window="all", copy=False, **shuffled)
    ways = {"cubes": cubes, "window": window, "all": Way(everywhere, PART_S)}
    for way in ways.values():
        way.epoch()
        for figures in (way.rates, way.chunk_rates, way.decoded):
            figures.clear()
    for _ in range(rounds):
        for way in ways.values():
            way.epoch()
    chunks = statistics.median(cubes.decoded)
    print(f"{name}, batches of {batch}: {len(window.loader.dataset)} scenes, {rounds} rounds")
    for label, way in ways.items():
        rate, decoding = statistics.median(way.rates), statistics.median(way.chunk_rates)
        print(f"    {label:<8}{rate:>14,.0f} /s{decoding:>10,.0f} chunks decoded/s")
    times = statistics.median(window.rates) / statistics.median(ways["all"].rates)
    share = statistics.median(window.chunk_rates) / statistics.median(cubes.chunk_rates)
    again = statistics.median(window.decoded) / chunks
    print(
        f"    window is {times:.1f} times as fast as all; it decodes each chunk {again:.3f} times,"
    )
    print(f"    at {share:.2f} of the rate of whole cubes")
    print(f"    {window.loader.report().cache.why}")
    for way in ways.values():
        way.loader.close()


def main() -> None:
    """Draws, packs, measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--folder", type=Path, help="folder for the scenes (default: a temporary folder)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scenes", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        path = folder / "scenes.hsipack"
        if not path.exists():
            draw(folder / "scenes", options.scenes)
            mask = {"classes": "{dir}/{stem}_classes.npy"}
            hsipack.convert(folder / "scenes", path, mask=mask, exclude=["*_classes.npy"])
        quarter = options.scenes * 2 * int(np.prod(SHAPE)) // 4
        spectra, patches = (hsipack.LabelledPatches(size, mask="classes") for size in (1, 9))
        few = hsipack.LabelledPatches(9, mask="classes", per_class=50 * options.scenes)
        rest = (path, quarter)
        measure(*rest, "spectra of all labelled pixels", 8192, spectra, options.rounds)
        measure(*rest, "9x9 around 50 pixels of each class and scene", 512, few, options.rounds)
        measure(*rest, "9x9 around all labelled pixels", 512, patches, 1)
        crops = hsipack.RandomCrop(64, per_cube=16)
        measure(*rest, "64x64, 16 of each cube", 64, crops, options.rounds)


if __name__ == "__main__":
    main()
