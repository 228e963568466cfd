"""Malformed files of labels: an error that names the file, and neither a panic nor much memory."""

import json
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Hsipack
from PIL import Image
from test_vector_masks import CRS, write_cube, write_geojson, write_geopackage, write_shapefile

MEMORY = 2 << 30
SQUARE = [
    [600010.0, 5299990.0],
    [600030.0, 5299990.0],
    [600030.0, 5299970.0],
    [600010.0, 5299990.0],
]
POLYGON = {"type": "Polygon", "coordinates": [SQUARE]}


def refused(hsipack: Hsipack, folder: Path, mask: object, names: Path, *words: object) -> None:
    out = folder / "out"
    mask = f"kind={mask}"
    hsipack.refuse(folder / "c.tif", "--mask", mask, *words, out=out, names=names, memory=MEMORY)


def feature(geometry: Any, value: Any = 1) -> str:
    return json.dumps({"type": "Feature", "properties": {"kind": value}, "geometry": geometry})


def collection(*features: str) -> str:
    crs = json.dumps(CRS)
    return f'{{"type": "FeatureCollection", "crs": {crs}, "features": [{", ".join(features)}]}}'


def polygon(coordinates: str) -> str:
    geometry = f'{{"type": "Polygon", "coordinates": {coordinates}}}'
    return f'{{"type": "Feature", "properties": {{"kind": 1}}, "geometry": {geometry}}}'


NESTED = '{"type": "GeometryCollection", "geometries": ['
GEOJSON = {
    "empty object": "{}",
    "cut": collection(feature(POLYGON))[:-20],
    "cut in a number": collection(feature(POLYGON))[:250],
    "behind the end": collection(feature(POLYGON)) + "]",
    "other type": '{"type": "Topology", "arcs": []}',
    "geometry alone": json.dumps(POLYGON),
    "type is a number": '{"type": 3, "features": []}',
    "features are an object": '{"type": "FeatureCollection", "features": {}}',
    "feature is a number": collection("3"),
    "geometry is a text": collection(feature("POLYGON")),
    "geometry without a type": collection(feature({"coordinates": [SQUARE]})),
    "unknown geometry": collection(feature({"type": "Circle", "coordinates": [1, 2]})),
    "coordinates are a number": collection(polygon("3")),
    "coordinates are an object": collection(polygon("{}")),
    "coordinates are texts": collection(polygon('[[["a", "b"]]]')),
    "coordinates are booleans": collection(polygon("[[[true, false]]]")),
    "NaN": collection(polygon("[[[NaN, 1], [2, 3], [4, 5]]]")),
    "too large for a number": collection(polygon("[[[1e999, 1], [2, 3], [4, 5]]]")),
    "position of one number": collection(polygon("[[[1], [2], [3]]]")),
    "position in a ring": collection(polygon("[[1, 2], [3, 4], [5, 6]]")),
    "ring too deep": collection(polygon("[[[[1, 2], [3, 4], [5, 6]]]]")),
    "uneven rings": collection(polygon("[[[1, 2], [3, 4]], [5, 6]]")),
    "uneven positions": collection(polygon("[[[1, 2], 3, [4, 5]]]")),
    "number and list": collection(polygon("[[1, [2, 3]]]")),
    "deep lists": collection(polygon("[" * 100_000 + "]" * 100_000)),
    "deep collections": collection(f'{{"type": "Feature", "geometry": {NESTED * 5000}'),
    "deep properties": collection(f'{{"properties": {{"kind": {"[" * 100_000}'),
    "properties are a list": collection('{"type": "Feature", "properties": [1], "geometry": null}'),
    "class is an object": collection(feature(POLYGON, {"a": 1})),
    "class is a fraction": collection(feature(POLYGON, 1.5)),
    "class is negative": collection(feature(POLYGON, -1)),
    "class is too large": collection(feature(POLYGON, 65536)),
    "class is a long text": collection(feature(POLYGON, "x" * 100_000)),
    "names and no text": collection(feature(POLYGON, "a"))[:-3] + "\x00",
    "crs is a number": '{"type": "FeatureCollection", "crs": 4, "features": []}',
    "crs of another planet": collection(feature(POLYGON)).replace("EPSG::32632", "IAU::30100"),
    "bytes": '{"type": "\udcff\udcfe',
}


