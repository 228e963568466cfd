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


def test_other_options_are_noted(hsipack: Hsipack, tmp_path: Path) -> None:
    """They may be right for files that differ, too, such as cubes that were calibrated before."""
    cube = smooth_cube((6, 7, 5), dtype="uint16")
    for name in ("a", "b"):
        for prefix, value in (("", cube), ("WHITEREF_", cube + 3000)):
            write_envi(tmp_path / name / f"{prefix}{name}.hdr", value)
        np.save(tmp_path / name / "mask.npy", np.arange(42, dtype=np.uint8).reshape(6, 7))
    mask = ["--mask", "gt={dir}/mask.npy"]
    for key, first, second, found in [
        ("remap", ["--remap-classes", "*=0,3=1"], [], "--remap-classes is {} and *=0,3=1 for {}"),
        ("fill", ["--mask-fill", "255"], [], "--mask-fill is {} and 255 for {}"),
        ("nearest", ["--mask-resample", "nearest"], [], "--mask-resample is {} and nearest for {}"),
        ("nodata", ["--nodata", "7"], [], "--nodata is {} and 7 for {}"),
        ("white", ["--white", "{dir}/WHITEREF_{stem}.hdr"], [], "calibrated with"),
        ("bands", ["--bands", "0-2"], ["--bands", "1-3"], "--bands of"),
        ("other bands", ["--bands", "0-2"], [], "the dataset has no cubes of 6x7x5"),
    ]:
        out, other = tmp_path / f"{key}.a", tmp_path / f"{key}.b"
        for folder, options, dataset in (("a", first, out), ("b", second, other)):
            cubes = tmp_path / folder / f"{folder}.hdr"
            hsipack.convert(cubes, *mask, *options, out=dataset)
        if key != "other bands":
            merged = notes(hsipack, "merge", out, other, "-o", tmp_path / f"{key}.m")
            # Options of other commands are shown with their command.
            merged = [note.replace("`hsipack convert ", "").replace("`", "") for note in merged]
            text = found.format(f"not given for the cubes of {other}", f"those of {out}")
            assert any(text in note for note in merged), (key, merged)
        if key == "white":  # Refused, because a reference is beside it.
            continue
        words = ("convert", tmp_path / "b/b.hdr", "-o", out, "--append")
        appended = notes(hsipack, *words, *mask, *second)
        text = found.format("not given for the new cubes", "those of the dataset")
        assert any(text in note for note in appended), (key, appended)
