"""Two datasets with the same samples in the same order: loaders with one seed draw the same orders,
windows and augmentations, so their batches belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
from hsipack import augment

COUNT, SIZE = 12, (20, 24)
SPLITS = ["train", "val", "train"] * (COUNT // 3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Cubes of 7 bands, and others whose 3 bands are twice the first ones."""
    folder = tmp_path_factory.mktemp("pair")
    rng = np.random.default_rng(4)
    cubes = [rng.integers(0, 900, (*SIZE, 7)).astype(np.float32) for _ in range(COUNT)]
    for name, part in [("msi", slice(3)), ("hsi", slice(7))]:
        factor = 2 if name == "msi" else 1
        samples = [
            (f"scene_{number}", cube[..., part] * factor, {"split": SPLITS[number]})
            for number, cube in enumerate(cubes)
        ]
        hsipack.pack(samples, folder / f"{name}.hsipack")
    return folder / "hsi.hsipack", folder / "msi.hsipack"


AUGMENTATIONS = [
    augment.RandomHorizontalFlip(p=0.5),
    augment.RandomVerticalFlip(p=0.5),
    augment.RandomAffine(degrees=30, translate=(0.1, 0.1), p=0.7),
]


@pytest.mark.parametrize("augmentations", [[], AUGMENTATIONS], ids=["plain", "augmented"])
@pytest.mark.parametrize("split", [None, "train"])
@pytest.mark.parametrize(
    "crop", [None, hsipack.RandomCrop((9, 8), per_cube=2)], ids=["whole", "crop"]
)
def test_loaders_with_one_seed_give_pairs(
    pair: tuple[Path, Path], augmentations: list[Any], split: str | None, crop: Any
) -> None:
    loaders = [
        hsipack.Loader(
            hsipack.open(path, split=split),
            5,
            shuffle=True,
            seed=11,
            crop=crop,
            augment=augmentations,
            device="cpu",
            output="numpy",
            # Threads and slots decide nothing.
            num_threads=threads,
        )
        for path, threads in zip(pair, [1, 3], strict=True)
    ]
    windows = set()
    for _ in range(2):
        for hsi, msi in zip(*loaders, strict=True):
            assert np.array_equal(hsi["id"], msi["id"])
            assert hsi["name"] == msi["name"]
            if crop is not None:
                assert np.array_equal(hsi["window"], msi["window"])
                windows |= {tuple(window) for window in np.asarray(hsi["window"]).tolist()}
            wanted = 2 * hsi["image"][:, :3].astype(np.float64)
            np.testing.assert_allclose(msi["image"].astype(np.float64), wanted, rtol=2e-3, atol=1)
    assert crop is None or len(windows) > 10


def test_another_seed_gives_other_windows(pair: tuple[Path, Path]) -> None:
    crop = hsipack.RandomCrop((9, 8))
    drawn = []
    for seed in (1, 2):
        loader = hsipack.Loader(
            pair[0], 4, seed=seed, crop=crop, device="cpu", output="numpy", shuffle=True
        )
        drawn.append([np.asarray(batch["window"]).tolist() for batch in loader])
    assert drawn[0] != drawn[1]
