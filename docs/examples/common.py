"""Shared by the examples: options, and files to train with."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
MOON = "data/tiff/M3_4030seg_L2_aristcrater.tif"


def options(about: str | None, *names: str, epochs: int) -> argparse.Namespace:
    """Reads the command line: `names`, which are optional, and the options of all examples."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n\n")[0])
    for name in names:
        parser.add_argument(name, type=Path, nargs="?")
    work = Path(tempfile.gettempdir()) / "hsipack-examples"
    parser.add_argument("--work", type=Path, default=work, help="folder for files [%(default)s]")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--short", action="store_true", help="takes seconds, for tests")
    return parser.parse_args()


def draw(folder: Path, count: int = 6, rows: int = 96, columns: int = 128, bands: int = 40) -> Path:
    """Draws scenes of six classes into `folder`, with masks/NAME.png and table.csv (split, label,
    group). Returns the folder.
    """
    if not (folder / "table.csv").exists():
        sizes = [f"--count={count}", f"--rows={rows}", f"--columns={columns}", f"--bands={bands}"]
        script = REPOSITORY / "scripts/dev/make_cubes.py"
        subprocess.run([sys.executable, script, folder, *sizes], check=True)
    return folder


def place(folder: Path) -> Path:
    """Places the drawn scenes side by side near Heidelberg (UTM zone 32), by adding a line to each
    header. Returns the folder.
    """
    for number, header in enumerate(sorted(folder.glob("*.hdr"))):
        text = header.read_text()
        if "map info" not in text:
            east = 477_000 + 400 * number
            line = f"map info = {{UTM, 1, 1, {east}, 5473000, 3, 3, 32, North, WGS-84}}\n"
            header.write_text(text + line)
    return folder


def moon(folder: Path) -> Path | None:
    """Copies a cube of the crater Aristarchus (Moon Mineralogy Mapper, 50 x 50 pixels, 83 bands)
    from ../shared to `folder`, if it is there, and adds a mask of the ground's brightness: 1 dark,
    2 medium, 3 bright. Returns the cube.
    """
    shared = Path(os.environ.get("HSIPACK_SHARED", REPOSITORY.parent / "shared"))
    if not (shared / MOON).is_file():
        return None
    import hsipack

    folder.mkdir(parents=True, exist_ok=True)
    cube = folder / "moon.tif"
    cube.write_bytes((shared / MOON).read_bytes())
    hsipack.convert(cube, folder / "look.hsipack", resume=True)
    values = hsipack.open(folder / "look.hsipack", output="numpy")[0]["image"]
    bright = values.astype(np.float32).mean(axis=0)
    thirds = np.quantile(bright, [1 / 3, 2 / 3])
    np.save(folder / "moon_classes.npy", (1 + np.digitize(bright, thirds)).astype(np.uint8))
    return cube
