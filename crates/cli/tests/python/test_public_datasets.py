"""Every layout that hsipack ships packs a folder that is arranged as the public dataset is.

The folders are made here, as the loaders that the datasets' authors published expect them. Names,
values, labels and splits are compared with the arrays from which the folder was made.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from helpers import Hsipack, samples


@dataclass
class Expected:
    """A sample as it must be packed."""

    cube: np.ndarray
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)
    wavelengths: np.ndarray | None = None


def scene(seed: int, rows: int = 24, columns: int = 32, bands: int = 31) -> np.ndarray:
    """A cube (row, column, band) of values that float16 holds to a thousandth."""
    return np.random.default_rng(seed).uniform(0.01, 1, (rows, columns, bands)).astype(np.float32)


def write_matlab_73(path: Path, **arrays: np.ndarray) -> None:
    """Writes a file as MATLAB does with -v7.3: HDF5 with the axes reversed, after a header."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            file[name] = np.atleast_2d(values).T
            file[name].attrs["MATLAB_class"] = np.bytes_(
                {"float32": "single", "float64": "double"}.get(values.dtype.name, values.dtype.name)
            )
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")


def arad_1k(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, split in [(1, "Train"), (2, "Train"), (901, "Valid")]:
        cube = scene(number)
        folder = root / f"{split}_spectral"
        folder.mkdir(exist_ok=True)
        bands = np.arange(400.0, 701.0, 10.0)
        write_matlab_73(folder / f"ARAD_1K_{number:04d}.mat", cube=cube, bands=bands)
        expected[f"ARAD_1K_{number:04d}"] = Expected(cube)
    return expected


FOLDERS: dict[str, Callable[[Path], dict[str, Expected]]] = {"arad-1k": arad_1k}


@pytest.mark.parametrize("layout", FOLDERS)
def test_a_layout_packs_its_folder(hsipack: Hsipack, layout: str, tmp_path: Path) -> None:
    root, out = tmp_path / "data", tmp_path / "out.hsipack"
    root.mkdir()
    expected = FOLDERS[layout](root)
    hsipack.convert(root, "--layout", layout, out=out)
    packed = {sample["name"]: sample for sample in samples(out)}
    assert sorted(packed) == sorted(expected)
    for name, want in expected.items():
        compare(out, packed[name], want)


def compare(out: Path, sample: dict[str, Any], want: Expected) -> None:
    """Compares a packed sample with what it was made from."""
    group = zarr.open_group(out / sample["stack"], mode="r")
    index = sample["index"]
    image = np.asarray(group["image"][index], np.float64)
    assert image.shape == want.cube.shape
    np.testing.assert_allclose(image, want.cube, rtol=1e-3, atol=1e-4)
    for name, mask in want.masks.items():
        assert np.array_equal(np.asarray(group[name][index]), mask), name
    for name, value in want.columns.items():
        assert sample.get(name, sample.get("columns", {}).get(name)) == value, name
    if want.wavelengths is not None:
        np.testing.assert_allclose(np.asarray(group["wavelength"]), want.wavelengths, rtol=1e-4)


def test_every_layout_is_tested_and_listed(hsipack: Hsipack) -> None:
    listed = hsipack.run("layouts").stdout
    assert re.findall(r"^(\S+):", listed, re.MULTILINE) == sorted(FOLDERS)


def test_a_printed_layout_can_be_changed(hsipack: Hsipack, tmp_path: Path) -> None:
    text = hsipack.run("layouts", "arad-1k").stdout
    own = tmp_path / "own.toml"
    own.write_text(text.replace("*_spectral", "spectra"))
    (tmp_path / "data").mkdir()
    arad_1k(tmp_path / "data")
    (tmp_path / "data/Train_spectral").rename(tmp_path / "data/spectra")
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "data", "--layout", own, "--bands", "0-4", out=out)
    assert len(samples(out)) == 2
    recorded = json.loads((out / "zarr.json").read_text())["attributes"]["hsipack"]
    assert "--layout" in recorded["command"]


def test_wrong_layouts_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    out = tmp_path / "out.hsipack"
    message = hsipack.refuse(tmp_path, "--layout", "arad", out=out, names=None)
    assert "there is no layout" in message
    assert "arad-1k" in message
    (tmp_path / "bad.toml").write_text('title = "a"\nexpects = []\nlevle = 3\n')
    bad = tmp_path / "bad.toml"
    assert "levle" in hsipack.refuse(tmp_path, "--layout", bad, out=out, names=bad)
    two = hsipack.refuse(tmp_path, tmp_path, "--layout", "arad-1k", out=out, names="a layout takes")
    assert "2 inputs" in two
