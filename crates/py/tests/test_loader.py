"""Batches: their content, order and state, and how long they may be kept."""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import pickle
import re
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch
from conftest import BANDS, COLUMNS, CUBES, ROWS
from hsipack import loader_reports
from torch.utils.data import (
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler


def make(dataset: Any, batch_size: int = 4, **options: Any) -> hsipack.Loader:
    shared = {"seed": 0, "device": "cpu", "num_threads": 2}
    return hsipack.Loader(dataset, batch_size, **{**shared, **options})


def ids(loader: hsipack.Loader) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader]


def test_batches_are_the_samples(dataset: str) -> None:
    ds = hsipack.open(dataset)
    ds = ds.select(columns=["age", "moisture", "smoker", "group"])
    with make(ds, shuffle=True, seed=3) as loader:
        seen = []
        for batch in loader:
            image = batch["image"]
            assert image.shape == (4, BANDS, ROWS, COLUMNS)
            assert image.dtype == torch.float16
            assert image.is_contiguous(memory_format=torch.channels_last)
            for place, one in enumerate(batch["id"].tolist()):
                sample = ds[one]
                for key in ("image", "labels", "layers"):
                    assert torch.equal(batch[key][place], sample[key]), key
                assert batch["label"][place] == sample["label"]
                assert batch["name"][place] == sample["name"]
                assert batch["group"][place] == f"patient {one // 3}"
            numbers = batch["id"]
            assert torch.equal(batch["age"], numbers * 10)
            assert torch.equal(batch["moisture"], numbers / 8.0)
            assert torch.equal(batch["smoker"], numbers % 2 == 0)
            assert batch["window"].tolist() == [[0, 0, ROWS, COLUMNS]] * 4
            assert not batch["padding"].any()
            seen += numbers.tolist()
        assert sorted(seen) == list(range(CUBES))
        assert seen != sorted(seen)


def test_an_iteration_is_an_epoch_and_the_next_one_another(dataset: str) -> None:
    loader = make(dataset, shuffle=True)
    epochs = [ids(loader) for _ in range(3)]
    assert len(loader) == 3
    assert all(len(epoch) == 3 for epoch in epochs)
    assert all(
        sorted(functools.reduce(operator.iadd, epoch, [])) == list(range(CUBES)) for epoch in epochs
    )
    assert all(one != two for one, two in pairwise(epochs))
    assert loader.epoch == 3
    loader.set_epoch(1)
    assert ids(loader) == epochs[1]
    # A new loader gives the same.
    assert [ids(again) for again in [make(dataset, shuffle=True)]] == [epochs[0]]


def test_an_abandoned_iteration_is_followed_by_a_whole_epoch(dataset: str) -> None:
    loader = make(dataset, shuffle=True)
    whole = [ids(loader) for _ in range(2)]
    loader.set_epoch(0)
    first = next(iter(loader))["id"].tolist()
    assert first == whole[0][0]
    assert ids(loader) == whole[1]
    loader.set_epoch(0)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  (like a loop of a user)
        for _ in loader:
            1 / 0  # noqa: B018
    assert ids(loader) == whole[1]


def test_a_newer_iteration_ends_the_older_one(dataset: str) -> None:
    loader = make(dataset)
    older = iter(loader)
    next(older)
    newer = iter(loader)
    next(newer)
    with pytest.raises(hsipack.ConflictError, match="newer iteration"):
        next(older)
    assert len(list(newer)) == 2
    with pytest.raises(StopIteration):
        next(newer)


def test_it_resumes_with_the_very_next_batch(dataset: str) -> None:
    options = {
        "shuffle": True,
        "seed": 5,
        "crop": (8, 8),
        "augment": [hsipack.augment.RandomHorizontalFlip()],
    }
    loader = make(dataset, **options)
    whole = [[batch["image"] for batch in loader] for _ in range(2)]
    for given in range(4):
        loader.set_epoch(0)
        iteration = iter(loader)
        for _ in range(given):
            next(iteration)
        state = loader.state_dict()
        again = make(dataset, **options)
        again.load_state_dict(state)
        rest = list(again)
        # After the last batch of an epoch, the next epoch begins.
        expected = whole[0][given:] if given < 3 else whole[1]
        assert len(rest) == len(expected)
        assert all(
            torch.equal(batch["image"], image) for batch, image in zip(rest, expected, strict=True)
        )
        assert len(again) == 3
        if given < 3:
            assert all(
                torch.equal(one["image"], two) for one, two in zip(again, whole[1], strict=True)
            )
        # A pickled loader is at the same place.
        moved = pickle.loads(pickle.dumps(loader))
        assert len(list(moved)) == len(expected)


