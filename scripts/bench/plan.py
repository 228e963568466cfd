#!/usr/bin/env python3
"""Measures planning of a folder of products: time, bytes read from the products, and memory.

usage: scripts/bench/plan.py [--hsipack target/release/hsipack] [--folder FOLDER] [--size 30]
                          [--rounds 5]

Writes deliveries of SIZE GB each into FOLDER (default: target/plan): EnMAP L2A as GeoTIFF in strips
and in tiles with its XML, PRISMA L2D as HDF5 and, as the baseline, the same number of bytes as
plain ENVI cubes. The scenes have full size, but their values are holes, so that they need little
space on the disk. A delivery with the same number of scenes is used again if it is there. For each
delivery, plans a conversion (`--plan`), does a dry run (`--dry-run`, which packs a few rows of some
cubes to estimate the result), and reads about one scene (`info --quick`). Prints the median time of
ROUNDS runs, how much the process read, and its peak of memory.
"""

import argparse
import math
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import tifffile

# The sizes of a usual EnMAP scene and of a PRISMA L2D scene.
ROWS, COLUMNS, BANDS = 1128, 1212, 224
SIDE, VNIR, SWIR = 1200, 66, 173
UTM_32 = [
    (33550, "d", 3, (30.0, 30.0, 0.0), True),
    (33922, "d", 6, (0.0, 0.0, 0.0, 634200.0, 5297190.0, 0.0), True),
    (34735, "H", 16, (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32632), True),
]


