"""Boxes around objects: cut like images, and moved like pixels."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path
from typing import Any

import hsipack
import hsipack_command
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hsipack import augment as aug

ROWS, COLUMNS, BANDS, SAMPLES = 40, 56, 3, 5
Numbers = npt.NDArray[Any]


def boxes_of(number: int, rows: int = ROWS, columns: int = COLUMNS) -> list[list[float]]:
    """Boxes with whole numbers, as many as the sample's number says."""
    rng = np.random.default_rng(number)
    boxes = []
    for _ in range(number):
        left, top = int(rng.integers(0, columns - 4)), int(rng.integers(0, rows - 4))
        right = left + int(rng.integers(3, columns - left + 1))
        bottom = top + int(rng.integers(3, rows - top + 1))
        boxes.append([left, top, right, bottom])
    return boxes


def labels_of(number: int) -> list[str]:
    return [("wheat", "barley", "oat")[place % 3] for place in range(number)]


def pack(path: Path, samples: list[dict[str, Any]], seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    hsipack.pack(
        (
            (f"c{number}", rng.random((ROWS, COLUMNS, BANDS), dtype=np.float32), sample)
            for number, sample in enumerate(samples)
        ),
        path,
    )
    return path


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("boxes") / "packed.hsipack"
    return pack(path, [{"boxes": boxes_of(n), "box_labels": labels_of(n)} for n in range(SAMPLES)])


def cut(boxes: Any, window: Any, share: float = 0.0) -> tuple[Numbers, list[int]]:
    """The parts of boxes inside a window, and which boxes they are."""
    row, column, rows, columns = (int(number) for number in window)
    parts, which = [], []
    for place, (left, top, right, bottom) in enumerate(boxes):
        part = [
            max(left - column, 0),
            max(top - row, 0),
            min(right - column, columns),
            min(bottom - row, rows),
        ]
        area = max(part[2] - part[0], 0) * max(part[3] - part[1], 0)
        if area > 0 and area / ((right - left) * (bottom - top)) >= share:
            parts.append(part)
            which.append(place)
    return np.array(parts, dtype=np.float32).reshape(-1, 4), which


def test_samples_have_their_boxes(packed: Path) -> None:
    ds = hsipack.open(packed)
    assert ds.box_names == ["barley", "oat", "wheat"]
    for number in range(SAMPLES):
        sample = ds[number]
        assert sample["boxes"].dtype == torch.float32
        assert sample["boxes"].shape == (number, 4)
        assert sample["boxes"].tolist() == boxes_of(number)
        assert [ds.box_names[label] for label in sample["box_labels"]] == labels_of(number)
    again = pickle.loads(pickle.dumps(ds.select([4, 2])))
    assert [len(again[place]["boxes"]) for place in range(2)] == [4, 2]
    images = [{"boxes": [[-4, 30, 8, 50]], "box_labels": [1]}]
    beyond = hsipack.open(pack(packed.with_name("beyond.hsipack"), images))
    assert beyond[0]["boxes"].tolist() == [[0, 30, 8, 40]]
    part = ds.read(4, slice(5, 30), slice(10, 50))
    want, which = cut(boxes_of(4), (5, 10, 25, 40))
    assert np.array_equal(part["boxes"], want)
    names = [labels_of(4)[place] for place in which]
    assert [ds.box_names[label] for label in part["box_labels"]] == names


@pytest.mark.parametrize(
    "crop",
    [
        None,
        hsipack.RandomCrop((16, 24)),
        hsipack.CenterCrop((20, 20)),
        hsipack.GridCrop((16, 16), overlap=4, pad="reflect"),
    ],
    ids=["whole", "random", "center", "grid"],
)
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_batches_have_boxes_in_their_windows(packed: Path, crop: Any, share: float) -> None:
    seen = 0
    with hsipack.Loader(packed, 3, crop=crop, shuffle=True, seed=2, min_visible=share) as loader:
        names = loader.dataset.box_names
        for _ in range(20):
            for batch in loader:
                assert len(batch["boxes"]) == len(batch["box_labels"]) == len(batch["id"])
                for place, sample in enumerate(batch["id"].tolist()):
                    want, which = cut(boxes_of(sample), batch["window"][place], share)
                    assert batch["boxes"][place].dtype == torch.float32
                    assert np.array_equal(batch["boxes"][place], want)
                    labels = [names[label] for label in batch["box_labels"][place].tolist()]
                    assert labels == [labels_of(sample)[one] for one in which]
                    seen += len(want)
    assert seen > 10


def test_boxes_can_be_left_out(packed: Path) -> None:
    ds = hsipack.open(packed)
    assert "boxes" not in ds.with_boxes(False)[3]
    with hsipack.Loader(ds, 2, boxes=False, augment=[aug.RandomJigsaw((2, 2), p=1.0)]) as loader:
        assert all("boxes" not in batch and "box_labels" not in batch for batch in loader)
    with hsipack.Loader(ds, 2, output="numpy") as loader:
        batch = next(iter(loader))
        assert isinstance(batch["boxes"][1], np.ndarray)
    # The columns are in the batches anyway.
    assert len(ds.select(columns=["boxes", "box_labels"])[3]["boxes"]) == 3
    with pytest.raises(hsipack.ConflictError, match="min_visible"):
        ds.with_boxes(min_visible=1.5)


GEOMETRIC: dict[str, list[Any]] = {
    "flips": [aug.RandomHorizontalFlip(0.7), aug.RandomVerticalFlip(0.7)],
    "turns": [aug.RandomRotation90((0, 3), p=1.0), aug.Resize((ROWS, COLUMNS))],
    "rotation": [aug.RandomRotation(40.0, p=1.0)],
    "affine": [aug.RandomAffine(30.0, translate=(0.2, 0.2), scale=(0.7, 1.3), shear=10.0, p=1.0)],
    "perspective": [aug.RandomPerspective(0.4, p=1.0)],
    "crop": [aug.RandomCrop((24, 30))],
    "padded crop": [aug.RandomCrop((48, 64), pad_if_needed=True)],
    "center": [aug.CenterCrop((24, 30))],
    "resized crop": [aug.RandomResizedCrop((32, 32), align_corners=False)],
    "resize": [aug.Resize((60, 30), align_corners=False)],
    "pad": [aug.PadTo((50, 70))],
    "elastic": [aug.RandomElasticTransform(sigma=(6.0, 6.0), alpha=(2.0, 2.0), p=1.0)],
    "several": [
        aug.RandomHorizontalFlip(0.5),
        aug.RandomAffine(20.0, scale=(0.8, 1.1), p=0.8),
        aug.RandomCrop((30, 40)),
        aug.RandomRotation(15.0, p=0.7),
    ],
}


def painted(boxes: list[list[list[int]]]) -> Numbers:
    """A mask with a layer for each box, which shows the pixels inside."""
    most = max(len(one) for one in boxes)
    layers = np.zeros((len(boxes), most, ROWS, COLUMNS), dtype=np.bool_)
    for sample, of_sample in enumerate(boxes):
        for layer, (left, top, right, bottom) in enumerate(of_sample):
            layers[sample, layer, top:bottom, left:right] = True
    return layers


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", GEOMETRIC)
def test_boxes_move_as_pixels_do(name: str, fuse: bool) -> None:
    samples = 24
    boxes: list[list[list[int]]] = [boxes_of(1 + number % 4) for number in range(samples)]  # type: ignore[misc]
    pipeline = aug.AugmentationSequential(*GEOMETRIC[name], seed=7, fuse=fuse)
    batch = pipeline(
        {
            "image": np.zeros((samples, 1, ROWS, COLUMNS), np.float32),
            "layers": painted(boxes),
            "boxes": [np.array(one, dtype=np.float32) for one in boxes],
            "box_labels": [list(range(len(one))) for one in boxes],
        }
    )
    rows, columns = batch["image"].shape[2:]
    inside = 0
    for sample in range(samples):
        left = dict(zip(batch["box_labels"][sample], batch["boxes"][sample], strict=True))
        for layer in range(len(boxes[sample])):
            down, across = np.nonzero(batch["layers"][sample, layer])
            if layer not in left:
                # Nothing of it is left, or a strip narrower than a pixel.
                assert len(down) == 0 or min(np.ptp(down), np.ptp(across)) <= 1
                continue
            box = left[layer].tolist()
            assert 0 <= box[0] < box[2] <= columns
            assert 0 <= box[1] < box[3] <= rows
            if len(down) == 0:
                assert min(box[2] - box[0], box[3] - box[1]) < 1.5 or not well_inside(
                    box, rows, columns
                )
                continue
            around = [across.min(), down.min(), across.max() + 1, down.max() + 1]
            # It holds all pixels of the object, up to rounding of their places …
            missing = [
                around[0] - box[0],
                around[1] - box[1],
                box[2] - around[2],
                box[3] - around[3],
            ]
            assert min(missing) > -1.01
            if well_inside(box, rows, columns):
                # … and no more, if no part of it was cut off.
                assert np.abs(np.subtract(box, around)).max() < 2.01, (box, around)
                inside += 1
    assert inside > 3


def well_inside(box: list[float], rows: int, columns: int) -> bool:
    return box[0] > 1 and box[1] > 1 and box[2] < columns - 1 and box[3] < rows - 1


def test_exact_moves_are_exact() -> None:
    boxes = np.array([[3, 5, 20, 11], [0, 0, COLUMNS, ROWS]], dtype=np.float32)
    image = np.zeros((1, ROWS, COLUMNS), np.float32)
    sample = {"image": image, "boxes": boxes, "box_labels": np.array([4, 7])}
    flip = aug.AugmentationSequential(aug.RandomHorizontalFlip(1.0))
    assert flip(sample)["boxes"].tolist() == [[36, 5, 53, 11], [0, 0, COLUMNS, ROWS]]
    assert sample["boxes"] is boxes
    crop = aug.AugmentationSequential(aug.CenterCrop((10, 10)))
    assert crop(sample)["boxes"].tolist() == [[0, 0, 10, 10]]
    assert crop(sample)["box_labels"].tolist() == [7]
    again = flip.replay({**sample, "boxes": torch.from_numpy(boxes)})
    assert isinstance(again["boxes"], torch.Tensor)
    assert again["boxes"].tolist() == [[36, 5, 53, 11], [0, 0, COLUMNS, ROWS]]


def test_a_loader_moves_boxes_as_its_augmentations_move_images(packed: Path) -> None:
    augment = [*GEOMETRIC["several"], aug.RandomErasing(p=0.5), aug.RandomMixUpV2(p=0.5)]
    with (
        hsipack.Loader(packed, 3, crop=(32, 44), seed=4, shuffle=True) as plain,
        hsipack.Loader(packed, 3, crop=(32, 44), seed=4, shuffle=True, augment=augment) as moved,
    ):
        pipeline = aug.AugmentationSequential(*augment, seed=4)
        total = 0
        for epoch in range(3):
            for before, after in zip(plain, moved, strict=True):
                want = pipeline(before, epoch=epoch)
                for key in ("boxes", "box_labels"):
                    for one, other in zip(want[key], after[key], strict=True):
                        # Boxes of the loader were not rounded to float32 in between.
                        assert torch.allclose(one, other, atol=1e-4)
                        total += len(one)
        assert total > 20


@pytest.mark.parametrize(
    "op", [aug.RandomJigsaw((2, 2), p=1.0), aug.RandomCutMixV2(p=1.0)], ids=["jigsaw", "cutmix"]
)
def test_augmentations_that_move_no_boxes_are_refused(packed: Path, op: Any) -> None:
    with pytest.raises(hsipack.UnsupportedError, match="boxes cannot follow"):
        hsipack.Loader(packed, 2, augment=[op])
    sample = hsipack.open(packed)[2]
    with pytest.raises(hsipack.UnsupportedError, match="boxes cannot follow"):
        aug.AugmentationSequential(op)(sample)


def test_several_datasets_share_names_of_classes(packed: Path, tmp_path: Path) -> None:
    others = [
        {"boxes": [[1, 1, 9, 9], [4, 4, 20, 20]], "box_labels": ["rye", "barley"]},
        {"boxes": None, "box_labels": None},
    ]
    other = pack(tmp_path / "other.hsipack", others, seed=1)
    plain = pack(tmp_path / "plain.hsipack", [{"age": 1}], seed=2)
    joined = hsipack.concat([packed, other, plain])
    assert joined.box_names == ["barley", "oat", "rye", "wheat"]
    assert joined[SAMPLES]["box_labels"].tolist() == [2, 0]
    found = {}
    for batch in hsipack.Loader(joined, 1):
        labels = batch["box_labels"][0].tolist()
        found[batch["dataset"], int(batch["id"])] = [joined.box_names[one] for one in labels]
        assert batch["boxes"][0].shape == (len(labels), 4)
    assert found[1, 0] == ["rye", "barley"]
    assert found[1, 1] == found[2, 0] == []
    assert found[0, 4] == labels_of(4)


def test_classes_may_be_numbers_or_absent(tmp_path: Path) -> None:
    samples = [
        {"boxes": [[1, 2, 3.5, 4], [0, 0, 5, 5]], "box_labels": [17, None]},
        {"boxes": [[1, 2, 3, 4]], "box_labels": None},
    ]
    ds = hsipack.open(pack(tmp_path / "numbers.hsipack", samples))
    assert ds.box_names == []
    assert [ds[place]["box_labels"].tolist() for place in range(2)] == [[17, -1], [-1]]


def test_columns_that_are_no_boxes(tmp_path: Path) -> None:
    own = hsipack.open(pack(tmp_path / "own.hsipack", [{"boxes": 3}, {"boxes": 5}]))
    assert "boxes" not in own[0]
    assert own.select(columns="boxes")[1]["boxes"] == 5
    info = subprocess.run(
        [hsipack_command.PROGRAM, "info", own.path, "--json"], capture_output=True, check=True
    )
    assert "boxes" not in json.loads(info.stdout)
    wrong = pack(tmp_path / "wrong.hsipack", [{"boxes": [[1, 2, 3, 4]], "box_labels": ["a", "b"]}])
    with pytest.raises(hsipack.ConflictError, match=r'"c0" has 1 boxes.*not a list of as many'):
        hsipack.open(wrong)[0]
    empty = pack(tmp_path / "empty.hsipack", [{"boxes": [[1, 2, 1, 4]], "box_labels": ["a"]}])
    with pytest.raises(hsipack.ConflictError, match=r'"c0" has the box \[1.0, 2.0, 1.0, 4.0\]'):
        hsipack.Loader(empty)
    both = [{"boxes": [[1, 2, 3, 4], [1, 2, 3, 4]], "box_labels": ["a", 2]}]
    with pytest.raises(hsipack.ConflictError, match="the label 2 of a box is not a name"):
        hsipack.Loader(pack(tmp_path / "both.hsipack", both))
