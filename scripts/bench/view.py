#!/usr/bin/env python3
"""Measures how fast `hsipack view` answers, and how much memory it needs.

usage: scripts/bench/view.py [--hsipack target/release/hsipack] [--folder FOLDER] [--count 50]

Draws six cubes of 480x640x100 into FOLDER (default: target/view) and packs them, packs 100,000 tiny
cubes, and writes a raw band-sequential cube of 6 GB. Existing files are used again. Sends the same
requests to the server as the page, and prints medians of COUNT answers, with a time of NumPy for
comparison. They do not include decoding the chunks of a cube, because the page requests other bands
of a cube that is already open.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from urllib.parse import quote

import numpy as np

ROWS, COLUMNS, BANDS = 480, 640, 100
LARGE = (4096, 4096, 180)
SMALL = (8, 8, 16)
SAMPLES = 100_000
AUGMENT = json.dumps(
    [
        {"op": "hflip", "p": 1},
        {"op": "rotate", "degrees": 30, "p": 1},
        {"op": "erase", "p": 1},
        {"op": "gain", "range": [0.9, 1.1], "p": 1},
    ]
)


class Viewed:
    """A running server."""

    def __init__(self, hsipack: str, path: Path) -> None:
        self.start = time.perf_counter()
        command = [hsipack, "view", str(path), "--no-browser", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=600) as answer:
            found: bytes = answer.read()
            return found

    def since_the_command(self) -> float:
        return time.perf_counter() - self.start

    def most_memory(self) -> float:
        """The process's peak of memory so far, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1000


@contextmanager
def viewing(hsipack: str, path: Path) -> Iterator[Viewed]:
    viewed = Viewed(hsipack, path)
    try:
        yield viewed
    finally:
        viewed.process.terminate()
        viewed.process.wait()


def median(count: int, ask: Callable[[int], object]) -> float:
    """The median of the milliseconds of an answer."""
    times = []
    for number in range(count):
        start = time.perf_counter()
        ask(number)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def told(what: str, value: str, asked: str) -> None:
    print(f"{what:62} {value:>10}   target: {asked}", flush=True)


def usual(hsipack: str, folder: Path, count: int) -> None:
    packed = folder / "cubes.hsipack"
    if not packed.exists():
        cubes = folder / "cubes"
        draw = Path(__file__).parents[1] / "dev/make_cubes.py"
        subprocess.run([sys.executable, draw, cubes, "--count", "6"], check=True)
        pack = [hsipack, "convert", str(cubes), "-o", str(packed), "--exclude", "*_instrument.npy"]
        subprocess.run(pack, check=True)
    random = Random(0)
    with viewing(hsipack, packed) as viewed:
        viewed.get("")
        viewed.get("api/about")
        viewed.get("api/samples?limit=60")
        viewed.get("api/thumbnail/0")
        told("first thumbnail after the command", f"{viewed.since_the_command():.2f} s", "< 1 s")
    with viewing(hsipack, packed) as viewed:
        viewed.get("api/cube/0")
        viewed.get("api/cube/0/planes?bands=41,22,7")
        told(
            "first picture of a cube after the command",
            f"{viewed.since_the_command():.2f} s",
            "< 1 s",
        )

        def bands(_: int) -> bytes:
            three = ",".join(str(random.randrange(BANDS)) for _ in range(3))
            return viewed.get(f"api/cube/0/planes?bands={three}")

        def pixel(_: int) -> bytes:
            row, column = random.randrange(ROWS), random.randrange(COLUMNS)
            return viewed.get(
                f"api/cube/0/spectrum?rows={row}:{row + 1}&columns={column}:{column + 1}"
            )

        cube = np.zeros((ROWS, COLUMNS, BANDS), np.float32)
        told("other three bands", f"{median(count, bands):.0f} ms", "< 100 ms")
        told(
            "  the same with NumPy from an array in memory",
            f"{median(count, lambda _: cube[:, :, [3, 50, 97]].tobytes()):.0f} ms",
            "-",
        )
        told("spectrum of a pixel", f"{median(count, pixel):.1f} ms", "< 50 ms")
        angles = median(count, lambda _: viewed.get("api/cube/0/angles?rows=9:10&columns=9:10"))
        told("map of spectral angles", f"{angles:.0f} ms", "-")
        opening = median(6, lambda one: viewed.get(f"api/cube/{(one + 1) % 6}/planes?bands=1,2,3"))
        told("another cube's first picture", f"{opening:.0f} ms", "-")
        whole = "api/training/planes?batch_size=6&augment=" + quote(AUGMENT) + "&bands=41,22,7"
        item = median(6, lambda one: viewed.get(f"{whole}&side=192&place={one}"))
        told("training: an item of 480 x 640 x 100, augmented, first seen", f"{item:.0f} ms", "-")
        crops = whole + "&crop=random&rows=64&columns=64&per_cube=8"
        item = median(count, lambda one: viewed.get(f"{crops}&batch={one % 8}&place={one % 6}"))
        told("training: a window of 64 x 64 x 100", f"{item:.1f} ms", "-")
        told("most memory, mapped shards included", f"{viewed.most_memory():.0f} MB", "-")