# Runs a command and prints its time, bytes read and memory. This is a separate, small process,
# because the peak of memory of a process includes the memory of the process that started it.
LAUNCHER = """
import os, sys, time
start = time.perf_counter()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
seconds = time.perf_counter() - start
counters = open(f"/proc/{pid}/io").read().split()
_, status, used = os.wait4(pid, 0)
read = counters[counters.index("rchar:") + 1]
print(seconds, read, used.ru_maxrss * 1024, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Run(NamedTuple):
    """Figures of a process: seconds, bytes that it read from the system, peak of memory."""

    seconds: float
    read: int
    memory: int


def run(command: list[str]) -> Run:
    """Runs a command to its end."""
    launch = [sys.executable, "-I", "-S", "-c", LAUNCHER, *command]
    done = subprocess.run(launch, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stderr}")
    seconds, read, memory = done.stderr.splitlines()[-1].split()
    return Run(float(seconds), int(read), int(memory))


def xml() -> str:
    """The metadata of an EnMAP L2A product, as far as hsipack reads them."""
    bands = range(1, BANDS + 1)
    lines = [
        f'<bandID number="{band}"><wavelengthCenterOfBand>{420 + 9 * band}'
        "</wavelengthCenterOfBand><FWHMOfBand>8</FWHMOfBand><GainOfBand>0.0001</GainOfBand>"
        "<OffsetOfBand>0</OffsetOfBand></bandID>"
        for band in bands
    ]
    statistics = [
        f'<bandID number="{band}"><mean>0.5</mean><stdDeviation>0.1</stdDeviation></bandID>'
        for band in bands
    ]
    size = f"<columns>{COLUMNS}</columns><rows>{ROWS}</rows>"
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            "<level_X><metadata><schema><processingLevel>L2A</processingLevel></schema></metadata>",
            "<base><format>ENMAP_L2A</format><level>L2A</level></base><specific>",
            "<vnirProductQuality><expectedChannelsList>1</expectedChannelsList>",
            f"</vnirProductQuality><numberOfSWIRBands>{BANDS - 1}</numberOfSWIRBands>",
            "<numberOfVNIRBands>1</numberOfVNIRBands><backgroundValue>0</backgroundValue>",
            "<bandCharacterisation>",
            *lines,
            "</bandCharacterisation></specific>",
            f"<product><image><merge><dimension>{size}</dimension></merge></image>",
            "<bandStatistics>",
            *statistics,
            "</bandStatistics></product></level_X>",
        ]
    )


def enmap(folder: Path, number: int, **layout: Any) -> None:
    """Writes a delivery in a folder of its own: image and metadata."""
    name = f"ENMAP01-____L2A-DT{number:010}_20230612T102020Z_001_V010400_20240215T121314Z"
    place, scene = folder / name, folder / "scene.tif"
    place.mkdir()
    (place / f"{name}-METADATA.XML").write_text(xml(), encoding="utf-8")
    if number == 0:
        with tifffile.TiffWriter(scene) as tiff:
            tiff.write(
                np.zeros((BANDS, ROWS, COLUMNS), np.int16),
                photometric="minisblack",
                planarconfig="separate",
                metadata=None,
                extratags=UTM_32,
                **layout,
            )
    # The zeros of the image become holes.
    image = place / f"{name}-SPECTRAL_IMAGE.TIF"
    subprocess.run(["cp", "--sparse=always", "--reflink=never", scene, image], check=True)


def prisma(folder: Path, number: int) -> None:
    """Writes a scene, and its line in a list that joins both detectors."""
    name = f"PRS_L2D_STD_20230502102837_20230502102842_{number:04}.he5"
    with (folder / "scenes.csv").open("a", encoding="utf-8") as listed:
        listed.write("path\n" if number == 0 else "")
        listed.write(f"{name}::VNIR_Cube+SWIR_Cube\n")
    with h5py.File(folder / name, "w") as file:
        fields = "HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields"
        for detector, bands in (("VNIR", VNIR), ("SWIR", SWIR)):
            create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            create.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            create.set_chunk((100, 11 if detector == "VNIR" else 173, 100))
            for name, kind in (("Cube", "u2"), ("PIXEL_L2_ERR_MATRIX", "u1")):
                h5py.h5d.create(
                    file.require_group(fields).id,
                    f"{detector}_{name}".encode(),
                    h5py.h5t.py_create(np.dtype(kind)),
                    h5py.h5s.create_simple((SIDE, bands, SIDE)),
                    create,
                )
            sensor = detector.title()
            first, last = (1000, 400) if detector == "VNIR" else (2500, 1010)
            file.attrs[f"List_Cw_{sensor}"] = np.linspace(first, last, bands).astype("f4")
            file.attrs[f"List_Fwhm_{sensor}"] = np.full(bands, 10, "f4")
            file.attrs[f"List_Cw_{sensor}_Flags"] = np.ones(bands, "i4")
            file.attrs[f"L2Scale{sensor}Min"] = np.float32(0)
            file.attrs[f"L2Scale{sensor}Max"] = np.float32(1)
        file.attrs["Epsg_Code"] = np.int64(32632)
        for corner, (x, y) in {"UL": (6e5, 5e6), "LR": (6e5 + 35970, 5e6 - 35970)}.items():
            file.attrs[f"Product_{corner}corner_easting"] = np.float32(x)
            file.attrs[f"Product_{corner}corner_northing"] = np.float32(y)


def envi(folder: Path, number: int) -> None:
    path = folder / f"scene{number:03}.bsq"
    header = [
        "ENVI",
        f"samples = {COLUMNS}",
        f"lines = {ROWS}",
        f"bands = {BANDS}",
        "data type = 2",
        "interleave = bsq",
        "byte order = 0",
        "map info = {UTM, 1, 1, 634200, 5297190, 30, 30, 32, North, WGS-84, units=Meters}",
        f"wavelength = {{{', '.join(str(420 + 9 * band) for band in range(1, BANDS + 1))}}}",
        "wavelength units = Nanometers",
    ]
    path.with_suffix(".hdr").write_text("\n".join(header) + "\n", encoding="utf-8")
    with path.open("wb") as file:
        file.truncate(2 * ROWS * COLUMNS * BANDS)


class Kind(NamedTuple):
    """A kind of delivery."""

    what: str
    name: str
    scene_bytes: int
    write: Callable[[Path, int], None]
    # What is converted (a path in the folder), and the pattern of a scene.
    given: str
    scene: str


KINDS = [
    Kind("ENVI", "envi", 2 * ROWS * COLUMNS * BANDS, envi, "", "*.hdr"),
    Kind(
        "EnMAP, GeoTIFF in strips of 3 rows, as GDAL writes them",
        "enmap-strips",
        2 * ROWS * COLUMNS * BANDS,
        partial(enmap, rowsperstrip=3),
        "",
        "ENMAP*",
    ),
    Kind(
        "EnMAP, GeoTIFF in tiles of 512 x 512",
        "enmap-tiles",
        2 * ROWS * COLUMNS * BANDS,
        partial(enmap, tile=(512, 512)),
        "",
        "ENMAP*",
    ),
    Kind(
        "PRISMA, HDF5, both detectors joined",
        "prisma",
        2 * SIDE * SIDE * (VNIR + SWIR),
        prisma,
        "scenes.csv",
        "*.he5",
    ),
]


def delivery(kind: Kind, folder: Path, size: int) -> tuple[Path, int]:
    """Returns a folder with scenes of this total size, and the number of scenes."""
    count = -(-size // kind.scene_bytes)
    # Each number of scenes has its own folder.
    place = folder / f"{kind.name}-{count}"
    if not place.exists():
        begun = folder / f"{place.name}.begun"
        shutil.rmtree(begun, ignore_errors=True)
        begun.mkdir(parents=True)
        for number in range(count):
            kind.write(begun, number)
        (begun / "scene.tif").unlink(missing_ok=True)
        begun.rename(place)
    return place, count


def measure(hsipack: str, kind: Kind, folder: Path, size: int, rounds: int) -> None:
    place, count = delivery(kind, folder, size)
    scene = str(sorted(place.glob(kind.scene))[0])
    if kind.name == "prisma":
        scene += "::VNIR_Cube+SWIR_Cube"
    plan, out = folder / "plan.json", folder / "out.hsipack"
    convert = [hsipack, "convert", str(place / kind.given), "-o", str(out)]
    print(f"{kind.what}: {count} scenes, {count * kind.scene_bytes / 1e9:.1f} GB")
    for what, command in {
        "plan": [*convert, "--plan", str(plan)],
        "dry run": [*convert, "--dry-run"],
        "info of one": [hsipack, "info", "--quick", scene],
    }.items():
        runs = []
        for _ in range(rounds):
            # Remove the files that --plan leaves for the next steps.
            plan.unlink(missing_ok=True)
            shutil.rmtree(f"{out}.partial", ignore_errors=True)
            runs.append(run(command))
        seconds = statistics.median(one.seconds for one in runs)
        read, memory = max(one.read for one in runs), max(one.memory for one in runs)
        print(
            f"  {what:12} {seconds:7.3f} s   read {read / 1e6:9.2f} MB   "
            f"most memory {memory / 1e6:7.1f} MB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--hsipack",
        default="target/release/hsipack",
        help="the command to measure (default: %(default)s)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("target/plan"),
        help="folder in which the deliveries are written and kept (default: %(default)s)",
    )
    parser.add_argument(
        "--size", type=float, default=30, help="GB of each delivery (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="runs of each command; their median is printed (default: %(default)s)",
    )
    options = parser.parse_args()
    if not 0 < options.size < math.inf:
        parser.error("--size: give a number of GB above 0, such as 30")
    if options.rounds < 1:
        parser.error("--rounds: give 1 or more")
    # Checked first, because writing the deliveries takes long.
    hsipack = shutil.which(options.hsipack)
    if hsipack is None:
        parser.error(
            f"there is no command {options.hsipack}: run cargo build --release -p hsipack-cli, or "
            "name another command with --hsipack"
        )
    size = math.ceil(options.size * 1e9)
    for kind in KINDS:
        measure(hsipack, kind, options.folder, size, options.rounds)


if __name__ == "__main__":
    main()
