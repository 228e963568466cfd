"""Resampled bands: their values against NumPy, and what is said about them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hsipack import augment as aug

Numbers = npt.NDArray[np.float64]
ROWS, COLUMNS = 7, 9
NM = np.concatenate([np.arange(400, 700, 6.5), np.arange(705, 1000, 10.0)])
FWHM = np.where(NM < 700, 8.0, 12.0)
GOOD = (NM < 755) | (NM > 775)
TARGET, WIDTHS = [842.0, 490.0, 560.0, 665.0, 765.0, 1610.0], [115.0, 65.0, 35.0, 30.0, 8.0, 90.0]


def cells(nm: Numbers, fwhm: Numbers | None, good: npt.NDArray[np.bool_]) -> list[Any]:
    """(band, low, high) of each valid band, by the text of the documentation."""
    order = [band for band in np.argsort(nm, kind="stable") if good[band]]
    made = []
    for rank, band in enumerate(order):
        below = nm[band] - nm[order[rank - 1]] if rank else None
        above = nm[order[rank + 1]] - nm[band] if rank + 1 < len(order) else None
        alone = 0.0 if fwhm is None else fwhm[band]
        around = [
            nm[order[next]] - nm[order[next - 1]]
            for next in range(max(rank - 1, 1), min(rank + 3, len(order)))
        ]
        around = sorted(distance for distance in around if distance > 0)
        typical = around[(len(around) - 1) // 2] if around else 0.0
        limit = typical if fwhm is None else fwhm[band]
        reach = [
            min((side if side is not None else other if other is not None else alone) / 2, limit)
            for side, other in ((below, above), (above, below))
        ]
        made.append((band, nm[band] - reach[0], nm[band] + reach[1]))
    return made


def matrix(
    nm: Numbers,
    fwhm: Numbers | None,
    good: npt.NDArray[np.bool_],
    target: Numbers,
    widths: Numbers | None,
) -> Numbers:
    """The weights (source, target), NaN for bands that are not valid, in the plainest way."""
    all_cells = cells(nm, fwhm, good)
    weights = np.zeros((len(nm), len(target)))
    for new, centre in enumerate(target):
        if widths is None:
            covered = float(any(low <= centre <= high for _, low, high in all_cells))
        else:
            scale = 2 * math.sqrt(math.log(2)) / widths[new]
            covered = sum(
                math.erf((high - centre) * scale) - math.erf((low - centre) * scale)
                for _, low, high in all_cells
            )
            covered /= 2
        if covered < 0.5:
            weights[:, new] = np.nan
            continue
        own = {band: 0.0 if fwhm is None else fwhm[band] for band, _, _ in all_cells}
        nearest = min(all_cells, key=lambda cell: abs(nm[cell[0]] - centre))
        width = 0.0 if widths is None else widths[new]
        narrowed = math.sqrt(max(width**2 - own[nearest[0]] ** 2, 0))
        if narrowed < nearest[2] - nearest[1] or widths is None:
            bands = [band for band, _, _ in all_cells]
            identity = np.eye(len(bands))
            weights[bands, new] = [np.interp(centre, nm[bands], row) for row in identity]
            continue
        for band, low, high in all_cells:
            sigma = math.sqrt(max(width**2 - own[band] ** 2, 1e-300))
            response = math.exp(-4 * math.log(2) * ((nm[band] - centre) / sigma) ** 2)
            weights[band, new] = response * (high - low)
        weights[weights[:, new] < 1e-6 * weights[:, new].max(), new] = 0
        weights[:, new] /= weights[:, new].sum()
    return weights


def resampled(image: npt.NDArray[Any], weights: Numbers) -> Numbers:
    """(bands, …) to (new bands, …); a missing value stays with the bands that need it."""
    values = image.astype(np.float64)
    known = np.tensordot(weights.T, np.nan_to_num(values, posinf=0, neginf=0), 1)
    lost = np.tensordot((weights != 0).T.astype(float), (~np.isfinite(values)).astype(float), 1)
    return np.where(lost > 0, np.nan, known)


def dataset_weights(bands: list[int] | None = None) -> Numbers:
    chosen = np.arange(len(NM)) if bands is None else np.array(bands)
    return matrix(NM[chosen], FWHM[chosen], GOOD[chosen], np.array(TARGET), np.array(WIDTHS))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("resample") / "packed.hsipack"
    random = np.random.default_rng(0)
    about = {"wavelengths": NM, "fwhm": FWHM, "good_bands": GOOD}
    cubes = random.random((6, ROWS, COLUMNS, len(NM)), dtype=np.float32)
    cubes[:, 2, 3, 12] = np.nan
    cubes[:, 4, 4, np.flatnonzero(~GOOD)[0]] = np.nan
    hsipack.pack(
        ((f"c{number}", cube, about) for number, cube in enumerate(cubes)), out, dtype="float32"
    )
    return out


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("through", [None, "torch"])
def test_any_bands_are_resampled_as_numpy_does(seed: int, through: str | None) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(3, 60))
    steps = random.uniform(2, 12, count) * np.where(random.random(count) < 0.05, 20, 1)
    nm = (400 + np.cumsum(steps)).astype(np.float32).astype(np.float64)
    fwhm = random.uniform(3, 15, count).astype(np.float32).astype(np.float64) if seed % 3 else None
    good = random.random(count) > (0.2 if seed % 2 else 0)
    good[count // 2] = True
    target = random.uniform(nm[0] - 5, nm[-1] + 5, 12)
    target[0] = nm[count // 2]
    widths = random.uniform(1, 60, 12) if seed % 5 else None
    if seed % 4 == 0:
        nm, good = nm[::-1].copy(), good[::-1].copy()
        fwhm = None if fwhm is None else fwhm[::-1].copy()
    image = random.normal(0.3, 0.1, (2, count, 5, 4)).astype(np.float32)
    image[0, count // 3, 1, 2] = np.nan
    image[:, ~good] = np.nan
    batch = {"image": image, "wavelength": nm.astype(np.float32), "band_valid": good}
    if fwhm is not None:
        batch["fwhm"] = fwhm.astype(np.float32)
    flipped = nm[::-1] if nm[0] > nm[-1] else nm
    weights = matrix(nm, fwhm, good, target, widths)
    if flipped is not nm:
        # np.interp needs ascending wavelengths.
        other = None if fwhm is None else fwhm[::-1]
        weights = matrix(flipped, other, good[::-1], target, widths)[::-1]
    pipeline = aug.AugmentationSequential(aug.Resample(target, widths))
    pipeline._through = through
    if np.isnan(weights).all():
        with pytest.raises(hsipack.ConflictError, match="no bands at"):
            pipeline(batch)
        return
    made = pipeline(batch)
    want = np.stack([resampled(one, weights) for one in image])
    assert np.array_equal(np.isnan(made["image"]), np.isnan(want))
    np.testing.assert_allclose(made["image"], want, rtol=1e-5, atol=1e-6)
    assert np.array_equal(made["band_valid"], ~np.isnan(weights[0]))
    assert np.array_equal(made["wavelength"], target.astype(np.float32))
    constant = pipeline({**batch, "image": np.full_like(image, 0.7)})["image"]
    assert np.allclose(constant[:, made["band_valid"]], 0.7, rtol=3e-7)


@pytest.mark.parametrize("bands", [None, list(range(60, 0, -1))])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_batches_equal_samples_resampled_by_numpy(
    packed: Path, bands: list[int] | None, dtype: str
) -> None:
    dataset = hsipack.open(packed)
    dataset = dataset if bands is None else dataset.select(bands=bands)
    weights = dataset_weights() if bands is None else dataset_weights(bands[::-1])[::-1]
    valid = ~np.isnan(weights[0])
    assert bands is not None or valid.tolist() == [True, True, True, True, False, False]
    names = ["wavelength", "fwhm", "band_valid", "valid"]
    options: dict[str, Any] = {"augment": [aug.Resample(TARGET, WIDTHS)], "extras": names}
    with hsipack.Loader(dataset, 4, dtype=dtype, **options) as loader:
        for batch in loader:
            for image, ids in zip(batch["image"], batch["id"], strict=True):
                sample = np.asarray(dataset[int(ids)]["image"], dtype=np.float64)
                want = resampled(sample, weights)
                have = image.float().numpy()
                assert np.array_equal(np.isnan(have), np.isnan(want))
                rtol = 1e-5 if dtype == "float32" else 1e-3
                np.testing.assert_allclose(have, want, rtol=rtol, atol=rtol / 10)
            assert np.array_equal(batch["wavelength"], np.array(TARGET, np.float32))
            assert np.array_equal(batch["fwhm"], np.array(WIDTHS, np.float32))
            assert np.array_equal(batch["band_valid"], np.tile(valid, (len(batch["id"]), 1)))
            finite = np.isfinite(batch["image"].float().numpy()[:, valid]).all(1)
            assert np.array_equal(batch["valid"], finite)
            assert not batch["valid"][:, 2, 3].any()
            assert batch["valid"][:, 4, 4].all()


def test_bands_are_drawn_of_those_that_were_resampled(packed: Path) -> None:
    grid = np.arange(450.0, 650.0, 10)
    chain = [aug.Resample(grid, 12.0), aug.RandomBands(5, per="item"), aug.RandomHorizontalFlip()]
    options: dict[str, Any] = {"augment": chain, "seed": 4, "extras": ["wavelength", "fwhm"]}
    whole = aug.AugmentationSequential(aug.Resample(grid, 12.0))
    with hsipack.Loader(packed, 3, dtype="float32", **options) as loader:
        batches = list(loader)
        for batch in batches:
            assert np.array_equal(batch["wavelength"], grid.astype(np.float32)[batch["bands"]])
            assert (batch["fwhm"] == 12).all()
    with hsipack.Loader(packed, 6, dtype="float32", extras=["wavelength", "fwhm"]) as loader:
        stored = whole(next(iter(loader)))
    for batch in batches:
        for image, bands, sample in zip(batch["image"], batch["bands"], batch["id"], strict=True):
            want = stored["image"][int(sample)][bands]
            assert any(
                torch.equal(image.nan_to_num(), one.nan_to_num()) for one in (want, want.flip(-1))
            )
    with hsipack.Loader(packed, 3, dtype="float32", **options) as loader:
        batches_of = iter(loader)
        next(batches_of)
        state = loader.state_dict()
    with hsipack.Loader(packed, 3, dtype="float32", **options) as again:
        again.load_state_dict(state)
        (last,) = list(again)
        assert torch.equal(last["image"].nan_to_num(), batches[1]["image"].nan_to_num())


def test_datasets_of_other_bands_are_resampled_each_from_its_own(
    packed: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.hsipack"
    nm = np.linspace(420, 1000, 30)
    cube = np.broadcast_to(nm.astype(np.float32) / 1000, (ROWS, COLUMNS, 30))
    hsipack.pack([("x", cube, {"wavelengths": nm})], other, dtype="float32")
    mixed = hsipack.mix({"a": hsipack.open(packed), "b": hsipack.open(other)}, weights="equal")
    grid = aug.Resample([500.0, 600.0, 800.0])
    seen = set()
    with hsipack.Loader(
        mixed, 2, dtype="float32", augment=[grid], extras=["band_valid", "wavelength"]
    ) as loader:
        for batch in loader:
            assert batch["image"].shape[1] == 3
            assert batch["wavelength"].tolist() == [500, 600, 800]
            if batch["source"][0] == "b":
                want = torch.tensor([0.5, 0.6, 0.8])[None, :, None, None]
                assert torch.allclose(batch["image"], want.expand_as(batch["image"]), rtol=1e-6)
            seen.update(batch["source"])
    assert seen == {"a", "b"}


def test_datasets_of_weight_zero_do_not_lend_their_bands(packed: Path, tmp_path: Path) -> None:
    nm = np.linspace(420, 700, 20)
    cube = np.ones((ROWS, COLUMNS, 20), dtype=np.float32)
    hsipack.pack([("x", cube, {"wavelengths": nm})], tmp_path / "b.hsipack", dtype="float32")
    datasets = {"unused": packed, "a": packed, "b": tmp_path / "b.hsipack"}
    mixed = hsipack.mix(datasets, {"unused": 0, "a": 1, "b": 1})
    valid = {"a": [True, True, True], "b": [True, True, False]}
    grid = aug.Resample([500.0, 600.0, 800.0])
    with hsipack.Loader(mixed, 1, dtype="float32", augment=[grid], extras=["band_valid"]) as loader:
        sources = set()
        for batch in loader:
            (source,) = batch["source"]
            assert batch["band_valid"].tolist() == [valid[source]]
            sources.add(source)
    assert sources == {"a", "b"}


def test_cubes_are_packed_with_other_bands(packed: Path, tmp_path: Path) -> None:
    dataset = hsipack.open(packed)
    want = np.stack([resampled(np.asarray(one["image"]), dataset_weights()) for one in dataset])
    cubes = [np.asarray(one["image"]).transpose(1, 2, 0) for one in dataset]
    about = {"wavelengths": NM, "fwhm": FWHM, "good_bands": GOOD}
    gone = [False, False, False, False, True, True]
    grid = aug.Resample(TARGET, WIDTHS)
    hsipack.pack(
        ((f"c{number}", cube, about) for number, cube in enumerate(cubes)),
        tmp_path / "made.hsipack",
        resample=grid,
        dtype="float32",
    )
    (tmp_path / "cubes").mkdir()
    for number, cube in enumerate(cubes):
        np.save(tmp_path / f"cubes/c{number}.npy", cube)
    centres = NM.tolist()
    hsipack.convert(
        tmp_path / "cubes",
        tmp_path / "converted.hsipack",
        axes="yxb",
        band_centers=centres,
        resample=packed,
        dtype="float32",
    )
    made = hsipack.open(tmp_path / "made.hsipack")
    (stack,) = made.stacks.values()
    assert np.array_equal(stack.wavelengths, TARGET)
    assert np.array_equal(stack.fwhm, WIDTHS)
    assert list(stack.bad_bands) == np.flatnonzero(gone).tolist()
    have = np.stack([np.asarray(one["image"]) for one in made])
    np.testing.assert_allclose(have, want, rtol=1e-6)
    # The bands of a dataset, of which the cubes do not know the widths.
    converted = hsipack.open(tmp_path / "converted.hsipack")
    assert np.array_equal(converted.wavelengths, NM)
    with pytest.raises(hsipack.ConflictError, match="names of sensors are not known"):
        hsipack.convert(tmp_path / "cubes", tmp_path / "no", axes="yxb", resample="sentinel2")


def test_dictionaries_of_tensors_and_single_images_follow() -> None:
    nm = torch.arange(400.0, 500.0, 10)
    sample = {"image": torch.rand(10, 3, 4), "wavelength": nm, "fwhm": torch.full((10,), 12.0)}
    made = aug.Resample([425.0, 430.0])(sample)
    assert made["image"].shape == (2, 3, 4)
    assert torch.allclose(made["image"][0], sample["image"][2:4].mean(0))
    assert torch.equal(made["image"][1], sample["image"][3])
    assert made["wavelength"].tolist() == [425, 430]
    assert made["fwhm"].isnan().all()
    assert made["band_valid"].tolist() == [True, True]
    assert sample["wavelength"] is nm
    again = aug.AugmentationSequential(aug.Resample([425.0]))
    batch = {"image": torch.rand(2, 10, 3, 4), "wavelength": nm.expand(2, 10)}
    first = again(batch)
    assert torch.equal(again.replay(batch)["image"], first["image"])
    other = {"image": torch.rand(2, 5, 3, 4), "wavelength": nm[:5]}
    assert again(other)["image"].shape == (2, 1, 3, 4)


def test_wrong_bands_are_refused(packed: Path, tmp_path: Path) -> None:
    grid = aug.Resample([500.0, 600.0])
    bare = tmp_path / "bare.hsipack"
    hsipack.pack([("a", np.zeros((3, 3, 4), np.float32))], bare)
    with pytest.raises(hsipack.ConflictError, match="no wavelengths to resample") as caught:
        hsipack.Loader(bare, augment=[grid])
    assert str(bare) in str(caught.value)
    with pytest.raises(hsipack.ConflictError, match="put resample before random_bands"):
        hsipack.Loader(packed, augment=[aug.RandomBands(3), grid])
    with pytest.raises(hsipack.ConflictError, match="standardised by their own statistics"):
        hsipack.Loader(packed, augment=[grid], normalize="standardize")
    with pytest.raises(hsipack.ConflictError, match="no bands at the 1 wavelengths"):
        hsipack.Loader(packed, augment=[aug.Resample([2190.0])])
    with pytest.raises(hsipack.ConflictError, match="Resample has no fwhm"):
        hsipack.Loader(packed, augment=[grid], extras=["fwhm"])
    with pytest.raises(hsipack.ConflictError, match="wavelengths of the images are unknown"):
        grid(np.zeros((1, 4, 2, 2), np.float32))
    image = np.zeros((2, 4, 2, 2), np.float32)
    with pytest.raises(hsipack.ConflictError, match="differs between the images"):
        grid({"image": image, "wavelength": np.arange(8.0).reshape(2, 4) + 500})
    with pytest.raises(hsipack.ConflictError, match="5 wavelengths for images of 4 bands"):
        grid({"image": image, "wavelength": np.arange(500.0, 505)})
    with pytest.raises(hsipack.ConflictError, match="2 numbers for 3 wavelengths"):
        aug.Resample([1, 2, 3], [4, 5])
    with pytest.raises(hsipack.ConflictError, match="the width -1"):
        aug.Resample([1, 2], -1)
    with pytest.raises(hsipack.ArgumentTypeError, match="give a list of numbers"):
        aug.Resample([])
    # Numbers for the new bands standardise after it.
    chain = [grid, aug.Normalize([0.5, 0.5], [2.0, 2.0])]
    with hsipack.Loader(packed, 2, augment=chain) as loader:
        assert next(iter(loader))["image"].shape[1] == 2
