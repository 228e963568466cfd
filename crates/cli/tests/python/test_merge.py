"""Datasets that are merged without their sources."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from helpers import Hsipack, open_xarray, smooth_cube, write_envi

NAMES = ["without", "visible", "infrared"]


def pack(hsipack: Hsipack, folder: Path, name: str, first: float | None) -> None:
    cube = smooth_cube()[..., :5]
    nm = None if first is None else [first + 10 * band for band in range(5)]
    write_envi(folder / f"{name}.hdr", cube, wavelength_units="Nanometers", wavelength=nm)
    hsipack.convert(folder / f"{name}.hdr", "--name", name, out=folder / f"{name}.hsipack")


@pytest.mark.parametrize("order", list(permutations(NAMES)), ids="-".join)
def test_wavelengths_of_all_datasets_are_compared(
    order: tuple[str, ...], hsipack: Hsipack, tmp_path: Path
) -> None:
    for name, first in zip(NAMES, [None, 400, 1000], strict=True):
        pack(hsipack, tmp_path, name, first)
    done = hsipack.run(
        "merge", *[tmp_path / f"{one}.hsipack" for one in order], "-o", tmp_path / "m"
    )
    assert done.returncode == 1
    assert "band 0 is at" in done.stderr
    known = [tmp_path / f"{one}.hsipack" for one in order if one != "infrared"]
    assert hsipack.run("merge", *known, "-o", tmp_path / "m").returncode == 0
    merged = open_xarray(tmp_path / "m")
    assert np.array_equal(merged["wavelength"], [400, 410, 420, 430, 440])
