"""Windows of regions: superpixels and instances."""

from __future__ import annotations

import os
import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import numpy.typing as npt
import pytest
from conftest import BANDS, COLUMNS, CUBES, ROWS, cube, labels
from hsipack import Loader, Regions, augment
from scipy import ndimage

Batch = dict[str, Any]
BEYOND = 30


def instances(number: int) -> npt.NDArray[np.uint16]:
    """Connected pixels of one class of a cube, numbered from 1; 0 if there is none."""
    classes = labels(number)
    found = np.zeros(classes.shape, np.uint16)
    for label in (1, 2):
        parts, count = ndimage.label(classes == label)
        found[parts > 0] = parts[parts > 0] + found.max()
        assert count > 1
    return found


@pytest.fixture(scope="module")
def regions(dataset: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dataset with a mask of instances."""
    path: Path = tmp_path_factory.mktemp("regions") / "scans.hsipack"
    shutil.copytree(dataset, path)
    hsipack.add_mask(path, "parts", {number: instances(number) for number in range(CUBES)})
    return os.fspath(path)


def check(batch: Batch, size: tuple[int, int], seen: list[tuple[int, int]]) -> None:
    """Compares windows, regions and labels of a batch with NumPy's padding and SciPy's boxes."""
    rows, columns = size
    width = ((BEYOND, BEYOND), (BEYOND, BEYOND))
    for place, (sample, region) in enumerate(zip(batch["id"], batch["region_id"], strict=True)):
        parts = instances(int(sample))
        box = ndimage.find_objects(parts)[int(region) - 1]
        middle = [(one.start + one.stop) // 2 for one in box]
        row, column = middle[0] - rows // 2, middle[1] - columns // 2
        assert batch["window"][place].tolist() == [row, column, rows, columns]
        around = np.s_[
            row + BEYOND : row + BEYOND + rows, column + BEYOND : column + BEYOND + columns
        ]
        stored = cube(int(sample)).astype(np.float16)
        image = np.pad(stored, (*width, (0, 0)), mode="reflect")[around]
        np.testing.assert_array_equal(batch["image"][place], image.transpose(2, 0, 1))
        own = np.pad(parts, width)[around] == region
        assert own.any()
        np.testing.assert_array_equal(batch["region"][place], own)
        (label,) = set(labels(int(sample))[parts == int(region)].tolist())
        assert batch["label"][place] == label
        seen.append((int(sample), int(region)))


@pytest.mark.parametrize("size", [(9, 7), (4, 12)])
def test_every_region_has_a_window(regions: str, size: tuple[int, int]) -> None:
    crop = Regions(size, mask="parts", labels="labels")
    seen: list[tuple[int, int]] = []
    with Loader(regions, 16, shuffle=True, crop=crop, output="numpy") as loader:
        for batch in loader:
            assert "parts" not in batch
            check(batch, size, seen)
        again = pickle.loads(pickle.dumps(loader))
        assert "parts" not in next(iter(again))
        again.close()
    everything = [
        (number, region)
        for number in range(CUBES)
        for region in range(1, int(instances(number).max()) + 1)
    ]
    assert sorted(seen) == everything
    assert seen != everything


@pytest.mark.parametrize("size", [(9, 7), (4, 12), (20, 24)])
def test_larger_regions_are_told(regions: str, size: tuple[int, int]) -> None:
    boxes = [box for number in range(CUBES) for box in ndimage.find_objects(instances(number))]
    larger = [
        box
        for box in boxes
        if any(one.stop - one.start > pixels for one, pixels in zip(box, size, strict=True))
    ]
    with Loader(regions, 8, crop=Regions(size, mask="parts"), output="numpy") as loader:
        counted = loader.report().regions
        assert counted is not None
        assert counted.to_dict() == {"windows": len(boxes), "cut": len(larger)}
    with Loader(regions, 8, output="numpy") as loader:
        assert loader.report().regions is None


def test_regions_are_chosen(regions: str) -> None:
    crop = Regions(5, mask="parts", ignore=[1, 4], min_pixels=20)
    ds = hsipack.open(regions, masks=["parts", "labels"])
    with Loader(ds, 16, crop=crop, output="numpy") as loader:
        for batch in loader:
            assert np.array_equal(batch["label"], batch["region_id"])
            assert np.array_equal(
                batch["region"], batch["parts"] == batch["region_id"][:, None, None]
            )
            assert batch["labels"].shape == batch["parts"].shape
            for sample, region in zip(batch["id"], batch["region_id"], strict=True):
                assert region not in (1, 4)
                assert (instances(int(sample)) == region).sum() >= 20


def test_labels_take_turns_and_have_other_ids(regions: str) -> None:
    crop = Regions(5, mask="parts", labels="labels")
    options: dict[str, Any] = {"crop": crop, "output": "numpy", "epoch_length": 200}
    with Loader(regions, 20, sampler="class_balanced", **options) as loader:
        counts = Counter(label for batch in loader for label in batch["label"].tolist())
    assert counts == {1: 100, 2: 100}
    ds = hsipack.open(regions).with_masks(remap_classes={1: 7})
    with Loader(ds, 20, **options) as loader:
        batch = next(iter(loader))
        assert set(batch["label"].tolist()) == {2, 7}
        assert batch["region"].any(axis=(1, 2)).all()


def test_labels_are_what_most_labelled_pixels_have(own_dataset: str) -> None:
    random = np.random.default_rng(5)
    shape = labels(0).shape
    # Large ids with gaps, and few classes, so that many regions have ties or no label.
    parts = {number: random.choice([0, 3, 9, 300, 5000], shape) for number in range(CUBES)}
    for number, mask in parts.items():
        mask[:2, :3] = np.arange(10_000, 10_006).reshape(2, 3) + number
    votes = {number: random.integers(0, 4, shape) for number in range(CUBES)}
    votes[0][parts[0] == 9] = 0
    hsipack.add_mask(own_dataset, "ids", {n: one.astype(np.uint16) for n, one in parts.items()})
    hsipack.add_mask(own_dataset, "votes", {n: one.astype(np.uint8) for n, one in votes.items()})
    want = {}
    for number, mask in parts.items():
        for region in np.unique(mask[mask > 0]).tolist():
            counts = np.bincount(votes[number][mask == region], minlength=4)
            counts[0] = 0
            want[number, region] = int(counts.argmax())
    assert 0 in want.values()
    crop = Regions(5, mask="ids", labels="votes")
    with Loader(own_dataset, 8, crop=crop, output="numpy") as loader:
        found = {
            (int(sample), int(region)): int(label)
            for batch in loader
            for sample, region, label in zip(
                batch["id"], batch["region_id"], batch["label"], strict=True
            )
        }
    assert found == want


@pytest.mark.parametrize("window", ["all", 3 * ROWS * COLUMNS * BANDS * 2])
def test_ranks_share_the_regions(regions: str, window: str | int) -> None:
    everything = Counter(
        (number, region)
        for number in range(CUBES)
        for region in range(1, int(instances(number).max()) + 1)
    )
    seen: list[tuple[int, int]] = []
    for rank in range(3):
        options: dict[str, Any] = {"shuffle": True, "rank": rank, "world_size": 3}
        crop = Regions((9, 7), mask="parts", labels="labels")
        options |= {"crop": crop, "shuffle_window": window, "output": "numpy"}
        with Loader(regions, 4, **options) as loader:
            assert (loader.report().cache.shuffle_window is None) == (window == "all")
            for batch in loader:
                kept = ~batch["padding"]
                own: list[tuple[int, int]] = []
                check(batch, (9, 7), own)
                seen += [one for one, keep in zip(own, kept, strict=True) if keep]
    assert Counter(seen) == everything


def test_an_epoch_goes_on(regions: str) -> None:
    options: dict[str, Any] = {"crop": Regions(6, mask="parts"), "shuffle": True, "seed": 3}

    def regions_of(batches: list[Batch]) -> list[tuple[int, int]]:
        return [
            (int(sample), int(region))
            for batch in batches
            for sample, region in zip(batch["id"], batch["region_id"], strict=True)
        ]

    with Loader(regions, 8, output="numpy", **options) as loader:
        whole = list(loader)
    with Loader(regions, 8, output="numpy", **options) as loader:
        iterator = iter(loader)
        parts = [next(iterator) for _ in range(3)]
        state = loader.state_dict()
    with Loader(regions, 11, output="numpy", **options) as loader:
        loader.load_state_dict(state)
        parts += list(loader)
    assert regions_of(parts) == regions_of(whole)


def test_tensors_and_augmentations(regions: str) -> None:
    torch = pytest.importorskip("torch")
    crop = Regions((8, 6), mask="parts")
    flip = augment.RandomHorizontalFlip(p=1.0)
    plain = Loader(regions, 8, crop=crop, device="cpu")
    with plain, Loader(regions, 8, crop=crop, augment=flip, device="cpu") as flipped:
        for one, other in zip(plain, flipped, strict=True):
            assert one["region"].dtype == torch.bool
            assert torch.equal(one["region"].flip(2), other["region"])
            assert torch.equal(one["image"].flip(3), other["image"])
            assert one["region"].any()


@pytest.mark.parametrize("read", [None, ["labels", "parts"]])
def test_what_surrounds_a_window_is_no_region(regions: str, read: list[str] | None) -> None:
    pytest.importorskip("torch")
    # A region of half the height and width has fewer pixels. The region with id 1 would gain the
    # filled pixels.
    ops = augment.RandomAffine(0.0, scale=(0.5, 0.5), p=1.0)
    options: dict[str, Any] = {"crop": Regions(12, mask="parts"), "device": "cpu"}
    ds = hsipack.open(regions, masks=read)

    def pixels(loader: Loader) -> list[int]:
        with loader:
            return [
                int(own.sum())
                for batch in loader
                for own, region in zip(batch["region"], batch["region_id"], strict=True)
                if region == 1
            ]

    smaller = augment.AugmentationSequential(ops, mask_fill=0)
    want = pixels(Loader(ds, 8, augment=smaller, **options))
    filled = augment.AugmentationSequential(ops, mask_fill=1)
    assert pixels(Loader(ds, 8, augment=filled, **options)) == want
    assert sum(want) < sum(pixels(Loader(ds, 8, **options)))
    if read is not None:
        with Loader(ds, 8, augment=filled, **options) as loader:
            batch = next(iter(loader))
            assert (batch["labels"][:, 0, 0] == 1).all()
            assert (batch["parts"][:, 0, 0] == 0).all()
    named = augment.AugmentationSequential(ops, mask_fill={"parts": 1})
    with pytest.raises(hsipack.ConflictError, match="mask_fill"):
        Loader(ds, 8, augment=named, **options)


@pytest.mark.parametrize(
    ("crop", "options", "message"),
    [
        (Regions(5, mask="nothing"), {}, "nothing"),
        (Regions(5, mask="layers"), {}, "boolean layers"),
        (Regions(5, mask="parts", labels="nothing"), {}, "nothing"),
        (Regions(5, mask="parts", min_pixels=10**6), {}, "none of the requested regions"),
        (Regions(5, mask="parts", min_pixels=0), {}, "min_pixels"),
        (Regions(0, mask="parts"), {}, "size"),
        (Regions(5, mask="parts", pad="wrap"), {}, "pad"),
        (Regions(5, mask="parts"), {"output": "dlpack"}, "dlpack"),
        (Regions(5, mask="parts"), {"augment": {"ops": [{"op": "cutmix_rect"}]}}, "cutmix_rect"),
        (Regions(5, mask="parts"), {"augment": [{"op": "transplant"}]}, "transplant"),
    ],
)
def test_regions_that_mean_nothing_are_refused(
    regions: str, crop: Regions, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(hsipack.Error, match=message):
        Loader(regions, 4, crop=crop, **{"output": "numpy", **options})
