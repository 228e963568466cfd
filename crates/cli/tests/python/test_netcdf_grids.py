"""Georeferencing of NetCDF and Zarr files by the CF conventions: read like GDAL (through rasterio),
for files of several writers.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401  (registers the accessor .rio)
import xarray as xr
from helpers import Hsipack, open_xarray, samples
from rasterio.crs import CRS
from rasterio.transform import Affine
from test_georeferencing import (
    BANDS,
    COLUMNS,
    DEGREES,
    LAMBERT,
    NORTH_UP,
    ROWS,
    SOUTH_UP,
    TURNED,
    assert_same_place,
    info,
    values,
)

# rioxarray uses a deprecated operator for matrices.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

Write = Callable[[xr.Dataset, Path], Any]


def centres(place: Affine, kind: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    """The centres of the columns and rows of a grid without rotation."""
    x = place.c + place.a * (np.arange(COLUMNS) + 0.5)
    y = place.f + place.e * (np.arange(ROWS) + 0.5)
    return x.astype(kind), y.astype(kind)


def cube(crs: Any, place: Affine, dims: tuple[str, str, str] = ("band", "y", "x")) -> xr.Dataset:
    """A cube as rioxarray describes it."""
    x, y = centres(place)
    array = xr.DataArray(values(), dims=("band", "y", "x"), name="cube")
    if place.b == 0:
        array = array.assign_coords(x=x, y=y)
    array = array.rio.write_transform(place)
    if crs is not None:
        array = array.rio.write_crs(crs)
        if place.b == 0:
            array = array.rio.write_coordinate_system()
    dataset: xr.Dataset = array.transpose(*dims).to_dataset()
    return dataset


def netcdf(dataset: xr.Dataset, path: Path) -> None:
    dataset.to_netcdf(path, engine="netcdf4")


def zarr(version: int) -> Write:
    def write(dataset: xr.Dataset, path: Path) -> None:
        dataset.to_zarr(path, zarr_format=version, consolidated=False)

    return write


WRITERS: list[tuple[str, Write]] = [
    ("netcdf4", netcdf),
    ("zarr2", zarr(2)),
    ("zarr3", zarr(3)),
]
PLACES: list[tuple[Any, Affine]] = [
    ("EPSG:32632", NORTH_UP),
    ("EPSG:32723", SOUTH_UP),
    ("EPSG:25832", NORTH_UP),
    ("EPSG:4326", DEGREES),
    ("EPSG:4269", DEGREES),
    ("EPSG:2154", NORTH_UP),
    ("EPSG:32611", TURNED),
    (LAMBERT, NORTH_UP),
    (None, NORTH_UP),
]


@pytest.mark.parametrize(("crs", "place"), PLACES)
@pytest.mark.parametrize("write", [one[1] for one in WRITERS], ids=[one[0] for one in WRITERS])
def test_what_rioxarray_writes(
    crs: Any, place: Affine, write: Write, hsipack: Hsipack, tmp_path: Path
) -> None:
    path = tmp_path / ("a.nc" if write is netcdf else "a.zarr")
    write(cube(crs, place), path)
    geo = info(hsipack, path)["geo"]
    # Equal to the last bit: the transform is written in addition to the coordinates.
    assert geo["transform"] == list(place.to_gdal())
    if crs is None:
        assert "crs" not in geo
    else:
        assert CRS.from_user_input(geo["crs"]) == CRS.from_user_input(crs)
        assert geo["crs"].startswith("EPSG:") == isinstance(crs, str)
        assert geo["unit"] == ("degree" if place is DEGREES else "metre")
    hsipack.convert(path, out=tmp_path / "out")
    assert samples(tmp_path / "out")[0]["geo"] == geo
    packed = open_xarray(tmp_path / "out")["image"]
    assert packed.rio.transform() == pytest.approx(place)


@pytest.mark.parametrize("dims", [("y", "x", "band"), ("y", "band", "x"), ("x", "y", "band")])
def test_axes_in_any_order(dims: tuple[str, str, str], hsipack: Hsipack, tmp_path: Path) -> None:
    cube("EPSG:32632", NORTH_UP, dims).to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    report = info(hsipack, tmp_path / "a.nc")
    assert report["shape"] == [ROWS, COLUMNS, BANDS]
    assert report["geo"]["transform"] == list(NORTH_UP.to_gdal())
    # Axes that the user gives override the names of dimensions.
    done = hsipack.convert(tmp_path / "a.nc", "--axes", "byx", out=tmp_path / "out")
    assert done["cubes"] == 1
    assert "geo" not in samples(tmp_path / "out")[0]


def test_parts_that_were_cut_out_lie_where_their_coordinates_say(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    """xarray keeps the transform of the whole image when it selects a part."""
    part = cube("EPSG:32632", NORTH_UP).isel(y=slice(2, None), x=slice(3, 6))
    part.to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    report = info(hsipack, tmp_path / "a.nc")
    wanted = NORTH_UP @ Affine.translation(3, 2)
    assert report["geo"]["transform"] == pytest.approx(list(wanted.to_gdal()), rel=1e-12)
    assert "GeoTransform does not match" in " ".join(report["notes"])
    every_other = cube("EPSG:32632", NORTH_UP).isel(x=[0, 1, 2, 4])
    every_other.to_netcdf(tmp_path / "b.nc", engine="netcdf4")
    report = info(hsipack, tmp_path / "b.nc")
    assert report["geo"] is None
    assert "not evenly spaced" in " ".join(report["notes"])


def write_netcdf(
    path: Path, mapping: dict[str, Any] | None, axes: Sequence[dict[str, Any]],
    group: str = "", names: tuple[str, str] = ("x", "y"), form: str = "f8",
    place: Affine = NORTH_UP,
) -> Path:  # fmt: skip
    """Writes a cube with netCDF4 and these attributes."""
    with netCDF4.Dataset(path, "w") as file:
        inside = file.createGroup(group) if group else file
        for name, size in zip((*names, "wavelength"), (COLUMNS, ROWS, BANDS), strict=True):
            file.createDimension(name, size)
        for name, about, numbers in zip(names, axes, centres(place), strict=True):
            variable = file.createVariable(name, form, (name,))
            variable[:] = numbers
            variable.setncatts(about)
        data = inside.createVariable("reflectance", "f4", ("wavelength", names[1], names[0]))
        data[:] = values()
        if mapping is not None:
            file.createVariable("crs", "i4", ()).setncatts(mapping)
            data.grid_mapping = f"crs: {names[0]} {names[1]}" if group else "crs"
    return path


PLANE = [{"standard_name": f"projection_{axis}_coordinate", "units": "m"} for axis in "xy"]
UTM = {
    "grid_mapping_name": "transverse_mercator",
    "latitude_of_projection_origin": 0.0,
    "longitude_of_central_meridian": 9.0,
    "scale_factor_at_central_meridian": 0.9996,
    "false_easting": 500000.0,
    "false_northing": 0.0,
    "semi_major_axis": 6378137.0,
    "inverse_flattening": 298.257223563,
}


@pytest.mark.parametrize("group", ["", "products/level2"])
@pytest.mark.parametrize("form", ["f8", "f4"])
def test_parameters_and_coordinates_alone(
    group: str, form: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    path = write_netcdf(tmp_path / "a.nc", UTM, PLANE, group=group, form=form)
    geo = info(hsipack, path)["geo"]
    assert (geo["crs"], geo["unit"]) == ("EPSG:32632", "metre")
    # The resolution of single precision is half a metre there.
    tolerance = {"f8": 1e-6, "f4": 0.5}[form]
    assert geo["transform"] == pytest.approx(list(NORTH_UP.to_gdal()), abs=tolerance, rel=0)
    if not group and form == "f8":
        with rasterio.open(f"netcdf:{path}:reflectance") as file:
            assert geo["transform"] == pytest.approx(list(file.transform.to_gdal()))
        assert_same_place(geo, Path(f"netcdf:{path}:reflectance"))
    said = hsipack.run("info", path, "--quick").stdout
    assert "location       EPSG:32632, pixels of 30 x 20 m" in said or form == "f4"


def test_products_that_say_nothing_else(hsipack: Hsipack, tmp_path: Path) -> None:
    """AVIRIS-3 as NetCDF: coordinates in the root, the cube and its wavelengths in a group."""
    names = ("easting", "northing")
    mapping = {"spatial_ref": CRS.from_epsg(32632).to_wkt(), "GeoTransform": gdal_text(NORTH_UP)}
    path = write_netcdf(tmp_path / "a.nc", mapping, PLANE, group="reflectance", names=names)
    with netCDF4.Dataset(path, "a") as file:
        file["reflectance"].createVariable("wavelength", "f4", ("wavelength",))[:] = [400, 500, 600]
    report = info(hsipack, path)
    assert report["format"].startswith("AVIRIS reflectance")
    assert report["geo"] == {
        "crs": "EPSG:32632",
        "transform": list(NORTH_UP.to_gdal()),
        "unit": "metre",
    }


def gdal_text(place: Affine) -> str:
    return " ".join(map(str, place.to_gdal())) + " "


def test_other_systems_are_named(hsipack: Hsipack, tmp_path: Path) -> None:
    other = UTM | {"false_easting": 1000.0}
    path = write_netcdf(tmp_path / "a.nc", other, PLANE)
    report = info(hsipack, path)
    assert "crs" not in report["geo"]
    assert report["geo"]["transform"] == pytest.approx(list(NORTH_UP.to_gdal()))
    assert "(transverse_mercator) has no EPSG code" in " ".join(report["notes"])


def test_a_long_definition_is_read_whole(hsipack: Hsipack, tmp_path: Path) -> None:
    text = CRS.from_epsg(32632).to_wkt(version="WKT2_2018")
    padding = "n" * 9000
    mapping = {"crs_wkt": text.replace('ID["EPSG",32632]]', f'REMARK["{padding}"]]')}
    assert len(mapping["crs_wkt"]) > 9000
    geo = info(hsipack, write_netcdf(tmp_path / "a.nc", mapping, PLANE))["geo"]
    assert geo["crs"].endswith(f'REMARK["{padding}"]]')


@pytest.mark.parametrize(
    ("names", "about"),
    [
        (("lon", "lat"), [{"units": "degrees_east"}, {"units": "degrees_north"}]),
        (
            ("longitude", "latitude"),
            [{"standard_name": "longitude"}, {"standard_name": "latitude"}],
        ),
    ],
)
def test_longitude_and_latitude(
    names: tuple[str, str], about: list[dict[str, Any]], hsipack: Hsipack, tmp_path: Path
) -> None:
    path = write_netcdf(tmp_path / "a.nc", None, about, names=names, place=DEGREES)
    report = info(hsipack, path)
    assert (report["geo"]["crs"], report["geo"]["unit"]) == ("EPSG:4326", "degree")
    assert report["geo"]["transform"] == pytest.approx(list(DEGREES.to_gdal()), rel=1e-9)
    assert "WGS 84" in " ".join(report["notes"])


def test_numbers_of_pixels_are_no_places(hsipack: Hsipack, tmp_path: Path) -> None:
    for number, about in enumerate([({}, {}), ({"units": "pixel"}, {"units": "pixel"}), PLANE]):
        counted = Affine.translation(-0.5, -0.5)
        path = write_netcdf(tmp_path / f"{number}.nc", None, about, place=counted)
        assert info(hsipack, path)["geo"] is None


def test_places_of_every_pixel_are_named(hsipack: Hsipack, tmp_path: Path) -> None:
    lon, lat = np.meshgrid(*centres(DEGREES))
    dims = ("y", "x")
    dataset = xr.Dataset(
        {"cube": (("band", *dims), values())},
        coords={"lon": (dims, lon), "lat": (dims, lat)},
    )
    dataset.to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    report = info(hsipack, tmp_path / "a.nc")
    assert report["geo"] is None
    notes = " ".join(report["notes"])
    assert "'lon'" in notes
    assert "'lat'" in notes
    assert "are not kept" in notes
