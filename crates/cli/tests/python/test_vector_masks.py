"""Polygons, lines and points on a map as masks, compared with GDAL's rasterizer."""

import json
import sqlite3
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import rasterio
import shapefile
from helpers import Hsipack, attributes, read_zarr
from numpy.typing import NDArray
from rasterio.features import rasterize
from rasterio.transform import Affine

Geometry = dict[str, Any]
PLACE = Affine(2, 0, 600000, 0, -2, 5300000)
SHAPE = (45, 60)
CRS = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32632"}}


def write_cube(
    path: Path, place: Affine = PLACE, shape: tuple[int, int] = SHAPE, crs: str = "EPSG:32632"
) -> Path:
    rows, columns = shape
    with rasterio.open(
        path, "w", driver="GTiff", height=rows, width=columns, count=3, dtype="float32",
        crs=crs, transform=place,
    ) as file:  # fmt: skip
        file.write(np.random.default_rng(0).random((3, rows, columns), np.float32))
    return path


def write_geojson(
    path: Path, geometries: Iterable[Geometry], values: Iterable[Any], crs: Any = CRS
) -> Path:
    features = [
        {"type": "Feature", "properties": {"other": "x", "kind": value}, "geometry": geometry}
        for geometry, value in zip(geometries, values, strict=True)
    ]
    whole: dict[str, Any] = {"type": "FeatureCollection", "features": features}
    if crs is not None:
        whole = {"type": "FeatureCollection", "crs": crs, "features": features}
    path.write_text(json.dumps(whole))
    return path


def ring(
    random: np.random.Generator, corners: int, grid: float | None, place: Affine = PLACE
) -> list[list[float]]:
    """A ring around a random place. With `grid`, corners are multiples of so many pixels."""
    middle = random.uniform([-8, -8], [SHAPE[1] + 8, SHAPE[0] + 8])
    angles = np.sort(random.uniform(0, 2 * np.pi, corners))
    if random.random() < 0.5:
        angles = angles[::-1]
    radius = random.uniform(0.5, 20, corners)
    points = middle + np.stack([radius * np.cos(angles), radius * np.sin(angles)], 1)
    if grid is not None:
        points = np.round(points / grid) * grid
    turned = [list(map(float, place @ tuple(point))) for point in points]
    return [*turned, turned[0]]


