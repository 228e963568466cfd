"""Output of `hsipack export`, `info` and `preview`, read by NumPy, tifffile and Spectral Python."""

import json
import os
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import xarray
import zarr
from helpers import (
    Hsipack,
    assert_same_bits,
    attributes,
    check_refusal,
    open_xarray,
    read_zarr,
    samples,
    write_envi,
)
from PIL import Image
from spectral.io import envi

WAVELENGTHS = [460.25, 550.5, 640.125, 850.0, 1200.1]
FWHM = [5.0, 5.5, 6.0, 6.5, 7.25]


@dataclass(frozen=True)
class Packed:
    """A dataset of two cubes, and the second one as zarr-python reads it."""

    hsipack: Hsipack
    path: Path
    image: np.ndarray
    mask: np.ndarray
    factor: float

    def export(self, output: Path, *more: object) -> dict[str, Any]:
        done = self.hsipack.run("export", self.path, "--sample", "b", "-o", output, "--json", *more)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def cube(seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).normal(0.4, 0.3, (37, 29, 5)).astype("<f4")
    values[3, 4, 2] = np.nan
    values[5, 6] = np.nan
    values[0, 0, 0] = -0.0
    values[0, 0, 1] = 6e-8  # the smallest fp16 number
    values[1, 1, 1] = 60000.0
    return values


@pytest.fixture(scope="module", params=["none", "8", "49"])
def packed(
    request: pytest.FixtureRequest, hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory
) -> Packed:
    """In tiles, with a mask."""
    folder = tmp_path_factory.mktemp("export")
    for seed, name in enumerate(["a", "b"]):
        write_envi(
            folder / f"{name}.hdr", cube(seed), wavelength=WAVELENGTHS, wavelength_units="nm",
            fwhm=FWHM, bbl=[1, 1, 0, 1, 1],
        )  # fmt: skip
        ids = (np.arange(37 * 29).reshape(37, 29) % (3 + seed)).astype("u1")
        np.save(folder / f"{name}_mask.npy", ids)
    out = folder / "d.hsipack"
    options = ["--scale", request.param, "--chunk", "8x10", "--mask", "{dir}/{stem}_mask.npy"]
    hsipack.convert(folder / "a.hdr", folder / "b.hdr", *options, out=out)
    factor = attributes(out).get("scale_factor", 1.0)
    assert factor == (1.0 if request.param == "none" else float(request.param))
    return Packed(hsipack, out, read_zarr(out)[1], read_zarr(out, array="mask")[1], factor)


def test_npy(packed: Packed, tmp_path: Path) -> None:
    report = packed.export(tmp_path / "b.npy")
    values = np.load(tmp_path / "b.npy")
    assert_same_bits(values, packed.image)
    assert report["scale_factor"] == packed.factor
    assert report["shape"] == [37, 29, 5]


def test_tiff(packed: Packed, tmp_path: Path) -> None:
    report = packed.export(tmp_path / "b.tif")
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        values = file.asarray()
        page = file.pages[0]
        assert isinstance(page, tifffile.TiffPage)
        metadata = page.tags[42112].value
        assert page.planarconfig == 1
    assert values.dtype == np.float32
    assert_same_bits(values.astype("f2"), packed.image)
    assert '<Item name="wavelength" sample="4">1200.1</Item>' in metadata
    assert report["scale_factor"] == packed.factor


