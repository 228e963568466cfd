"""Shapes in pixels (labelme) and regions of interest (ENVI) as masks."""

import base64
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Hsipack, attributes, read_zarr, samples, write_cubes
from numpy.typing import NDArray
from PIL import Image
from rasterio.features import rasterize
from rasterio.transform import Affine
from test_vector_masks import PLACE, write_cube
from test_vector_masks import SHAPE as MAP_SHAPE

SHAPE = (40, 52)
Shape = dict[str, Any]


def shapes(random: np.random.Generator, count: int, grid: float | None) -> list[Shape]:
    kinds = ["polygon", "rectangle", "line", "linestrip", "point", "polygon"]
    made = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        corners = {"rectangle": 2, "line": 2, "point": 1}.get(kind, int(random.integers(3, 8)))
        middle = random.uniform(-4, SHAPE[1] + 4, 2)
        points = middle + random.uniform(-15, 15, (corners, 2))
        if grid is not None:
            points = np.round(points / grid) * grid
        label = f"class {number % 4}"
        made.append({"label": label, "points": points.tolist(), "shape_type": kind, "flags": {}})
    return made


def geometry(shape: Shape) -> dict[str, Any]:
    points = shape["points"]
    match shape["shape_type"]:
        case "rectangle":
            (x, y), (far_x, far_y) = points
            ring = [[x, y], [far_x, y], [far_x, far_y], [x, far_y], [x, y]]
            return {"type": "Polygon", "coordinates": [ring]}
        case "polygon":
            return {"type": "Polygon", "coordinates": [[*points, points[0]]]}
        case "point":
            return {"type": "Point", "coordinates": points[0]}
        case _:
            return {"type": "LineString", "coordinates": points}


def write_labelme(path: Path, made: list[Shape], **members: Any) -> Path:
    size = {"imageHeight": SHAPE[0], "imageWidth": SHAPE[1]}
    whole = {"version": "5.5.0", "flags": {}, "shapes": made, "imagePath": "x.png"}
    path.write_text(json.dumps(whole | {"imageData": "AAAA" * 1000} | size | members))
    return path


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("grid", [None, 1, 0.5])
def test_shapes_equal_gdal_pixel_by_pixel(
    hsipack: Hsipack, tmp_path: Path, grid: float | None, touched: bool
) -> None:
    write_cubes(tmp_path / "in", 6, (*SHAPE, 2))
    random = np.random.default_rng(3)
    drawn = {f"cube_{number:03}": shapes(random, 18, grid) for number in range(6)}
    for name, made in drawn.items():
        write_labelme(tmp_path / f"in/{name}.json", made)
    out = tmp_path / "out"
    words = ["--mask", "gt={dir}/{stem}.json", *(["--all-touched"] if touched else [])]
    hsipack.convert(tmp_path / "in", *words, out=out)
    names = attributes(out, array="gt")["hsipack"]["class_names"]
    assert names == ["", "class 0", "class 1", "class 2", "class 3"]
    for sample, found in zip(samples(out), read_zarr(out, array="gt"), strict=True):
        made = drawn[sample["name"]]
        pairs = [(geometry(one), names.index(one["label"])) for one in made]
        want = rasterize(pairs, SHAPE, transform=Affine.identity(), all_touched=touched)
        assert np.array_equal(found, want), (sample["name"], (found != want).sum())
    assert hsipack.run("validate", out, "--source").returncode == 0


@pytest.mark.parametrize("touched", [False, True])
def test_circles_hold_the_centers_of_pixels(
    hsipack: Hsipack, tmp_path: Path, touched: bool
) -> None:
    write_cubes(tmp_path, 1, (*SHAPE, 2))
    y, x = np.indices(SHAPE)
    random = np.random.default_rng(1)
    for number in range(8):
        middle, edge = random.uniform(-5, 45, (2, 2))
        circle = {"label": "a", "points": [middle.tolist(), edge.tolist()], "shape_type": "circle"}
        write_labelme(tmp_path / "cube_000.json", [circle])
        out = tmp_path / f"out{number}"
        words = ["--all-touched"] if touched else []
        hsipack.convert(
            tmp_path / "cube_000.npy", "--mask", "gt={dir}/{stem}.json", *words, out=out
        )
        radius = np.hypot(*(edge - middle))
        if touched:
            near = [np.clip(m, at, at + 1) - m for m, at in zip(middle, (x, y), strict=True)]
        else:
            near = [at + 0.5 - m for m, at in zip(middle, (x, y), strict=True)]
        want = np.hypot(*near) <= radius
        assert np.array_equal(read_zarr(out, array="gt")[0] > 0, want)


