"""Arrays of a program keep their georeferencing, given by rasterio, rioxarray and pyproj."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hsipack
import hsipack_command
import numpy as np
import pyproj
import pytest
import rasterio
import rioxarray  # noqa: F401  (registers the accessor .rio)
import xarray
from conftest import BANDS, COLUMNS, ROWS, cube
from rasterio.crs import CRS

PLACE = rasterio.Affine(30, 0, 634200.5, 0, -30, 5297190.25)
TURNED = rasterio.Affine(24, -18, 634200.5, -18, -24, 5297190.25)
GDAL = [634200.5, 30.0, 0.0, 5297190.25, 0.0, -30.0]
UTM = {"crs": "EPSG:32632", "transform": GDAL, "unit": "metre"}
STACK = f"{ROWS}x{COLUMNS}x{BANDS}"
LAMBERT = (
    'PROJCS["mine",GEOGCS["x",DATUM["y",SPHEROID["z",6378137,298.257]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433]],PROJECTION["Lambert_Conformal_Conic_2SP"],'
    'PARAMETER["latitude_of_origin",46.5],PARAMETER["central_meridian",3],'
    'PARAMETER["standard_parallel_1",49],PARAMETER["standard_parallel_2",44],'
    'PARAMETER["false_easting",0],PARAMETER["false_northing",0],UNIT["metre",1]]'
)

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


def pack(path: Path, *places: Any, **options: Any) -> list[Any]:
    """Packs a cube for each place. Returns the places in the table of samples."""
    begin = len(hsipack.open(path)) if options.get("append") else 0
    hsipack.pack(cubes(*places, begin=begin), path, **options)
    assert hsipack.validate(path).ok
    return list(hsipack.open(path).samples.column("geo"))


def cubes(*places: Any, begin: int = 0) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for number, place in enumerate(places, begin):
        yield str(number), cube(number), {"geo": place, "label": "field"}


def arrays(path: Path) -> set[str]:
    """The georeferencing arrays of the stack."""
    names = {entry.name for entry in (path / STACK).iterdir()}
    return names & {"x", "y", "spatial_ref"}


@pytest.mark.parametrize(
    ("crs", "transform"),
    [
        ("EPSG:32632", GDAL),
        ("epsg:32632", tuple(GDAL)),
        ("EPSG:32632", np.array(GDAL)),
        ("EPSG:32632", PLACE),
        (CRS.from_epsg(32632), PLACE),
        (CRS.from_epsg(32632).to_wkt(), GDAL),
        (pyproj.CRS("EPSG:32632"), PLACE),
        (pyproj.CRS("EPSG:32632").to_wkt(), PLACE),
    ],
)
def test_every_way_to_say_it_is_stored_alike(tmp_path: Path, crs: Any, transform: Any) -> None:
    assert pack(tmp_path / "packed", {"crs": crs, "transform": transform}) == [UTM]


def test_what_a_dataset_says_can_be_given(tmp_path: Path) -> None:
    degrees = {"crs": pyproj.CRS("EPSG:4326"), "transform": [7.5, 1e-3, 0, 47.25, 0, -1e-3]}
    nameless = {"transform": TURNED, "crs": None, "unit": "metre"}
    first = pack(tmp_path / "first", UTM, degrees, nameless, None)
    assert (first[1]["crs"], first[1]["unit"]) == ("EPSG:4326", "degree")
    assert first[2] == {"transform": list(TURNED.to_gdal()), "unit": "metre"}
    assert first[3] is None
    assert pack(tmp_path / "second", *first) == first


def test_a_system_without_a_code_is_kept_as_wkt(tmp_path: Path) -> None:
    for number, crs in enumerate((LAMBERT, CRS.from_wkt(LAMBERT), pyproj.CRS(LAMBERT))):
        (geo,) = pack(tmp_path / str(number), {"crs": crs, "transform": PLACE})
        assert CRS.from_user_input(geo["crs"]).linear_units == "metre"
        operation = pyproj.CRS(geo["crs"]).coordinate_operation
        assert operation is not None
        assert operation.method_name.startswith("Lambert")


def test_xarray_and_rioxarray_find_a_grid_that_all_share(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    pack(path, *[{"crs": "EPSG:32632", "transform": PLACE}] * 3)
    data = xarray.open_zarr(path, group=STACK, consolidated=False, decode_coords="all")
    assert data.rio.crs == CRS.from_epsg(32632)
    assert data.rio.transform() == PLACE
    np.testing.assert_array_equal(data.x, PLACE.c + 30 * (np.arange(COLUMNS) + 0.5))
    np.testing.assert_array_equal(data.y, PLACE.f - 30 * (np.arange(ROWS) + 0.5))


def test_it_is_what_files_say(tmp_path: Path) -> None:
    shape = {"height": ROWS, "width": COLUMNS, "count": BANDS, "dtype": "float32"}
    file = tmp_path / "0.tif"
    with rasterio.open(
        file, "w", driver="GTiff", crs="EPSG:32632", transform=PLACE, **shape
    ) as tiff:
        tiff.write(cube(0).transpose(2, 0, 1))
    hsipack.convert(file, tmp_path / "converted")
    pack(tmp_path / "packed", {"crs": "EPSG:32632", "transform": PLACE})
    files = {f"{name}/zarr.json" for name in ("x", "y", "spatial_ref", "image")}
    for name in files | {"x/c/0", "y/c/0", "spatial_ref/c"}:
        one, other = (tmp_path / folder / STACK / name for folder in ("converted", "packed"))
        assert one.read_bytes() == other.read_bytes(), name


@pytest.mark.parametrize("transform", [PLACE, TURNED])
def test_an_export_lies_where_the_array_did(tmp_path: Path, transform: rasterio.Affine) -> None:
    path = tmp_path / "packed"
    pack(path, {"crs": "EPSG:32632", "transform": transform})
    for ending in ("tif", "hdr"):
        out = tmp_path / f"out.{ending}"
        command = [
            str(hsipack_command.PROGRAM),
            "export",
            str(path),
            "--sample",
            "0",
            "-o",
            str(out),
        ]
        subprocess.run(command, check=True)
        with rasterio.open(out if ending == "tif" else out.with_suffix(".img")) as file:
            assert file.crs == CRS.from_epsg(32632)
            np.testing.assert_allclose(file.transform, transform, rtol=0, atol=1e-7)
            values = file.read().transpose(1, 2, 0)
        np.testing.assert_array_equal(values, cube(0).astype(np.float16))


def test_it_is_kept_when_cubes_are_added_and_packing_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    here = {"crs": "EPSG:32632", "transform": PLACE}

    def failing() -> Iterator[Any]:
        yield from cubes(here, here, here)
        raise RuntimeError("the camera's library failed")

    with pytest.raises(RuntimeError):
        hsipack.pack(failing(), path, scratch_size=1)
    # In groups of one cube: the later ones are added to the first.
    assert pack(path, *[here] * 5, resume=True, scratch_size=1) == [UTM] * 5
    assert arrays(path) == {"x", "y", "spatial_ref"}
    assert pack(path, here, append=True) == [UTM] * 6
    assert arrays(path) == {"x", "y", "spatial_ref"}
    # A cube elsewhere has its own place, and the stack has no coordinates, which would be wrong.
    there = {"crs": "EPSG:32632", "transform": TURNED}
    assert pack(path, there, append=True)[6]["transform"] == list(TURNED.to_gdal())
    assert arrays(path) == set()


@pytest.mark.parametrize(
    ("geo", "told"),
    [
        (7, r"cube '0': geo=7 \(give \{\"crs\""),
        (GDAL, r"cube '0': geo=\[634200.5, "),
        ({}, r"cube '0': geo=\{\}"),
        ({"crs": "EPSG:32632"}, "cube '0': geo=.*GDAL's order"),
        ({"transform": GDAL, "epsg": 4326}, "cube '0': geo has 'epsg' in it .give crs and"),
        ({"transform": GDAL, "unit": "feet"}, "cube '0': geo: .* unit \"feet\" .give .*metre"),
        ({"transform": GDAL, "unit": 7}, "cube '0': geo: there is no unit \"7\""),
        ({"transform": GDAL, "crs": "UTM 32N"}, "cube '0': geo: 'UTM 32N' is not .*give EPSG:"),
        ({"transform": GDAL, "crs": "EPSG:0"}, "cube '0': geo: 'EPSG:0' is not"),
        ({"transform": GDAL, "crs": CRS()}, "cube '0': geo: '' is not"),
        ({"transform": GDAL, "crs": 32632}, "cube '0': geo: crs=32632 .give EPSG:"),
        ({"transform": GDAL[:5]}, "cube '0': geo: transform="),
        ({"transform": tuple(PLACE)}, "cube '0': geo: transform="),
        ({"transform": "123456"}, "cube '0': geo: transform='123456'"),
        ({"transform": [1, "a", 0, 0, 0, 1]}, "cube '0': geo: transform="),
        ({"transform": [10**400, *GDAL[1:]]}, "cube '0': geo: transform="),
        ({"transform": [np.nan, *GDAL[1:]]}, "cube '0': geo: the transform .* six finite numbers"),
        (
            {"transform": [1, 2, 2, 3, 4, 4]},
            "cube '0': geo: the transform .* does not give the position",
        ),
        ({"transform": tuple(PLACE)[:6]}, r"rasterio's Affine .*transform.to_gdal\(\)"),
    ],
)
def test_what_is_wrong_is_told_with_the_cubes_name(tmp_path: Path, geo: Any, told: str) -> None:
    with pytest.raises(hsipack.ConflictError, match=told):
        hsipack.pack(cubes(geo), tmp_path / "packed")
    assert list(tmp_path.iterdir()) == []
