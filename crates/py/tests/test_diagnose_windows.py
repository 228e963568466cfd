"""Loaders of windows are diagnosed on some of their samples. Times are not judged."""

from __future__ import annotations

from typing import Any

import hsipack
import numpy as np
import pytest
from hsipack.diagnosis._own import LoaderLevels

LEVELS = ["step", "prepare", "collate", "decode", "read"]
# Rows, columns and bands of the cubes in `dataset`, and the number of cubes.
SHAPE, CUBES = (20, 24, 7), 12


def diagnose(loader: hsipack.Loader) -> tuple[hsipack.Diagnosis, list[Any]]:
    batches: list[Any] = []
    found = hsipack.diagnose(loader, batches.append, rounds=1, seconds=0, device="cpu")
    assert [row["level"] for row in found.levels] == LEVELS
    # The user's own loader is not changed.
    assert loader.epoch == 0
    return found, batches


def listed(each: int) -> Any:
    """Windows of every cube, in turns, some of which reach beyond its edge."""
    numbers = np.arange(CUBES * each)
    return np.stack([numbers % CUBES, numbers % 19 - 2, numbers % 17], axis=1)


@pytest.mark.parametrize("cache", ["auto", None])
def test_listed_windows_of_samples_that_are_not_read_are_left_out(
    dataset: str, cache: str | None
) -> None:
    windows = hsipack.Windows(listed(50), (4, 5))
    with hsipack.Loader(
        dataset, 16, shuffle=True, crop=windows, cache=cache, device="cpu"
    ) as loader:
        levels = LoaderLevels(loader)
        # So few that most windows belong to other samples.
        assert 4 <= len(levels._samples) < CUBES
        levels.close()
        found, batches = diagnose(loader)
    assert {tuple(batch["image"].shape) for batch in batches} == {(16, SHAPE[2], 4, 5)}
    assert {one for batch in batches for one in batch["id"].tolist()} <= set(levels._samples)
    facts = found.to_dict()["facts"]
    assert (facts["window"]["rows"], facts["window"]["columns"]) == (4, 5)
    # Slabs of 8 rows, 3 chunks in a cube: 50 windows, each in 1 or 2 of the chunks.
    assert 50 / 3 < facts["window"]["decoded"] < 2 * 50 / 3
    assert facts["auto"]["kind"] == "decoded"
    assert facts["cache"] == ("decoded" if cache else "none")
    assert facts["pixels"] is None


def test_patches_come_of_cubes_that_have_labels(dataset: str) -> None:
    patches = hsipack.LabelledPatches(1, mask="labels", per_class=3)
    with hsipack.Loader(dataset, 4, crop=patches, sampler="class_balanced", device="cpu") as loader:
        found, batches = diagnose(loader)
    assert {tuple(batch["image"].shape) for batch in batches} == {(4, SHAPE[2])}
    assert found.to_dict()["facts"]["window"]["chunks"] == 1


def test_windows_of_regions_have_their_size(dataset: str) -> None:
    regions = hsipack.Regions((4, 5), mask="labels")
    with hsipack.Loader(dataset, 4, crop=regions, device="cpu") as loader:
        found, batches = diagnose(loader)
    assert {tuple(batch["region"].shape) for batch in batches} == {(4, 4, 5)}
    facts = found.to_dict()["facts"]
    assert (facts["window"]["rows"], facts["window"]["columns"]) == (4, 5)


def test_cubes_that_are_padded_are_read_whole(dataset: str) -> None:
    crop = hsipack.WholeCubes(pad="reflect")
    with hsipack.Loader(dataset, 5, crop=crop, shuffle=True, device="cpu") as loader:
        found, batches = diagnose(loader)
    assert all(batch["inside"].all() for batch in batches)
    assert {tuple(batch["image"].shape) for batch in batches} == {(5, SHAPE[2], *SHAPE[:2])}
    assert found.to_dict()["facts"]["window"]["decoded"] == 1


def test_a_shuffle_window_is_as_small_beside_the_samples_that_are_read(dataset: str) -> None:
    crop = hsipack.RandomCrop(6, per_cube=40)
    # Room for six decoded cubes: three at a time, and the next three.
    cube = 3 * 8 * SHAPE[1] * SHAPE[2] * 2
    with hsipack.Loader(
        dataset, 16, shuffle=True, crop=crop, shuffle_window=6 * cube, device="cpu"
    ) as loader:
        assert loader.report().cache.shuffle_window.blocks == 3
        levels = LoaderLevels(loader)
        with levels._like() as like:
            window = like.report().cache.shuffle_window
            assert window.blocks == max(1, round(3 * len(levels._samples) / CUBES))
            assert window.of_blocks == len(levels._samples)
        levels.close()
        _, batches = diagnose(loader)
    assert {tuple(batch["image"].shape) for batch in batches} == {(16, SHAPE[2], 6, 6)}


def test_windows_of_a_split_and_of_listed_samples(dataset: str) -> None:
    windows = listed(40)
    some = hsipack.open(dataset).select([1, 3, 5, 7, 9])
    crop = hsipack.Windows(windows[np.isin(windows[:, 0], [1, 9])], 3)
    with hsipack.Loader(some, 8, crop=crop, device="cpu") as loader:
        _, batches = diagnose(loader)
    assert {one for batch in batches for one in batch["id"].tolist()} == {1, 9}


def test_augmented_spectra_are_diagnosed(dataset: str) -> None:
    jitter = [hsipack.augment.BandJitter(p=1.0)]
    patches = hsipack.LabelledPatches(1, mask="labels")
    with hsipack.Loader(dataset, 4, crop=patches, augment=jitter, device="cpu") as loader:
        batches: list[Any] = []
        hsipack.diagnose(loader, batches.append, rounds=1, seconds=0, device="cpu")
    assert {tuple(batch["image"].shape) for batch in batches} == {(4, SHAPE[2])}