@pytest.mark.parametrize("kind", GEOJSON)
def test_malformed_geojson_is_refused(hsipack: Hsipack, tmp_path: Path, kind: str) -> None:
    write_cube(tmp_path / "c.tif")
    path = tmp_path / "labels.geojson"
    path.write_bytes(GEOJSON[kind].encode("utf-8", "surrogateescape"))
    refused(hsipack, tmp_path, f"{path}::kind", path)


def test_odd_but_valid_features_are_drawn(hsipack: Hsipack, tmp_path: Path) -> None:
    """Self-intersections, empty geometries, rings of few points, and far coordinates."""
    cube = write_cube(tmp_path / "c.tif")
    bow = [SQUARE[0], SQUARE[2], SQUARE[1], [600010.0, 5299970.0], SQUARE[0]]
    far = [[-1e300, -1e300], [1e300, -1e300], [1e300, 1e300], [-1e300, -1e300]]
    geometries: list[Any] = [
        None,
        {"type": "Polygon", "coordinates": []},
        {"type": "Polygon", "coordinates": [[]]},
        {"type": "Polygon", "coordinates": [SQUARE[:1]]},
        {"type": "Polygon", "coordinates": [SQUARE[:2]]},
        {"type": "Polygon", "coordinates": [bow]},
        {"type": "Polygon", "coordinates": [far]},
        {"type": "LineString", "coordinates": far},
        {"type": "LineString", "coordinates": [[-1e9, 5299990], [1e9, 5299990]]},
        {"type": "Point", "coordinates": far[0]},
        {"type": "GeometryCollection", "geometries": [POLYGON]},
        {"type": "MultiPolygon", "coordinates": [[[]], [SQUARE], []]},
        {"type": "Point", "coordinates": [600010, 5299990, 40]},
    ]
    labels = write_geojson(tmp_path / "g.geojson", geometries, range(1, len(geometries) + 1))
    for number, words in enumerate([[], ["--all-touched"]]):
        hsipack.convert(cube, "--mask", f"k={labels}::kind", *words, out=tmp_path / f"out{number}")


def test_many_vertices_take_bounded_memory(
    hsipack: Hsipack, least_memory: int, tmp_path: Path
) -> None:
    """100,000 vertices with 80 MiB more than the program takes without them."""
    cube = write_cube(tmp_path / "c.tif")
    random = np.random.default_rng(0)
    points = np.stack(
        [random.uniform(600000, 600120, 10**5), random.uniform(5299910, 5300000, 10**5)]
    )
    ring = np.round(points.T, 2).tolist()
    labels = write_geojson(
        tmp_path / "g.geojson", [{"type": "Polygon", "coordinates": [[*ring, ring[0]]]}], [1]
    )
    words = ["convert", cube, "--mask", f"k={labels}::kind", "--threads", 2, "-o", tmp_path / "out"]
    done = hsipack.run(*words, memory=least_memory + (80 << 20))
    assert done.returncode == 0, done.stderr


def shape_bytes(tmp_path: Path) -> tuple[bytes, bytes]:
    write_shapefile(tmp_path / "whole", [POLYGON] * 3, {"kind": "N"}, [(1,)] * 3)
    return (tmp_path / "whole.shp").read_bytes(), (tmp_path / "whole.dbf").read_bytes()


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


