"""Malformed annotations in pixels (COCO, labelme, ENVI ROI) and boxes: an error that names the file
and the place in it, and neither a panic nor much memory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Hsipack, write_cubes

MEMORY = 2 << 30
ROWS, COLUMNS = 20, 30
SQUARE = [[2.0, 2.0, 9.0, 2.0, 9.0, 9.0, 2.0, 9.0]]


def coco(*annotations: Any, **members: Any) -> str:
    whole: dict[str, Any] = {
        "images": [{"id": 1, "file_name": "cube_000.png", "height": ROWS, "width": COLUMNS}],
        "categories": [{"id": 3, "name": "leaf"}],
        "annotations": list(annotations),
    }
    return json.dumps(whole | members)


def drawn(segmentation: Any, **members: Any) -> dict[str, Any]:
    one = {"image_id": 1, "category_id": 3, "bbox": [1, 1, 5, 5], "segmentation": segmentation}
    return one | members


def lengths(counts: Any, size: Any = (ROWS, COLUMNS)) -> str:
    return coco(drawn({"size": size, "counts": counts}))


def raw(segmentation: str) -> str:
    return coco(drawn("?")).replace('"?"', segmentation)


COCO = {
    "cut": (coco(drawn(SQUARE))[:-15], ""),
    "cut in a polygon": (coco(drawn(SQUARE))[:220], ""),
    "behind the end": (coco(drawn(SQUARE)) + "}", "trailing characters"),
    "images are an object": (coco(images={}), "expected a list with an object for each image"),
    "images are numbers": (coco(images=[3]), "image 0"),
    "no images": (coco(images=[]), "no entry for the cube"),
    "image without id": (coco(images=[{"file_name": "cube_000.png"}]), "image 0: missing"),
    "image without name": (coco(images=[{"id": 1}]), "no file_name"),
    "name is a number": (coco(images=[{"id": 1, "file_name": 7}]), "image 0"),
    "other name": (coco(images=[{"id": 1, "file_name": "x.png"}]), "its pictures: x.png"),
    "two images": (
        coco(
            images=[{"id": n, "file_name": f"cube_000.{e}"} for n, e in enumerate(["png", "tif"])]
        ),
        "several entries",
    ),
    "id twice": (
        coco(images=[{"id": 1, "file_name": name} for name in ["cube_000.png", "b.png"]]),
        "two images have the id 1",
    ),
    "other size": (
        coco(images=[{"id": 1, "file_name": "cube_000.png", "height": 30, "width": 20}]),
        "30x20",
    ),
    "size is a text": (
        coco(images=[{"id": 1, "file_name": "cube_000.png", "height": "20"}]),
        "image 0",
    ),
    "unknown image": (coco(drawn(SQUARE), drawn(SQUARE, image_id=2)), "annotation 1 is of"),
    "image is a list": (coco(drawn(SQUARE, image_id=[1])), "annotation 0"),
    "no image": (coco({"category_id": 3, "segmentation": SQUARE}), "annotation 0: missing"),
    "unknown category": (coco(drawn(SQUARE, category_id=4)), "annotation 0 is of the category 4"),
    "no category": (coco({"image_id": 1, "segmentation": SQUARE}), "annotation 0 has no category"),
    "category is a text": (coco(drawn(SQUARE, category_id="leaf")), "annotation 0"),
    "category 0": (
        coco(drawn(SQUARE, category_id=0), categories=[{"id": 0, "name": "leaf"}]),
        "::name",
    ),
    "large category": (coco(drawn(SQUARE), categories=[{"id": 3}, {"id": 65536}]), "65536"),
    "negative category": (coco(drawn(SQUARE), categories=[{"id": 3}, {"id": -1}]), "-1"),
    "long name": (coco(categories=[{"id": 3, "name": "x" * 99_999}]), "category 0"),
    "categories are texts": (coco(categories=["leaf"]), "category 0"),
    "annotation is a number": (coco(drawn(SQUARE), 5), "annotation 1"),
    "annotations are an object": (coco(annotations={}), "annotation"),
    "polygon is a text": (coco(drawn("POLYGON")), "annotation 0"),
    "polygon is a number": (coco(drawn(5)), "annotation 0"),
    "flat polygon": (coco(drawn(SQUARE[0])), "annotation 0"),
    "points in a polygon": (coco(drawn([[[1, 2], [3, 4], [5, 6]]])), "annotation 0"),
    "two corners": (coco(drawn([[1, 2, 3, 4]])), "annotation 0: a polygon has 4 numbers"),
    "odd numbers": (coco(drawn([[1, 2, 3, 4, 5, 6, 7]])), "annotation 0: a polygon has 7"),
    "empty polygon": (coco(drawn([[]])), "annotation 0: a polygon has 0"),
    "texts in a polygon": (coco(drawn([["1", "2", "3", "4", "5", "6"]])), "annotation 0"),
    "NaN": (raw("[[NaN, 1, 2, 3, 4, 5]]"), "annotation 0"),
    "infinite": (raw("[[1e999, 1, 2, 3, 4, 5]]"), "annotation 0"),
    "far away": (coco(drawn([[0, 0, 1e12, 0, 5, 5]])), "annotation 0: the corner"),
    "deep polygon": (raw("[" * 1_000_000), "annotation 0"),
    "deep member": (coco()[:-1] + ', "x": ' + "[" * 1_000_000, ""),
    "deep in an annotation": (coco(drawn(SQUARE, x="?")).replace('"?"', "[" * 1_000_000), ""),
    "too few": (lengths([10, 5, 10]), "annotation 0: the run lengths are those of only 25 pixels"),
    "too many": (lengths([600, 5]), "annotation 0: the run lengths are those of at least 605"),
    "much too many": (lengths([4294967295] * 9), "annotation 0: the run lengths"),
    "too large a length": (lengths([2**32]), "annotation 0"),
    "negative length": (lengths([-1, 601]), "annotation 0"),
    "length is a fraction": (lengths([0.5, 599.5]), "annotation 0"),
    "no lengths": (lengths([]), "annotation 0: the run lengths"),
    "no text": (lengths(""), "annotation 0: the run lengths"),
    "cut text": (lengths("o"), "annotation 0: the text of run lengths is cut short"),
    "wrong text": (lengths("a b"), "annotation 0: the text of run lengths has the character"),
    "endless text": (lengths("o" * 99), "annotation 0: the text of run lengths has the character"),
    "text of another size": (lengths("m04500000`0"), "annotation 0: the run lengths"),
    "negative in the text": (lengths("N"), "annotation 0: the run length"),
    "size of others": (lengths([600], (COLUMNS, ROWS)), "30x20 pixels, but the cube has 20x30"),
    "huge size": (lengths([600], (2**40, 2**40)), "annotation 0"),
    "size of three": (lengths([600], (ROWS, COLUMNS, 1)), "annotation 0"),
    "counts are an object": (lengths({}), "annotation 0"),
    "no size": (coco(drawn({"counts": [600]})), "annotation 0: run lengths need counts and size"),
    "no counts": (coco(drawn({"size": [ROWS, COLUMNS]})), "annotation 0: run lengths need"),
    "bytes": ('{"images": "\udcff\udcfe', ""),
}


def shapes(*made: Any, **members: Any) -> str:
    size = {"imageHeight": ROWS, "imageWidth": COLUMNS, "imageData": None}
    return json.dumps({"version": "5.0.1", "shapes": list(made)} | size | members)


def shape(points: Any, kind: Any = "polygon", **members: Any) -> dict[str, Any]:
    return {"label": "leaf", "points": points, "shape_type": kind} | members


CORNERS = [[1, 1], [5, 1], [5, 5]]
LABELME = {
    "cut": (shapes(shape(CORNERS))[:80], ""),
    "shapes are an object": (shapes(shapes={}), "for each shape"),
    "shape is a list": (shapes(shape(CORNERS), []), "shape 1"),
    "no label": (shapes({"points": CORNERS}), "shape 0: missing field `label`"),
    "label is a number": (shapes(shape(CORNERS, label=5)), "shape 0"),
    "long label": (shapes(shape(CORNERS, label="x" * 5000)), "label is longer"),
    "no points": (shapes({"label": "leaf"}), "shape 0: missing field `points`"),
    "points are numbers": (shapes(shape([1, 2, 3])), "shape 0"),
    "three coordinates": (shapes(shape([[1, 2, 3]] * 3)), "shape 0"),
    "two corners": (shapes(shape(CORNERS[:2])), 'shape 0 ("leaf"): a polygon has 2 points'),
    "rectangle of three": (shapes(shape(CORNERS, "rectangle")), "a rectangle has 3 points"),
    "circle of one": (shapes(shape(CORNERS[:1], "circle")), "a circle has 1 points"),
    "line of three": (shapes(shape(CORNERS, "line")), "a line has 3 points"),
    "two points": (shapes(shape(CORNERS[:2], "point")), "a point has 2 points"),
    "strip of one": (shapes(shape(CORNERS[:1], "linestrip")), "a linestrip has 1 points"),
    "mask": (shapes(shape(CORNERS[:2], "mask", mask="iVBOR")), "its mask: "),
    "type is a number": (shapes(shape(CORNERS, 4)), "shape 0"),
    "NaN": (shapes(shape(CORNERS)).replace("[5, 5]", "[NaN, 5]"), "shape 0"),
    "other size": (shapes(imageHeight=480, imageWidth=640), "480x640"),
    "size is a text": (shapes(imageHeight="20"), ""),
    "deep": (shapes(shape("?")).replace('"?"', "[" * 1_000_000), "shape 0"),
    "deep flags": (shapes(shape(CORNERS, flags="?")).replace('"?"', '{"a":' * 1_000_000), ""),
}

ROI = """; ENVI Output of ROIs (4.8) [Sun Nov 29 10:00:00 2026]
; Number of ROIs: 2
; File Dimension: 30 x 20
;
; ROI name: leaf
; ROI rgb value: {255, 0, 7}
; ROI npts: 2
; ROI name: stem
; ROI rgb value: {0, 255, 0}
; ROI npts: 1
;   ID     X     Y
     1     1     4
     2    30    20

     1     2     2
