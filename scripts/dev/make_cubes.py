#!/usr/bin/env python3
"""Draws hyperspectral scenes for the demo: cubes as a camera over an operating table would record
them, with class masks and a table.

usage: scripts/dev/make_cubes.py FOLDER [--count 6] [--rows 480] [--columns 640] [--bands 100]
                                  [--seed 1]

Writes FOLDER/scene_00.hdr, .img, …, class ids as FOLDER/masks/scene_00.png, a boolean mask as
FOLDER/masks/scene_00_instrument.npy, and FOLDER/table.csv. The cubes are ENVI BIL, ENVI BSQ and
.npy in turn. Needs only NumPy. Values are reflectance as float32: mixtures of smooth spectra under
uneven light, with the noise of a sensor, so that they compress about as well as real cubes. The
same options give the same bytes.
"""

import argparse
import struct
import zlib
from pathlib import Path

import numpy as np

CLASSES = ["cloth", "skin", "fat", "muscle", "vessel", "instrument"]
COLUMNS = ["name", "label", "group", "split", "age"]


def spectra(nm: np.ndarray) -> np.ndarray:
    """Reflectance of each class (class, band), with absorption of haemoglobin, water and fat."""

    def dip(centre: float, width: float, depth: float) -> np.ndarray:
        return np.asarray(1 - depth * np.exp(-0.5 * ((nm - centre) / width) ** 2))

    def rise(centre: float, width: float) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(-(nm - centre) / width)))

    blood = dip(542, 13, 0.45) * dip(577, 11, 0.5)
    water = dip(970, 28, 0.3)
    return np.stack(
        [
            0.10 + 0.12 * dip(620, 70, 0.6) + 0.25 * rise(720, 20),
            (0.32 + 0.3 * rise(600, 25)) * blood**0.5 * water,
            (0.55 + 0.2 * rise(580, 30)) * blood**0.3 * dip(930, 12, 0.22) * water**0.4,
            (0.12 + 0.4 * rise(605, 18)) * blood * dip(760, 14, 0.12) * water,
            (0.05 + 0.25 * rise(615, 15)) * blood**1.5 * dip(760, 14, 0.25) * water,
            0.70 + 0.05 * (nm - 750) / 250,
        ]
    )


def field(chance: np.random.Generator, rows: int, columns: int, cells: int) -> np.ndarray:
    """A smooth random field with about `cells` bumps on each side: random heights, joined by
    cosines.
    """
    grid = chance.normal(size=(cells + 2, cells + 2))

    def weights(length: int) -> tuple[np.ndarray, np.ndarray]:
        at = np.linspace(0, cells, length)
        low = np.minimum(at.astype(int), cells)
        return low, (1 - np.cos(np.pi * (at - low))) / 2

    (y, fy), (x, fx) = weights(rows), weights(columns)
    top = grid[np.ix_(y, x)] * (1 - fx) + grid[np.ix_(y, x + 1)] * fx
    below = grid[np.ix_(y + 1, x)] * (1 - fx) + grid[np.ix_(y + 1, x + 1)] * fx
    return np.asarray(top * (1 - fy[:, None]) + below * fy[:, None])


