"""Georeferencing: read like GDAL (through rasterio), stored in the dataset, and exported so that
GDAL finds it again.
"""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from helpers import Hsipack, samples
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.errors import NotGeoreferencedWarning
from rasterio.transform import Affine
from rasterio.warp import transform as reproject

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

ROWS, COLUMNS, BANDS = 9, 7, 3
NORTH_UP = Affine(30, 0, 634200.5, 0, -20, 5297190.25)
DEGREES = Affine(1e-3, 0, 7.25, 0, -2e-3, 47.5)
TURNED = Affine.translation(5e5, 4e6) @ Affine.rotation(27) @ Affine.scale(16, -16)
SOUTH_UP = Affine(30, 0, 634200.5, 0, 20, 5297190.25)
# Lambert-93 without a code.
LAMBERT = CRS.from_proj4(
    "+proj=lcc +lat_0=46.5 +lon_0=3 +lat_1=49 +lat_2=44 +x_0=700000 +y_0=6600000 +ellps=GRS80"
)


def values() -> np.ndarray:
    return np.random.default_rng(0).random((BANDS, ROWS, COLUMNS), dtype=np.float32)


def write(path: Path, driver: str, crs: Any, place: Affine | None, **options: Any) -> Path:
    """Writes a cube with GDAL."""
    tags = options.pop("tags", {})
    gcps = options.pop("gcps", None)
    with rasterio.open(
        path, "w", driver=driver, height=ROWS, width=COLUMNS, count=BANDS, dtype="float32", crs=crs,
        **({} if place is None else {"transform": place}), **options,
    ) as file:  # fmt: skip
        file.update_tags(**tags)
        if gcps is not None:
            file.gcps = gcps, crs
        file.write(values())
    return path


def info(hsipack: Hsipack, path: Path | str) -> dict[str, Any]:
    done = hsipack.run("info", path, "--json", "--quick")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def gdal(path: Path) -> tuple[CRS | None, list[float]]:
    """Reads the reference system, and the transform in GDAL's order, with GDAL."""
    with rasterio.open(path) as file:
        return file.crs, list(file.transform.to_gdal())


def assert_same_place(geo: dict[str, Any], path: Path) -> None:
    """Asserts that a reference system means the same as the one GDAL reads, in any spelling."""
    crs, want = gdal(path)
    assert geo["transform"] == pytest.approx(want, rel=1e-12, abs=1e-9)
    if crs is None:
        assert "crs" not in geo
        return
    ours = CRS.from_user_input(geo["crs"])
    # A place near the middle of the image, in degrees.
    x = want[0] + want[1] * 3 + want[2] * 4
    y = want[3] + want[4] * 3 + want[5] * 4
    assert_near(reproject(ours, "EPSG:4326", [x], [y]), reproject(crs, "EPSG:4326", [x], [y]))


def assert_near(one: Any, other: Any) -> None:
    np.testing.assert_allclose(np.ravel(one), np.ravel(other), atol=1e-6)


TIFFS: list[tuple[str, Any, Affine, dict[str, Any]]] = [
    ("utm", "EPSG:32632", NORTH_UP, {}),
    ("southern", "EPSG:32723", NORTH_UP, {}),
    ("etrs", "EPSG:25832", NORTH_UP, {}),
    ("lambert", "EPSG:2154", NORTH_UP, {}),
    ("feet", "EPSG:2263", NORTH_UP, {}),
    ("degrees", "EPSG:4326", DEGREES, {}),
    ("nad83", "EPSG:6318", DEGREES, {}),
    ("turned", "EPSG:32611", TURNED, {}),
    ("south up", "EPSG:32632", SOUTH_UP, {}),
    ("points", "EPSG:32632", NORTH_UP, {"tags": {"AREA_OR_POINT": "Point"}}),
    ("points, turned", "EPSG:32632", TURNED, {"tags": {"AREA_OR_POINT": "Point"}}),
    ("big", "EPSG:32632", NORTH_UP, {"BIGTIFF": "YES"}),
    ("big-endian", "EPSG:32632", NORTH_UP, {"ENDIANNESS": "BIG"}),
    ("tiles", "EPSG:32632", NORTH_UP, {"tiled": True, "blockxsize": 16, "blockysize": 16}),
    ("compressed", "EPSG:32632", NORTH_UP, {"compress": "deflate", "interleave": "pixel"}),
    ("esri", "EPSG:32632", NORTH_UP, {"GEOTIFF_KEYS_FLAVOR": "ESRI_PE"}),
    ("version 1.1", "EPSG:32632", NORTH_UP, {"GEOTIFF_VERSION": "1.1"}),
]