Damage = Callable[[bytes], bytes]
SHAPES: dict[str, Damage] = {
    "header alone cut": lambda shp: shp[:60],
    "cut in a record": lambda shp: shp[:150],
    "cut in a record header": lambda shp: shp[:104],
    "record longer than the file": lambda shp: changed(shp, 104, struct.pack(">i", 2**31 - 1)),
    "record of negative length": lambda shp: changed(shp, 104, struct.pack(">i", -1)),
    "record of no length": lambda shp: changed(shp, 104, struct.pack(">i", 0)),
    "unknown shape": lambda shp: changed(shp, 108, struct.pack("<i", 77)),
    "patches": lambda shp: changed(shp, 108, struct.pack("<i", 31)),
    "many parts": lambda shp: changed(shp, 144, struct.pack("<i", 2**31 - 1)),
    "negative parts": lambda shp: changed(shp, 144, struct.pack("<i", -1)),
    "many points": lambda shp: changed(shp, 148, struct.pack("<i", 2**31 - 1)),
    "a point more": lambda shp: changed(shp, 148, struct.pack("<i", 5)),
    "part behind the points": lambda shp: changed(shp, 152, struct.pack("<i", 99)),
    "negative part": lambda shp: changed(shp, 152, struct.pack("<i", -4)),
    "NaN": lambda shp: changed(shp, 156, struct.pack("<d", float("nan"))),
    "infinite": lambda shp: changed(shp, 156, struct.pack("<d", float("inf"))),
}
TABLES: dict[str, Damage] = {
    "empty": lambda _: b"",
    "cut header": lambda dbf: dbf[:20],
    "cut fields": lambda dbf: dbf[:40],
    "cut rows": lambda dbf: dbf[:70],
    "no rows": lambda dbf: changed(dbf, 4, struct.pack("<I", 0)),
    "rows of no length": lambda dbf: changed(dbf, 10, struct.pack("<H", 0)),
    "field longer than a row": lambda dbf: changed(dbf, 48, b"\xff"),
    "header longer than the file": lambda dbf: changed(dbf, 8, b"\xff\xff"),
    "no number": lambda dbf: dbf.replace(b"        1", b"        x", 1),
    "other fields": lambda dbf: dbf.replace(b"kind", b"sort", 1),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_malformed_shapefiles_are_refused(hsipack: Hsipack, tmp_path: Path, kind: str) -> None:
    write_cube(tmp_path / "c.tif")
    shp, dbf = shape_bytes(tmp_path)
    path = tmp_path / "labels.shp"
    path.write_bytes(SHAPES[kind](shp))
    path.with_suffix(".dbf").write_bytes(dbf)
    refused(hsipack, tmp_path, f"{path}::kind", path)


@pytest.mark.parametrize("kind", TABLES)
def test_malformed_tables_of_attributes_are_refused(
    hsipack: Hsipack, tmp_path: Path, kind: str
) -> None:
    write_cube(tmp_path / "c.tif")
    shp, dbf = shape_bytes(tmp_path)
    path = tmp_path / "labels.shp"
    path.write_bytes(shp)
    table = path.with_suffix(".dbf")
    table.write_bytes(TABLES[kind](dbf))
    refused(hsipack, tmp_path, f"{path}::kind", path if kind == "other fields" else table)


def test_shapefiles_need_their_attributes(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cube(tmp_path / "c.tif")
    shp, _ = shape_bytes(tmp_path)
    path = tmp_path / "labels.shp"
    path.write_bytes(shp)
    refused(hsipack, tmp_path, f"{path}::kind", path)
    path.with_suffix(".prj").write_text("PROJCS[")
    refused(hsipack, tmp_path, path, path)


PAGE = 1024
PAGES: dict[str, Damage] = {
    "cut header": lambda db: db[:50],
    "cut": lambda db: db[: len(db) // 2],
    "page size 0": lambda db: changed(db, 16, b"\0\0"),
    "page size 3": lambda db: changed(db, 16, b"\0\3"),
    "no room in pages": lambda db: changed(db, 20, b"\xff"),
    "UTF-16": lambda db: changed(db, 56, struct.pack(">I", 2)),
    "kind of the first page": lambda db: changed(db, 100, b"\x09"),
    "many cells": lambda db: changed(db, 103, b"\xff\xff"),
    "cell behind the page": lambda db: changed(db, 108, b"\xff\xff" * 8),
    "zeros": lambda db: db[:100] + bytes(len(db) - 100),
    "ones": lambda db: db[:100] + b"\xff" * (len(db) - 100),
    "pages refer to the first": lambda db: (
        db[:100]
        + b"".join(
            (bytes([5, 0, 0, 0, 0, 0, 0, 0]) + struct.pack(">I", 1)).ljust(
                PAGE if at else PAGE - 100, b"\0"
            )
            for at in range(len(db) // PAGE)
        )
    ),
}


@pytest.mark.parametrize("kind", PAGES)
def test_damaged_databases_are_refused(hsipack: Hsipack, tmp_path: Path, kind: str) -> None:
    write_cube(tmp_path / "c.tif")
    whole = write_geopackage(tmp_path / "whole.gpkg", [POLYGON] * 40, [1] * 40, page=PAGE)
    path = tmp_path / "labels.gpkg"
    path.write_bytes(PAGES[kind](whole.read_bytes()))
    refused(hsipack, tmp_path, f"{path}::kind", path)


GEOMETRIES = {
    "empty": b"",
    "text": "POLYGON((0 0))",
    "no header": b"XX\0\1" + bytes(40),
    "header alone": b"GP\0\1\0\0\0\0",
    "unknown envelope": b"GP\0\x0f" + bytes(80),
    "cut envelope": b"GP\0\3" + bytes(8),
    "byte order": b"GP\0\1\0\0\0\0\7",
    "many rings": b"GP\0\1\0\0\0\0" + struct.pack("<BII", 1, 3, 2**32 - 1),
    "many points": b"GP\0\1\0\0\0\0" + struct.pack("<BIII", 1, 3, 1, 2**32 - 1),
    "curve": b"GP\0\1\0\0\0\0" + struct.pack("<BI", 1, 10) + bytes(40),
    "nested": b"GP\0\1\0\0\0\0" + struct.pack("<BII", 1, 7, 1) * 5000,
    "NaN": b"GP\0\1\0\0\0\0" + struct.pack("<BIIIdd", 1, 3, 1, 1, float("nan"), 1.0),
}


@pytest.mark.parametrize("kind", GEOMETRIES)
def test_malformed_geometries_are_refused(hsipack: Hsipack, tmp_path: Path, kind: str) -> None:
    write_cube(tmp_path / "c.tif")
    path = write_geopackage(tmp_path / "labels.gpkg", [POLYGON], [1])
    with sqlite3.connect(path) as db:
        db.execute('UPDATE "layer 0" SET geom = ?', (GEOMETRIES[kind],))
    refused(hsipack, tmp_path, f"{path}::kind", path)


def test_other_databases_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cube(tmp_path / "c.tif")
    path = tmp_path / "labels.gpkg"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE a (b)")
    refused(hsipack, tmp_path, f"{path}::kind", path)
    path = write_geopackage(tmp_path / "none.gpkg", [], [], 0)
    refused(hsipack, tmp_path, f"{path}::kind", path)
    path = write_geopackage(tmp_path / "system.gpkg", [POLYGON], [1])
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM gpkg_spatial_ref_sys WHERE srs_id = 32632")
    refused(hsipack, tmp_path, f"{path}::kind", path)
    # SQLite keeps what is not yet in the file in another one.
    path = write_geopackage(tmp_path / "open.gpkg", [POLYGON], [1])
    (tmp_path / "open.gpkg-wal").write_bytes(b"x")
    refused(hsipack, tmp_path, f"{path}::kind", path)


def test_random_damage_never_panics(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = write_cube(tmp_path / "c.tif")
    shp, dbf = shape_bytes(tmp_path)
    whole = write_geopackage(tmp_path / "whole.gpkg", [POLYGON] * 9, [1] * 9, page=PAGE)
    text = collection(*[feature(POLYGON)] * 4).encode()
    random = np.random.default_rng(11)
    for ending, data in [("shp", shp), ("gpkg", whole.read_bytes()), ("geojson", text)]:
        for number in range(12):
            damaged = bytearray(data)
            for at in random.integers(32 if ending == "shp" else 20, len(data), number + 1):
                damaged[at] = random.integers(0, 256)
            path = tmp_path / f"labels.{ending}"
            path.write_bytes(damaged)
            path.with_suffix(".dbf").write_bytes(dbf)
            out = tmp_path / f"out-{ending}-{number}"
            done = hsipack.run(
                "convert", cube, "--mask", f"k={path}::kind", "-o", out, memory=MEMORY
            )
            assert done.returncode in (0, 1), done.stderr
            assert "panicked" not in done.stderr


COLORS = {
    "empty": "",
    "no class": "[]",
    "cut": '[{"id": 1, "color": [1, 2',
    "no color": "id,name\n1,a\n",
    "large part": "id,r,g,b\n1,0,0,256\n",
    "two ids": "id,r,g,b\n1,0,0,0\n2,0,0,0\n",
    "large id": "id,r,g,b\n70000,0,0,0\n",
    "many": "".join(
        f"{number},{number % 256},{number // 256 % 256},0\n" for number in range(70_000)
    ),
    "deep": "[" * 100_000,
    "words": "this is no table\n",
    "binary": "\x00\x01\x02",
    "style": "<qgis>",
}


@pytest.mark.parametrize("kind", COLORS)
def test_malformed_files_of_colors_are_refused(hsipack: Hsipack, tmp_path: Path, kind: str) -> None:
    write_cube(tmp_path / "c.tif")
    Image.fromarray(np.zeros((45, 60, 3), np.uint8)).save(tmp_path / "m.png")
    path = tmp_path / "colors.txt"
    path.write_text(COLORS[kind])
    refused(hsipack, tmp_path, tmp_path / "m.png", path, "--mask-colors", path)
