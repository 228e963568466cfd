"""Batches of masks whose boolean layers need 32 or 64 bits."""

from __future__ import annotations

from pathlib import Path

import hsipack
import numpy as np
import pytest
import torch

ROWS, COLUMNS, CUBES = 12, 10, 4


def layers_of(cube: int, count: int) -> np.ndarray:
    """(layers, rows, columns)."""
    return np.random.default_rng([cube, count]).random((count, ROWS, COLUMNS)) < 0.3


@pytest.fixture(scope="module", params=[20, 35, 64])
def packed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, int]:
    """A dataset, and its number of layers."""
    count: int = request.param
    path = tmp_path_factory.mktemp("many") / "out.hsipack"

    def cubes() -> object:
        for number in range(CUBES):
            image = np.random.default_rng(number).random((ROWS, COLUMNS, 5), dtype=np.float32)
            layers = layers_of(number, count)
            masks = {f"tissue {layer}": layers[layer] for layer in range(count)}
            yield f"cube {number}", image, {"masks": {"organs": masks}}

    hsipack.pack(cubes(), path)
    return path, count


def test_samples_have_every_layer(packed: tuple[Path, int]) -> None:
    path, count = packed
    ds = hsipack.open(path)
    (stack,) = ds.stacks.values()
    assert stack.masks["organs"].layers == tuple(f"tissue {layer}" for layer in range(count))
    for number in range(CUBES):
        layers = ds[number]["organs"]
        assert layers.dtype == torch.bool
        np.testing.assert_array_equal(layers.numpy(), layers_of(number, count))
    want = sum(layers_of(number, count).sum((1, 2)) for number in range(CUBES))
    counts = ds.class_counts("organs")
    assert list(counts.values()) == want.tolist()


def test_stored_bits_are_int64(packed: tuple[Path, int]) -> None:
    """torch computes with int64, in which the 64th layer is the sign."""
    path, count = packed
    stored = hsipack.open(path).with_masks(layers=False)[1]["organs"]
    assert stored.dtype == torch.int64
    shifts = torch.arange(count)[:, None, None]
    np.testing.assert_array_equal((stored[None] >> shifts & 1).bool().numpy(), layers_of(1, count))


@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_batches_cut_and_flip_all_layers(packed: tuple[Path, int], output: str) -> None:
    path, count = packed
    augment = [hsipack.augment.RandomHorizontalFlip(p=1.0)]
    loader = hsipack.Loader(
        path, 2, crop=(6, 5), output=output, seed=1, augment=augment if output == "torch" else None
    )
    for batch in loader:
        organs = np.asarray(batch["organs"])
        assert organs.shape[1:] == (count, 6, 5)
        assert organs.dtype == np.bool_
        for place, number in enumerate(np.asarray(batch["id"])):
            top, left = (int(batch["window"][place][axis]) for axis in range(2))
            want = layers_of(int(number), count)[:, top : top + 6, left : left + 5]
            want = want[..., ::-1] if output == "torch" else want
            np.testing.assert_array_equal(organs[place], want)
