"""The packed dataset, which hsipack, zarr-python and TensorStore all read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from peers.cubes import Cubes

DATA = "hsipack"


def command() -> str:
    """The release build of the command, which scripts/bench/local_peers sets as HSIPACK."""
    return os.environ.get("HSIPACK", "hsipack")


def write(cubes: Cubes, folder: Path) -> None:
    """Packs with the defaults of `hsipack convert`."""
    sources = [str(path) for path in cubes.paths]
    words = [command(), "convert", *sources, "-o", str(dataset(folder))]
    subprocess.run(words, check=True, capture_output=True)


def dataset(folder: Path) -> Path:
    """The dataset in a peer's folder."""
    return folder / "cubes.hsipack"


def image(folder: Path) -> Path:
    """Its only image array (sample, row, column, band)."""
    (found,) = dataset(folder).glob("*x*x*/image")
    return found