def many(hsipack: str, folder: Path, count: int) -> None:
    packed = folder / "many.hsipack"
    if not packed.exists():
        cubes = folder / "many"
        cubes.mkdir(exist_ok=True)
        values = np.random.default_rng(0).random(SMALL, np.float32)
        lines = ["name,split,label"]
        for number in range(SAMPLES):
            np.save(cubes / f"c{number:06}.npy", values + number % 7)
            lines.append(f"c{number:06},{('train', 'test')[number % 5 == 0]},class {number % 7}")
        (folder / "many.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        pack = [
            hsipack,
            "convert",
            str(cubes),
            "-o",
            str(packed),
            "--table",
            str(folder / "many.csv"),
        ]
        subprocess.run(pack, check=True)
    random = Random(0)
    with viewing(hsipack, packed) as viewed:
        viewed.get("api/about")
        viewed.get("api/samples?limit=60")
        viewed.get("api/thumbnail/0")
        told("100,000 samples: first thumbnail", f"{viewed.since_the_command():.2f} s", "< 1 s")
        page = median(
            count, lambda _: viewed.get(f"api/samples?offset={random.randrange(SAMPLES)}")
        )
        told("  60 samples at a random place", f"{page:.1f} ms", "-")
        name = median(5, lambda one: viewed.get(f"api/samples?sort=name&descending=1&offset={one}"))
        told("  sorted by name, the next page", f"{name:.1f} ms", "-")
        for number in range(300):
            viewed.get(f"api/thumbnail/{number * 300}")
        told("  most memory after 300 thumbnails", f"{viewed.most_memory():.0f} MB", "< 300 MB")


def large(hsipack: str, folder: Path, count: int) -> None:
    rows, columns, bands = LARGE
    raw = folder / "large.raw"
    if not raw.exists() or raw.stat().st_size != 2 * rows * columns * bands:
        plane = np.random.default_rng(0).integers(0, 4000, (rows, columns), np.uint16)
        with raw.open("wb") as file:
            for band in range(bands):
                file.write((plane + band).tobytes())
        raw.with_suffix(".hdr").write_text(
            f"ENVI\nsamples = {columns}\nlines = {rows}\nbands = {bands}\ndata type = 12\n"
            "interleave = bsq\nbyte order = 0\n",
            encoding="utf-8",
        )
    random = Random(0)
    with viewing(hsipack, raw.with_suffix(".hdr")) as viewed:
        viewed.get("api/cube/0")
        viewed.get("api/cube/0/planes?bands=141,72,27")
        told("raw file of 6 GB: first picture", f"{viewed.since_the_command():.2f} s", "< 1 s")

        def other(_: int) -> bytes:
            return viewed.get(f"api/cube/0/planes?bands={random.randrange(bands)}")

        def pixel(_: int) -> bytes:
            row, column = random.randrange(rows), random.randrange(columns)
            return viewed.get(
                f"api/cube/0/spectrum?rows={row}:{row + 1}&columns={column}:{column + 1}"
            )

        told("  another band", f"{median(count, other):.0f} ms", "< 100 ms")
        told("  spectrum of a pixel", f"{median(count, pixel):.1f} ms", "< 50 ms")
        viewed.get("api/cube/0/angles?rows=9:10&columns=9:10")
        told("  most memory, with a map of angles", f"{viewed.most_memory():.0f} MB", "< 300 MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hsipack", default="target/release/hsipack")
    parser.add_argument("--folder", type=Path, default=Path("target/view"))
    parser.add_argument("--count", type=int, default=50)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for measure in (usual, many, large):
        measure(options.hsipack, options.folder, options.count)


if __name__ == "__main__":
    main()
