"""Further images of any resolution and targets stay on the ground of their image, whatever
augmentations move them. Pixels hold the number of their ground, so they say where they are from.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import kornia
import numpy as np
import pytest
import torch
from hsipack import augment
from hypothesis import given, settings
from hypothesis import strategies as st

SIDE, SAMPLES = 24, 4
FINER = [Fraction(1), Fraction(2), Fraction(3)]
COARSER = [Fraction(1, 2), Fraction(1, 4)]
# Augmentations that move pixels without arithmetic. After them, frames are again square.
MOVES = [
    lambda: augment.RandomHorizontalFlip(),
    lambda: augment.RandomVerticalFlip(),
    lambda: augment.RandomRotation90((0, 3)),
]
CUTS = [
    lambda: augment.RandomCrop((12, 12)),
    lambda: augment.CenterCrop((16, 16)),
    lambda: augment.PadTo((32, 32)),
]
PASTES = [
    lambda: augment.RandomCutMixV2(p=0.7),
    lambda: augment.RandomJigsaw((2, 2), p=0.7),
]


@st.composite
def sequences(draw: st.DrawFn, cuts: Any = CUTS, pastes: int = 4) -> list[Any]:
    """Some moves and at most `pastes` pastes, with at most one cut among them."""
    ops = draw(st.lists(st.sampled_from(MOVES + PASTES), max_size=4))
    for extra in [op for op in ops if op in PASTES][pastes:]:
        ops.remove(extra)
    if draw(st.booleans()):
        ops.insert(draw(st.integers(0, len(ops))), draw(st.sampled_from(cuts)))
    return [op() for op in ops]


def grounds(side: int) -> np.ndarray:
    """A number for each pixel of each sample, from 1: (samples, 1, side, side)."""
    numbers = np.arange(1, SAMPLES * side * side + 1, dtype=np.float32)
    return numbers.reshape(SAMPLES, 1, side, side)


def applied(
    ops: list[Any], through: str | None, seed: int, arrays: dict[str, np.ndarray], further: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    op = augment.AugmentationSequential(*ops, seed=seed)
    op._through = through
    given = {name: torch.tensor(array) for name, array in arrays.items()}
    image = torch.tensor(grounds(SIDE))
    moved, rest = op(image, given, ids=list(range(SAMPLES)), image_keys=[further])
    return moved.numpy(), {name: array.numpy() for name, array in rest.items()}


@settings(deadline=None, max_examples=60)
@given(
    ops=sequences(),
    ratio=st.sampled_from(FINER),
    seed=st.integers(0, 1 << 32),
    through=st.sampled_from([None, "torch"]),
)
def test_finer_images_and_targets_have_the_ground_of_the_image(
    ops: list[Any], ratio: Fraction, seed: int, through: str | None
) -> None:
    step = int(ratio)
    fine = grounds(SIDE * step)
    target = grounds(SIDE)[:, 0]
    moved, arrays = applied(ops, through, seed, {"fine": fine, "depth": target}, "fine")
    # The number of the ground of every finer pixel, where it is not padding.
    sample, place = np.divmod(arrays["fine"].astype(np.int64) - 1, (SIDE * step) ** 2)
    row, column = np.divmod(place, SIDE * step)
    own = sample * SIDE * SIDE + row // step * SIDE + column // step + 1
    own[arrays["fine"] == 0] = 0
    np.testing.assert_array_equal(own, moved.repeat(step, axis=2).repeat(step, axis=3))
    # All finer pixels of a pixel are there, each once.
    inner = np.sort(
        (row % step * step + column % step)
        .reshape(SAMPLES, moved.shape[2], step, moved.shape[3], step)
        .transpose(0, 1, 3, 2, 4)
        .reshape(*moved[:, 0].shape, step * step)
    )
    assert (inner[moved[:, 0] != 0] == np.arange(step * step)).all()
    # Targets are missing in padding.
    want = np.where(moved[:, 0] == 0, np.nan, moved[:, 0])
    np.testing.assert_array_equal(arrays["depth"], want)


@settings(deadline=None, max_examples=60)
@given(
    # Random crops begin between coarser pixels, and interpolate. Where the edge of one piece has
    # divided a coarser pixel and the edge of another divides it again, it may keep a ground that
    # none of its pixels has any more: hence one paste.
    ops=sequences(CUTS[1:], pastes=1),
    ratio=st.sampled_from(COARSER),
    seed=st.integers(0, 1 << 32),
    through=st.sampled_from([None, "torch"]),
)
def test_pixels_of_coarser_images_have_ground_of_the_image(
    ops: list[Any], ratio: Fraction, seed: int, through: str | None
) -> None:
    """All of it, or some if the edge of a pasted piece divides it."""
    step = int(1 / ratio)
    pixels = SIDE // step
    moved, arrays = applied(ops, through, seed, {"coarse": grounds(pixels)}, "coarse")
    sample, place = np.divmod(moved.astype(np.int64) - 1, SIDE * SIDE)
    row, column = np.divmod(place, SIDE)
    own = sample * pixels * pixels + row // step * pixels + column // step + 1
    own[moved == 0] = 0
    coarse = arrays["coarse"]
    cells = own.reshape(SAMPLES, 1, coarse.shape[2], step, coarse.shape[3], step)
    is_of_cell = cells == coarse[:, :, :, None, :, None]
    assert is_of_cell.any(axis=(3, 5)).all()
    is_whole = (cells == cells[:, :, :, :1, :, :1]).all(axis=(3, 5))
    assert is_of_cell.all(axis=(3, 5))[is_whole].all()
    if not any(op.op in ("cutmix_rect", "jigsaw") for op in ops):
        assert is_whole.all()


@pytest.mark.parametrize("through", [None, "torch"])
@pytest.mark.parametrize("ratio", [*FINER, *COARSER])
@pytest.mark.parametrize("seed", range(4))
def test_warps_of_further_images_are_kornias(
    ratio: Fraction, seed: int, through: str | None
) -> None:
    """Kornia warps the further image by the same matrix, for pixels of its size."""
    op = augment.RandomAffine(30, (0.1, 0.1), (0.8, 1.2), 5, padding_mode="border", p=1.0)
    sequence = augment.AugmentationSequential(op, seed=seed)
    sequence._through = through
    factor, side = float(ratio), int(SIDE * ratio)
    rng = np.random.default_rng(seed)
    image = torch.tensor(rng.random((SAMPLES, 2, SIDE, SIDE), dtype=np.float32))
    # Smooth, so that positions between pixels of any size give about the same values.
    y, x = np.mgrid[:side, :side] / side
    waves = np.stack([np.sin(3 * x + 2 * y), np.cos(2 * x - 3 * y)]).astype(np.float32)
    further = torch.tensor(waves).expand(SAMPLES, 2, side, side).contiguous()
    moved, arrays = sequence(image, {"x": further}, ids=list(range(SAMPLES)), image_keys=["x"])
    (step,) = sequence.parameters["steps"]  # type: ignore[index]
    drawn = step["drawn"]
    shear = torch.tensor([one["shear"] for one in drawn]).float().deg2rad()
    matrix = kornia.geometry.transform.get_affine_matrix2d(
        torch.tensor([one["translation"] for one in drawn]).float(),
        torch.tensor([[(SIDE - 1) / 2, (SIDE - 1) / 2]]).expand(SAMPLES, 2),
        torch.tensor([one["scale"] for one in drawn]).float(),
        torch.tensor([float(one["angle"]) for one in drawn]),
        shear[:, 0],
        shear[:, 1],
    )

    def warped(array: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        size, how = array.shape[2:], {"padding_mode": "border", "align_corners": True}
        return kornia.geometry.transform.warp_affine(array, by[:, :2], size, **how)

    # From pixels of the cube to those of the further image, whose outer edges are the same.
    scale = torch.tensor([[factor, 0, (factor - 1) / 2], [0, factor, (factor - 1) / 2], [0, 0, 1]])
    inside = torch.tensor(np.ones((SAMPLES, 1, side, side), np.float32))
    by = scale @ matrix @ scale.inverse()
    inside = kornia.geometry.transform.warp_affine(inside, by[:, :2], (side, side))
    keep = (inside > 0.999).expand_as(further)
    assert keep.float().mean() > 0.4
    torch.testing.assert_close(moved, warped(image, matrix), atol=1e-4, rtol=0)
    torch.testing.assert_close(arrays["x"][keep], warped(further, by)[keep], atol=1e-3, rtol=0)
