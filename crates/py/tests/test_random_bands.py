"""Random bands: which ones images have, and what is said about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch
from hsipack import augment as aug

ROWS, COLUMNS, BANDS = 12, 10, 8
WAVELENGTHS = [400.0 + 50 * band for band in range(BANDS)]
FWHM = [5.0 + band for band in range(BANDS)]


@pytest.fixture(scope="module", params=[None, 3])
def packed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    out = tmp_path_factory.mktemp("bands") / "packed.hsipack"
    about = {
        "wavelengths": WAVELENGTHS,
        "fwhm": FWHM,
        "good_bands": [band != 3 for band in range(BANDS)],
    }
    # Every value says its sample and its band.
    cubes = np.broadcast_to(np.arange(BANDS), (6, ROWS, COLUMNS, BANDS)).astype(np.float32)
    cubes = cubes + 10 * np.arange(6)[:, None, None, None]
    hsipack.pack(
        ((f"c{number}", cube, about) for number, cube in enumerate(cubes)),
        out,
        band_group=request.param,
    )
    return out


def options(per: str, contiguous: bool, **more: Any) -> dict[str, Any]:
    extras = ["wavelength", "fwhm", "band_valid"]
    bands = aug.RandomBands(4, contiguous, per=per)
    return {"seed": 3, "shuffle": True, "augment": [bands], "extras": extras, **more}


@pytest.mark.parametrize("per", ["batch", "item"])
@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("read", [None, [6, 5, 4, 3, 1]])
def test_batches_say_which_bands_they_have(
    packed: Path, per: str, contiguous: bool, read: list[int] | None
) -> None:
    numbers = np.arange(BANDS) if read is None else np.array(read)
    seen = set()
    with hsipack.Loader(packed, 3, bands=read, **options(per, contiguous)) as loader:
        for _ in range(4):
            for batch in loader:
                bands = batch["bands"].numpy()
                assert batch["image"].shape == (3, 4, ROWS, COLUMNS)
                assert bands.shape == (3, 4)
                stored = numbers[bands]
                want = stored + 10 * batch["id"].numpy()[:, None]
                assert (batch["image"].numpy() == want[:, :, None, None]).all()
                assert all(len(set(one)) == 4 for one in bands.tolist())
                assert (np.diff(bands) > 0).all()
                if contiguous:
                    assert (np.diff(bands) == 1).all()
                same = (bands == bands[0]).all()
                assert same or per == "item"
                for key, values in (("wavelength", WAVELENGTHS), ("fwhm", FWHM)):
                    of_items = np.array(values, dtype=np.float32)[stored]
                    assert np.array_equal(batch[key], of_items[0] if same else of_items)
                assert np.array_equal(batch["band_valid"], stored != 3)
                seen.update(map(tuple, bands.tolist()))
    assert len(seen) > 1


def test_a_resumed_loader_draws_the_same_bands(packed: Path) -> None:
    with hsipack.Loader(packed, 2, **options("batch", False)) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        want = [batch["bands"].tolist() for batch in batches]
    with hsipack.Loader(packed, 2, **options("batch", False)) as again:
        again.load_state_dict(state)
        assert [batch["bands"].tolist() for batch in again] == want


def test_dictionaries_follow(packed: Path) -> None:
    with hsipack.Loader(packed, 3, extras=["wavelength", "band_valid"]) as loader:
        batch = next(iter(loader))
    made = aug.AugmentationSequential(aug.RandomBands(3, per="item"), seed=1)(batch)
    assert isinstance(made["bands"], torch.Tensor)
    bands = made["bands"].numpy()
    assert np.array_equal(made["wavelength"], np.array(WAVELENGTHS, np.float32)[bands])
    assert np.array_equal(made["band_valid"], bands != 3)
    assert batch["wavelength"].shape == (BANDS,)
    sample = {"image": np.zeros((BANDS, 4, 4), np.float32)}
    alone = aug.AugmentationSequential(aug.RandomBands(3))(sample)
    assert alone["image"].shape == (3, 4, 4)
    assert alone["bands"].shape == (3,)


def test_orders_may_be_random() -> None:
    image = np.arange(BANDS, dtype=np.float32)[None, :, None, None]
    pipeline = aug.AugmentationSequential(aug.RandomBands(BANDS, sorted=False), seed=0)
    orders = [pipeline(image).ravel().tolist() for _ in range(5)]
    assert all(sorted(order) == list(range(BANDS)) for order in orders)
    assert any(order != sorted(order) for order in orders)


def test_groups_of_bands_are_dropped_together() -> None:
    groups = [[0, 1, 2], [5, 7]]
    drop = aug.RandomChannelDropout(1, -1.0, p=1.0, groups=groups)
    image = np.ones((40, BANDS, 3, 3), np.float32)
    seen = set()
    for made in drop(image):
        gone = tuple(np.flatnonzero((made == -1).all((1, 2))).tolist())
        assert (made[list(set(range(BANDS)) - {*gone})] == 1).all()
        seen.add(gone)
    assert seen == {(0, 1, 2), (5, 7)}


def test_what_is_wrong_is_refused(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(hsipack.ConflictError, match="it cannot keep 9 of 8 bands"):
        hsipack.Loader(packed, augment=[aug.RandomBands(9)])
    with pytest.raises(hsipack.MalformedError, match="expected `batch` or `item`"):
        hsipack.Loader(packed, augment=[aug.RandomBands(2, per="sample")])
    with pytest.raises(hsipack.ConflictError, match="name band 8, but there are 8 bands"):
        hsipack.Loader(packed, augment=[aug.RandomChannelDropout(1, groups=[[1, 8]])])
    with pytest.raises(hsipack.ConflictError, match="drop 2 to 2 of 1 groups"):
        hsipack.Loader(packed, augment=[aug.RandomChannelDropout(2, groups=[[1]])])
    path = tmp_path / "column.hsipack"
    hsipack.pack([("a", np.zeros((3, 3, 4), np.float32), {"bands": 4})], path)
    with pytest.raises(hsipack.ConflictError, match="named 'bands'"):
        hsipack.Loader(path, augment=[aug.RandomBands(2)], columns="bands")