def test_envi(packed: Packed, tmp_path: Path) -> None:
    report = packed.export(tmp_path / "b.hdr")
    image = envi.open(tmp_path / "b.hdr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it holds NaN, as it should
        raw = image.open_memmap()
        physical = np.asarray(image.load())
    if report["scale_factor"] == 1.0:  # physical values: 49 has no exact reciprocal
        stored_again = (raw.astype("f8") / packed.factor).astype("f2")
    else:
        stored_again = raw.astype("f2")
    assert_same_bits(stored_again, packed.image)
    np.testing.assert_allclose(physical, packed.image.astype("f8") * packed.factor, rtol=1e-6)
    assert image.bands.centers == WAVELENGTHS
    assert image.bands.bandwidths == FWHM
    assert image.bands.band_unit == "Nanometers"
    assert [int(flag) for flag in image.metadata["bbl"]] == [1, 1, 0, 1, 1]
    assert np.isnan(float(image.metadata["data ignore value"]))


def test_zarr(packed: Packed, tmp_path: Path) -> None:
    report = packed.export(tmp_path / "b.zarr")
    assert report["files"] == [str(tmp_path / "b.zarr")]
    stored = xarray.open_zarr(tmp_path / "b.zarr", mask_and_scale=False, consolidated=False)
    assert stored["image"].dims == ("y", "x", "band")
    assert_same_bits(stored["image"].values, packed.image)
    assert stored["wavelength"].values.tolist() == WAVELENGTHS
    assert stored["fwhm"].values.tolist() == FWHM
    assert stored["image"].attrs["good_bands"] == [True, True, False, True, True]
    physical = xarray.open_zarr(tmp_path / "b.zarr", consolidated=False)["image"]
    np.testing.assert_allclose(physical, packed.image.astype("f8") * packed.factor, rtol=1e-6)
    refused = packed.hsipack.run(
        "export", packed.path, "--sample", "b", "-o", tmp_path / "b.zarr"
    )  # fmt: skip
    assert "--force" in check_refusal(refused, tmp_path / "b.zarr")
    packed.export(tmp_path / "b.zarr", "--mask", "mask", "--force")
    mask = xarray.open_zarr(tmp_path / "b.zarr", consolidated=False)["mask"]
    assert np.array_equal(mask, packed.mask)


def test_masks(packed: Packed, tmp_path: Path) -> None:
    mask = packed.mask
    for ending in ["npy", "hdr", "tif", "png"]:
        packed.export(tmp_path / f"m.{ending}", "--mask", "mask")
    assert np.array_equal(np.load(tmp_path / "m.npy"), mask)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "m.png")), mask)
    assert np.array_equal(tifffile.imread(tmp_path / "m.tif"), mask)
    image = envi.open(tmp_path / "m.hdr")
    assert np.array_equal(image.open_memmap()[..., 0], mask)


def test_envi_has_a_name_for_every_class_id(hsipack: Hsipack, tmp_path: Path) -> None:
    ids = np.random.default_rng(0).choice([0, 1, 4, 9], (7, 6)).astype("u1")
    np.save(tmp_path / "a.npy", np.ones((7, 6, 3), "f4"))
    np.save(tmp_path / "ids.npy", ids)
    words = ("--axes", "yxb", "--mask", f"m={tmp_path}/ids.npy", "--class-names", "0=none,1=oak")
    hsipack.convert(tmp_path / "a.npy", *words, out=tmp_path / "d")
    path = tmp_path / "m.hdr"
    done = hsipack.run("export", tmp_path / "d", "--sample", 0, "--mask", "m", "-o", path)
    assert done.returncode == 0, done.stderr
    image = envi.open(path)
    assert np.array_equal(image.open_memmap()[..., 0], ids)
    assert image.metadata["classes"] == "10"
    assert image.metadata["class names"] == ["none", "oak", *(f"class {id}" for id in range(2, 10))]
    assert len(image.metadata["class lookup"]) == 30


def test_exports_pack_to_the_same_values(packed: Packed, tmp_path: Path) -> None:
    packed.export(tmp_path / "b.hdr")
    again = tmp_path / "again"
    packed.hsipack.convert(tmp_path / "b.hdr", "--scale", packed.factor, out=again)
    # Equal, but not the same bits: the source's scaling adds an offset of 0, and -0 + 0 is 0.
    assert np.array_equal(read_zarr(again)[0], packed.image, equal_nan=True)
    assert open_xarray(again)["wavelength"].values.tolist() == WAVELENGTHS


def test_refusals(packed: Packed, tmp_path: Path) -> None:
    (tmp_path / "there.npy").write_text("mine")
    words = ["export", packed.path, "--sample", 0, "-o"]
    message = check_refusal(packed.hsipack.run(*words, tmp_path / "there.npy"), None)
    assert "--force" in message
    assert (tmp_path / "there.npy").read_text() == "mine"
    message = check_refusal(packed.hsipack.run(*words, tmp_path / "x.xyz"), None)
    assert ".npy" in message
    assert ".hdr" in message


