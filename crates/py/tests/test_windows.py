"""Windows around labelled pixels, and listed windows, compared with slices of the padded cube."""

from __future__ import annotations

import pickle
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import numpy.typing as npt
import pytest
from conftest import COLUMNS, CUBES, ROWS, cube, labels
from hsipack import GridCrop, LabelledPatches, Loader, Windows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Batch = dict[str, Any]
BEYOND = 30


def padded(number: int, pad: str | float) -> npt.NDArray[Any]:
    """A cube as it is stored, with a margin larger than any window here."""
    stored = cube(number).astype(np.float16)
    width = ((BEYOND, BEYOND), (BEYOND, BEYOND), (0, 0))
    if isinstance(pad, str):
        return np.pad(stored, width, mode=pad)  # type: ignore[call-overload,no-any-return]
    return np.pad(stored, width, constant_values=pad)


def check(batch: Batch, pad: str | float) -> None:
    """Checks that every window equals that of the padded cube."""
    for image, sample, window in zip(batch["image"], batch["id"], batch["window"], strict=True):
        row, column, rows, columns = window + np.array([BEYOND, BEYOND, 0, 0])
        want = padded(int(sample), pad)[row : row + rows, column : column + columns]
        np.testing.assert_array_equal(image.transpose(1, 2, 0), want)


def batches(dataset: str | hsipack.Dataset, **options: Any) -> list[Batch]:
    with Loader(dataset, output="numpy", **options) as loader:
        return list(loader)


@pytest.mark.parametrize("pad", ["reflect", "edge", -2.5])
@pytest.mark.parametrize("size", [(9, 9), (4, 7)])
def test_patches_are_centred_on_every_labelled_pixel(
    dataset: str, size: tuple[int, int], pad: str | float
) -> None:
    crop = LabelledPatches(size, mask="labels", pad=pad)
    seen = []
    for batch in batches(dataset, batch_size=200, shuffle=True, crop=crop):
        assert "labels" not in batch
        check(batch, pad)
        centres = batch["window"][:, :2] + (size[0] // 2, size[1] // 2)
        for sample, (row, column), label in zip(batch["id"], centres, batch["label"], strict=True):
            assert label == labels(int(sample))[row, column] > 0
            seen.append((int(sample), int(row), int(column)))
    pixels = (np.argwhere(labels(sample) > 0) for sample in range(CUBES))
    expected = [(sample, *at) for sample, those in enumerate(pixels) for at in those.tolist()]
    assert sorted(seen) == expected
    assert seen != expected


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), pad=st.sampled_from(["reflect", "edge", 1.5]))
def test_listed_windows_are_those_of_the_padded_cube(
    dataset: str, data: st.DataObject, pad: str | float
) -> None:
    rows, columns = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30))
    # With at least one pixel of the cube.
    window = st.tuples(
        st.integers(0, CUBES - 1),
        st.integers(1 - rows, ROWS - 1),
        st.integers(1 - columns, COLUMNS - 1),
    )
    listed = data.draw(st.lists(window, min_size=1, max_size=20))
    made = batches(dataset, batch_size=7, crop=Windows(listed, (rows, columns), pad=pad))
    starts = [
        (int(sample), int(window[0]), int(window[1]))
        for batch in made
        for sample, window in zip(batch["id"], batch["window"], strict=True)
    ]
    assert starts == listed
    if (rows, columns) != (1, 1):
        for batch in made:
            check(batch, pad)


@pytest.mark.parametrize("pad", ["reflect", "edge", -2.5])
def test_windows_of_a_grid_reach_beyond_cubes_that_are_smaller(
    dataset: str, pad: str | float
) -> None:
    crop = GridCrop((26, 10), overlap=(9, 3), pad=pad)
    (batch,) = batches(hsipack.open(dataset, masks="labels"), batch_size=100, crop=crop)
    check(batch, pad)
    assert len(batch["id"]) == 3 * CUBES
    assert batch["window"][:3].tolist() == [[0, start, 26, 10] for start in (0, 7, 14)]


