"""Units of values: as files state them, kept with samples and arrays, where xarray shows them."""

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import rasterio
import spectral.io.envi as envi
import xarray as xr
from helpers import Hsipack, attributes, open_xarray, samples, smooth_cube, timeless_tree
from rasterio.transform import Affine

UNIT = "ppm m"
# Rows and columns; the bands of a further image.
SIZE, BANDS = (12, 9), 3
NM = [2110.0, 2250.0, 2390.0]


def values(number: int, bands: int) -> np.ndarray:
    """(rows, columns), or with bands."""
    shape = (*SIZE, bands) if bands > 1 else SIZE
    return np.random.default_rng(number).normal(0, 100, shape).astype(np.float32)


def write_hdf5(stem: Path, array: np.ndarray, unit: str) -> Path:
    path = stem.with_suffix(".h5")
    with h5py.File(path, "w") as file:
        file["values"] = array
        file["values"].attrs["units"] = unit
    return path


def write_hdf5_bytes(stem: Path, array: np.ndarray, unit: str) -> Path:
    """Fixed-length text under another name, as IDL and MATLAB write it."""
    path = stem.with_suffix(".h5")
    with h5py.File(path, "w") as file:
        file["values"] = array
        file["values"].attrs["Unit"] = np.bytes_(unit)
    return path


def write_netcdf(stem: Path, array: np.ndarray, unit: str) -> Path:
    path = stem.with_suffix(".nc")
    with netCDF4.Dataset(path, "w") as file:
        names = ("y", "x", "band")[: array.ndim]
        for name, length in zip(names, array.shape, strict=True):
            file.createDimension(name, length)
        variable = file.createVariable("values", "f4", names)
        variable.units = unit
        variable[:] = array
        if array.ndim == 3:
            nm = file.createVariable("wavelength", "f8", "band")
            nm.units = "nm"
            nm[:] = NM
    return path


def write_zarr(stem: Path, array: np.ndarray, unit: str) -> Path:
    path = stem.with_suffix(".zarr")
    names = ("y", "x", "band")[: array.ndim]
    named = xr.DataArray(array, dims=names, name="values", attrs={"units": unit})
    named.to_dataset().to_zarr(path, zarr_format=3, consolidated=False)
    return path


def write_spectral(stem: Path, array: np.ndarray, unit: str) -> Path:
    path = stem.with_suffix(".hdr")
    metadata: dict[str, object] = {"data units": unit, "wavelength units": "nm"}
    if array.ndim == 3:
        metadata["wavelength"] = NM
    envi.save_image(str(path), array.reshape(*SIZE, -1), metadata=metadata, force=True)
    return path


def write_plot_titles(stem: Path, array: np.ndarray, unit: str) -> Path:
    path = stem.with_suffix(".hdr")
    metadata = {"z plot titles": ["Wavelength (nm)", f"Methane ({unit})"]}
    envi.save_image(str(path), array.reshape(*SIZE, -1), metadata=metadata, force=True)
    return path


def write_raster(driver: str) -> Callable[[Path, np.ndarray, str], Path]:
    """A writer of GDAL's unit types: in tags of TIFF files, and in side files of others."""

    def write(stem: Path, array: np.ndarray, unit: str) -> Path:
        path = stem.with_suffix(".tif" if driver == "GTiff" else ".img")
        bands = array.reshape(*SIZE, -1)
        count, (height, width) = bands.shape[2], SIZE
        place = {"crs": "EPSG:32632", "transform": Affine(30, 0, 600_000, 0, -30, 5_300_000)}
        shape = {"count": count, "height": height, "width": width, "dtype": "float32"}
        with rasterio.open(path, "w", driver=driver, **shape, **place) as file:
            file.write(bands.transpose(2, 0, 1))
            file.units = [unit] * count
        return path

    return write