def test_force_replaces_only_files_and_exports(packed: Packed, tmp_path: Path) -> None:
    commands: dict[str, list[object]] = {
        f"pipe.{ending}": ["export", packed.path, "--sample", 0]
        for ending in ("npy", "hdr", "img", "tif", "zarr")
    }
    commands["pipe.csv"] = commands["pipe.parquet"] = ["spectra", packed.path, "--mask", "mask"]
    commands["pipe.png"] = ["preview", packed.path]
    for name, words in commands.items():
        pipe = tmp_path / name
        os.mkfifo(pipe)
        for force in ([], ["--force"]):
            done = packed.hsipack.run(*words, "-o", pipe, *force)
            message = check_refusal(done, pipe.with_suffix(""))
            assert not force or "this is a pipe" in message
            assert pipe.is_fifo()
        pipe.unlink()
    card = tmp_path / "card"
    card.mkdir()
    os.mkfifo(card / "croissant.json")
    done = packed.hsipack.run("card", packed.path, "-o", card, "--force")
    assert "this is a pipe" in check_refusal(done, card / "croissant.json")
    device = tmp_path / "null.npy"
    device.symlink_to("/dev/null")
    words = ["export", packed.path, "--sample", 0, "--force", "-o"]
    assert "this is a device" in check_refusal(packed.hsipack.run(*words, device), device)
    assert device.is_symlink()
    # A whole dataset, or a group of someone else, is no export.
    dataset, theirs = tmp_path / "d.zarr", tmp_path / "theirs.zarr"
    shutil.copytree(packed.path, dataset)
    zarr.create_group(theirs)
    for path in (dataset, theirs):
        message = check_refusal(packed.hsipack.run(*words, path), path)
        assert "is not an export" in message
    assert packed.hsipack.run("validate", dataset).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "card", "null.npy", "d.zarr", "theirs.zarr",
    }  # fmt: skip


def test_info_and_preview(packed: Packed, tmp_path: Path) -> None:
    report = json.loads(packed.hsipack.run("info", packed.path, "--json").stdout)
    values = report["stacks"][0]["values"]
    assert report["kind"] == "dataset"
    assert report["samples"] == 2
    assert values["max"] == pytest.approx(60000.0, rel=1e-3)
    assert values["nan"] == 2 * int(np.isnan(packed.image).sum())
    done = packed.hsipack.run("preview", packed.path, "--sample", 1, "-o", tmp_path / "p.png")
    assert done.returncode == 0, done.stderr
    picture = np.asarray(Image.open(tmp_path / "p.png"))
    assert picture.ndim == 3
    assert picture.shape[1] >= 900


def test_numbers_with_leading_zeros_are_names(hsipack: Hsipack, tmp_path: Path) -> None:
    names = ["0001", "0002", "0003"]
    for number, name in enumerate(names, 1):
        np.save(tmp_path / f"{name}.npy", np.full((4, 5, 3), number, np.float32))
    files = [tmp_path / f"{name}.npy" for name in names]
    hsipack.convert(*files, "--axes", "yxb", out=tmp_path / "out")
    for sample, value in [*zip(names, [1, 2, 3], strict=True), ("0", 1), ("2", 3)]:
        words = [
            "export",
            tmp_path / "out",
            "--sample",
            sample,
            "-o",
            tmp_path / "e.npy",
            "--force",
        ]
        assert hsipack.run(*words).returncode == 0
        assert (np.load(tmp_path / "e.npy") == value).all(), sample


def test_numbers_are_ids_or_names(hsipack: Hsipack, tmp_path: Path) -> None:
    for value in (0, 1, 10, 2):
        np.save(tmp_path / f"{value}.npy", np.full((4, 5, 3), value, np.float32))
    packed = tmp_path / "packed"
    files = [tmp_path / f"{value}.npy" for value in (0, 1, 10, 2)]
    hsipack.convert(*files, "--axes", "yxb", out=packed)
    assert [line["name"] for line in samples(packed)] == ["0", "1", "10", "2"]
    for text, value in [("0", 0), ("1", 1), ("10", 10), ("3", 2), ("id:2", 10), ("name:2", 2)]:
        done = hsipack.run("export", packed, "--sample", text, "-o", tmp_path / f"out_{text}.npy")
        assert done.returncode == 0, done.stderr
        assert np.load(tmp_path / f"out_{text}.npy").max() == value, text
    for command, ending in [("export", "npy"), ("preview", "png")]:
        done = hsipack.run(command, packed, "--sample", 2, "-o", tmp_path / f"o.{ending}")
        message = check_refusal(done, packed)
        assert "2 is the id of the sample 10, and the name of the sample with the id 3" in message
        assert "give id:2 or name:2" in message