"""
XML = """<?xml version="1.0"?><RegionsOfInterest version="1.1"><Region name="leaf" color="0,1,255">
<GeometryDef><CoordSysStr>none</CoordSysStr><Polygon><Exterior><LinearRing><Coordinates>
0 0 3 0 3 3 0 0</Coordinates></LinearRing></Exterior></Polygon></GeometryDef></Region>
</RegionsOfInterest>"""
REGIONS = {
    "cut": (ROI[:-12], "line 15: "),
    "cut after a line": (ROI[: ROI.rindex("     1")], "has 1 pixels, but the file lists 0"),
    "cut after a region": (ROI[: ROI.index("; ROI name: stem")], "should have 2 regions"),
    "region without a count": (ROI.replace("; ROI npts: 1\n", ""), "number of pixels"),
    "more pixels": (ROI + "     2     2     2\n", "line 16: there are more pixels"),
    "fewer pixels": (ROI.replace("npts: 2", "npts: 3"), "has 1 pixels"),
    "huge count": (ROI.replace("npts: 1", "npts: 99999999999999"), "99999999999999"),
    "negative count": (ROI.replace("npts: 1", "npts: -1"), "line 10: "),
    "count is a text": (ROI.replace("npts: 1", "npts: one"), "line 10: "),
    "column 0": (ROI.replace("     1     4", "     0     4"), "line 12: "),
    "column outside": (ROI.replace("    30    20", "    31    20"), "line 13: "),
    "row outside": (ROI.replace("    30    20", "    30    21"), "line 13: "),
    "NaN": (ROI.replace("    30    20", "   NaN    20"), "line 13: "),
    "no number": (ROI.replace("    30    20", "    30"), "line 13: "),
    "no columns X and Y": (ROI.replace(";   ID     X     Y", "; Addr"), "line 12: "),
    "other image": (ROI.replace("30 x 20", "640 x 480"), "480x640"),
    "size is a text": (ROI.replace("30 x 20", "large"), "line 3: "),
    "no region": (ROI.replace("; ROI name", "; name"), "line 6: "),
    "region without a name": (ROI.replace("ROI name: stem", "ROI name:"), "no name"),
    "XML cut": (XML[:-30], "cannot read the regions"),
    "XML of another kind": (XML.replace("RegionsOfInterest ", "Other ", 1), "RegionsOfInterest"),
    "odd coordinates": (XML.replace("0 0 3 0", "0 0 3"), 'region 0 ("leaf"): there are 7'),
    "text as coordinate": (XML.replace("3 3", "3 x"), 'region 0 ("leaf"): "x"'),
    "infinite": (XML.replace("3 3", "3 inf"), "not a finite number"),
    "threshold": (XML.replace("GeometryDef", "ThresholdDef"), 'region 0 ("leaf"): '),
    "map": (XML.replace("none", "PROJCS[&quot;x&quot;]"), "not georeferenced"),
    "entities": (XML.replace("<Region", '<!DOCTYPE a [<!ENTITY b "c">]><Region', 1), "cannot read"),
    "deep": (XML.replace("<Polygon>", "<a>" * 1_000_000), "cannot read the regions"),
    "no name": (XML.replace('name="leaf"', 'name=" "'), "no name"),
}


def refused(
    hsipack: Hsipack, folder: Path, option: str, pattern: object, names: Path, what: str
) -> None:
    write_cubes(folder, 1, (ROWS, COLUMNS, 2))
    words = [folder / "cube_000.npy", option, pattern]
    message = hsipack.refuse(*words, out=folder / "out", names=names, memory=MEMORY)
    assert what in message
    # Messages are short, whatever the file holds.
    assert len(message) < 2000 + 5000 * ("longer" in message)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


@pytest.mark.parametrize("kind", COCO)
def test_malformed_annotations_are_refused(hsipack: Hsipack, tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, "gt.json", COCO[kind][0])
    refused(hsipack, tmp_path, "--mask", f"gt={path}", path, COCO[kind][1])


@pytest.mark.parametrize("kind", LABELME)
def test_malformed_shapes_are_refused(hsipack: Hsipack, tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, "gt.json", LABELME[kind][0])
    refused(hsipack, tmp_path, "--mask", f"gt={path}", path, LABELME[kind][1])


@pytest.mark.parametrize("kind", REGIONS)
def test_malformed_regions_are_refused(hsipack: Hsipack, tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, "gt.roi.txt", REGIONS[kind][0])
    refused(hsipack, tmp_path, "--mask", f"gt={path}", path, REGIONS[kind][1])


def boxed(*boxes: Any) -> str:
    return coco(*({"image_id": 1, "category_id": 3, "bbox": box} for box in boxes))


VOC = """<annotation><size><width>30</width><height>20</height></size><object><name>leaf</name>
<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>"""
BOXES: dict[str, tuple[str, str, str]] = {
    "COCO cut": ("b.json", boxed([1, 1, 2, 2])[:-9], ""),
    "COCO without a box": ("b.json", coco({"image_id": 1, "category_id": 3}), "annotation 0"),
    "COCO box of three": ("b.json", boxed([1, 1, 2]), "annotation 0: it has no bbox of four"),
    "COCO box of texts": ("b.json", boxed(["1", "1", "2", "2"]), "annotation 0"),
    "COCO negative side": ("b.json", boxed([1, 1, 2, 2], [5, 5, -1, 2]), "annotation 1: "),
    "COCO outside": ("b.json", boxed([30, 1, 5, 5]), "annotation 0: the box from 30, 1 to 35, 6"),
    "COCO overflow": ("b.json", boxed([1e308, 1, 1e308, 5]), "annotation 0: a corner"),
    "COCO without a class": (
        "b.json",
        coco({"image_id": 1, "bbox": [1, 1, 2, 2]}),
        "annotation 0: it has no category_id",
    ),
    "COCO many": ("b.json", boxed(*[[1, 1, 2, 2]] * 20_000), "more than 16384 boxes"),
    "GeoJSON": ("b.json", '{"type": "FeatureCollection", "features": []}', ""),
    "VOC cut": ("b.xml", VOC[:-20], "cannot read the boxes"),
    "VOC of another kind": ("b.xml", "<html/>", "not an annotation"),
    "VOC of another size": ("b.xml", VOC.replace(">30<", ">640<"), "20x640"),
    "VOC without a name": ("b.xml", VOC.replace("<name>leaf</name>", ""), "object 0: it has no"),
    "VOC without a corner": ("b.xml", VOC.replace("<xmin>1</xmin>", ""), "object 0: its bndbox"),
    "VOC corner of text": ("b.xml", VOC.replace(">9</xmax>", ">a</xmax>"), "object 0: its bndbox"),
    "VOC NaN": ("b.xml", VOC.replace(">9</xmax>", ">NaN</xmax>"), "object 0: a corner"),
    "VOC turned": ("b.xml", VOC.replace(">1</xmin>", ">10</xmin>"), "object 0: the box has no"),
    "VOC outside": (
        "b.xml",
        VOC.replace(">1</xmin>", ">31</xmin>").replace(">9</xmax>", ">40</xmax>"),
        "object 0: the box from 30",
    ),
    "VOC deep": ("b.xml", "<annotation>" + "<a>" * 1_000_000, "cannot read the boxes"),
    "VOC entities": ("b.xml", '<!DOCTYPE a [<!ENTITY b "c">]>' + VOC, "cannot read the boxes"),
    "YOLO of four": ("b.txt", "0 0.5 0.5 1\n", "line 1: it has 4 words"),
    "YOLO polygon": ("b.txt", "0 0.5 0.5 1 1\n0 0 0 1 0 1 1 0 1\n", "line 2: it has 9 words"),
    "YOLO in pixels": ("b.txt", "0 15 10 4 4\n", "line 1: the box is in pixels"),
    "YOLO NaN": ("b.txt", "0 nan 0.5 1 1\n", "line 1: a corner"),
    "YOLO without area": ("b.txt", "0 0.5 0.5 0 1\n", "line 1: the box has no area"),
    "YOLO negative class": ("b.txt", "-1 0.5 0.5 1 1\n", "line 1: "),
    "YOLO class as text": ("b.txt", "leaf 0.5 0.5 1 1\n", "line 1: "),
    "YOLO outside": ("b.txt", "0 1.9 0.5 0.1 0.1\n", "line 1: the box"),
    "YOLO huge class": ("b.txt", "99999999999999999999 0.5 0.5 1 1\n", "line 1: "),
    "binary": ("b.bin", "\udcff\udcfe\x00", "neither COCO"),
    "CSV without columns": ("b.csv", "a,b\n1,2\n", "its columns: a, b"),
    "CSV empty": ("b.csv", "", "no columns of boxes"),
    "CSV short row": ("b.csv", "x,y,w,h\n1,2,3,4\n1,2\n", "cannot read the table"),
    "CSV text": ("b.csv", "x,y,w,h\n1,2,a,4\n", "line 2: "),
    "CSV NaN": ("b.csv", "x,y,w,h\n1,2,3,4\n1,nan,3,4\n", "line 3: "),
    "CSV without a class": ("b.csv", "x,y,w,h,label\n1,2,3,4,\n", "line 2: "),
    "CSV without a picture": ("b.csv", "file,x,y,w,h\n,1,2,3,4\n", ""),
    "CSV binary": ("b.csv", "x,y,w,h\n\udcff,1,2,3\n", "UTF-8"),
    "CSV outside": ("b.csv", "x,y,w,h\n31,1,2,2\n", "line 2: the box from 31, 1 to 33, 3"),
}


@pytest.mark.parametrize("kind", BOXES)
def test_malformed_boxes_are_refused(hsipack: Hsipack, tmp_path: Path, kind: str) -> None:
    name, text, what = BOXES[kind]
    path = written(tmp_path, name, text)
    refused(hsipack, tmp_path, "--boxes", path, path, what)


def test_names_of_classes_are_checked(hsipack: Hsipack, tmp_path: Path) -> None:
    labels = written(tmp_path, "cube_000.txt", "3 0.5 0.5 1 1\n")
    names = written(tmp_path, "data.yaml", "names: [leaf, stem]\n")
    refused(
        hsipack, tmp_path, "--boxes", labels, labels, "line 1: there is no name for the class 3"
    )
    for text in ["names: leaf\n", "names: [leaf", "names:\n  99999999: leaf\n"]:
        names.write_text(text)
        refused(hsipack, tmp_path, "--boxes", labels, names, "names of classes")


@pytest.mark.parametrize("kind", ["coco", "labelme", "region"])
def test_many_corners_take_bounded_memory(
    hsipack: Hsipack, least_memory: int, tmp_path: Path, kind: str
) -> None:
    """60,000 corners with 80 MiB more than the program takes without them. Their edges also cross
    each other."""
    write_cubes(tmp_path, 1, (ROWS, COLUMNS, 2))
    random = np.random.default_rng(0)
    points = np.round(random.uniform(0, 20, (60_000, 2)), 2)
    match kind:
        case "coco":
            path = written(tmp_path, "gt.json", coco(drawn([points.ravel().tolist()])))
        case "labelme":
            path = written(tmp_path, "gt.json", shapes(shape(points.tolist())))
        case _:
            listed = " ".join(map(str, points.ravel().tolist()))
            text = XML.replace("0 0 3 0 3 3 0 0", listed)
            path = written(tmp_path, "gt.xml", text)
    done = hsipack.run(
        "convert", tmp_path / "cube_000.npy", "--mask", f"gt={path}", "-o", tmp_path / "out",
        "--threads", 2, memory=least_memory + (80 << 20),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_random_damage_never_panics(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path, 1, (ROWS, COLUMNS, 2))
    random = np.random.default_rng(11)
    compressed = {"size": [ROWS, COLUMNS], "counts": "m04500000`0"}
    files: list[tuple[str, str, str]] = [
        ("--mask", "a.json", coco(drawn(SQUARE), drawn(compressed))),
        ("--mask", "b.json", shapes(shape(CORNERS), shape(CORNERS[:2], "circle"))),
        ("--mask", "c.txt", ROI),
        ("--mask", "d.xml", XML),
        ("--boxes", "e.json", boxed([1, 1, 2, 2])),
        ("--boxes", "f.xml", VOC),
        ("--boxes", "g.txt", "0 0.5 0.5 1 1\n" * 3),
        ("--boxes", "h.csv", "file,x,y,w,h,label\ncube_000,1,2,3,4,leaf\n"),
    ]
    damage: list[Callable[[bytearray, int], None]] = [
        lambda data, at: data.__setitem__(at, int(random.integers(0, 256))),
        lambda data, at: data.__delitem__(slice(at, at + 3)),
        lambda data, at: data.__setitem__(slice(at, at), b"99999999999999999999"),
    ]
    for option, name, text in files:
        for number in range(9):
            data = bytearray(text.encode())
            for at in random.integers(20, len(data) - 8, number // 3 + 1):
                damage[number % 3](data, int(at))
            path = tmp_path / name
            path.write_bytes(data)
            out = tmp_path / f"out-{name}-{number}"
            value = f"gt={path}" if option == "--mask" else path
            words = ["convert", tmp_path / "cube_000.npy", option, value, "-o", out]
            done = hsipack.run(*words, memory=MEMORY)
            assert done.returncode in (0, 1), done.stderr
            assert "panicked" not in done.stderr