def test_an_epoch_goes_on_with_another_batch_size_and_more_processes(dataset: str) -> None:
    loader = make(dataset, batch_size=2, shuffle=True)
    iteration = iter(loader)
    seen = [*next(iteration)["id"].tolist(), *next(iteration)["id"].tolist()]
    state = loader.state_dict()
    for rank in range(2):
        part = make(dataset, batch_size=1, shuffle=True, rank=rank, world_size=2)
        part.load_state_dict(state)
        seen += functools.reduce(operator.iadd, ids(part), [])
    assert sorted(seen) == list(range(CUBES))


@pytest.mark.parametrize(("size", "resumed"), [(4, 1), (2, 5), (1, 2), (3, 3)])
def test_the_length_of_a_resumed_epoch_is_what_was_given_and_what_is_left(
    dataset: str, size: int, resumed: int
) -> None:
    loader = make(dataset, batch_size=size)
    next(iter(loader))
    again = make(dataset, batch_size=resumed)
    whole = len(again)
    again.load_state_dict(loader.state_dict())
    left = -(-(CUBES - size) // resumed)
    assert len(again) == 1 + left
    iterator = iter(again)
    next(iterator)
    assert len(again) == 1 + left
    assert 1 + len(list(iterator)) == left
    # The next epoch, and the same one from its start, have as many as always.
    assert len(again) == len(list(again)) == whole
    again.load_state_dict(loader.state_dict())
    assert len(again) == 1 + left
    again.set_epoch(0)
    assert len(again) == len(list(again)) == whole


def test_states_of_other_data_are_refused(dataset: str, cubes: Path, tmp_path: Path) -> None:
    loader = make(dataset, shuffle=True, seed=1)
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(hsipack.ConflictError, match="seed 1"):
        make(dataset, shuffle=True, seed=2).load_state_dict(state)
    with pytest.raises(hsipack.ConflictError, match="another dataset"):
        make(dataset, shuffle=True, seed=1).load_state_dict({**state, "fingerprint": "0"})
    with pytest.raises(hsipack.ConflictError, match="other samples, order"):
        make(dataset, seed=1).load_state_dict(state)
    with pytest.raises(hsipack.MalformedError, match="not a training state"):
        loader.load_state_dict({"epoch": 1})
    # The loader is at the same place.
    assert len(list(loader)) == 3


def test_twenty_kept_batches_are_never_overwritten(dataset: str) -> None:
    loader = make(dataset, batch_size=2, shuffle=True, slots=3)
    kept = []
    while len(kept) < 20:
        for batch in loader:
            kept.append((batch, {key: batch[key].clone() for key in ("image", "labels", "layers")}))
    for _ in range(5):
        assert len(list(loader)) == 6
    for batch, copies in kept:
        assert all(torch.equal(batch[key], copy) for key, copy in copies.items())
    assert loader.stats().copied > 0
    addresses = {batch["image"].data_ptr() for batch, _ in kept}
    assert len(addresses) == len(kept)
    loader.close()
    assert all(torch.equal(batch["image"], copies["image"]) for batch, copies in kept)


def test_without_copies_the_ring_says_when_it_is_used_up(dataset: str) -> None:
    loader = make(hsipack.open(dataset, masks=[]), batch_size=2, slots=4, copy=False)
    iteration = iter(loader)
    kept = [next(iteration) for _ in range(4)]
    copies = [batch["image"].clone() for batch in kept]
    with pytest.raises(hsipack.ConflictError, match="all 4 slots"):
        next(iteration)
    assert all(torch.equal(batch["image"], copy) for batch, copy in zip(kept, copies, strict=True))
    # There is room again, and nothing was lost.
    del kept[0]
    assert next(iteration)["id"].tolist() == [8, 9]
    assert loader.stats().copied == 0


def test_numpy_and_dlpack_share_the_memory(dataset: str) -> None:
    plain = [batch["image"].clone() for batch in make(dataset)]
    for output in ("numpy", "dlpack"):
        loader = make(dataset, output=output)
        for batch, expected in zip(loader, plain, strict=True):
            image = batch["image"]
            if output == "dlpack":
                assert image.__dlpack_device__() == (1, 0)
                one, two = np.asarray(image), torch.from_dlpack(image)
                assert np.from_dlpack(image).ctypes.data == one.ctypes.data == two.data_ptr()
                image = one
            assert isinstance(image, np.ndarray)
            assert image.dtype == np.float16
            assert isinstance(batch["label"], np.ndarray)
            np.testing.assert_array_equal(image, expected.numpy())
            assert image.transpose(0, 2, 3, 1).flags["C_CONTIGUOUS"]
        assert loader.stats().copied == 0
    kept = [np.asarray(batch["image"]) for batch in make(dataset, output="dlpack")]
    for image, expected in zip(kept, plain, strict=True):
        np.testing.assert_array_equal(image, expected.numpy())


def test_crops(dataset: str) -> None:
    ds = hsipack.open(dataset)
    loader = make(ds, 8, crop=hsipack.RandomCrop((6, 5), per_cube=4), shuffle=True)
    assert len(loader) == CUBES * 4 // 8
    for batch in loader:
        for place, one in enumerate(batch["id"].tolist()):
            row, column, rows, columns = batch["window"][place].tolist()
            assert (rows, columns) == (6, 5)
            expected = ds.read(one, slice(row, row + 6), slice(column, column + 5))
            assert torch.equal(batch["image"][place], expected["image"])
            assert torch.equal(batch["labels"][place], expected["labels"])
    middle = next(iter(make(ds, crop=hsipack.CenterCrop(10))))
    assert middle["window"][0].tolist() == [5, 7, 10, 10]
    grid = make(ds.select([0]), 100, crop=hsipack.GridCrop((10, 12)))
    assert next(iter(grid))["window"][:, :2].tolist() == [[0, 0], [0, 12], [10, 0], [10, 12]]
    grid = make(ds.select([0]), 100, crop=hsipack.GridCrop((10, 12), overlap=(4, 0)))
    assert next(iter(grid))["window"][::2, 0].tolist() == [0, 6, 10]
    assert next(iter(make(ds, crop=9)))["image"].shape[2:] == (9, 9)
    with pytest.raises(hsipack.ConflictError):
        make(ds, crop=21)


def test_types_values_and_masks(dataset: str) -> None:
    ds = hsipack.open(dataset)
    stats = ds.split("train").stats
    assert stats is not None
    batch = next(
        iter(
            make(
                ds.with_masks(dtype=torch.int64, layers=False),
                dtype=torch.float32,
                normalize="standardize",
            )
        )
    )
    raw = torch.stack([ds[one]["image"] for one in range(4)]).float()
    shape = (1, BANDS, 1, 1)
    mean, std = (
        torch.tensor(values, dtype=torch.float32).reshape(shape)
        for values in (stats.mean, stats.std)
    )
    torch.testing.assert_close(batch["image"], (raw - mean) / std, rtol=1e-5, atol=1e-5)
    assert batch["labels"].dtype == torch.int64
    assert batch["layers"].shape == (4, ROWS, COLUMNS)
    assert int(batch["layers"].max()) == 3
    bands = next(iter(make(ds.with_masks("labels"), bands=[6, 2])))
    assert torch.equal(bands["image"][1], ds[1]["image"][[6, 2]])
    assert "layers" not in bands
    assert "labels" not in next(iter(make(ds.with_masks([]))))


def test_samplers(dataset: str) -> None:
    ds = hsipack.open(dataset)
    assert ids(make(ds, sampler=SequentialSampler(ds))) == ids(make(ds))
    assert sorted(
        functools.reduce(operator.iadd, ids(make(ds, sampler=RandomSampler(ds))), [])
    ) == list(range(CUBES))
    train = ds.split("train")
    chosen = functools.reduce(
        operator.iadd, ids(make(train, sampler=SubsetRandomSampler([0, 8]))), []
    )
    assert sorted(chosen) == [train.ids[0], train.ids[8]]
    weights = [1.0 if number == 5 else 0.0 for number in range(CUBES)]
    assert set(functools.reduce(operator.iadd, ids(make(ds, sampler=weights)), [])) == {5}
    sampler = WeightedRandomSampler(weights, 40)
    assert functools.reduce(operator.iadd, ids(make(ds, sampler=sampler)), []) == [5] * 40
    # For a part of the dataset, weights refer to the samples of the part.
    assert set(
        functools.reduce(operator.iadd, ids(make(train, sampler=[0.0] * 8 + [1.0])), [])
    ) == {train.ids[8]}
    balanced = make(ds.select([0, 1, 2, 4, 5, 8]), 6, sampler="class_balanced", epoch_length=600)
    share = np.mean([label for batch in balanced for label in batch["label"].tolist()])
    assert 0.4 < share < 0.6
    together = functools.reduce(operator.iadd, ids(make(ds, sampler="groups_together")), [])
    assert [one // 3 for one in together[::3]] == [one // 3 for one in together[2::3]]
    with pytest.raises(hsipack.UnsupportedError, match="DistributedSampler"):
        make(ds, sampler=DistributedSampler(ds, num_replicas=1, rank=0))
    with pytest.raises(hsipack.ConflictError, match="one weight for every sample"):
        make(ds, sampler=[1.0, 2.0])
    with pytest.raises(hsipack.ConflictError, match="leave shuffle out"):
        make(ds, sampler="class_balanced", shuffle=True)


@pytest.mark.parametrize("count", [1, 2, 5, 7, 12])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_last_batches_are_what_the_table_says(dataset: str, count: int, world_size: int) -> None:
    part = hsipack.open(dataset).select(range(count))
    full, left = divmod(count, 3 * world_size)
    for options, last in [
        ({}, "short"),
        ({"last": "drop"}, "drop"),
        ({"last": "pad"}, "pad"),
    ]:
        if last == "drop" and full == 0:
            with pytest.raises(hsipack.ConflictError, match="drop"):
                make(part, 3, rank=0, world_size=world_size, **options)
            continue
        sizes, own = [], []
        for rank in range(world_size):
            batches = list(make(part, 3, rank=rank, world_size=world_size, **options))
            sizes.append([len(batch["id"]) for batch in batches])
            own.append([int((~batch["padding"]).sum()) for batch in batches])
        assert {len(one) for one in sizes} == {full + (left > 0 and last != "drop")}
        assert all(one[:full] == [3] * full for one in own)
        lasts = [(size[-1], mine[-1]) for size, mine in zip(sizes, own, strict=True)]
        if left == 0 or last == "drop":
            assert set(lasts) == {(3, 3)}
        elif last == "pad":
            assert [size for size, _ in lasts] == [3] * world_size
            assert sum(mine for _, mine in lasts) == left
        else:
            shares = [left // world_size + (rank < left % world_size) for rank in range(world_size)]
            assert lasts == [(max(share, 1), share) for share in shares]


@pytest.mark.parametrize("last", ["short", "drop", "pad"])
def test_ranks_share_the_epoch(dataset: str, last: str) -> None:
    options: dict[str, Any] = {"last": last, "shuffle": True}
    parts = []
    for rank in range(2):
        loader = make(dataset, 5, rank=rank, world_size=2, **options)
        batches = list(loader)
        assert len(batches) == len(loader) == (1 if last == "drop" else 2)
        parts.append(
            [
                one
                for batch in batches
                for one, pad in zip(batch["id"].tolist(), batch["padding"].tolist(), strict=True)
                if not pad
            ]
        )
    together = functools.reduce(operator.iadd, parts, [])
    assert len(set(together)) == len(together) == (10 if last == "drop" else CUBES)


def test_augmentations_are_reproducible_and_keep_masks_with_images(dataset: str) -> None:
    augmentations = [
        hsipack.augment.RandomHorizontalFlip(p=0.5),
        hsipack.augment.RandomAffine(degrees=30, p=0.7),
        hsipack.augment.RandomGaussianNoise(std=0.1, p=0.3),
    ]
    first = {
        one: image
        for batch in make(dataset, augment=augmentations, seed=2)
        for one, image in zip(batch["id"].tolist(), batch["image"].clone(), strict=True)
    }
    other = make(dataset, 3, augment=augmentations, seed=2, shuffle=True, num_threads=1)
    for batch in other:
        for one, image in zip(batch["id"].tolist(), batch["image"], strict=True):
            assert torch.equal(image, first[one])
    flips = make(dataset, augment=[hsipack.augment.RandomHorizontalFlip(p=1.0)])
    ds = hsipack.open(dataset)
    for batch in flips:
        for place, one in enumerate(batch["id"].tolist()):
            assert torch.equal(batch["image"][place], ds[one]["image"].flip(-1))
            assert torch.equal(batch["labels"][place], ds[one]["labels"].flip(-1))
            assert torch.equal(batch["layers"][place], ds[one]["layers"].flip(-1))
    mixed = next(iter(make(dataset, augment=[hsipack.augment.RandomMixUpV2(p=1.0)])))["mixed"]
    assert len(mixed) == 1
    assert len(mixed[0]["partners"]) == len(mixed[0]["shares"]) == 4


def test_augmentations_of_a_loader_leave_gaps_as_they_are(tmp_path: Path) -> None:
    cubes = torch.rand(3, 9, 9, 5, generator=torch.Generator().manual_seed(3)).half()
    cubes[:, 4, 4, 2] = float("nan")
    cubes[:, 0, 8, :] = float("nan")
    numbered = [(str(number), cube.numpy()) for number, cube in enumerate(cubes)]
    hsipack.pack(numbered, tmp_path / "gaps.hsipack")
    turn = hsipack.augment.RandomRotation((90, 90), p=1.0)
    grow = hsipack.augment.PadTo((12, 12), "reflect")
    options: dict[str, Any] = {"shuffle": False, "num_threads": 1}
    loader = hsipack.Loader(tmp_path / "gaps.hsipack", 3, augment=[turn, grow], **options)
    (batch,) = loader
    wanted = cubes.permute(0, 3, 1, 2).rot90(1, (2, 3)).double()
    wanted = torch.nn.functional.pad(wanted, (0, 3, 0, 3), "reflect")
    assert torch.equal(batch["image"].double().nan_to_num(7.5), wanted.nan_to_num(7.5))


def test_the_loaders_augmentations_can_be_had_by_calling_them(dataset: str) -> None:
    flips = [hsipack.augment.RandomHorizontalFlip(), hsipack.augment.RandomVerticalFlip()]
    options = {"shuffle": True, "seed": 4, "crop": hsipack.RandomCrop(10, per_cube=3)}
    called = hsipack.augment.AugmentationSequential(*flips, seed=4)
    plain, augmented = make(dataset, **options), make(dataset, augment=flips, **options)
    for _ in range(2):
        for one, two in zip(plain, augmented, strict=True):
            made = called(one, epoch=one["epoch"])
            assert all(torch.equal(made[key], two[key]) for key in ("image", "labels", "layers"))


def test_damage_is_an_error_or_skipped(own_dataset: Path) -> None:
    shard = own_dataset / f"{ROWS}x{COLUMNS}x{BANDS}" / "image/c/1/0/0/0"
    damaged = bytearray(shard.read_bytes())
    damaged[200] ^= 1
    shard.write_bytes(damaged)
    with pytest.raises(hsipack.DamagedError, match="c/1/0/0/0"):
        list(make(own_dataset))
    loader = make(own_dataset, on_damage="skip")
    assert len(functools.reduce(operator.iadd, ids(loader), [])) == CUBES - 1
    assert loader.stats().loader.skipped == 1


def test_one_thread_at_a_time_and_none_after_the_end(dataset: str) -> None:
    loader = make(dataset)
    results: list[object] = []

    def consume() -> None:
        try:
            results.append(sum(len(batch["id"]) for batch in loader))
        except hsipack.ConflictError as error:
            results.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join()
    assert results == [CUBES]
    iteration = iter(loader)
    kept = next(iteration)
    loader.close()
    loader.close()
    assert "closed" in repr(loader)
    for use in (lambda: next(iteration), lambda: next(iter(loader)), lambda: loader.set_epoch(3)):
        with pytest.raises(hsipack.ConflictError, match=r"closed|newer"):
            use()
    # What it did can still be read.
    assert len(loader) == 3
    assert loader.state_dict()["epoch"] == 1
    assert loader.stats().batches == 4
    assert loader.report().memory.bytes > 0
    assert kept["image"].shape[0] == 4


def test_options_that_mean_nothing_are_told(dataset: str) -> None:
    for options, message in [
        ({"batch_size": 0}, "batch_size=0"),
        ({"slots": 1}, "at least 2"),
        ({"split": "test"}, "it has train, val"),
        ({"bands": [9]}, "from 0 to 6"),
        ({"normalize": "minmax"}, "standardize, l1, l2, snv"),
        ({"normalize": 3}, "mean, std"),
        ({"normalize": ([0.0, 1.0], 1.0)}, "has 2 numbers"),
        ({"normalize": (0.0, -1.0)}, "standard deviation is -1"),
        ({"cache": "all"}, "compressed, decoded"),
        ({"dtype": torch.int8}, "bfloat16"),
        ({"output": "jax"}, "torch, numpy, dlpack"),
        ({"rank": 0}, "both"),
        ({"rank": 2, "world_size": 2}, "rank 2"),
        ({"last": "whole"}, "short, drop, pad"),
        ({"device": "meta"}, "cpu"),
        ({"output": "numpy", "device": "cuda"}, "CPU"),
    ]:
        with pytest.raises((hsipack.ConflictError, hsipack.UnsupportedError), match=message):
            make(dataset, **options)
    ds = hsipack.open(dataset)
    with pytest.raises(hsipack.ConflictError, match="labels, layers"):
        ds.with_masks(["organs"])
    with pytest.raises(hsipack.ConflictError, match="age"):
        ds.select(columns=["weather"])
    with pytest.raises(hsipack.ConflictError, match="each sample once"):
        make(hsipack.open(dataset, samples=[1, 2, 1]))
    if not torch.cuda.is_available():
        with pytest.raises(hsipack.Error, match=r"NVIDIA|CUDA"):
            next(iter(make(dataset, device="cuda:0")))


def test_statistics_and_reports_have_attributes_and_are_written_as_json(dataset: str) -> None:
    with make(dataset) as loader:
        before = loader.report()
        assert before.memory is None
        assert before.place is None
        list(loader)
        stats, report = loader.stats(), loader.report()
    # Threads prepare batches of the next epoch, too.
    assert stats.batches == 3
    assert stats.loader.samples >= CUBES
    assert stats.times.wait_s.count >= 3
    assert report.memory is not None
    assert report.place is not None
    assert (report.seed, report.place.rank) == (loader.seed, 0)
    for record in (stats, report):
        written = json.loads(json.dumps(record.to_dict()))
        assert list(written) == [field.name for field in dataclasses.fields(record)]
    assert report.to_dict()["cache"]["why"] == report.cache.why
    with pytest.raises(TypeError, match=r"write \.cache instead of \['cache'\]"):
        report["cache"]
    with pytest.raises(hsipack.ArgumentTypeError, match="it has the attributes count, mean"):
        stats.times.load_s["median"]


def test_every_attribute_of_statistics_and_reports_is_documented() -> None:
    records = [one for one in vars(loader_reports).values() if dataclasses.is_dataclass(one)]
    assert len(records) > 10
    for record in records:
        names = [field.name for field in dataclasses.fields(record)]
        listed = (record.__doc__ or "").partition("Attributes:")[2]
        assert re.findall(r"^ {8}(\w+): ", listed, re.MULTILINE) == names, record


def test_memory_that_torch_does_not_use_is_given_back(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))

    class Full:
        """A loader whose device has no memory until torch gives some back."""

        def __init__(self, loader: Any) -> None:
            self.loader = loader

        def __getattr__(self, name: str) -> Any:
            return getattr(self.loader, name)

        def next(self, arrived: Any) -> Any:
            if not emptied:
                raise hsipack.DeviceMemoryError("out of memory")
            return self.loader.next(arrived)

    with hsipack.Loader(dataset, 4, device="cpu") as loader:
        want = [batch["id"].tolist() for batch in loader]
        batches = iter(loader)
        monkeypatch.setattr(loader, "_native", Full(loader._native))
        assert [batch["id"].tolist() for batch in batches] == want
    assert emptied == [1]