WRITERS = {
    "h5py": write_hdf5,
    "h5py, fixed length": write_hdf5_bytes,
    "netCDF4": write_netcdf,
    "xarray": write_zarr,
    "spectral": write_spectral,
    "spectral, titles": write_plot_titles,
    "rasterio, GeoTIFF": write_raster("GTiff"),
    "rasterio, side file": write_raster("ENVI"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_units_of_files_are_those_of_arrays(name: str, hsipack: Hsipack, tmp_path: Path) -> None:
    write = WRITERS[name]
    (tmp_path / "in").mkdir()
    for number in range(2):
        np.save(tmp_path / f"in/c{number}.npy", smooth_cube((*SIZE, 5), seed=number))
        write(tmp_path / f"c{number}_mag1c", values(number, 1), UNIT)
        image = write(tmp_path / f"c{number}_before", values(10 + number, BANDS), UNIT)
        cube = write(tmp_path / f"c{number}_cube", values(20 + number, BANDS), UNIT)
    end = image.suffix
    out = tmp_path / "out"
    options = ["--target", f"mag1c={tmp_path}/{{stem}}_mag1c{end}"]
    options += ["--image", f"before={tmp_path}/{{stem}}_before{end}"]
    hsipack.convert(tmp_path / "in", *options, out=out)
    shown = open_xarray(out)
    for array in ("mag1c", "before"):
        assert attributes(out, array=array)["units"] == shown[array].attrs["units"] == UNIT
    # The cubes themselves have none.
    assert "units" not in attributes(out)
    assert "unit" not in samples(out)[0]["source"]
    info = json.loads(hsipack.run("info", out, "--json").stdout)["stacks"][0]
    assert [info[key][0]["unit"] for key in ("targets", "images")] == [UNIT, UNIT]
    # The same arrays, added afterwards.
    added = tmp_path / "added"
    hsipack.convert(tmp_path / "in", out=added)
    assert hsipack.run("add", added, *options).returncode == 0
    for array in ("mag1c", "before"):
        assert attributes(added, array=array) == attributes(out, array=array)

    packed = tmp_path / "packed"
    hsipack.convert(cube, out=packed)
    assert samples(packed)[0]["source"]["unit"] == UNIT
    assert open_xarray(packed)["image"].attrs["units"] == UNIT
    assert json.loads(hsipack.run("info", cube, "--json").stdout)["unit"] == UNIT


@pytest.mark.parametrize("options", [["--normalize", "l2"], ["--raw-values"]])
def test_values_that_are_not_physical_have_no_unit(
    options: list[str], hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = write_netcdf(tmp_path / "a", values(0, BANDS), "W")
    hsipack.convert(cube, *options, out=tmp_path / "out")
    assert "units" not in attributes(tmp_path / "out")
    assert "unit" not in samples(tmp_path / "out")[0]["source"]


def test_scaled_values_have_the_unit_of_their_physical_values(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = write_netcdf(tmp_path / "a", values(0, BANDS), "W")
    hsipack.convert(cube, "--scale", 4, out=tmp_path / "out")
    image = open_xarray(tmp_path / "out")["image"]
    assert image.attrs["units"] == "W"
    np.testing.assert_allclose(image[0], values(0, BANDS), rtol=1e-3)


@pytest.mark.parametrize("unit", ["nm", "Micrometers", "unknown", " "])
def test_units_of_wavelengths_and_words_without_meaning_are_no_units(
    unit: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = write_netcdf(tmp_path / "a", values(0, BANDS), unit)
    hsipack.convert(cube, out=tmp_path / "out")
    assert "units" not in attributes(tmp_path / "out")
    assert open_xarray(tmp_path / "out")["wavelength"].attrs["units"] == "nm"


def test_cubes_with_different_units_have_none_in_common(hsipack: Hsipack, tmp_path: Path) -> None:
    first, second, other = (
        write_netcdf(tmp_path / name, values(number, BANDS), unit)
        for number, (name, unit) in enumerate([("a", "W"), ("b", "W"), ("c", "uW")])
    )
    whole, parts, appended = (tmp_path / name for name in ("whole", "parts", "appended"))
    hsipack.convert(first, second, out=whole)
    plan = tmp_path / "plan.json"
    for words in (
        ["convert", first, second, "-o", parts, "--plan", plan],
        ["work", plan, "--part", "1/1"],
        ["commit", plan],
    ):
        done = hsipack.run(*words)
        assert done.returncode == 0, done.stderr
    assert timeless_tree(parts, command=False) == timeless_tree(whole, command=False)
    hsipack.convert(first, out=appended)
    hsipack.convert(second, "--append", out=appended)
    assert attributes(appended)["units"] == "W"
    report = hsipack.convert(other, "--append", out=appended)
    assert "units" not in attributes(appended)
    assert [sample["source"]["unit"] for sample in samples(appended)] == ["W", "W", "uW"]
    report = hsipack.convert(first, other, out=tmp_path / "both")
    assert any("are in W" in note for note in report["notes"])
    assert "units" not in attributes(tmp_path / "both")
    # Merged datasets have the unit that all of them have.
    for name, cube in (("first", first), ("second", second), ("other", other)):
        hsipack.convert(cube, out=tmp_path / name)
    for names, unit in ((("first", "second"), "W"), (("second", "other"), None)):
        merged = tmp_path / " and ".join(names)
        done = hsipack.run("merge", *(tmp_path / name for name in names), "-o", merged)
        assert done.returncode == 0, done.stderr
        assert attributes(merged).get("units") == unit


def test_targets_in_another_unit_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, unit in enumerate((UNIT, "ppb")):
        np.save(tmp_path / f"in/c{number}.npy", smooth_cube((*SIZE, 5), seed=number))
        write_netcdf(tmp_path / f"c{number}_mag1c", values(number, 1), unit)
    target = ["--target", f"mag1c={tmp_path}/{{stem}}_mag1c.nc"]
    message = hsipack.refuse(
        tmp_path / "in", *target, out=tmp_path / "out", names=tmp_path / "in/c1.npy"
    )
    assert 'its target "mag1c" is in ppb, but in ppm m in other cubes' in message
    hsipack.convert(tmp_path / "in", out=tmp_path / "out")
    done = hsipack.run("add", tmp_path / "out", *target)
    assert done.returncode == 1
    assert "is in ppb" in done.stderr


def test_exports_state_the_unit(hsipack: Hsipack, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    hsipack.convert(write_netcdf(tmp_path / "a", values(0, BANDS), UNIT), out=packed)
    for ending in ("tif", "hdr", "zarr"):
        target = tmp_path / f"export.{ending}"
        done = hsipack.run("export", packed, "--sample", "0", "-o", target)
        assert done.returncode == 0, done.stderr
    with rasterio.open(tmp_path / "export.tif") as file:
        assert file.units == (UNIT,) * BANDS
    assert envi.open(tmp_path / "export.hdr").metadata["data units"] == UNIT
    shown = xr.open_zarr(tmp_path / "export.zarr", consolidated=False)
    assert shown["image"].attrs["units"] == UNIT
    for ending in ("tif", "hdr", "zarr"):
        again = tmp_path / f"again_{ending}"
        hsipack.convert(tmp_path / f"export.{ending}", out=again)
        assert attributes(again)["units"] == UNIT