def scene(
    chance: np.random.Generator, rows: int, columns: int, nm: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A cube (row, column, band) and its class ids (row, column)."""
    y, x = np.meshgrid(np.linspace(-1, 1, rows), np.linspace(-1, 1, columns), indexing="ij")
    shape = field(chance, rows, columns, 4)
    fine = 0.12 * field(chance, rows, columns, 24)
    # Tissue lies in an opening of the cloth: areas of fat and muscle, with a rim of skin.
    radius = np.hypot(x, 1.1 * y) + 0.12 * shape + fine * 0.3
    scores = np.stack(
        [
            (radius - 0.85) * 14,
            2.2 - np.abs(radius - 0.75) * 22,
            (field(chance, rows, columns, 5) + fine) * 2 - (radius > 0.75) * 9,
            (field(chance, rows, columns, 5) + fine) * 2 - (radius > 0.75) * 9,
            5 - np.abs(field(chance, rows, columns, 6) + fine) * 60 - (radius > 0.7) * 60,
            _instrument(chance, x, y),
        ]
    )
    classes = scores.argmax(0).astype(np.uint8)
    # At borders, a pixel mixes the spectra of both sides.
    mixture = np.exp(2.5 * (scores - scores.max(0)))
    mixture /= mixture.sum(0)
    # Pixels of the same class differ slightly from place to place.
    vary = 1 + 0.1 * np.stack([field(chance, rows, columns, 12) for _ in CLASSES])
    cube = np.einsum("crx,cb->rxb", (mixture * vary).astype(np.float32), spectra(nm).astype("f4"))
    turn = chance.uniform(0, 2 * np.pi)
    light = 1 - 0.25 * (x**2 + y**2) + 0.2 * (x * np.cos(turn) + y * np.sin(turn))
    cube *= light[:, :, None].astype(np.float32)
    # A sensor's noise, from the light and from the electronics, more at both ends of its range.
    noise = chance.standard_normal(cube.shape, dtype=np.float32)
    gain = (1 + 3 * (np.abs(nm - 720) / 280) ** 4).astype(np.float32)
    cube += noise * (0.002 * np.sqrt(np.maximum(cube, 0)) + 0.0006) * gain
    return np.maximum(cube, 0.0002), classes


def _instrument(chance: np.random.Generator, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A straight tool that comes in from a side."""
    turn, shift = chance.uniform(-0.6, 0.6), chance.uniform(-0.5, 0.5)
    across = y - shift - np.tan(turn) * x
    tip = chance.uniform(-0.3, 0.2)
    return np.asarray(np.where(x > tip, 7 - np.abs(across) * 130, -99))


def write_png(path: Path, ids: np.ndarray) -> None:
    """Writes a grayscale PNG with eight bits per pixel."""

    def part(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    rows, columns = ids.shape
    lines = np.zeros((rows, columns + 1), np.uint8)
    lines[:, 1:] = ids
    head = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    body = part(b"IDAT", zlib.compress(lines.tobytes(), 9))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + body + part(b"IEND", b""))


def write_envi(path: Path, cube: np.ndarray, interleave: str, nm: np.ndarray) -> None:
    rows, columns, bands = cube.shape
    axes = {"bil": (0, 2, 1), "bsq": (2, 0, 1)}[interleave]
    np.ascontiguousarray(cube.transpose(axes)).astype("<f4").tofile(path.with_suffix(".img"))
    path.with_suffix(".hdr").write_text(
        f"ENVI\ndescription = {{a scene drawn by scripts/dev/make_cubes.py}}\nsamples = {columns}\n"
        f"lines = {rows}\nbands = {bands}\nheader offset = 0\nfile type = ENVI Standard\n"
        f"data type = 4\ninterleave = {interleave}\nbyte order = 0\nwavelength units = nm\n"
        f"wavelength = {{{', '.join(f'{value:.3f}' for value in nm)}}}\n"
        f"fwhm = {{{', '.join(['5.5'] * bands)}}}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    for name, default in (("count", 6), ("rows", 480), ("columns", 640), ("bands", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder: Path = options.folder
    (folder / "masks").mkdir(parents=True, exist_ok=True)
    nm = np.round(np.linspace(500, 1000, options.bands), 3)
    table = [",".join(COLUMNS)]
    for number in range(options.count):
        chance = np.random.default_rng([options.seed, number])
        cube, classes = scene(chance, options.rows, options.columns, nm)
        name = f"scene_{number:02}"
        kind = ("bil", "bsq", "npy")[number % 3]
        if kind == "npy":
            np.save(folder / f"{name}.npy", cube)
        else:
            write_envi(folder / name, cube, kind, nm)
        write_png(folder / "masks" / f"{name}.png", classes)
        np.save(folder / "masks" / f"{name}_instrument.npy", classes == 5)
        split = "test" if number % 6 == 5 else "validation" if number % 6 == 4 else "train"
        most = CLASSES[1 + int(np.bincount(classes[classes > 0].ravel(), minlength=6)[1:].argmax())]
        # No patient is in two splits.
        patient = 4 * (number // 6) + (1, 1, 2, 2, 3, 4)[number % 6]
        table.append(f"{name},{most},P{patient:02},{split},{chance.integers(30, 80)}")
        print(f"    {name}: {kind}, {cube.nbytes / 1e6:.0f} MB", flush=True)
    (folder / "table.csv").write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