def stairs(random: np.random.Generator) -> list[list[float]]:
    """A ring of upright and flat edges, many of them along the centers of pixels."""
    heights = random.integers(-8, 60, 12) / 2
    points = [[column, height] for column, height in enumerate(np.repeat(heights, 2))]
    points = [[(column + 1) // 2 * 2.5 + 0.5, height] for column, height in points]
    points += [[points[-1][0], 60.5], [points[0][0], 60.5]]
    points = [list(map(float, PLACE @ tuple(point))) for point in points]
    if random.random() < 0.5:
        points = points[::-1]
    return [*points, points[0]]


def shapes(seed: int, count: int, grid: float | None) -> list[Geometry]:
    random = np.random.default_rng(seed)
    made: list[Geometry] = []
    for number in range(count):
        rings = [
            ring(random, int(random.integers(3, 9)), grid) for _ in range(random.integers(1, 3))
        ]
        if grid == 0.5 and number % 7 == 0:
            rings = [stairs(random)] if number % 2 else [ring(random, 5, None), stairs(random)]
        match number % 6:
            case 0 | 1:
                made.append({"type": "Polygon", "coordinates": rings})
            case 2:
                made.append({"type": "MultiPolygon", "coordinates": [[one] for one in rings]})
            case 3:
                made.append({"type": "LineString", "coordinates": rings[0]})
            case 4:
                made.append({"type": "MultiLineString", "coordinates": rings})
            case _:
                made.append({"type": "MultiPoint", "coordinates": rings[0]})
    return made


def burned(
    geometries: Sequence[Geometry], values: Sequence[int], all_touched: bool,
    place: Affine = PLACE, shape: tuple[int, int] = SHAPE,
) -> NDArray[np.uint16]:  # fmt: skip
    pairs = list(zip(geometries, values, strict=True))
    mask: NDArray[np.uint16] = rasterize(
        pairs, shape, transform=place, all_touched=all_touched, dtype="uint16"
    )
    return mask


def packed(hsipack: Hsipack, cube: Path, mask: object, out: Path, *words: object) -> Any:
    hsipack.convert(cube, "--mask", f"kind={mask}", *words, out=out)
    return read_zarr(out, array="kind")[0]


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("grid", [None, 1, 0.5, 0.25])
def test_features_equal_gdal_pixel_by_pixel(
    hsipack: Hsipack, tmp_path: Path, grid: float | None, touched: bool
) -> None:
    cube = write_cube(tmp_path / "c.tif")
    words = ["--all-touched"] if touched else []
    for seed in range(4):
        geometries = shapes(seed, 40, grid)
        values = [number % 300 + 1 for number in range(len(geometries))]
        labels = write_geojson(tmp_path / f"{seed}.geojson", geometries, values)
        out = tmp_path / f"out{seed}"
        found = packed(hsipack, cube, f"{labels}::kind", out, *words)
        want = burned(geometries, values, touched)
        assert np.array_equal(found, want), f"{(found != want).sum()} pixels differ"
        assert hsipack.run("validate", out, "--source").returncode == 0


@pytest.mark.parametrize("touched", [False, True])
def test_single_features_equal_gdal(hsipack: Hsipack, tmp_path: Path, touched: bool) -> None:
    """Of many features that cover each other, few pixels show how each was drawn."""
    shape = (30, 600)
    place = Affine(0.5, 0.1, 1000, -0.1, 0.5, 2000)
    cube = write_cube(tmp_path / "c.tif", place, shape)
    random = np.random.default_rng(1)
    geometries: list[Geometry] = []
    for column in range(0, 600, 12):
        middle = np.array([column + 6, random.uniform(0, 30)])
        points = middle + random.uniform(-6, 6, (random.integers(3, 7), 2))
        if column % 24 == 0:
            points = np.round(points * 2) / 2
        corners = [list(map(float, place @ tuple(point))) for point in points]
        kind = ["Polygon", "LineString"][column % 36 == 0]
        coordinates = [[*corners, corners[0]]] if kind == "Polygon" else corners
        geometries.append({"type": kind, "coordinates": coordinates})
    values = list(range(1, len(geometries) + 1))
    labels = write_geojson(tmp_path / "g.geojson", geometries, values)
    words = ["--all-touched"] if touched else []
    found = packed(hsipack, cube, f"{labels}::kind", tmp_path / "out", *words)
    want = burned(geometries, values, touched, place, shape)
    assert np.array_equal(found, want), f"{(found != want).sum()} pixels differ"


def test_names_of_an_attribute_are_classes_of_all_cubes(hsipack: Hsipack, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    corners = ring(np.random.default_rng(3), 5, None)
    square = {"type": "Polygon", "coordinates": [corners]}
    names: dict[str, list[str | None]] = {
        "a": ["roof", "tree"],
        "b": ["grass", "roof", None],
        "c": [],
    }
    for number, (stem, kinds) in enumerate(names.items()):
        write_cube(tmp_path / f"in/{stem}.tif", PLACE, (45, 60 + number))
        places = [PLACE @ Affine.translation(5 * step, 0) @ ~PLACE for step in range(3)]
        geometries = [
            {"type": "Polygon", "coordinates": [[list(place @ tuple(p)) for p in corners]]}
            for place in places[: len(kinds)]
        ]
        write_geojson(tmp_path / f"in/{stem}.geojson", geometries, kinds)
    out = tmp_path / "out"
    words = ["--mask", "kind={dir}/{stem}.geojson::kind", "--mask-fill", 0]
    hsipack.convert(tmp_path / "in", *words, out=out)
    for stack in ["45x60x3", "45x61x3", "45x62x3"]:
        own = attributes(out, stack, "kind")["hsipack"]
        assert own["class_names"] == ["", "grass", "roof", "tree"]
    assert set(np.unique(read_zarr(out, "45x60x3", "kind"))) == {0, 2, 3}
    assert set(np.unique(read_zarr(out, "45x61x3", "kind"))) == {0, 1, 2}
    assert not read_zarr(out, "45x62x3", "kind").any()
    assert hsipack.run("validate", out, "--source").returncode == 0
    # The user may give some of them ids, and what no feature covers.
    fixed = tmp_path / "fixed"
    hsipack.convert(tmp_path / "in", *words, "--remap-classes", "tree=1,0=255", out=fixed)
    own = attributes(fixed, "45x60x3", "kind")["hsipack"]
    assert own["class_names"][:4] == ["", "tree", "grass", "roof"]
    assert set(np.unique(read_zarr(fixed, "45x60x3", "kind"))) == {1, 3, 255}
    # Further cubes get further ids.
    write_cube(tmp_path / "d.tif")
    write_geojson(tmp_path / "d.geojson", [square], ["asphalt"])
    hsipack.convert(tmp_path / "d.tif", *words, "--append", out=out)
    names_now = attributes(out, "45x60x3", "kind")["hsipack"]["class_names"]
    assert names_now == ["", "grass", "roof", "tree", "asphalt"]
    assert set(np.unique(read_zarr(out, "45x60x3", "kind")[1])) == {0, 4}
    assert hsipack.run("validate", out, "--source").returncode == 0


def test_plans_and_repair_find_vector_labels(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "c.tif")
    labels = write_geojson(tmp_path / "g.geojson", shapes(4, 12, None), ["a", "b", "c"] * 4)
    words = [cube, "--mask", f"kind={labels}::kind", "--all-touched"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    hsipack.convert(*words, out=whole)
    plan = tmp_path / "plan.json"
    for step in [
        ["convert", *words, "-o", parts, "--plan", plan],
        ["work", plan, "--part", "1/1"],
        ["commit", plan],
    ]:
        done = hsipack.run(*step)
        assert done.returncode == 0, done.stderr
    want = read_zarr(whole, array="kind")
    assert np.array_equal(read_zarr(parts, array="kind"), want)
    shard = whole / "45x60x3/kind/c/0/0/0"
    data = bytearray(shard.read_bytes())
    data[len(data) // 3] ^= 0x55
    shard.write_bytes(data)
    assert hsipack.run("validate", whole).returncode != 0
    assert hsipack.run("repair", whole).returncode == 0
    assert np.array_equal(read_zarr(whole, array="kind"), want)


@pytest.mark.parametrize(
    ("name", "crs"),
    [
        ("urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326"),
        (None, "EPSG:4326"),
        ("EPSG:3857", "EPSG:3857"),
        ("urn:ogc:def:crs:EPSG::32633", "EPSG:32633"),
        ("EPSG:31468", "EPSG:31468"),
    ],
)
def test_other_reference_systems_are_converted(
    hsipack: Hsipack, tmp_path: Path, name: str | None, crs: str
) -> None:
    cube = write_cube(tmp_path / "c.tif")
    to = pyproj.Transformer.from_crs("EPSG:32632", crs, always_xy=True)
    back = pyproj.Transformer.from_crs(crs, "EPSG:32632", always_xy=True)
    random = np.random.default_rng(2)
    rings = [ring(random, 6, None) for _ in range(12)]
    there = [[list(to.transform(x, y)) for x, y in one] for one in rings]
    member = None if name is None else {"type": "name", "properties": {"name": name}}
    polygons = [{"type": "Polygon", "coordinates": [one]} for one in there]
    labels = write_geojson(tmp_path / "g.geojson", polygons, range(1, 13), member)
    found = packed(hsipack, cube, f"{labels}::kind", tmp_path / "out")
    if crs == "EPSG:31468":
        # Seven parameters differ from the grid of shifts that PROJ prefers, by less than a pixel.
        want = burned(
            [{"type": "Polygon", "coordinates": [one]} for one in rings], range(1, 13), False
        )
        assert (found != want).mean() < 0.05
        return
    again = [
        {"type": "Polygon", "coordinates": [[list(back.transform(x, y)) for x, y in one]]}
        for one in there
    ]
    assert np.array_equal(found, burned(again, range(1, 13), False))


def wkb(geometry: Geometry) -> bytes:
    def points(listed: Sequence[Sequence[float]]) -> bytes:
        return struct.pack("<I", len(listed)) + b"".join(struct.pack("<2d", *p) for p in listed)

    def polygon(rings: Sequence[Any]) -> bytes:
        return struct.pack("<BII", 1, 3, len(rings)) + b"".join(map(points, rings))

    coordinates = geometry["coordinates"]
    match geometry["type"]:
        case "Polygon":
            return polygon(coordinates)
        case "MultiPolygon":
            return struct.pack("<BII", 1, 6, len(coordinates)) + b"".join(map(polygon, coordinates))
        case "LineString":
            return struct.pack("<BI", 1, 2) + points(coordinates)
        case "MultiLineString":
            lines = [struct.pack("<BI", 1, 2) + points(line) for line in coordinates]
            return struct.pack("<BII", 1, 5, len(lines)) + b"".join(lines)
        case _:
            single = [struct.pack("<BI2d", 1, 1, *point) for point in coordinates]
            return struct.pack("<BII", 1, 4, len(single)) + b"".join(single)


def write_geopackage(
    path: Path, geometries: Sequence[Geometry], values: Sequence[Any], layers: int = 1,
    page: int = 1024,
) -> Path:  # fmt: skip
    """A GeoPackage by Python's SQLite, after the standard."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA page_size = {page}")
        db.execute(
            "CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT NOT NULL, "
            "srs_id INTEGER PRIMARY KEY, organization TEXT NOT NULL, "
            "organization_coordsys_id INTEGER NOT NULL, "
            "definition TEXT NOT NULL, description TEXT)"
        )
        systems = [(-1, "NONE", -1), (0, "NONE", 0), (4326, "EPSG", 4326), (32632, "EPSG", 32632)]
        for number, organization, code in systems:
            db.execute(
                "INSERT INTO gpkg_spatial_ref_sys VALUES (?, ?, ?, ?, 'undefined', NULL)",
                (str(number), number, organization, code),
            )
        db.execute(
            "CREATE TABLE gpkg_geometry_columns (table_name TEXT NOT NULL, "
            "column_name TEXT NOT NULL, geometry_type_name TEXT NOT NULL, "
            "srs_id INTEGER NOT NULL, z TINYINT NOT NULL, "
            "m TINYINT NOT NULL, CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name))"
        )
        for layer in range(layers):
            name = f"layer {layer}"
            row = (name, "geom", "GEOMETRY", 32632, 0, 0)
            db.execute("INSERT INTO gpkg_geometry_columns VALUES (?, ?, ?, ?, ?, ?)", row)
            db.execute(
                f'CREATE TABLE "{name}" ("fid" INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, '
                '"geom" GEOMETRY, "note" TEXT, "kind" MEDIUMINT)'
            )
            header = b"GP" + struct.pack("<BBi", 0, 1, 32632)
            for geometry, value in zip(geometries, values, strict=True):
                db.execute(
                    f'INSERT INTO "{name}" (geom, note, kind) VALUES (?, ?, ?)',
                    (header + wkb(geometry), "x" * 3000, value),
                )
    return path


@pytest.mark.parametrize("page", [512, 4096, 65536])
def test_geopackages_equal_gdal(hsipack: Hsipack, tmp_path: Path, page: int) -> None:
    cube = write_cube(tmp_path / "c.tif")
    geometries = shapes(7, 150, None)
    # A feature that takes several pages.
    random = np.random.default_rng(0)
    geometries.append({"type": "Polygon", "coordinates": [ring(random, 4000, None)]})
    values = list(range(1, 152))
    labels = write_geopackage(tmp_path / "g.gpkg", geometries, values, page=page)
    found = packed(hsipack, cube, f"{labels}::kind", tmp_path / "out")
    assert np.array_equal(found, burned(geometries, values, False))
    found = packed(hsipack, cube, f"{labels}::fid", tmp_path / "by_id")
    assert np.array_equal(found, burned(geometries, values, False))
    found = packed(hsipack, cube, labels, tmp_path / "ones")
    assert np.array_equal(found, burned(geometries, [1] * 151, False))
    two = write_geopackage(tmp_path / "two.gpkg", geometries, values, 2)
    message = hsipack.refuse(cube, "--mask", f"{two}::kind", out=tmp_path / "no", names=two)
    assert "layer 0" in message
    assert "LAYER/ATTRIBUTE" in message
    found = packed(hsipack, cube, f"{two}::layer 1/kind", tmp_path / "second")
    assert np.array_equal(found, burned(geometries, values, False))


def write_shapefile(
    path: Path, geometries: Iterable[Geometry], fields: dict[str, str], rows: Iterable[Any]
) -> None:
    writer: Any = shapefile.Writer(path)
    for name, kind in fields.items():
        writer.field(name, kind, 9 if kind == "N" else 30)
    for geometry, row in zip(geometries, rows, strict=True):
        writer.shape(geometry)
        writer.record(*row)
    writer.close()


def esri_wkt(epsg: int) -> str:
    wkt: str = pyproj.CRS.from_epsg(epsg).to_wkt("WKT1_ESRI")
    return wkt


@pytest.mark.parametrize("kind", ["Polygon", "LineString", "MultiPoint"])
def test_shapefiles_equal_gdal(hsipack: Hsipack, tmp_path: Path, kind: str) -> None:
    cube = write_cube(tmp_path / "c.tif")
    geometries = [one for one in shapes(9, 60, None) if one["type"] == kind]
    values = list(range(1, len(geometries) + 1))
    fields = {"note": "C", "kind": "N", "name": "C"}
    rows = [("Ä", value, f"Straße {value % 3}") for value in values]
    write_shapefile(tmp_path / "g", geometries, fields, rows)
    (tmp_path / "g.prj").write_text(esri_wkt(32632))
    found = packed(hsipack, cube, f"{tmp_path}/g.shp::kind", tmp_path / "out")
    # The writer gives rings the direction of shapefiles.
    reader: Any = shapefile.Reader(tmp_path / "g")
    stored = [shape.__geo_interface__ for shape in reader.shapes()]
    reader.close()
    assert np.array_equal(found, burned(stored, values, False))
    named = tmp_path / "named"
    found = packed(hsipack, cube, f"{tmp_path}/g.shp::name", named)
    assert np.array_equal(found, burned(stored, [value % 3 + 1 for value in values], False))
    names = attributes(named, array="kind")["hsipack"]["class_names"]
    assert names == ["", "Straße 0", "Straße 1", "Straße 2"]
    # Without a reference system, coordinates are those of the cube.
    (tmp_path / "g.prj").unlink()
    again = packed(hsipack, cube, f"{tmp_path}/g.shp::kind", tmp_path / "plain")
    assert np.array_equal(again, burned(stored, values, False))


def test_features_that_touch_no_cube_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_cube(tmp_path / "in" / "a.tif")
    point = {"type": "Point", "coordinates": [600021, 5299979]}
    swapped = {"type": "Point", "coordinates": [5299979, 600021]}
    file = write_geojson(tmp_path / "f.geojson", [swapped], ["x"])
    words = (tmp_path / "in", "--mask", f"gt={file}::kind")
    message = hsipack.refuse(*words, out=tmp_path / "no", names=file)
    assert "no part of mask gt touches the cube" in message
    for number in range(2):
        write_cube(tmp_path / "in" / f"b{number}.tif", Affine(2, 0, 610000, 0, -2, 5300000))
    message = hsipack.refuse(*words, out=tmp_path / "no", names=file)
    assert "touches one of the 3 cubes" in message
    write_geojson(file, [swapped, point], ["x", "y"])
    report = hsipack.convert(*words, out=tmp_path / "out")
    notes = [note for note in report["notes"] if "no part" in note]
    assert len(notes) == 1
    assert "b0.tif and 1 other cube: no part of mask gt touches it" in notes[0]
    # A file without features is no mistake.
    write_geojson(file, [], [])
    hsipack.convert(*words[:2], f"gt={file}", out=tmp_path / "empty")


def test_labels_without_a_place_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "c.tif")
    np.save(tmp_path / "nowhere.npy", np.zeros((9, 9, 3), np.float32))
    polygon = {"type": "Polygon", "coordinates": [ring(np.random.default_rng(0), 4, None)]}
    labels = write_geojson(tmp_path / "g.geojson", [polygon], ["a"])
    out = tmp_path / "out"
    for words, file, part in [
        ([tmp_path / "nowhere.npy", "--mask", f"{labels}::kind"], labels, "not georeferenced"),
        ([cube, "--mask", f"{labels}::sort"], labels, "its attributes: kind, other"),
    ]:
        assert part in hsipack.refuse(*words, out=out, names=file).replace(
            "other, kind", "kind, other"
        )
    for name, part in [("EPSG:65000", "65000"), ("LOCAL", "LOCAL")]:
        member = {"type": "name", "properties": {"name": name}}
        labels = write_geojson(tmp_path / "g.geojson", [polygon], [1], member)
        message = hsipack.refuse(cube, "--mask", f"{labels}::kind", out=out, names=labels)
        assert part in message
        assert "-t_srs" in message
    labels = write_geojson(tmp_path / "g.geojson", [polygon], [-1])
    message = hsipack.refuse(cube, "--mask", f"{labels}::kind", out=out, names=labels)
    assert "feature 0" in message
