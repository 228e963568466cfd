"""Batches that have samples of several datasets: ``hsipack.mix(…, batches="any")``."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hsipack import augment

SIZES = {"enmap": (24, 5), "prisma": (9, 3)}
"""Samples and bands of each dataset."""
TARGET, TARGET_FWHM = [450.0, 520.0, 700.0, 2000.0], [80.0, 60.0, 150.0, 50.0]
"""Bands for resampling, the last of them outside all datasets."""


def waves(name: str) -> list[float]:
    return [400.0 + 100 * band + len(name) for band in range(SIZES[name][1])]


def cubes(name: str, size: tuple[int, int] = (8, 10), wavelengths: bool = True) -> Any:
    count, bands = SIZES[name]
    for number in range(count):
        random = np.random.default_rng([number, bands])
        values = random.random((*size, bands), dtype=np.float32) + number
        values[0, 0, 1] = np.nan
        about: dict[str, Any] = {
            "masks": {"gt": random.integers(0, 4, size, dtype=np.uint8)},
            "targets": {"depth": random.random(size, dtype=np.float32)},
            "label": f"{name}{number % 2}",
            "site": f"{name}-{number}",
            "height": float(number),
            "boxes": [[number % 4, 1, number % 4 + 3, 5]] * (number % 3),
            "box_labels": [f"{name}{number % 2}"] * (number % 3),
        }
        if wavelengths:
            about |= {"wavelengths": waves(name), "fwhm": [90.0] * bands}
        yield f"{name}{number}", values, about


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("mix_items")
    for name in SIZES:
        hsipack.pack(cubes(name), folder / name, dtype="float32")
    return {name: folder / name for name in SIZES}


def mix(packed: dict[str, Any], weights: Any = "size", **options: Any) -> hsipack.Mix:
    return hsipack.mix(packed, weights, batches="any", **{"bands": hsipack.Pad(), **options})


def loader(mixed: hsipack.Mix, batch_size: int = 6, **options: Any) -> hsipack.Loader:
    options = {"device": "cpu", "dtype": "float32", "seed": 3, "shuffle": True, **options}
    return hsipack.Loader(mixed, batch_size, **options)


def padded(image: torch.Tensor, bands: int, missing: float = np.nan) -> torch.Tensor:
    rest = torch.full((bands - image.shape[0], *image.shape[1:]), missing)
    return torch.cat([image, rest])


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(-99), other.nan_to_num(-99))


def items(batch: dict[str, Any]) -> list[tuple[str, int]]:
    return list(zip(batch["source"], batch["id"].tolist(), strict=True))


@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_those_of_the_datasets_with_missing_bands(
    packed: dict[str, Path], shuffle: bool, output: str
) -> None:
    opened = {
        name: hsipack.open(path, output="torch").select(columns=["site", "height"])
        for name, path in packed.items()
    }
    seen: Counter[tuple[str, int]] = Counter()
    mixed = mix(opened)
    extras = ["wavelength", "fwhm", "band_valid", "valid"]
    for batch in loader(mixed, shuffle=shuffle, output=output, extras=extras):
        assert type(batch["image"]) is (torch.Tensor if output == "torch" else np.ndarray)
        count = len(batch["id"])
        assert batch["image"].shape == (count, 5, 8, 10)
        assert [list(SIZES)[number] for number in batch["dataset"].tolist()] == batch["source"]
        assert batch["source"] == sorted(batch["source"])
        assert batch["wavelength"].shape == batch["band_valid"].shape == (count, 5)
        for place, (name, number) in enumerate(items(batch)):
            sample = opened[name][number]
            bands = SIZES[name][1]
            assert equal(torch.as_tensor(batch["image"][place]), padded(sample["image"], 5))
            assert (np.asarray(batch["gt"][place]) == sample["gt"].numpy()).all()
            assert (np.asarray(batch["depth"][place]) == sample["depth"].numpy()).all()
            assert batch["name"][place] == sample["name"] == f"{name}{number}"
            assert batch["site"][place] == f"{name}-{number}"
            assert batch["height"][place] == number
            boxes = np.asarray(batch["boxes"][place]).tolist()
            assert (
                boxes
                == sample["boxes"].tolist()
                == [[number % 4, 1, number % 4 + 3, 5]] * (number % 3)
            )
            classes = [mixed.box_names[label] for label in batch["box_labels"][place]]
            assert classes == [f"{name}{number % 2}"] * (number % 3)
            labels = ["enmap0", "enmap1", "prisma0", "prisma1"]
            assert labels[batch["label"][place]] == f"{name}{number % 2}"
            assert batch["band_valid"][place].tolist() == [band < bands for band in range(5)]
            nm = np.asarray(batch["wavelength"][place])
            assert nm[:bands].tolist() == waves(name)
            assert np.isnan(nm[bands:]).all()
            assert np.isnan(np.asarray(batch["fwhm"][place])).tolist() == [
                b >= bands for b in range(5)
            ]
            valid = np.asarray(batch["valid"][place])
            assert not valid[0, 0]
            assert valid.sum() == 79
        seen.update(items(batch))
    assert seen == Counter((name, n) for name, (count, _) in SIZES.items() for n in range(count))


def test_missing_bands_are_missing_values(packed: dict[str, Path]) -> None:
    opened = {name: hsipack.open(path).select(nan=-1) for name, path in packed.items()}
    batch = next(iter(loader(mix(opened), 33)))
    assert (batch["image"][24:, 3:] == -1).all()
    assert (batch["image"][:, 1, 0, 0] == -1).all()
    assert not batch["image"].isnan().any()


@pytest.mark.parametrize("world_size", range(1, 9))
def test_samples_come_once_in_proportion_on_all_ranks(
    packed: dict[str, Path], world_size: int
) -> None:
    mixed = mix(packed)
    seen: Counter[tuple[str, int]] = Counter()
    lengths = set()
    for rank in range(world_size):
        batches = list(loader(mixed, 2, rank=rank, world_size=world_size))
        lengths.add(len(batches))
        for batch in batches:
            kept = ~batch["padding"].numpy()
            seen.update(one for one, keep in zip(items(batch), kept, strict=True) if keep)
    assert len(lengths) == 1
    assert seen == Counter((name, n) for name, (count, _) in SIZES.items() for n in range(count))


def test_weights_decide_how_many_samples_of_each_a_batch_has(packed: dict[str, Path]) -> None:
    mixed = mix(packed, {"enmap": 3, "prisma": 1})
    batches = list(loader(mixed, 8))
    assert [Counter(batch["source"]) for batch in batches] == [{"enmap": 6, "prisma": 2}] * 4
    batches = list(loader(mixed, 8, epoch_length=80))
    assert [Counter(batch["source"]) for batch in batches] == [{"enmap": 6, "prisma": 2}] * 10
    alone = mix(packed, {"enmap": 0, "prisma": 1}, bands=None)
    assert {source for batch in loader(alone) for source in batch["source"]} == {"prisma"}


@pytest.mark.parametrize(
    ("before", "after"), [((2, 1), (2, 1)), ((2, 2), (3, 1)), ((1, 3), (2, 2))]
)
@pytest.mark.parametrize("stop", [0, 1, 4, 5])
def test_an_interrupted_epoch_goes_on_with_the_next_sample(
    packed: dict[str, Path], before: tuple[int, int], after: tuple[int, int], stop: int
) -> None:
    mixed = mix(packed)

    def ranks(size: tuple[int, int]) -> list[hsipack.Loader]:
        return [
            loader(mixed, size[0], rank=rank, world_size=size[1], crop=(4, 4))
            for rank in range(size[1])
        ]

    whole = [list(one) for one in ranks(before)]
    seen = []
    for number, one in enumerate(ranks(before)):
        batches = iter(one)
        for batch in whole[number][:stop]:
            assert items(next(batches)) == items(batch)
            seen += items(batch)
        state = json.loads(json.dumps(one.state_dict()))
    for number, one in enumerate(ranks(after)):
        one.load_state_dict(state)
        left = list(one)
        if before == after:
            for batch, wanted in zip(left, whole[number][stop:], strict=True):
                assert equal(batch["image"], wanted["image"])
                assert torch.equal(batch["window"], wanted["window"])
        for batch in left:
            pairs = zip(items(batch), batch["padding"].tolist(), strict=True)
            seen += [item for item, is_padding in pairs if not is_padding]
    assert len(set(seen)) == len(seen) == 33


def response(name: str) -> npt.NDArray[np.float64]:
    """The weights of the bands of a dataset for each band of TARGET, with NaN for the last."""
    centers = np.array(waves(name))
    narrow = np.sqrt(np.maximum(np.array(TARGET_FWHM) ** 2 - 90.0**2, 0))
    weights = np.zeros((4, len(centers)))
    for band, (nm, width) in enumerate(zip(TARGET, narrow, strict=True)):
        if width >= 90:
            weights[band] = np.exp(-4 * np.log(2) * ((centers - nm) / width) ** 2)
            weights[band] /= weights[band].sum()
        else:
            after = int(np.searchsorted(centers, nm))
            part = (
                (nm - centers[after - 1]) / (centers[after] - centers[after - 1])
                if 0 < after < len(centers)
                else np.nan
            )
            if 0 < after < len(centers):
                weights[band, after - 1 : after + 1] = 1 - part, part
    return weights


def resample() -> augment.Resample:
    return augment.Resample(TARGET, fwhm=TARGET_FWHM)


@pytest.mark.parametrize("normalize", [None, "standardize"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_resampled_batches_are_those_of_numpy(
    packed: dict[str, Path], dtype: str, normalize: str | None
) -> None:
    opened = {name: hsipack.open(path, dtype="float32") for name, path in packed.items()}
    options: dict[str, Any] = {"dtype": dtype, "normalize": normalize}
    extras = ["wavelength", "fwhm", "band_valid", "valid"]
    for batch in loader(mix(opened, bands=resample()), extras=extras, **options):
        assert np.allclose(batch["wavelength"], TARGET)
        assert np.allclose(batch["fwhm"], TARGET_FWHM)
        for place, (name, number) in enumerate(items(batch)):
            values = opened[name][number]["image"].numpy().astype(np.float64)
            stats = opened[name].stats
            if normalize is not None and stats is not None:
                mean, std = np.asarray(stats.mean), np.asarray(stats.std)
                values = (values - mean[:, None, None]) / std[:, None, None]
            valid = batch["band_valid"][place].numpy()
            assert not valid[3]
            assert valid[:2].all()
            weights = response(name)
            for band in np.flatnonzero(valid):
                used = weights[band] > 0
                wanted = np.tensordot(weights[band][used], values[used], 1)
                found = batch["image"][place, band].numpy().astype(np.float64)
                bound = 1e-5 if dtype == "float32" else 2e-3
                assert np.allclose(found, wanted, rtol=bound, atol=bound, equal_nan=True)
            assert batch["image"][place, ~valid].isnan().all()


def test_equal_bands_need_no_bands(packed: dict[str, Path]) -> None:
    parts = {"first": packed["enmap"], "second": hsipack.open(packed["enmap"])}
    mixed = mix(parts, bands=None)
    wanted = hsipack.open(packed["enmap"])
    for batch in loader(mixed, extras=["wavelength"]):
        assert batch["wavelength"].shape == (5,)
        images = torch.stack([wanted[number]["image"] for number in batch["id"].tolist()])
        assert equal(batch["image"], images)


@pytest.mark.parametrize(
    "crop",
    [
        (4, 6),
        hsipack.GridCrop((4, 5)),
        hsipack.LabelledPatches(3, "gt"),
        hsipack.LabelledPatches(1, "gt"),
        hsipack.WholeCubes(pad="edge"),
    ],
)
@pytest.mark.parametrize("kept", [{}, {"cache": None}, {"num_threads": 1}])
def test_crops_patches_and_spectra_are_mixed(
    packed: dict[str, Path], crop: Any, kept: dict[str, Any]
) -> None:
    opened = {name: hsipack.open(path) for name, path in packed.items()}
    mixed = mix(opened)
    counts: Counter[str] = Counter()
    for batch in loader(mixed, 16, crop=crop, **kept):
        counts.update(batch["source"])
        for place, (name, number) in enumerate(items(batch)):
            row, column, rows, columns = batch["window"][place].tolist()
            image = padded(opened[name][number]["image"], 5)
            down = np.clip(np.arange(row, row + rows), 0, 7)
            across = np.clip(np.arange(column, column + columns), 0, 9)
            if row < 0 or column < 0 or row + rows > 8 or column + columns > 10:
                continue
            wanted = image[:, down][:, :, across]
            found = batch["image"][place].reshape(wanted.shape)
            assert equal(found, wanted)
    assert set(counts) == set(SIZES)


def test_cubes_of_different_sizes_are_refused_or_padded(
    packed: dict[str, Path], tmp_path: Path
) -> None:
    hsipack.pack(cubes("prisma", (6, 7)), tmp_path / "small", dtype="float32")
    mixed = mix({"enmap": packed["enmap"], "prisma": tmp_path / "small"})
    with pytest.raises(hsipack.ConflictError, match="windows of 8x10x5 and of 6x7x3"):
        loader(mixed)
    batch = next(iter(loader(mixed, 33, crop=hsipack.WholeCubes(pad="edge"))))
    assert batch["image"].shape == (33, 5, 8, 10)
    assert batch["inside"].sum((1, 2)).tolist() == [80] * 24 + [42] * 9
    assert next(iter(loader(mixed, crop=(4, 4))))["image"].shape[2:] == (4, 4)


def test_augmentations_run_on_the_whole_batch(packed: dict[str, Path]) -> None:
    opened = {name: hsipack.open(path) for name, path in packed.items()}
    flips = [augment.RandomHorizontalFlip(0.5), augment.RandomBands(2)]
    turned = set()
    for batch in loader(mix(opened), 33, augment=flips, extras=["wavelength", "band_valid"]):
        assert batch["image"].shape == (33, 2, 8, 10)
        for place, (name, number) in enumerate(items(batch)):
            image = padded(opened[name][number]["image"], 5)[batch["bands"][place]]
            flipped = equal(batch["image"][place], image.flip(-1))
            assert flipped or equal(batch["image"][place], image)
            turned.add((number, flipped))
            count = SIZES[name][1]
            assert batch["band_valid"][place].tolist() == (batch["bands"][place] < count).tolist()
    # Samples with the same number in two datasets are not flipped alike.
    assert len({number for number, flipped in turned if flipped}) < 33
    both = {n for n, _ in turned if {(n, True), (n, False)} <= turned}
    assert both


def test_each_dataset_is_standardised_by_its_statistics(packed: dict[str, Path]) -> None:
    opened = {name: hsipack.open(path) for name, path in packed.items()}
    batch = next(iter(loader(mix(opened), 33, normalize="standardize")))
    for first, last, bands in ((0, 24, 5), (24, 33, 3)):
        own = batch["image"][first:last].numpy()
        assert np.allclose(np.nanmean(own[:, :bands], axis=(0, 2, 3)), 0, atol=1e-3)
        assert np.allclose(np.nanstd(own[:, :bands], axis=(0, 2, 3)), 1, atol=1e-2)
        assert np.isnan(own[:, bands:]).all()


def test_different_float_types_become_the_wider_one(
    packed: dict[str, Path], tmp_path: Path
) -> None:
    hsipack.pack(cubes("prisma"), tmp_path / "half", dtype="float16")
    opened = {"enmap": hsipack.open(packed["enmap"]), "prisma": hsipack.open(tmp_path / "half")}
    batch = next(iter(loader(mix(opened), 33)))
    for place, (name, number) in enumerate(items(batch)):
        image = opened[name][number]["image"].float()
        assert equal(batch["image"][place], padded(image, 5))


@pytest.mark.parametrize("batch_size", [1, 6])
def test_damaged_samples_are_skipped(
    packed: dict[str, Path], tmp_path: Path, batch_size: int
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(packed["prisma"], damaged)
    shard = max(damaged.glob("**/c/**/0"), key=lambda file: file.stat().st_size)
    stored = bytearray(shard.read_bytes())
    stored[100] ^= 0xFF
    shard.write_bytes(stored)
    mixed = mix({"enmap": packed["enmap"], "prisma": damaged})
    with loader(mixed, batch_size, on_damage="skip") as reading:
        batches = list(reading)
        assert len(batches) == len(reading)
        assert reading.stats().loader.skipped == 1
    seen = []
    for batch in batches:
        pairs = zip(items(batch), batch["padding"].tolist(), strict=True)
        seen += [item for item, is_padding in pairs if not is_padding]
        sample = hsipack.open(packed[batch["source"][-1]])[batch["id"][-1].item()]
        assert equal(batch["image"][-1], padded(sample["image"], 5))
    assert len(seen) == len(set(seen)) == 32
    with loader(mixed) as reading, pytest.raises(hsipack.DamagedError, match="damaged"):
        list(reading)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda packed: mix(packed, bands=None), "datasets of 5 and 3 bands"),
        (lambda packed: hsipack.mix(packed, bands=hsipack.Pad()), 'batches="one"'),
        (lambda packed: hsipack.mix(packed, batches="all"), "batches"),
        (lambda packed: mix(packed, bands="pad"), "bands"),
        (lambda packed: mix(packed, bands=augment.RandomBands(2)), "bands"),
    ],
)
def test_bands_that_differ_are_refused(packed: dict[str, Path], make: Any, what: str) -> None:
    with pytest.raises((hsipack.ConflictError, hsipack.ArgumentTypeError), match=what) as raised:
        loader(make(packed))
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"decode": "device"}, "GPU decodes"),
        ({"shuffle_window": 1000}, "shuffle window"),
        ({"device_cache": "decoded"}, "stay on the device"),
        ({"augment": [augment.Resample([500, 600])]}, "resample augments"),
    ],
)
def test_ways_that_cannot_mix_are_refused(
    packed: dict[str, Path], options: dict[str, Any], what: str
) -> None:
    with pytest.raises(hsipack.UnsupportedError, match=what) as raised:
        loader(mix(packed), **options)
    assert raised.value.remedy


def test_a_sensor_without_wavelengths_is_not_resampled(
    packed: dict[str, Path], tmp_path: Path
) -> None:
    hsipack.pack(cubes("prisma", wavelengths=False), tmp_path / "plain", dtype="float32")
    mixed = mix({"enmap": packed["enmap"], "prisma": tmp_path / "plain"}, bands=resample())
    with pytest.raises(hsipack.ConflictError, match="has no wavelengths") as raised:
        loader(mixed)
    assert "plain" in str(raised.value)


def test_masks_of_different_types_are_refused(packed: dict[str, Path], tmp_path: Path) -> None:
    def wide() -> Any:
        for name, values, about in cubes("prisma"):
            yield (
                name,
                values,
                {**about, "masks": {"gt": 1000 * about["masks"]["gt"].astype(np.uint16)}},
            )

    hsipack.pack(wide(), tmp_path / "wide", dtype="float32")
    mixed = mix({"enmap": packed["enmap"], "prisma": tmp_path / "wide"})
    with pytest.raises(hsipack.ConflictError, match='both masks "gt"'):
        loader(mixed)


def test_integers_have_no_missing_bands(packed: dict[str, Path], tmp_path: Path) -> None:
    def whole() -> Any:
        for name, values, about in cubes("prisma"):
            yield name, np.nan_to_num(values).astype(np.int16), about

    hsipack.pack(whole(), tmp_path / "whole", dtype="int16")
    stored = hsipack.open(tmp_path / "whole").select(physical=False)
    enmap = hsipack.open(packed["enmap"]).select(physical=False)
    with pytest.raises((hsipack.UnsupportedError, hsipack.ConflictError)):
        loader(mix({"enmap": enmap, "prisma": stored}), dtype="int16")
    paths = {"enmap": packed["enmap"], "prisma": tmp_path / "whole"}
    batch = next(iter(loader(mix(paths), 33)))
    opened = hsipack.open(tmp_path / "whole", dtype="float32")
    for place in range(24, 33):
        wanted = opened[batch["id"][place].item()]["image"].float()
        assert equal(batch["image"][place], padded(wanted, 5))
