"""Datasets that are merged without their sources."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Hsipack, open_xarray, smooth_cube, stacks, write_envi

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


def notes(hsipack: Hsipack, *words: object) -> list[str]:
    done = hsipack.run(*words, "--json")
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)["notes"]
    return found


def test_differences_of_datasets_are_noted(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube()[..., :5]
    nm = [400 + 10 * band for band in range(5)]
    keys: dict[str, dict[str, Any]] = {
        "reflectance": {"data_units": "1", "wavelength": nm, "fwhm": [5] * 5},
        "radiance": {"data_units": "W m-2 sr-1 nm-1", "wavelength": nm, "fwhm": [6] * 5},
        "plain": {},
    }
    for name, own in keys.items():
        write_envi(tmp_path / f"{name}.hdr", cube, wavelength_units="Nanometers", **own)
        hsipack.convert(tmp_path / f"{name}.hdr", out=tmp_path / f"{name}.hsipack")
    datasets = [tmp_path / f"{name}.hsipack" for name in keys]
    first, radiance, plain = (f"{dataset}/{stacks(dataset)[0]}/image" for dataset in datasets)
    found = notes(hsipack, "merge", *datasets, "-o", tmp_path / "merged")
    for note in (
        f"{radiance}: its values are in W m-2 sr-1 nm-1, but those of {first} are in 1",
        f"{radiance}: its fwhm differ from those of {first}, which are kept",
        f"{plain}: it gives no wavelengths; those of {first} are used",
    ):
        assert note in found, found
    # Cubes that are added later are compared with the dataset.
    for name in ("radiance", "plain"):
        words = ("convert", tmp_path / f"{name}.hdr", "-o", datasets[0], "--append")
        text = "\n".join(notes(hsipack, *words))
        if name == "radiance":
            assert "its values are in W m-2 sr-1 nm-1, but those of" in text
            assert "in the dataset are in 1" in text
            assert "its fwhm differ" in text
        else:
            assert "it gives no wavelengths" in text
            assert "its values are in" not in text
