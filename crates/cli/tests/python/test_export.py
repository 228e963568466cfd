"""What `hsipack export` writes, read by NumPy, tifffile and Spectral Python.

Run: pytest crates/cli/tests/python/test_export.py
HSIPACK names the binary (default: target/debug/hsipack).
"""

import json
import os
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image
from spectral.io import envi

ROOT = Path(__file__).resolve().parents[4]
HSIPACK = os.environ.get("HSIPACK", str(ROOT / "target" / "debug" / "hsipack"))
WAVELENGTHS = [460.25, 550.5, 640.125, 850.0, 1200.1]
FWHM = [5.0, 5.5, 6.0, 6.5, 7.25]


def hsipack(*args, code=0):
    done = subprocess.run([HSIPACK, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def cube(seed):
    values = np.random.default_rng(seed).normal(0.4, 0.3, (37, 29, 5)).astype("<f4")
    values[3, 4, 2] = np.nan
    values[5, 6] = np.nan
    values[0, 0, 0] = -0.0
    values[0, 0, 1] = 6e-8  # the least fp16 number
    values[1, 1, 1] = 60000.0
    return values


def write_envi(path, values):
    rows, columns, bands = values.shape
    values.tofile(path.with_suffix(".img"))
    path.write_text(
        f"ENVI\nsamples = {columns}\nlines = {rows}\nbands = {bands}\ndata type = 4\n"
        "interleave = bip\nbyte order = 0\nwavelength units = nm\n"
        f"wavelength = {{{', '.join(map(str, WAVELENGTHS))}}}\n"
        f"fwhm = {{{', '.join(map(str, FWHM))}}}\nbbl = {{1, 1, 0, 1, 1}}\n"
    )


@pytest.fixture(scope="module", params=["none", "8", "49"])
def packed(request, tmp_path_factory):
    """A dataset of two cubes, in tiles, with a mask; and what zarr-python finds in it."""
    folder = tmp_path_factory.mktemp("export")
    for seed, name in enumerate(["a", "b"]):
        write_envi(folder / f"{name}.hdr", cube(seed))
        ids = (np.arange(37 * 29).reshape(37, 29) % (3 + seed)).astype("u1")
        np.save(folder / f"{name}_mask.npy", ids)
    out = folder / "d.hsipack"
    hsipack(
        "convert", folder / "a.hdr", folder / "b.hdr", "-o", out, "--scale", request.param,
        "--chunk", "8x10", "--mask", "{dir}/{stem}_mask.npy",
    )  # fmt: skip
    stack = zarr.open_group(out, mode="r")["37x29x5"]
    factor = stack["image"].attrs.get("scale_factor", 1.0)
    assert factor == (1.0 if request.param == "none" else float(request.param))
    return out, stack["image"][1], stack["mask"][1], factor


def export(dataset, output, *more):
    done = hsipack("export", dataset, "--sample", "b", "-o", output, "--json", *more)
    return json.loads(done.stdout)


def same_bits(a, b):
    return a.shape == b.shape and np.array_equal(a.view("u2"), b.view("u2"))


def test_npy(packed, tmp_path):
    dataset, stored, _, factor = packed
    report = export(dataset, tmp_path / "b.npy")
    values = np.load(tmp_path / "b.npy")
    assert values.dtype == np.float16 and same_bits(values, stored)
    assert report["scale_factor"] == factor and report["shape"] == [37, 29, 5]


def test_tiff(packed, tmp_path):
    dataset, stored, _, factor = packed
    report = export(dataset, tmp_path / "b.tif")
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        values = file.asarray()
        metadata = file.pages[0].tags[42112].value
        assert file.pages[0].planarconfig == 1
    assert values.dtype == np.float32 and same_bits(values.astype("f2"), stored)
    assert '<Item name="wavelength" sample="4">1200.1</Item>' in metadata
    assert report["scale_factor"] == factor


def test_envi(packed, tmp_path):
    dataset, stored, _, factor = packed
    report = export(dataset, tmp_path / "b.hdr")
    image = envi.open(tmp_path / "b.hdr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it holds NaN, as it should
        raw = image.open_memmap()
        physical = np.asarray(image.load())
    if report["scale_factor"] == 1.0:  # physical values: 49 has no exact reciprocal
        stored_again = (raw.astype("f8") / factor).astype("f2")
    else:
        stored_again = raw.astype("f2")
    assert same_bits(stored_again, stored)
    np.testing.assert_allclose(physical, stored.astype("f8") * factor, rtol=1e-6)
    assert image.bands.centers == WAVELENGTHS
    assert image.bands.bandwidths == FWHM
    assert image.bands.band_unit == "Nanometers"
    assert [int(flag) for flag in image.metadata["bbl"]] == [1, 1, 0, 1, 1]
    assert np.isnan(float(image.metadata["data ignore value"]))


def test_masks(packed, tmp_path):
    dataset, _, mask, _ = packed
    for ending in ["npy", "hdr", "tif", "png"]:
        export(dataset, tmp_path / f"m.{ending}", "--mask", "mask")
    assert np.array_equal(np.load(tmp_path / "m.npy"), mask)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "m.png")), mask)
    assert np.array_equal(tifffile.imread(tmp_path / "m.tif"), mask)
    image = envi.open(tmp_path / "m.hdr")
    assert np.array_equal(image.open_memmap()[..., 0], mask)


def test_exports_pack_to_the_same_values(packed, tmp_path):
    dataset, stored, _, factor = packed
    export(dataset, tmp_path / "b.hdr")
    hsipack("convert", tmp_path / "b.hdr", "-o", tmp_path / "again", "--scale", factor)
    again = zarr.open_group(tmp_path / "again", mode="r")["37x29x5"]
    # Equal, not the same bits: the source's scaling adds an offset of 0, and -0 + 0 is 0.
    assert np.array_equal(again["image"][0], stored, equal_nan=True)
    assert again["wavelength"][:].tolist() == WAVELENGTHS


def test_refusals(packed, tmp_path):
    dataset = packed[0]
    (tmp_path / "there.npy").write_text("mine")
    assert (
        "--force"
        in hsipack("export", dataset, "--sample", 0, "-o", tmp_path / "there.npy", code=1).stderr
    )
    assert (tmp_path / "there.npy").read_text() == "mine"
    error = hsipack("export", dataset, "--sample", 0, "-o", tmp_path / "x.xyz", code=1).stderr
    assert ".npy" in error and ".hdr" in error


def test_info_and_preview(packed, tmp_path):
    dataset, stored, _, _ = packed
    report = json.loads(hsipack("info", dataset, "--json").stdout)
    values = report["stacks"][0]["values"]
    assert report["kind"] == "dataset" and report["samples"] == 2
    assert values["max"] == pytest.approx(60000.0, rel=1e-3)
    assert values["nan"] == 2 * int(np.isnan(stored).sum())
    hsipack("preview", dataset, "--sample", 1, "-o", tmp_path / "p.png")
    picture = np.asarray(Image.open(tmp_path / "p.png"))
    assert picture.ndim == 3 and picture.shape[1] >= 900