def test_masks_come_with_windows_that_ask_for_them(dataset: str) -> None:
    crop = LabelledPatches((3, 5), mask="labels", pad=9.0)
    (batch,) = batches(hsipack.open(dataset, masks="labels"), batch_size=8000, crop=crop)
    for number in range(0, len(batch["id"]), 53):
        surrounded = np.pad(labels(int(batch["id"][number])), BEYOND)
        row, column = batch["window"][number, :2] + BEYOND
        patch = batch["labels"][number]
        np.testing.assert_array_equal(patch, surrounded[row : row + 3, column : column + 5])


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_windows_of_one_pixel_are_spectra(dataset: str, output: Any) -> None:
    crop = LabelledPatches(1, mask="labels", per_class=40)
    with Loader(dataset, 64, crop=crop, output=output, device="cpu", shuffle=True) as loader:
        made = list(loader)
    assert Counter(np.concatenate([batch["label"] for batch in made]).tolist()) == {1: 40, 2: 40}
    for batch in made:
        assert batch["image"].shape == (len(batch["id"]), 7)
        for spectrum, sample, window in zip(
            batch["image"], batch["id"], batch["window"], strict=True
        ):
            want = cube(int(sample)).astype(np.float16)[int(window[0]), int(window[1])]
            np.testing.assert_array_equal(np.asarray(spectrum), want)


def test_classes_are_chosen_and_balanced(dataset: str) -> None:
    def counts(**options: Any) -> dict[int, int]:
        crop = LabelledPatches(3, mask="labels", **options)
        made = batches(dataset, batch_size=100, crop=crop, sampler="class_balanced")
        return dict(Counter(np.concatenate([batch["label"] for batch in made]).tolist()))

    every = Counter(np.concatenate([labels(number).ravel() for number in range(CUBES)]).tolist())
    assert counts(only_classes=[2]) == {2: every[2]}
    assert counts(ignore=[1, 0]) == {2: every[2]}
    total = every[0] + every[1] + every[2]
    found = counts(ignore=[])
    assert sum(found.values()) == total
    assert max(found.values()) - min(found.values()) <= 1


def test_an_epoch_goes_on_with_other_ranks(dataset: str) -> None:
    crop = LabelledPatches(3, mask="labels")
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "crop": crop}

    def windows(made: list[Batch]) -> list[tuple[int, ...]]:
        return [
            (int(sample), *window)
            for batch in made
            for sample, window in zip(batch["id"], batch["window"].tolist(), strict=True)
        ]

    whole = windows(batches(dataset, batch_size=50, **options))
    with Loader(dataset, 50, output="numpy", **options) as loader:
        iteration = iter(loader)
        first = windows([next(iteration) for _ in range(4)])
        state = loader.state_dict()
    rest = []
    for rank in range(3):
        with Loader(dataset, 20, rank=rank, world_size=3, output="numpy", **options) as loader:
            loader.load_state_dict(state)
            rest += windows(list(loader))
    assert first == whole[:200]
    assert sorted(rest) == sorted(whole[200:])


def test_patches_of_joined_datasets_keep_the_class_ids_of_their_masks(dataset: str) -> None:
    joined = hsipack.concat([dataset, dataset])
    crop = LabelledPatches(3, mask="labels", only_classes=[2], per_class=20)
    with Loader(joined, 8, crop=crop, output="numpy") as loader:
        made = list(loader)
    assert {label for batch in made for label in batch["label"].tolist()} == {2}
    assert sum(len(batch["label"]) for batch in made) == 40
    with Loader(joined, 8, crop=crop, output="numpy") as loader:
        again = pickle.loads(pickle.dumps(loader))
    with again:
        assert {label for batch in again for label in batch["label"].tolist()} == {2}
    with pytest.raises(hsipack.UnsupportedError, match="a loader for each"):
        Loader(joined, 8, crop=Windows([[0, 0, 0]], 3), output="numpy")