def pixels_of(mask: NDArray[np.bool_], **options: Any) -> str:
    """A mask as labelme writes it."""
    buffer = io.BytesIO()
    Image.fromarray(mask.astype(np.uint8)).save(buffer, "PNG", **options)
    return base64.b64encode(buffer.getvalue()).decode()


def interlaced() -> str:
    """A gray PNG of 8 x 8 pixels in seven passes, which Pillow reads and does not write."""

    def part(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content).to_bytes(4, "big")
        return len(content).to_bytes(4, "big") + kind + content + checksum

    header = (8).to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 1])
    passes = [(1, 1), (1, 1), (1, 2), (2, 2), (2, 4), (4, 4), (4, 8)]
    lines = b"".join(bytes(1 + columns) for rows, columns in passes for _ in range(rows))
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    content = b"\x89PNG\r\n\x1a\n" + b"".join(part(*one) for one in parts)
    assert Image.open(io.BytesIO(content)).size == (8, 8)
    return base64.b64encode(content).decode()


INTERLACED = interlaced()


@pytest.mark.parametrize("touched", [False, True])
def test_masks_of_shapes_are_drawn_pixel_by_pixel(
    hsipack: Hsipack, tmp_path: Path, touched: bool
) -> None:
    """labelme 5 stores what its models select as small pictures between two points."""
    write_cubes(tmp_path, 1, (*SHAPE, 2))
    random = np.random.default_rng(4)
    made, want = [], np.zeros(SHAPE, np.uint8)
    for number in range(6):
        high, wide = (int(side) for side in random.integers(1, 20, 2))
        top, left = (int(random.integers(0, side - 19)) for side in SHAPE)
        mask = random.random((high, wide)) < 0.6
        points = [[left + 0.4, top + 0.9], [left + wide - 1, top + high - 1]]
        made.append(
            {
                "label": f"class {number % 3}",
                "points": points,
                "shape_type": "mask",
                "mask": pixels_of(mask),
            }
        )
        want[top : top + high, left : left + wide][mask] = number % 3 + 1
    file = write_labelme(tmp_path / "cube_000.json", made)
    out = tmp_path / "out"
    words = ["--mask", f"gt={file}", *(["--all-touched"] if touched else [])]
    hsipack.convert(tmp_path / "cube_000.npy", *words, out=out)
    np.testing.assert_array_equal(read_zarr(out, array="gt")[0], want)
    for name, picture in {
        "interlaced": INTERLACED,
        "transparent": pixels_of(np.ones((8, 8), bool), transparency=0),
        "coloured": pixels_of(np.ones((8, 8, 3), bool)),
    }.items():
        shape = {"label": name, "points": [[0, 0], [7, 7]], "shape_type": "mask", "mask": picture}
        write_labelme(file, [shape])
        message = hsipack.refuse(
            tmp_path / "cube_000.npy", "--mask", f"gt={file}", out=tmp_path / "no", names=file
        )
        assert "not a gray PNG" in message
    empty = {"label": "a", "points": [[1, 1], [3, 3]], "shape_type": "mask"}
    write_labelme(file, [empty | {"mask": pixels_of(np.zeros((3, 3), bool))}])
    hsipack.convert(tmp_path / "cube_000.npy", *words, out=tmp_path / "empty")
    assert not read_zarr(tmp_path / "empty", array="gt").any()
    made[0]["points"] = [[0, 0], [30, 30]]
    write_labelme(file, made)
    message = hsipack.refuse(
        tmp_path / "cube_000.npy", "--mask", f"gt={file}", out=tmp_path / "no", names=file
    )
    assert "31x31 are between its points" in message


def test_pictures_of_another_size_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path, 1, (*SHAPE, 2))
    file = write_labelme(tmp_path / "cube_000.json", [], imageHeight=480, imageWidth=640)
    message = hsipack.refuse(
        tmp_path / "cube_000.npy", "--mask", f"gt={file}", out=tmp_path / "out", names=file
    )
    assert "480x640" in message
    assert "40x52" in message


def write_rois(
    path: Path, rois: dict[str, tuple[tuple[int, int, int], NDArray[np.int64]]],
    shape: tuple[int, int] = SHAPE,
) -> Path:  # fmt: skip
    """Pixels (row, column, counted from 0) as ENVI Classic exports them."""
    lines = ["; ENVI Output of ROIs (4.8) [Sun Nov 29 10:00:00 2026]"]
    lines += [f"; Number of ROIs: {len(rois)}", f"; File Dimension: {shape[1]} x {shape[0]}", ";"]
    for name, (color, pixels) in rois.items():
        red, green, blue = color
        lines += [f"; ROI name: {name}", f"; ROI rgb value: {{{red}, {green}, {blue}}}"]
        lines += [f"; ROI npts: {len(pixels)}"]
    lines.append(";   ID     X     Y       Map X       Map Y        Lat       Lon  B1")
    for _, pixels in rois.values():
        for number, (row, column) in enumerate(pixels, 1):
            lines.append(f"{number:6} {column + 1:5} {row + 1:5}  600000.0  5300000.0  48  10  0.5")
        lines.append("")
    path.write_bytes("\r\n".join(lines).encode())
    return path


