"""COCO annotations as masks, compared with pycocotools."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Hsipack, attributes, read_zarr, samples, write_cubes
from numpy.typing import NDArray
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

# pycocotools 2.0.11 was written for NumPy 1.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
SHAPE = (37, 53)
CATEGORIES = [{"id": 7, "name": "leaf"}, {"id": 300, "name": "stem"}, {"id": 2, "name": "root"}]
Annotation = dict[str, Any]


def polygon(random: np.random.Generator, grid: float | None) -> list[float]:
    """Corners around a random place, some outside. With `grid`, they are multiples of it."""
    rows, columns = SHAPE
    corners = int(random.integers(3, 12))
    middle = random.uniform([-10, -10], [columns + 10, rows + 10])
    points = middle + random.uniform(-1, 1, (corners, 2)) * random.uniform(0.3, 40)
    if grid is not None:
        points = np.round(points / grid) * grid
    if random.random() < 0.2:
        points[1] = points[0]
    if random.random() < 0.3:
        points[2, random.integers(2)] = points[1, random.integers(2)]
    flat: list[float] = points.ravel().tolist()
    return flat


def segmentation(random: np.random.Generator, number: int, grid: float | None) -> Any:
    rows, columns = SHAPE
    match number % 5:
        case 0 | 1:
            return [polygon(random, grid) for _ in range(random.integers(1, 4))]
        case 2:
            return [polygon(random, grid)]
        case _:
            blobs = random.random(SHAPE) < random.choice([0.02, 0.5, 0.98])
            if number % 2:
                blobs = np.repeat(np.repeat(blobs, 9, 0), 9, 1)[:rows, :columns]
            encoded = coco_mask.encode(np.asfortranarray(blobs.astype(np.uint8)))
            if number % 5 == 3:
                return {"size": [rows, columns], "counts": encoded["counts"].decode()}
            flat = blobs.ravel(order="F")
            ends = np.flatnonzero(np.diff(flat)) + 1
            lengths = np.diff(np.concatenate([[0], ends, [flat.size]])).tolist()
            return {"size": [rows, columns], "counts": [0, *lengths] if flat[0] else lengths}


def write_annotations(
    path: Path, images: list[dict[str, Any]], annotations: list[Annotation], **members: Any
) -> Path:
    whole = {
        "type": "instances",
        "info": {"year": 2026},
        "images": images,
        "categories": CATEGORIES,
    }
    whole |= {"annotations": annotations} | members
    path.write_text(json.dumps(whole))
    return path


def image(number: int, name: str, shape: tuple[int, int] = SHAPE) -> dict[str, Any]:
    return {"id": number, "file_name": name, "height": shape[0], "width": shape[1]}


def annotated(coco: COCO, number: int) -> NDArray[np.uint16]:
    """The mask of an image, whose later annotations cover the earlier ones."""
    mask = np.zeros(SHAPE, np.uint16)
    for one in coco.loadAnns(coco.getAnnIds(imgIds=[number])):
        if one["segmentation"]:
            mask[coco.annToMask(one) > 0] = one["category_id"]
    return mask


@pytest.mark.parametrize("grid", [None, 1, 0.5, 0.2, 0.1])
def test_annotations_equal_pycocotools_pixel_by_pixel(
    hsipack: Hsipack, tmp_path: Path, grid: float | None
) -> None:
    random = np.random.default_rng(5)
    count = 60
    write_cubes(tmp_path / "in", count, (*SHAPE, 2))
    images = [image(number, f"photos/cube_{number:03}.png") for number in range(count)]
    annotations = [
        {
            "id": number,
            "image_id": number % count,
            "category_id": int(random.choice([2, 7, 300])),
            "iscrowd": int(number % 5 > 2),
            "bbox": [0, 0, 1, 1],
            "segmentation": segmentation(random, number // 2, grid),
        }
        for number in range(240)
    ]
    file = write_annotations(tmp_path / "instances.json", images, annotations)
    out = tmp_path / "out"
    hsipack.convert(tmp_path / "in", "--mask", f"gt={file}", out=out)
    coco = COCO(str(file))
    found = read_zarr(out, array="gt")
    for place, sample in enumerate(samples(out)):
        want = annotated(coco, int(sample["name"][-3:]))
        assert np.array_equal(found[place], want), (sample["name"], (found[place] != want).sum())
    assert found.any()
    assert found.dtype == np.uint16
    names = attributes(out, array="gt")["hsipack"]["class_names"]
    assert [names[number] for number in (2, 7, 300)] == ["root", "leaf", "stem"]
    assert hsipack.run("validate", out, "--source").returncode == 0


def test_categories_by_name_are_classes_of_all_files(hsipack: Hsipack, tmp_path: Path) -> None:
    """Files may number their categories differently, also from 0."""
    square = [[2.0, 2.0, 9.0, 2.0, 9.0, 9.0, 2.0, 9.0]]
    for folder, categories in [("a", ["pine", "oak"]), ("b", ["oak", "ash"])]:
        write_cubes(tmp_path / "in" / folder, 2, (*SHAPE, 2))
        listed = [{"id": number, "name": name} for number, name in enumerate(categories)]
        write_annotations(
            tmp_path / "in" / folder / "_annotations.coco.json",
            [image(9, "cube_000.png"), image(4, "cube_001.png")],
            [{"image_id": 4, "category_id": 0, "segmentation": square}],
            categories=listed,
        )
    pattern = "{dir}/_annotations.coco.json"
    message = hsipack.refuse(
        tmp_path / "in", "--mask", f"gt={pattern}", out=tmp_path / "no", names=tmp_path / "in/a"
    )
    assert "the category 0" in message
    assert "::name" in message
    out = tmp_path / "out"
    hsipack.convert(tmp_path / "in", "--mask", f"gt={pattern}::name", out=out)
    assert attributes(out, array="gt")["hsipack"]["class_names"] == ["", "ash", "oak", "pine"]
    masks = dict(
        zip([one["name"] for one in samples(out)], read_zarr(out, array="gt"), strict=True)
    )
    assert set(np.unique(masks["a/cube_001"])) == {0, 3}
    assert set(np.unique(masks["b/cube_001"])) == {0, 2}
    assert not masks["a/cube_000"].any()
    assert not masks["b/cube_000"].any()
    assert hsipack.run("validate", out, "--source").returncode == 0


def test_entries_and_cubes_that_do_not_match_are_named(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 3, (*SHAPE, 2))
    square = [[2.0, 2.0, 9.0, 2.0, 9.0, 9.0, 2.0, 9.0]]
    file = write_annotations(
        tmp_path / "gt.json",
        [image(1, "cube_001.png"), image(2, "cube_002.png"), image(3, "x.png"), image(4, "y.png")],
        [{"image_id": 1, "category_id": 7, "segmentation": square}],
    )
    mask = ["--mask", f"gt={file}"]
    message = hsipack.refuse(tmp_path / "in", *mask, out=tmp_path / "no", names=file)
    assert 'no entry for the cube "cube_000"' in message
    assert "cube_001.png, cube_002.png" in message
    report = hsipack.convert(tmp_path / "in", *mask, "--mask-fill", 0, out=tmp_path / "filled")
    assert any("2 pictures match no input: x.png, y.png" in note for note in report["notes"])
    named = ["--name", "other_{stem}"]
    message = hsipack.refuse(
        tmp_path / "in/cube_000.npy", *mask, *named, out=tmp_path / "no", names=file
    )
    assert "--name" in message
    # An entry means one cube only.
    write_cubes(tmp_path / "two/a", 1, (*SHAPE, 2))
    write_cubes(tmp_path / "two/b", 1, (*SHAPE, 2))
    file = write_annotations(tmp_path / "one.json", [image(1, "cube_000.png")], [])
    message = hsipack.refuse(
        tmp_path / "two", "--mask", f"gt={file}", out=tmp_path / "no", names=file
    )
    assert '"cube_000.png" may mean several cubes' in message


def test_plans_and_appends_read_annotations(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 4, (*SHAPE, 2))
    random = np.random.default_rng(2)
    file = write_annotations(
        tmp_path / "gt.json",
        [image(number, f"cube_{number:03}.tif") for number in range(4)],
        [
            {"image_id": n % 4, "category_id": 7, "segmentation": segmentation(random, n, None)}
            for n in range(20)
        ],
    )
    whole, parts, grown = tmp_path / "whole", tmp_path / "parts", tmp_path / "grown"
    words = [tmp_path / "in", "--mask", f"gt={file}"]
    hsipack.convert(*words, out=whole)
    plan = tmp_path / "plan.json"
    for step in [
        ["convert", *words, "-o", parts, "--plan", plan],
        ["work", plan, "--part", "1/2"],
        ["work", plan, "--part", "2/2"],
        ["commit", plan],
    ]:
        done = hsipack.run(*step)
        assert done.returncode == 0, done.stderr
    for number in range(4):
        cube = tmp_path / f"in/cube_{number:03}.npy"
        mode = ["--append"] if number else []
        hsipack.convert(cube, "--mask", f"gt={file}", *mode, out=grown)
    want = read_zarr(whole, array="gt")
    assert np.array_equal(read_zarr(parts, array="gt"), want)
    assert np.array_equal(read_zarr(grown, array="gt"), want)
    for dataset in [parts, grown]:
        assert hsipack.run("validate", dataset, "--source").returncode == 0


def test_boxes_that_are_not_drawn_are_noted(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2, (*SHAPE, 2))
    square = [[2.0, 2.0, 9.0, 2.0, 9.0, 9.0, 2.0, 9.0]]
    write_annotations(
        tmp_path / "in" / "a.json",
        [image(1, "cube_000.png"), image(2, "cube_001.png")],
        [
            {"image_id": 1, "category_id": 1, "bbox": [1, 1, 4, 4]},
            {"image_id": 1, "category_id": 1, "bbox": [2, 2, 4, 4]},
            {"image_id": 2, "category_id": 1, "segmentation": square},
        ],
        categories=[{"id": 1, "name": "pine"}],
    )
    mask = "gt={dir}/a.json::name"
    report = hsipack.convert(tmp_path / "in", "--mask", mask, out=tmp_path / "out")
    said = "\n".join(report["notes"])
    assert "cube_000.npy: annotations of mask gt that are only boxes, and not drawn: 2" in said
    assert "--boxes" in said
    assert "cube_001.npy: annotations" not in said