def test_shuffle_windows_hold_some_cubes_at_a_time(dataset: str) -> None:
    crop = LabelledPatches(5, mask="labels")
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 4, "crop": crop}
    size = 3 * cube(0).size * 2  # three cubes of float16

    def windows(each: list[Batch]) -> list[tuple[int, ...]]:
        return [
            (int(sample), *window.tolist())
            for batch in each
            for sample, window in zip(batch["id"], batch["window"], strict=True)
        ]

    whole = windows(batches(dataset, shuffle_window="all", **options))
    for bound in ({"cache_size": size}, {"shuffle_window": size}):
        with Loader(dataset, output="numpy", **bound, **options) as loader:
            kept = loader.report().cache
            window = kept.shuffle_window
            assert window is not None
            assert (kept.kind, window.bytes) == ("decoded", size)
            assert 0 < window.blocks < window.of_blocks
            first = list(loader)
            for batch in first:
                check(batch, "reflect")
            assert sorted(windows(first)) == sorted(whole)
            assert windows(first) != whole
            later = windows(list(loader))
            assert later != windows(first)
            assert sorted(later) == sorted(whole)
            state = loader.state_dict()
            assert state["shuffle_window"] == size

    # Interrupted, and resumed with more memory.
    with Loader(dataset, output="numpy", cache_size=size, **options) as loader:
        iterator = iter(loader)
        parts = [next(iterator) for _ in range(3)]
        state = loader.state_dict()
    with Loader(dataset, output="numpy", **options) as loader:
        assert loader.report().cache.shuffle_window is None
        loader.load_state_dict(state)
        parts += list(loader)
    assert windows(parts) == windows(first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle_window": "some"}, "shuffle_window"),
        ({"shuffle_window": 0}, "shuffle_window"),
        ({"shuffle_window": 1000}, "larger than half of it"),
        ({"shuffle_window": 1 << 20, "crop": None}, "cannot be read block by block"),
        ({"shuffle_window": 1 << 20, "shuffle": False}, "cannot be read block by block"),
        ({"shuffle_window": 1 << 20, "cache": None}, "cannot be combined with cache kind none"),
    ],
)
def test_shuffle_windows_that_mean_nothing_are_refused(
    dataset: str, options: dict[str, Any], message: str
) -> None:
    given = {"shuffle": True, "crop": LabelledPatches(3, mask="labels"), **options}
    with pytest.raises(hsipack.Error, match=message):
        Loader(dataset, 4, output="numpy", **given)


def test_what_is_kept_in_memory_is_told(dataset: str) -> None:
    with Loader(dataset, 4, output="numpy") as loader:
        list(loader)
        told = loader.report().cache
    assert told.kind == "decoded"
    assert told.chosen
    assert "half of the free memory" in told.why
    assert 0 < told.bytes <= told.needed_bytes == told.limit_bytes
    with Loader(dataset, 4, output="numpy", cache_size=1000) as loader:
        assert loader.report().cache.kind == "none"
    with Loader(dataset, 4, output="numpy", cache=None) as loader:
        assert loader.report().cache.kind == "none"
        assert not loader.report().cache.chosen


@pytest.mark.parametrize(
    ("crop", "message"),
    [
        (LabelledPatches(3, mask="none"), 'has no mask "none"'),
        (LabelledPatches(3, mask="layers"), "holds boolean layers"),
        (
            LabelledPatches(3, mask="labels", only_classes=[77]),
            "no pixel has one of the requested labels",
        ),
        (LabelledPatches(3, mask="labels", pad="mirror"), "pad='mirror'"),
        (LabelledPatches(0, mask="labels"), "size"),
        (LabelledPatches(3, mask="labels", per_class=0), "per_class=0"),
        (LabelledPatches(3, mask="labels", ignore=[-1]), "ignore=-1"),
        (Windows([[0, 0]], 3), r"shape \(1, 2\)"),
        (Windows([[0.5, 0, 0]], 3), "float64"),
        (Windows(np.zeros((0, 3), int), 3), "the list of windows is empty"),
        (Windows([[99, 0, 0]], 3), "listed for sample 99"),
        (Windows([[0, -3, 0]], 3), "row -3, column 0 lies outside sample 0 of 20x24"),
        (Windows([[0, 1 << 40, 0]], 3), "rows or columns that no cube has"),
    ],
)
def test_windows_that_mean_nothing_are_refused(dataset: str, crop: Any, message: str) -> None:
    with pytest.raises(hsipack.ConflictError, match=message):
        Loader(dataset, 4, crop=crop, output="numpy")


def test_windows_of_other_bands_in_one_batch_are_warned_of(tmp_path: Path) -> None:
    def pack(name: str, further: float) -> hsipack.Dataset:
        def cubes() -> Any:
            for number, first in enumerate([400.0, 400.0 + further]):
                nm = [first + 100 * band for band in range(5)]
                yield f"{number}", np.zeros((8 + number, 8, 5), np.float32), {"wavelengths": nm}

        hsipack.pack(cubes(), tmp_path / name)
        return hsipack.open(tmp_path / name)

    near, far = pack("near", 0.2), pack("far", 600)
    with pytest.warns(UserWarning, match="600 nm apart"):
        hsipack.Loader(far, 2, crop=8, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hsipack.Loader(far, 2, device="cpu")
        hsipack.Loader(near, 2, crop=8, device="cpu")