@pytest.mark.parametrize(
    ("crs", "place", "options"),
    [one[1:] for one in TIFFS],
    ids=[one[0] for one in TIFFS],
)
def test_geotiff(
    crs: str, place: Affine, options: dict[str, Any], hsipack: Hsipack, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.tif", "GTiff", crs, place, **options)
    geo = info(hsipack, path)["geo"]
    assert geo["crs"] == crs
    assert_same_place(geo, path)
    geographic = CRS.from_user_input(crs).is_geographic
    unit = "degree" if geographic else None if crs == "EPSG:2263" else "metre"
    assert geo.get("unit") == unit
    hsipack.convert(path, out=tmp_path / "d")
    (line,) = samples(tmp_path / "d")
    assert line["geo"] == geo
    check_exports(hsipack, tmp_path / "d", path)


def check_exports(hsipack: Hsipack, dataset: Path, source: Path) -> None:
    """GDAL finds exports at the place of the source. What ENVI cannot express is reported."""
    crs, want = gdal(source)
    for name in ("export.tif", "export.hdr"):
        output = dataset.with_name(name)
        done = hsipack.run("export", dataset, "--sample", 0, "-o", output, "--json")
        assert done.returncode == 0, done.stderr
        found, place = gdal(output.with_suffix(".img") if name.endswith("hdr") else output)
        notes = " ".join(json.loads(done.stdout)["notes"])
        if "georeferencing" in notes:
            assert name.endswith("hdr")
            code = crs.to_epsg() if crs else None
            assert code in (2154, 2263, 6318), notes
            continue
        assert place == pytest.approx(want, rel=1e-12, abs=1e-9)
        assert (found is None) == (crs is None)
        if crs is not None and found is not None:
            x, y = want[0] + 3 * want[1], want[3] + 4 * want[5]
            assert_near(
                reproject(found, "EPSG:4326", [x], [y]), reproject(crs, "EPSG:4326", [x], [y])
            )
            if name.endswith("tif"):
                assert found.to_epsg() == crs.to_epsg()
        with rasterio.open(output.with_suffix(".img") if name.endswith("hdr") else output) as file:
            np.testing.assert_allclose(file.read(), values(), atol=1e-3)


ENVIS: list[tuple[str, Any, Affine]] = [
    ("utm", "EPSG:32632", NORTH_UP),
    ("southern", "EPSG:32723", NORTH_UP),
    ("nad27", "EPSG:26711", NORTH_UP),
    ("nad83", "EPSG:26911", NORTH_UP),
    ("etrs", "EPSG:25832", NORTH_UP),
    ("lambert", "EPSG:2154", NORTH_UP),
    ("degrees", "EPSG:4326", DEGREES),
    ("turned", "EPSG:32611", TURNED),
    ("south up", "EPSG:32611", SOUTH_UP),
    ("etrs in degrees", "EPSG:4258", DEGREES),
]


@pytest.mark.parametrize(
    ("crs", "place"), [one[1:] for one in ENVIS], ids=[one[0] for one in ENVIS]
)
def test_envi(crs: str, place: Affine, hsipack: Hsipack, tmp_path: Path) -> None:
    path = write(tmp_path / "a.img", "ENVI", crs, place)
    report = info(hsipack, tmp_path / "a.hdr")
    assert_same_place(report["geo"], path)
    code = report["geo"]["crs"]
    assert code == (crs if crs != "EPSG:2154" else code)
    hsipack.convert(path, out=tmp_path / "d")
    assert samples(tmp_path / "d")[0]["geo"] == report["geo"]
    check_exports(hsipack, tmp_path / "d", path)


def test_grads_are_not_degrees(hsipack: Hsipack, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", "GTiff", "EPSG:4807", DEGREES)
    geo = info(hsipack, path)["geo"]
    assert (geo["crs"], geo.get("unit")) == ("EPSG:4807", None)


@pytest.mark.parametrize("name", ["a.tfw", "a.tifw", "a.wld", "a.TFW"])
@pytest.mark.parametrize("crs", [None, "EPSG:32632"])
def test_world_files(name: str, crs: str | None, hsipack: Hsipack, tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning):
        path = write(tmp_path / "a.tif", "GTiff", crs, None)
    (tmp_path / name).write_text("30\n0\n0\n-20\n634215.5\n5297180.25\n")
    geo = info(hsipack, path)["geo"]
    assert geo.get("crs") == crs
    assert geo["transform"] == list(NORTH_UP.to_gdal())
    # GDAL reads these names, too, except for capitals on Linux.
    if name != "a.tifw":
        assert gdal(path)[1] == geo["transform"]
    # A changed world file changes the cube.
    hsipack.convert(path, out=tmp_path / "d")
    assert hsipack.run("validate", tmp_path / "d", "--source").returncode == 0
    (tmp_path / name).write_text("nothing")
    report = info(hsipack, path)
    assert report["geo"] is None
    assert f"{name} is not used: it does not hold six numbers" in report["notes"]
    assert hsipack.run("validate", tmp_path / "d", "--source").returncode == 1
    # What the file itself says takes precedence.
    (tmp_path / name).write_text("1\n0\n0\n-1\n0\n0\n")
    write(path, "GTiff", crs, NORTH_UP)
    assert info(hsipack, path)["geo"]["transform"] == list(NORTH_UP.to_gdal())


def test_turned_oblong_pixels_are_noted(hsipack: Hsipack, tmp_path: Path) -> None:
    turned = Affine.translation(5e5, 4e6) @ Affine.rotation(33) @ Affine.scale(20, -25)
    path = write(tmp_path / "a.tif", "GTiff", "EPSG:32611", turned)
    hsipack.convert(path, out=tmp_path / "d")
    words = ["export", tmp_path / "d", "--sample", 0, "-o", tmp_path / "x.hdr", "--json"]
    done = hsipack.run(*words)
    assert done.returncode == 0, done.stderr
    assert "turned and not square" in " ".join(json.loads(done.stdout)["notes"])
    report = info(hsipack, tmp_path / "x.hdr")
    assert report["geo"]["transform"] == pytest.approx(list(turned.to_gdal()))
    assert "turned and not square" in " ".join(report["notes"])


def test_systems_without_a_code(hsipack: Hsipack, tmp_path: Path) -> None:
    tiff = write(tmp_path / "a.tif", "GTiff", LAMBERT, NORTH_UP)
    report = info(hsipack, tiff)
    assert "crs" not in report["geo"]
    assert report["geo"]["transform"] == list(NORTH_UP.to_gdal())
    assert "has no EPSG code" in " ".join(report["notes"])
    # Files of ENVI and ESRI have it as text.
    hsipack.convert(
        write(tmp_path / "b.img", "ENVI", LAMBERT, NORTH_UP), out=tmp_path / "b.hsipack"
    )
    geo = samples(tmp_path / "b.hsipack")[0]["geo"]
    assert geo["crs"].startswith("PROJCS[")
    check_exports(hsipack, tmp_path / "b.hsipack", tmp_path / "b.img")
    exported = info(hsipack, tmp_path / "export.tif")["geo"]
    assert (exported["crs"], exported["transform"]) == (geo["crs"], geo["transform"])


def test_what_is_not_kept_is_told(hsipack: Hsipack, tmp_path: Path) -> None:
    corners = [(0, 0), (0, 7), (9, 0), (9, 7)]
    points = [GroundControlPoint(row, column, 7 + column, 47 - row) for row, column in corners]
    report = info(hsipack, write(tmp_path / "a.tif", "GTiff", "EPSG:4326", None, gcps=points))
    assert report["geo"] is None
    assert "control points" in " ".join(report["notes"])
    with warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning):
        report = info(hsipack, write(tmp_path / "b.tif", "GTiff", None, None))
    assert report["geo"] is None
    assert "reference" not in " ".join(report["notes"])


@pytest.mark.parametrize(
    "name",
    [
        "sensors/aviris/ang20160910t185702_2rdn_img",
        "sensors/aviris/ang20160910t185702_obs_ortdem_mod",
        "sensors/aviris_classic/f201013t01p00r10rdn_e_sc01_ort_img",
        "sensors/resonon/*.bip",
        "sensors/desis_l2a/*SPECTRAL_IMAGE.tif",
        "sensors/wyvern/wyvern_dragonette-001_20240808T073501_51b92993.tiff",
    ],
)
def test_real_cubes_lie_where_gdal_says(name: str, shared: Path, hsipack: Hsipack) -> None:
    (path,) = shared.glob(name)
    report = info(hsipack, path)
    assert_same_place(report["geo"], path)
    assert report["geo"]["crs"].startswith("EPSG:")
    said = hsipack.run("info", path, "--quick").stdout
    assert f"location       {report['geo']['crs']}, pixels of" in said


def test_info_says_where_a_dataset_lies(hsipack: Hsipack, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.tif", "GTiff", "EPSG:32632", NORTH_UP)
    write(tmp_path / "c.tif", "GTiff", "EPSG:4326", DEGREES)
    np.save(tmp_path / "d.npy", values().transpose(1, 2, 0))
    files = (tmp_path / name for name in ("a.tif", "b.tif", "c.tif", "d.npy"))
    hsipack.convert(*files, out=tmp_path / "out")
    assert info(hsipack, tmp_path / "out")["geo"] == [
        {"crs": "EPSG:32632", "pixel_size": [30, 20], "unit": "metre", "samples": 2},
        {"crs": "EPSG:4326", "pixel_size": [1e-3, 2e-3], "unit": "degree", "samples": 1},
    ]
    said = hsipack.run("info", tmp_path / "out").stdout
    assert "location       EPSG:32632, pixels of 30 x 20 m (2 samples)" in said
    assert "EPSG:4326, pixels of 0.001 x 0.002 ° (1 sample)" in said
    assert "geo" not in samples(tmp_path / "out")[3]
    assert hsipack.run("validate", tmp_path / "out", "--source").returncode == 0


def test_a_column_named_geo_does_not_replace_the_place(hsipack: Hsipack, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", "GTiff", "EPSG:32632", NORTH_UP)
    (tmp_path / "t.csv").write_text("name,geo\na,north\n")
    out = tmp_path / "out"
    hsipack.convert(path, "--table", tmp_path / "t.csv", out=out)
    (sample,) = samples(out)
    assert sample["geo"]["crs"] == "EPSG:32632"
    assert sample["table.geo"] == "north"


def test_garbage_is_no_failure(hsipack: Hsipack, tmp_path: Path) -> None:
    """Changes every byte of keys and transform. The cube can still be read."""
    path = write(tmp_path / "a.tif", "GTiff", "EPSG:32632", NORTH_UP)
    whole = path.read_bytes()
    broken = tmp_path / "b.tif"
    places = {whole.find(np.float64(634200.5).tobytes()), whole.find(b"WGS 84")}
    places |= {whole.find(np.array([1, 1, 0], "<u2").tobytes()) + one for one in range(0, 32, 3)}
    assert min(places) > 0
    for place in places:
        for value in (0, 0x7F, 0xFF):
            broken.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            report = info(hsipack, broken)
            assert report["shape"] == [ROWS, COLUMNS, BANDS]
            geo = report["geo"]
            assert geo is None or all(map(math.isfinite, geo["transform"]))
