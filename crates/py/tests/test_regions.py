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
from conftest import CUBES, cube, labels
from hsipack import Loader, Regions, augment
from scipy import ndimage

Batch = dict[str, Any]
BEYOND = 30


def instances(number: int) -> npt.NDArray[np.uint16]:
    """Connected pixels of one class of a cube, numbered from 1; 0 where there is none."""
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
    """Windows, regions and labels of a batch, against NumPy's padding and SciPy's boxes."""
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


def test_regions_are_chosen(regions: str) -> None:
    crop = Regions(5, mask="parts", ignore=[1, 4], min_pixels=20)
    with Loader(regions, 16, crop=crop, masks=["parts", "labels"], output="numpy") as loader:
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
    with Loader(regions, 20, classes={1: 7}, **options) as loader:
        batch = next(iter(loader))
        assert set(batch["label"].tolist()) == {2, 7}
        assert batch["region"].any(axis=(1, 2)).all()


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


@pytest.mark.parametrize(
    ("crop", "options", "message"),
    [
        (Regions(5, mask="nothing"), {}, "nothing"),
        (Regions(5, mask="layers"), {}, "boolean layers"),
        (Regions(5, mask="parts", labels="nothing"), {}, "nothing"),
        (Regions(5, mask="parts", min_pixels=10**6), {}, "no region"),
        (Regions(5, mask="parts", min_pixels=0), {}, "min_pixels"),
        (Regions(0, mask="parts"), {}, "size"),
        (Regions(5, mask="parts", pad="wrap"), {}, "pad"),
        (Regions(5, mask="parts"), {"output": "dlpack"}, "dlpack"),
        (Regions(5, mask="parts"), {"classes": {1: 2}}, "classes"),
    ],
)
def test_regions_that_mean_nothing_are_refused(
    regions: str, crop: Regions, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(hsipack.Error, match=message):
        Loader(regions, 4, crop=crop, **{"output": "numpy", **options})
