"""Whole cubes of unequal size in one batch, padded to the largest."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch
from hsipack import ConflictError, Loader, WholeCubes

SHAPES = [(5, 9), (7, 4), (7, 9), (2, 3), (5, 9), (1, 1), (6, 8)]


def cube(number: int) -> np.ndarray:
    """Values of a cube, (rows, columns, 3)."""
    rng = np.random.default_rng(number)
    return rng.random((*SHAPES[number], 3)).astype(np.float16).astype(np.float32)


def mask(number: int) -> np.ndarray:
    """Class ids, starting at 1."""
    return np.random.default_rng(number).integers(1, 4, SHAPES[number]).astype(np.uint8)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of cubes of many sizes."""
    folder = tmp_path_factory.mktemp("uneven")
    (folder / "masks").mkdir()
    for number in range(len(SHAPES)):
        np.save(folder / f"c{number}.npy", cube(number))
        np.save(folder / f"masks/c{number}.npy", mask(number))
    out = folder / "d.hsipack"
    names = [folder / f"c{number}.npy" for number in range(len(SHAPES))]
    masks = {"gt": f"{folder}/masks/{{stem}}.npy"}
    hsipack.convert(names, out, mask=masks, chunk=(3, 2), axes="yxb")
    return out


MODES: dict[Any, Any] = {
    -1.5: {"mode": "constant", "constant_values": -1.5},
    "edge": {"mode": "edge"},
    "reflect": {"mode": "reflect"},
}


@pytest.mark.parametrize("pad", MODES)
@pytest.mark.parametrize("shuffle", [False, True])
def test_cubes_are_padded_to_the_largest(uneven: Path, pad: Any, shuffle: bool) -> None:
    loader = Loader(uneven, 3, crop=WholeCubes(pad), shuffle=shuffle, seed=4, device="cpu")
    loader = pickle.loads(pickle.dumps(loader))
    seen: list[int] = []
    for batch in loader:
        assert tuple(batch["image"].shape[1:]) == (3, 7, 9)
        for place, number in enumerate(batch["id"].tolist()):
            rows, columns = SHAPES[number]
            around = [(0, 7 - rows), (0, 9 - columns)]
            want = np.pad(cube(number), [*around, (0, 0)], **MODES[pad])
            assert np.array_equal(batch["image"][place].permute(1, 2, 0), want)
            inside = np.pad(np.ones((rows, columns), bool), around)
            assert batch["inside"].dtype == torch.bool
            assert np.array_equal(batch["inside"][place], inside)
            assert np.array_equal(batch["gt"][place][inside].reshape(rows, -1), mask(number))
            if pad == -1.5:
                assert not batch["gt"][place][~inside].any()
            seen.append(number)
    assert sorted(seen) == list(range(len(SHAPES)))
    assert shuffle or seen == sorted(seen)
    assert len(loader) == 3
    loader.close()


def test_the_largest_is_that_of_what_is_read(uneven: Path) -> None:
    some = hsipack.open(uneven).select([3, 5, 3 - 3])
    with Loader(some, 3, crop=WholeCubes(0), device="cpu", output="numpy") as loader:
        (batch,) = loader
    assert batch["image"].shape == (3, 3, 5, 9)
    assert batch["id"].tolist() == [3, 5, 0]
    assert batch["inside"].sum(axis=(1, 2)).tolist() == [6, 1, 45]


def test_what_does_not_go_with_padding_is_refused(uneven: Path, tmp_path: Path) -> None:
    ds = hsipack.open(uneven)
    flips = [hsipack.augment.RandomHorizontalFlip()]
    with pytest.raises(ConflictError, match="WholeCubes and augment"):
        Loader(ds, 2, crop=WholeCubes(0), augment=flips)
    with pytest.raises(ConflictError, match="WholeCubes: pad='wrap'"):
        Loader(ds, 2, crop=WholeCubes("wrap"))
    taken = [("a", np.ones((3, 4, 2), np.float32), {"inside": 1})]
    hsipack.pack(taken, tmp_path / "taken.hsipack")
    with pytest.raises(ConflictError, match="named 'inside'"):
        Loader(
            hsipack.open(tmp_path / "taken.hsipack").select(columns=["inside"]),
            2,
            crop=WholeCubes(0),
        )