def test_pixels_of_regions_are_classes(hsipack: Hsipack, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    colors = {"water": (0, 0, 255), "Bare soil #2": (205, 0, 7), "asphalt": (9, 9, 9)}
    want = {}
    write_cubes(tmp_path / "in", 2, (*SHAPE, 2))
    for name, there in [
        ("cube_000", ["water", "Bare soil #2"]),
        ("cube_001", ["asphalt", "water"]),
    ]:
        mask = np.zeros(SHAPE, np.uint8)
        rois = {}
        for region in there:
            pixels = np.stack([random.integers(0, side, 90) for side in SHAPE], 1)
            rois[region] = (colors[region], pixels)
            mask[tuple(pixels.T)] = sorted(colors).index(region) + 1
        write_rois(tmp_path / f"in/{name}.txt", rois)
        want[name] = mask
    out = tmp_path / "out"
    hsipack.convert(tmp_path / "in/*.npy", "--mask", "gt={dir}/{stem}.txt", out=out)
    for sample, found in zip(samples(out), read_zarr(out, array="gt"), strict=True):
        assert np.array_equal(found, want[sample["name"]])
    own = attributes(out, array="gt")["hsipack"]
    assert own["class_names"] == ["", "Bare soil #2", "asphalt", "water"]
    assert own["class_colors"] == [None, "#cd0007", "#090909", "#0000ff"]
    assert hsipack.run("validate", out, "--source").returncode == 0


WKT = (
    'PROJCS["WGS_1984_UTM_Zone_32N",GEOGCS["GCS_WGS_1984",DATUM["D_WGS_1984",'
    'SPHEROID["WGS_1984",6378137.0,298.257223563]],PRIMEM["Greenwich",0.0],'
    'UNIT["Degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],'
    'PARAMETER["False_Easting",500000.0],PARAMETER["False_Northing",0.0],'
    'PARAMETER["Central_Meridian",9.0],PARAMETER["Scale_Factor",0.9996],'
    'PARAMETER["Latitude_Of_Origin",0.0],UNIT["Meter",1.0]]'
)


@pytest.mark.parametrize("system", [WKT, "none"])
def test_geometries_of_regions_are_classes(hsipack: Hsipack, tmp_path: Path, system: str) -> None:
    cube = write_cube(tmp_path / "c.tif")
    random = np.random.default_rng(4)
    place = Affine.identity() if system == "none" else PLACE
    regions, pairs = [], []
    for number in range(8):
        middle = random.uniform([5, 5], [55, 40])
        corners = middle + random.uniform(-12, 12, (5, 2))
        hole = corners.mean(0) + random.uniform(-2, 2, (3, 2))
        rings = [[list(place @ tuple(p)) for p in [*ring, ring[0]]] for ring in (corners, hole)]
        exterior, interior = (
            "<LinearRing><Coordinates>"
            + " ".join(f"{x!r} {y!r}" for x, y in np.array(ring).tolist())
            + "</Coordinates></LinearRing>"
            for ring in rings
        )
        regions.append(
            f'<Region name="r{number}" color="{number},20,30"><GeometryDef><CoordSysStr>{system}'
            f"</CoordSysStr><Polygon><Exterior>{exterior}</Exterior><Interior>{interior}"
            "</Interior></Polygon></GeometryDef></Region>".replace('"]', "&quot;]")
        )
        pairs.append(({"type": "Polygon", "coordinates": rings}, number + 1))
    file = tmp_path / "rois.xml"
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<RegionsOfInterest version="1.1">'
    file.write_text(head + "\n".join(regions) + "</RegionsOfInterest>")
    out = tmp_path / "out"
    hsipack.convert(cube, "--mask", f"gt={file}", out=out)
    want = rasterize(pairs, MAP_SHAPE, transform=place)
    assert np.array_equal(read_zarr(out, array="gt")[0], want)
    own = attributes(out, array="gt")["hsipack"]
    assert own["class_names"] == ["", *(f"r{number}" for number in range(8))]
    assert own["class_colors"][3] == "#02141e"
