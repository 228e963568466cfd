"""Bounding boxes (COCO, Pascal VOC, YOLO, CSV) as columns of the samples."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers import Hsipack, samples, write_cubes

SHAPE = (40, 60)
CLASSES = ["leaf", "stem", "root"]
Objects = list[tuple[list[int], str]]


def objects(seed: int, count: int) -> dict[str, Objects]:
    """Whole pixels [x_min, y_min, x_max, y_max] and classes, by names of cubes."""
    random = np.random.default_rng(seed)
    made: dict[str, Objects] = {}
    for cube in range(count):
        made[f"cube_{cube:03}"] = []
        for _ in range(cube % 4):
            x, y = (int(random.integers(0, side - 8)) for side in reversed(SHAPE))
            width, height = (int(side) for side in random.integers(1, 8, 2))
            label = str(random.choice(CLASSES))
            made[f"cube_{cube:03}"].append(([x, y, x + width, y + height], label))
    return made


def write_coco(folder: Path, made: dict[str, Objects]) -> Path:
    images, annotations = [], []
    for number, (name, own) in enumerate(made.items()):
        images.append({"id": number, "file_name": f"{name}.jpg", "height": 40, "width": 60})
        for (x, y, far_x, far_y), label in own:
            box = [x, y, far_x - x, far_y - y]
            category = CLASSES.index(label) * 10
            annotations.append({"image_id": number, "category_id": category, "bbox": box})
    crowd = {"image_id": 0, "category_id": 0, "bbox": [0, 0, 60, 40], "iscrowd": 1}
    categories = [{"id": number * 10, "name": name} for number, name in enumerate(CLASSES)]
    whole = {"images": images, "annotations": [*annotations, crowd], "categories": categories}
    path = folder / "instances.json"
    path.write_text(json.dumps(whole))
    return path


def write_voc(folder: Path, made: dict[str, Objects]) -> str:
    for name, own in made.items():
        root = ElementTree.Element("annotation")
        ElementTree.SubElement(root, "filename").text = f"{name}.jpg"
        size = ElementTree.SubElement(root, "size")
        for side, pixels in [("width", 60), ("height", 40), ("depth", 3)]:
            ElementTree.SubElement(size, side).text = str(pixels)
        for (x, y, far_x, far_y), label in own:
            one = ElementTree.SubElement(root, "object")
            ElementTree.SubElement(one, "name").text = label
            box = ElementTree.SubElement(one, "bndbox")
            # Pixels are counted from 1, and the last ones are inside.
            for key, at in [("xmin", x + 1), ("ymin", y + 1), ("xmax", far_x), ("ymax", far_y)]:
                ElementTree.SubElement(box, key).text = str(at)
        ElementTree.ElementTree(root).write(folder / f"{name}.xml")
    return "{dir}/{stem}.xml"


def write_yolo(folder: Path, made: dict[str, Objects]) -> str:
    labels = folder / "labels/train"
    labels.mkdir(parents=True)
    names = "\n".join(f"  {number}: {name}" for number, name in enumerate(CLASSES))
    (folder / "data.yaml").write_text(f"train: images\nnames:\n{names}\n")
    for name, own in made.items():
        lines = []
        for (x, y, far_x, far_y), label in own:
            center = (x + far_x) / 2 / 60, (y + far_y) / 2 / 40
            sides = (far_x - x) / 60, (far_y - y) / 40
            numbers = " ".join(f"{number:.9f}" for number in [*center, *sides])
            lines.append(f"{CLASSES.index(label)} {numbers}\n")
        (labels / f"{name}.txt").write_text("".join(lines))
    return "{dir}/labels/train/{stem}.txt"


def write_csv(folder: Path, made: dict[str, Objects]) -> Path:
    path = folder / "boxes.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        head = ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"]
        writer.writerow(head)
        for name, own in made.items():
            for box, label in own:
                writer.writerow([f"{name}.jpg", 60, 40, label, *box])
    return path


def write_csv_each(folder: Path, made: dict[str, Objects]) -> str:
    for name, own in made.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file, delimiter=";")
            writer.writerow(["label", "x", "y", "w", "h"])
            for (x, y, far_x, far_y), label in own:
                writer.writerow([label, x, y, far_x - x, far_y - y])
    return "{dir}/{stem}.csv"


def write_tsv_of_ids(folder: Path, made: dict[str, Objects]) -> str:
    """A table in which another column says the classes, as whole numbers."""
    path = folder / "ids.tsv"
    lines = ["image\tx1\ty1\tx2\ty2\tspecies"]
    for name, own in made.items():
        for box, label in own:
            lines.append("\t".join(map(str, [name, *box, CLASSES.index(label)])))
    path.write_text("\n".join(lines))
    return f"{path}::species"


WRITERS: list[Callable[[Path, dict[str, Objects]], Any]] = [
    write_coco,
    write_voc,
    write_yolo,
    write_csv,
    write_csv_each,
    write_tsv_of_ids,
]


@pytest.mark.parametrize("write", WRITERS)
def test_boxes_are_columns_of_samples(
    hsipack: Hsipack, tmp_path: Path, write: Callable[[Path, dict[str, Objects]], Any]
) -> None:
    made = objects(1, 7)
    write_cubes(tmp_path, 7, (*SHAPE, 2))
    boxes = write(tmp_path, made)
    out, parts, grown = tmp_path / "out", tmp_path / "parts", tmp_path / "grown"
    words = [tmp_path / "*.npy", "--boxes", boxes]
    hsipack.convert(*words, out=out)
    for sample in samples(out):
        own = made[sample["name"]]
        assert np.allclose(
            np.array(sample["boxes"]).reshape(-1, 4),
            np.array([box for box, _ in own]).reshape(-1, 4),
            atol=1e-6,
        )
        names = [label for _, label in own]
        by_id = write is write_tsv_of_ids
        assert sample["box_labels"] == ([CLASSES.index(name) for name in names] if by_id else names)
        assert all(isinstance(at, float) for box in sample["boxes"] for at in box)
    assert hsipack.run("validate", out, "--source").returncode == 0
    # Several processes, and cubes one after the other, give the same columns.
    plan = tmp_path / "plan.json"
    for step in [
        ["convert", *words, "-o", parts, "--plan", plan],
        ["work", plan, "--part", "1/2"],
        ["work", plan, "--part", "2/2"],
        ["commit", plan],
    ]:
        done = hsipack.run(*step)
        assert done.returncode == 0, done.stderr
    for number in range(1, 7):
        mode = ["--append"] if number > 1 else []
        cube = tmp_path / f"cube_{number:03}.npy"
        hsipack.convert(cube, "--boxes", boxes, *mode, out=grown)
    columns = {one["name"]: (one["boxes"], one["box_labels"]) for one in samples(out)}
    for dataset in [parts, grown]:
        for one in samples(dataset):
            assert (one["boxes"], one["box_labels"]) == columns[one["name"]]
    merged = tmp_path / "merged"
    (tmp_path / "more").mkdir()
    write_cubes(tmp_path / "more", 1, (*SHAPE, 3), first=20)
    hsipack.convert(tmp_path / "more", out=tmp_path / "other")
    done = hsipack.run("merge", out, tmp_path / "other", "-o", merged)
    assert done.returncode == 0, done.stderr
    with_boxes = [one for one in samples(merged) if "boxes" in one]
    assert {one["name"]: (one["boxes"], one["box_labels"]) for one in with_boxes} == columns
    done = hsipack.run("info", out, "--json")
    count = sum(map(len, made.values()))
    report = json.loads(done.stdout)["boxes"]
    assert (report["boxes"], report["samples"]) == (count, sum(map(bool, made.values())))
    assert sum(report["labels"].values()) == count
    assert f"{count} boxes in {report['samples']} samples: " in hsipack.run("info", out).stdout


def test_cubes_that_no_file_lists(hsipack: Hsipack, tmp_path: Path) -> None:
    made = objects(1, 4)
    write_cubes(tmp_path / "in", 5, (*SHAPE, 2))
    cubes = tmp_path / "in"
    file = write_coco(tmp_path, made)
    pattern = write_voc(tmp_path / "in", made)
    for boxes, named in [(str(file), file), (pattern, cubes / "cube_004.npy")]:
        message = hsipack.refuse(cubes, "--boxes", boxes, out=tmp_path / "no", names=named)
        assert "--unlisted keep" in message
        keep, skip = (tmp_path / f"{rule}-{Path(boxes).suffix}" for rule in ("keep", "skip"))
        hsipack.convert(cubes, "--boxes", boxes, "--unlisted", "keep", out=keep)
        last = samples(keep)[4]
        assert last["boxes"] is None
        assert last["box_labels"] is None
        assert hsipack.run("info", keep).returncode == 0
        report = hsipack.convert(cubes, "--boxes", boxes, "--unlisted", "skip", out=skip)
        assert len(samples(skip)) == 4
        assert "one input is left out: no file has its boxes" in report["notes"]
    # A table has a row for each box, so other cubes have no boxes.
    table = write_csv(tmp_path, {"cube_002": made["cube_002"], "x": made["cube_003"]})
    report = hsipack.convert(cubes, "--boxes", table, out=tmp_path / "table")
    counts = [len(one["boxes"]) for one in samples(tmp_path / "table")]
    assert counts == [0, 0, 2, 0, 0]
    assert any("one picture matches no input: x.jpg" in note for note in report["notes"])
    table = write_csv(tmp_path, {"x": made["cube_003"]})
    message = hsipack.refuse(cubes, "--boxes", table, out=tmp_path / "no", names=table)
    assert "its pictures: x.jpg" in message


def test_a_table_of_several_cubes_names_their_pictures(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2, (*SHAPE, 2))
    table = tmp_path / "boxes.csv"
    rows = "LabelName,XMin,XMax,YMin,YMax\ncube_000,leaf,1,5,2,4\ncube_001,stem,3,9,6,8\n"
    table.write_text(f"ImageID,{rows}")
    hsipack.convert(tmp_path / "in", "--boxes", table, out=tmp_path / "out")
    assert [one["boxes"] for one in samples(tmp_path / "out")] == [[[1, 2, 5, 4]], [[3, 6, 9, 8]]]
    assert [one["box_labels"] for one in samples(tmp_path / "out")] == [["leaf"], ["stem"]]
    table.write_text(f"scan,{rows}")
    words = ["--boxes", table]
    message = hsipack.refuse(tmp_path / "in", *words, out=tmp_path / "no", names=table)
    assert "the table of 2 cubes; its columns: scan, LabelName, XMin" in message
    assert "`image`" in message
    hsipack.convert(tmp_path / "in" / "cube_000.npy", *words, out=tmp_path / "one")
    assert len(samples(tmp_path / "one")[0]["boxes"]) == 2


@pytest.mark.parametrize(
    ("box", "what"),
    [
        ([60, 0, 70, 10], "outside of the cube of 60 x 40 pixels"),
        ([-9, -9, 0, 5], "outside"),
        ([5, 5, 5, 9], "no area"),
        ([5, 9, 6, 2], "no area"),
        (["nan", 0, 5, 5], "not a finite number"),
        (["inf", 0, 5, 5], "not a finite number"),
        (["x", 0, 5, 5], "not a number"),
    ],
)
def test_wrong_boxes_are_refused(
    hsipack: Hsipack, tmp_path: Path, box: list[Any], what: str
) -> None:
    write_cubes(tmp_path / "in", 1, (*SHAPE, 2))
    file = write_csv(tmp_path, {"cube_000": [([0, 0, 5, 5], "leaf"), (box, "leaf")]})
    message = hsipack.refuse(tmp_path / "in", "--boxes", file, out=tmp_path / "no", names=file)
    assert what in message
    assert "line 3" in message


def test_tables_for_pictures_of_another_size_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1, (*SHAPE, 2))
    file = tmp_path / "boxes.csv"
    head = "filename,width,height,class,xmin,ymin,xmax,ymax"
    file.write_text(f"{head}\ncube_000.jpg,60,40,leaf,1,2,5,4\n")
    hsipack.convert(tmp_path / "in", "--boxes", file, out=tmp_path / "out")
    for row, what in [
        ("640,480,leaf,1,2,5,4", "of 480x640 pixels (rows x columns), but the cube has 40x60"),
        ("60,40,leaf,0.1,0.2,0.5,1", "in fractions of the picture"),
    ]:
        file.write_text(f"{head}\ncube_000.jpg,{row}\n")
        message = hsipack.refuse(tmp_path / "in", "--boxes", file, out=tmp_path / "no", names=file)
        assert what in message


def test_boxes_partly_outside_are_kept(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1, (*SHAPE, 2))
    box = [-3.5, -2, 99, 0.25]
    file = tmp_path / "boxes.csv"
    file.write_text("file,left,top,right,bottom\ncube_000.png," + ",".join(map(str, box)))
    hsipack.convert(tmp_path / "in", "--boxes", file, out=tmp_path / "out")
    (sample,) = samples(tmp_path / "out")
    assert sample["boxes"] == [box]
    assert sample["box_labels"] == [1]


def test_boxes_are_given_once(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1, (*SHAPE, 2))
    table = tmp_path / "table.csv"
    table.write_text("name,boxes\ncube_000,3\n")
    file = write_csv(tmp_path, objects(1, 1) | {"cube_000": [([0, 0, 1, 1], "leaf")]})
    words = [tmp_path / "in", "--boxes", file, "--table", table]
    message = hsipack.refuse(*words, out=tmp_path / "no", names="")
    assert "'boxes' is given twice" in message or '"boxes" is given twice' in message
