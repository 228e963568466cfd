"""Folders and files as makers and programs deliver them: cubes, and what stands beside them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import rasterio
import xarray as xr
from helpers import Hsipack, open_xarray, read_zarr, samples, smooth_cube, write_envi
from rasterio.enums import Resampling
from rasterio.transform import Affine

GRANULE = "001_20240101T000000_2400101_001.nc"


def write_emit(path: Path, variable: str, values: np.ndarray, is_mask: bool = False) -> None:
    rows, columns, bands = values.shape
    with netCDF4.Dataset(path, "w") as file:
        for name, length in {"downtrack": rows, "crosstrack": columns, "bands": bands}.items():
            file.createDimension(name, length)
        axes = ("downtrack", "crosstrack", "bands")
        file.createVariable(variable, "f4", axes, fill_value=-9999.0)[:] = values
        group = file.createGroup("sensor_band_parameters")
        if is_mask:
            names = ["Cloud flag", "Cirrus flag", "Water flag", "Spacecraft Flag",
                     "Dilated Cloud Flag", "AOD550", "H2O (g cm-2)", "Aggregate Flag"]  # fmt: skip
            group.createVariable("mask_bands", str, ("bands",))[:] = np.array(names, dtype=object)
        else:
            nm = group.createVariable("wavelengths", "f4", ("bands",))
            nm[:], nm.units = np.linspace(381, 2493, bands), "nm"
            group.createVariable("good_wavelengths", "f4", ("bands",))[:] = 1
        place = file.createGroup("location")
        for name in ["lon", "lat", "elev"]:
            place.createVariable(name, "f8", axes[:2])[:] = np.zeros((rows, columns))


def test_a_granule_of_emit_is_one_cube(hsipack: Hsipack, tmp_path: Path) -> None:
    random, folder = np.random.default_rng(7), tmp_path / "granule"
    folder.mkdir()
    reflectance = random.random((12, 10, 285)).astype(np.float32)
    flags = (random.random((12, 10, 8)) < 0.3).astype(np.float32)
    write_emit(folder / f"EMIT_L2A_RFL_{GRANULE}", "reflectance", reflectance)
    uncertainty = folder / f"EMIT_L2A_RFLUNCERT_{GRANULE}"
    write_emit(uncertainty, "reflectance_uncertainty", reflectance / 100)
    write_emit(folder / f"EMIT_L2A_MASK_{GRANULE}", "mask", flags, is_mask=True)
    hsipack.convert(folder, "--mask", "quality=product", out=tmp_path / "out")
    assert len(samples(tmp_path / "out")) == 1
    np.testing.assert_allclose(read_zarr(tmp_path / "out")[0], reflectance, rtol=2**-10, atol=1e-7)
    quality = read_zarr(tmp_path / "out", array="quality")[0]
    assert np.array_equal(quality & 1, flags[..., 0])
    # A file that is named is read.
    hsipack.convert(uncertainty, out=tmp_path / "named")
    named = read_zarr(tmp_path / "named")[0]
    np.testing.assert_allclose(named, reflectance / 100, rtol=2**-10, atol=1e-7)


@pytest.mark.parametrize("flight", ["ang20160910t185702", "f130411t01p00r11"])
def test_geometry_of_a_flight_line_is_no_cube(
    flight: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    folder = tmp_path / "line"
    nm = [400.0 + 10 * band for band in range(11)]
    write_envi(
        folder / f"{flight}rdn_img.hdr", smooth_cube(), ending="",
        wavelength=nm, wavelength_units="Nanometers",
    )  # fmt: skip
    for name, bands in {"igm": 3, "glt": 2, "loc": 3, "obs_ort": 11}.items():
        write_envi(folder / f"{flight}rdn_{name}.hdr", np.zeros((5, 6, bands)), ending="")
    hsipack.convert(folder, out=tmp_path / "out")
    assert [sample["name"] for sample in samples(tmp_path / "out")] == [f"{flight}rdn_img"]


def test_a_scan_that_is_calibrated_is_packed_once(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype="uint16")
    for scan in ["459", "460"]:
        folder = tmp_path / "scans" / scan
        write_envi(folder / "capture" / f"{scan}.hdr", cube, ending=".raw")
        for kind, level in {"WHITEREF": 4000, "DARKREF": 0}.items():
            panel = np.full((3, *cube.shape[1:]), level, np.uint16)
            write_envi(folder / "capture" / f"{kind}_{scan}.hdr", panel, ending=".raw")
        result = cube.astype(np.float32) / 4000
        write_envi(folder / "results" / f"REFLECTANCE_{scan}.hdr", result, ending=".dat")
    words = [tmp_path / "scans", "--white", "auto", "--dark", "auto"]
    hsipack.convert(*words, out=tmp_path / "out")
    assert len(samples(tmp_path / "out")) == 2
    np.testing.assert_allclose(read_zarr(tmp_path / "out")[0], cube / 4000, rtol=2**-10)
    # Without the scans, the results are cubes.
    results = tmp_path / "scans" / "459" / "results"
    hsipack.convert(results, *words[1:1], out=tmp_path / "results")
    assert len(samples(tmp_path / "results")) == 1


def test_pyramids_of_envi_files_are_no_cubes(hsipack: Hsipack, tmp_path: Path) -> None:
    folder = tmp_path / "e"
    data = write_envi(folder / "e.hdr", np.ones((64, 96, 6), np.float32))
    with rasterio.open(data, "r+") as file:
        file.build_overviews([2], Resampling.average)
    assert data.with_suffix(".img.ovr").exists()
    hsipack.convert(folder, out=tmp_path / "out")
    assert [sample["name"] for sample in samples(tmp_path / "out")] == ["e"]


@pytest.mark.parametrize("internal", [True, False])
def test_masks_of_gdal_are_noted(internal: bool, hsipack: Hsipack, tmp_path: Path) -> None:
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=internal),
        rasterio.open(
            tmp_path / "c.tif", "w", driver="GTiff", width=30, height=20, count=6, dtype="uint16",
            transform=Affine(30, 0, 5e5, 0, -30, 5e6),
        ) as file,
    ):  # fmt: skip
        file.write(np.ones((6, 20, 30), np.uint16))
        file.write_mask(np.arange(600).reshape(20, 30) > 100)
    assert (tmp_path / "c.tif.msk").exists() != internal
    notes = hsipack.convert(tmp_path / "c.tif", out=tmp_path / "out")["notes"]
    assert any("which pixels have no data" in note for note in notes), notes


@pytest.mark.parametrize("axes", [None, "byx"])
def test_axes_that_agree_with_the_file_keep_its_place(
    axes: str | None, hsipack: Hsipack, tmp_path: Path
) -> None:
    values = np.random.default_rng(0).random((4, 5, 6)).astype(np.float32)
    coordinates = {"y": 5e6 - np.arange(5) * 30.0, "x": 5e5 + np.arange(6) * 30.0}
    file = xr.Dataset({"r": (("band", "y", "x"), values)}, coordinates)
    file["crs"] = ((), 0, {"crs_wkt": rasterio.crs.CRS.from_epsg(32632).to_wkt()})
    file["r"].attrs["grid_mapping"] = "crs"
    for name in "yx":
        standard = f"projection_{name}_coordinate"
        file[name].attrs = {"standard_name": standard, "units": "m"}
    file.to_netcdf(tmp_path / "c.nc")
    words = [] if axes is None else ["--axes", axes]
    hsipack.convert(tmp_path / "c.nc", *words, out=tmp_path / "out")
    (sample,) = samples(tmp_path / "out")
    assert sample["geo"]["crs"] == "EPSG:32632"
    # Axes that contradict the file say that its coordinates mean something else.
    hsipack.convert(tmp_path / "c.nc", "--axes", "bxy", out=tmp_path / "other")
    (sample,) = samples(tmp_path / "other")
    assert "geo" not in sample


def test_a_library_with_a_spectrum_a_column_is_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    table = tmp_path / "library.csv"
    rows = [f"{400 + 10 * row},{row},1,2,3" for row in range(6)]
    table.write_text("\n".join(["Wavelength,s1,s2,s3,s4", *rows]) + "\n")
    message = hsipack.refuse(table, out=tmp_path / "out", names=table)
    assert "each row is a band" in message
    assert ".T.to_csv" in message


@pytest.mark.parametrize("unit", ["Nanometers (nm)", "Micrometers (um)"])
def test_units_may_stand_in_brackets(unit: str, hsipack: Hsipack, tmp_path: Path) -> None:
    nm = np.array([400.0 + 10 * band for band in range(11)])
    listed = nm / (1000 if "um" in unit else 1)
    data = write_envi(tmp_path / "c.hdr", smooth_cube(), wavelength=listed, wavelength_units=unit)
    hsipack.convert(data, out=tmp_path / "out")
    np.testing.assert_allclose(open_xarray(tmp_path / "out")["wavelength"], nm)


def test_other_widths_of_bands_are_noted(hsipack: Hsipack, tmp_path: Path) -> None:
    nm = [400.0 + 10 * band for band in range(11)]
    make: Callable[[str, Any], Path] = lambda name, fwhm: write_envi(  # noqa: E731
        tmp_path / f"{name}.hdr", smooth_cube(), wavelength=nm, wavelength_units="nm", fwhm=fwhm
    )
    files = [make("a", [5.0] * 11), make("b", [9.0] * 11), make("c", [5.0] * 11)]
    notes = hsipack.convert(*files, out=tmp_path / "out")["notes"]
    assert [note for note in notes if "fwhm differ" in note and str(files[1]) in note], notes
    assert not [note for note in notes if str(files[2]) in note]


def test_enmap_may_have_any_name(shared: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    folder = shared / "sensors" / "enmap_l2a"
    for file in folder.iterdir():
        is_layer = "QL_" in file.name
        ending = file.name[file.name.index("QL_") :] if is_layer else file.name.split("-")[-1]
        shutil.copy(file, tmp_path / f"Müritz-{ending}")
    hsipack.convert(tmp_path / "Müritz-METADATA.XML", out=tmp_path / "out")
    (image,) = folder.glob("*SPECTRAL_IMAGE*")
    hsipack.convert(image, out=tmp_path / "own")
    assert np.array_equal(read_zarr(tmp_path / "out"), read_zarr(tmp_path / "own"), equal_nan=True)
    assert samples(tmp_path / "out")[0]["sensor"] == samples(tmp_path / "own")[0]["sensor"]
