"""The cubes of the tests, and the expected results, computed by NumPy."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

ROWS, COLUMNS, BANDS = 24, 32, 20
WAVELENGTH = [400.0 + 30 * band for band in range(BANDS)]
BAD = (12, 13)
GOOD = np.array([band not in BAD for band in range(BANDS)])
# In GDAL's order: x and y of the upper left corner, metres per pixel.
TRANSFORM = (500000.0, 10.0, 0.0, 5300000.0, 0.0, -10.0)
HOSTILE = "<img src=x onerror=alert(1)>"
NODATA = (206, 190, 220)
# The colours of classes 1 and 2 in hsipack's previews.
CLASS_COLOURS = {1: (0, 114, 178), 2: (213, 94, 0)}

# Bounding boxes of the first cube, by the ids of their classes: left, top, right, bottom.
BOXES: dict[int, list[tuple[float, float, float, float]]] = {
    1: [(3, 4, 9, 11), (20, 12.5, 40, 20)],
    2: [(12, 6, 17, 9)],
}


@dataclass(frozen=True)
class Scene:
    """A cube, its mask, and its line in the table."""

    name: str
    cube: np.ndarray
    mask: np.ndarray
    row: dict[str, object] = field(default_factory=dict)

    @property
    def packed(self) -> np.ndarray:
        """The values in float16, as in the dataset."""
        return self.cube.astype(np.float16).astype(np.float32)


def smooth(number: int, rows: int, columns: int, bands: int) -> np.ndarray:
    """Spectra that differ from pixel to pixel and from cube to cube."""
    rng = np.random.default_rng(number)
    y, x, b = np.mgrid[:rows, :columns, :bands].astype(np.float32)
    wave = 1.5 + np.sin(b / 4 + number) * np.cos(x / 9) + y / rows + (x / columns) ** 2
    noisy = wave + rng.normal(0, 0.05, wave.shape)
    values: np.ndarray = noisy.astype(np.float32)
    return values


def classes(number: int, rows: int, columns: int) -> np.ndarray:
    """Class ids 0 to 2 in blocks."""
    y, x = np.mgrid[:rows, :columns]
    ids: np.ndarray = ((y // 6 + x // 8 + number) % 3).astype(np.uint8)
    return ids


def predicted(scene: Scene) -> np.ndarray:
    """A prediction: some pixels of each class are wrong, and one class is not in the truth."""
    rng = np.random.default_rng(5)
    wrong = rng.random(scene.mask.shape) < 0.2
    ids = np.where(wrong, rng.integers(0, 3, scene.mask.shape), scene.mask)
    ids[20:, 28:] = 3
    return ids.astype(np.uint8)


def layers(scene: Scene) -> dict[str, np.ndarray]:
    """The overlapping layers of a second mask."""
    y, x = np.mgrid[: scene.mask.shape[0], : scene.mask.shape[1]]
    return {"valid": x + y > 20, "shadow": y > 9}


def small_scenes() -> list[Scene]:
    """Six cubes of one shape. The third has markup as its name, the fourth has missing values."""
    names = ["scan_0", "scan_1", HOSTILE, "scan_3", "=scan_4", "scan_5"]
    rows = [
        {"split": "train", "group": "P1", "label": "tumour", "age": 41},
        {"split": "train", "group": "P1", "label": "healthy", "age": 41},
        {"split": "val", "group": "P2", "label": "healthy", "age": 63},
        {"split": "val", "group": "P2", "label": "tumour", "age": 63},
        {"split": "train", "group": "P3", "label": "tumour", "age": 18},
        {"split": "", "group": "P3", "label": "", "age": 18},
    ]
    scenes = []
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        cube = smooth(number, ROWS, COLUMNS, BANDS)
        if number == 3:
            cube[2:4, 5:9] = np.nan
        row = dict(row)
        scenes.append(Scene(name, cube, classes(number, ROWS, COLUMNS), row))
    return scenes


def large_scene() -> Scene:
    """A cube with more rows than a picture of a whole cube."""
    return Scene("large", smooth(7, 2400, 64, 4), classes(7, 2400, 64), {"split": "test"})


def damaged_scene() -> Scene:
    """A cube with its own shape, and therefore its own file."""
    return Scene("damaged", smooth(8, 10, 12, 5), classes(8, 10, 12), {"split": "test"})


def write(folder: Path, scenes: list[Scene]) -> None:
    """Writes ENVI cubes with wavelengths, bad bands and georeferencing, PNG masks, and a table."""
    for scene in scenes:
        rows, columns, bands = scene.cube.shape
        scene.cube.transpose(2, 0, 1).astype("<f4").tofile(folder / f"{scene.name}.img")
        header = [
            "ENVI",
            f"samples = {columns}",
            f"lines = {rows}",
            f"bands = {bands}",
            "data type = 4",
            "interleave = bsq",
            "byte order = 0",
            "header offset = 0",
        ]
        if bands == BANDS:
            header += [
                "wavelength units = Nanometers",
                f"wavelength = {{{', '.join(map(str, WAVELENGTH))}}}",
                f"bbl = {{{', '.join(str(int(good)) for good in GOOD)}}}",
                "map info = {UTM, 1, 1, 500000, 5300000, 10, 10, 32, North, WGS-84, units=Meters}",
            ]
        (folder / f"{scene.name}.hdr").write_text("\n".join(header) + "\n")
        Image.fromarray(scene.mask).save(folder / f"{scene.name}_mask.png")
        for name, layer in layers(scene).items():
            Image.fromarray(layer.astype(np.uint8)).save(folder / f"{scene.name}_{name}.png")
    columns_of_table = ["name", "split", "group", "label", "age"]
    with (folder / "table.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, columns_of_table)
        table.writeheader()
        table.writerows({"name": scene.name, **scene.row} for scene in scenes)


def stretched(plane: np.ndarray, low: float = 2, high: float = 98) -> np.ndarray:
    """The brightness of a band: 0 to 255 between two percentiles."""
    ends = np.nanpercentile(plane.astype(np.float64), [low, high])
    shades: np.ndarray = np.clip((plane - ends[0]) / (ends[1] - ends[0]), 0, 1) * 255
    return shades


def blend(under: np.ndarray, colour: tuple[int, int, int], opacity: float) -> np.ndarray:
    """Blends the colour of a class over another colour."""
    over: np.ndarray = under + (np.array(colour) - under) * opacity
    return over


def angles(cube: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Spectral angles over the good bands, in radians."""
    spectra, to = cube[..., GOOD].astype(np.float64), reference[GOOD].astype(np.float64)
    cosine = spectra @ to / (np.linalg.norm(spectra, axis=-1) * np.linalg.norm(to))
    found: np.ndarray = np.arccos(np.clip(cosine, -1, 1))
    return found


def shown_rows(length: int, shown: int) -> np.ndarray:
    """The rows that a picture with `shown` rows shows."""
    return ((2 * np.arange(shown) + 1) * length) // (2 * shown)
