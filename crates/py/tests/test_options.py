"""Values of options: numbers, masks and slices, torch's samplers and parts of datasets, a
DataLoader's arguments, and values without a meaning.
"""

from __future__ import annotations

import functools
import inspect
import json
import operator
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hsipack
import kornia.augmentation as kornia
import numpy as np
import pandas
import pytest
import torch
from conftest import BANDS, COLUMNS, CUBES, ROWS
from hsipack import _hsipack
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    random_split,
)

CHOSEN = [False, True, False, True, False, False, True]
"""Which of the bands are chosen."""


def make(dataset: Any, batch_size: int = 4, **options: Any) -> hsipack.Loader:
    return hsipack.Loader(dataset, batch_size, **{"device": "cpu", "num_threads": 2, **options})


def ids(dataset: Any, **options: Any) -> list[int]:
    """The samples of an epoch, in their order."""
    with make(dataset, **options) as loader:
        batches = [batch["id"].tolist() for batch in loader]
    return functools.reduce(operator.iadd, batches, [])


FORMS: list[Callable[[list[Any]], Any]] = [list, tuple, np.array, torch.tensor, pandas.Series]


# Masks and numbers.


@pytest.mark.parametrize("form", FORMS)
def test_masks_of_booleans_choose_what_they_mark(
    dataset: str, form: Callable[[list[Any]], Any]
) -> None:
    numbers = [band for band, chosen in enumerate(CHOSEN) if chosen]
    assert hsipack.open(dataset, bands=form(CHOSEN))[0]["image"].shape[0] == len(numbers)
    ds = hsipack.open(dataset)
    batch = next(iter(make(ds, bands=form(CHOSEN))))
    assert torch.equal(batch["image"][2], ds[2]["image"][numbers])
    assert torch.equal(next(iter(make(ds, bands=form(numbers))))["image"], batch["image"])
    some = [one in (2, 5) for one in range(CUBES)]
    assert ds.select(form(some)).ids == [2, 5]
    assert ds.select(ids=form(some)).ids == [2, 5]
    assert hsipack.open(dataset, samples=form(some)).ids == [2, 5]
    train = ds.split("train")
    marked = [True] + [False] * 7 + [True]
    assert train.select(form(marked)).ids == [train.ids[0], train.ids[8]]
    assert ds.select(form([5, 2])).ids == [5, 2]


def test_masks_of_another_length_and_odd_lists_are_refused(dataset: str) -> None:
    ds = hsipack.open(dataset)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: make(ds, bands=[True] * 6), r"mask of 6 booleans for 7 bands"),
        (lambda: make(ds, bands=np.ones(8, bool)), r"mask of 8 booleans for 7 bands"),
        (lambda: hsipack.open(dataset, bands=[True]), r"mask of 1 booleans for 7 bands"),
        (lambda: ds.select([True] * 18), r"mask of 18 booleans for 12 samples"),
        (lambda: ds.split("val").select([True] * 12), r"12 booleans for 3 samples"),
        (lambda: ds.select(ids=torch.ones(3, dtype=torch.bool)), r"3 booleans for 12"),
        (lambda: ds.select([True, 1, 0]), "numbers and booleans"),
        (lambda: ds.select([0.5, 1]), r"has 0.5 in it"),
        (lambda: ds.select(np.array([0.0, 1.0])), "numbers of samples"),
        (lambda: ds.select(np.zeros((2, 2), int)), "numbers of samples"),
        (lambda: ds.select("12"), "list of numbers of samples"),
        (lambda: ds.select(3), "list of numbers of samples"),
        (lambda: ds.select(slice("a", None)), "slice of whole numbers"),
        (lambda: ds.select([12]), r"no sample 12 \(.* from 0 to 11"),
        (lambda: ds.select([-13]), "no sample -13"),
        (lambda: ds.select(ids=[-1]), "no sample -1"),
        (lambda: ds.select([0], ids=[0]), "one of them"),
        (lambda: ds.select(), "one of them"),
        (lambda: make(ds, bands=[-1]), r"no band -1 in stack 20x24x7 \(.*from 0 to 6"),
        (lambda: make(ds, bands=[False] * BANDS), "no bands are chosen"),
        (lambda: make(ds, sampler=[True] * CUBES), r"ds.select\(mask\)"),
    ]
    for call, message in calls:
        with pytest.raises(hsipack.ConflictError, match=message):
            call()


def test_slices_choose_bands_and_samples(dataset: str) -> None:
    ds = hsipack.open(dataset)
    assert torch.equal(
        next(iter(make(ds, bands=slice(0, 10, 3))))["image"][1], ds[1]["image"][0:10:3]
    )
    assert ds.select(slice(-2, None)).ids == [10, 11]
    assert ds.split("val").select(slice(1, 3)).ids == [7, 11]


def test_bands_of_stacks_that_differ_are_given_by_number(cubes: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number, bands in enumerate([4, 6]):
        np.save(tmp_path / f"cube_{number}.npy", rng.random((5, 5, bands), dtype=np.float32))
    path = tmp_path / "two.hsipack"
    hsipack.convert(str(tmp_path / "*.npy"), path, axes="yxb")
    assert hsipack.open(path, bands=[3, 0])[1]["image"].shape[0] == 2
    for bands in (slice(0, 2), [True, False, True, True]):
        with pytest.raises(hsipack.ConflictError, match="stacks of 4 and 6 bands"):
            hsipack.open(path, bands=bands)
    with pytest.raises(hsipack.ConflictError, match="no band 4 in stack 5x5x4"):
        hsipack.open(path, bands=[4])
    assert hsipack.open(path, samples=[1], bands=slice(4, None))[0]["image"].shape[0] == 2


# Places and ids.


def test_a_number_means_the_same_sample_everywhere_in_a_part(dataset: str) -> None:
    ds = hsipack.open(dataset)
    val = ds.split("val")
    for place, one in enumerate(val.ids):
        assert val[place]["id"] == one
        assert val.read(place, slice(0, 2))["id"] == one
        assert val.select([place]).ids == [one]
        assert val.samples[place]["id"] == one
        assert Subset(val, [place])[0]["id"] == one
        assert ids(val, sampler=SubsetRandomSampler([place])) == [one]
        assert ids(ds, split="val", sampler=SubsetRandomSampler([place])) == [one]
        weights = [float(other == place) for other in range(len(val))]
        assert set(ids(val, sampler=weights)) == {one}
        assert set(ids(val, sampler=WeightedRandomSampler(weights, 5))) == {one}
        assert ids(Subset(val, [place])) == [one]
        assert val.select([place - len(val)]).ids == [one]
        assert val.select(ids=[one]).ids == [one]
    # A place beyond the split does not lead to the rest of the dataset.
    for call in (
        lambda: val.select([3]),
        lambda: make(val, sampler=SubsetRandomSampler([3])),
        lambda: make(Subset(val, [3])),
    ):
        with pytest.raises(hsipack.ConflictError, match=r"no sample 3 .* from 0 to 2"):
            call()
    # Parts of parts are selected by place, too.
    train = ds.split("train")
    assert train.select([8, 3, 1]).select([2, 0]).ids == [train.ids[1], train.ids[8]]
    assert train.select([8, 3, 1]).split("train").ids == [train.ids[8], train.ids[3], train.ids[1]]


def test_a_folds_training_samples_stay_out_of_its_validation(dataset: str) -> None:
    """Cross-validation over a split, with the numbering of scikit-learn's KFold."""
    train = hsipack.open(dataset).split("train")
    folds = np.array_split(np.arange(len(train)), 3)
    for number, held_out in enumerate(folds):
        rest = np.concatenate(folds[:number] + folds[number + 1 :])
        fit, check = train.select(rest), train.select(held_out)
        assert sorted(fit.ids + check.ids) == train.ids
        assert not set(fit.ids) & set(check.ids)
        assert [train[place]["id"] for place in held_out] == check.ids


def test_without_shuffling_a_loader_keeps_to_the_datasets_order(dataset: str) -> None:
    ds = hsipack.open(dataset)
    order = [7, 2, 9, 0, 11]
    assert ids(ds.select(order), batch_size=2) == order
    assert ids(ds.select(order), sampler=SequentialSampler(ds.select(order))) == order
    # Draws do not depend on the order in which samples were listed.
    shuffled = ids(ds.select(order), shuffle=True, seed=4)
    assert ids(ds.select(sorted(order)), shuffle=True, seed=4) == shuffled


def test_several_splits_at_once(dataset: str) -> None:
    ds = hsipack.open(dataset)
    both = [["train", "val"], ("val", "train"), np.array(["train", "val"])]
    for splits in both:
        assert ds.split(splits).ids == list(range(CUBES))
        assert ids(ds, split=splits) == list(range(CUBES))
        assert hsipack.open(dataset, split=splits).ids == list(range(CUBES))
    with pytest.raises(hsipack.ConflictError, match=r"split 'test' \(it has train, val\)"):
        ds.split(["train", "test"])
    with pytest.raises(hsipack.ConflictError, match="no sample is in split 'val'"):
        ds.split("train").split("val")


# Torch's samplers and parts of datasets.


def test_torchs_parts_of_datasets_go_into_a_loader(
    dataset: str, cubes: Path, tmp_path: Path
) -> None:
    ds = hsipack.open(dataset)
    one, two = random_split(ds, [8, 4], generator=torch.Generator().manual_seed(3))
    for part in (one, two):
        assert ids(part) == [part[place]["id"] for place in range(len(part))]
    assert sorted(ids(one) + ids(two)) == list(range(CUBES))
    nested = Subset(Subset(ds.split("train"), [8, 2, 5]), [2, 0])
    assert ids(nested) == [sample["id"] for sample in nested]
    joined = ConcatDataset([ds.split("val"), Subset(hsipack.open(dataset), [0, 4])])
    assert ids(joined) == [sample["id"] for sample in joined]
    assert ids(one, sampler=SubsetRandomSampler([2])) == [one[2]["id"]]
    with pytest.raises(hsipack.ConflictError, match="more than once"):
        make(ConcatDataset([ds, ds]))
    other = tmp_path / "other.hsipack"
    hsipack.convert(cubes, other)
    with pytest.raises(hsipack.UnsupportedError, match="append=True"):
        make(ConcatDataset([ds, hsipack.open(other)]))
    with pytest.raises(hsipack.ConflictError, match="same bands"):
        make(ConcatDataset([ds, hsipack.open(dataset, bands=[0])]))
    for thing in ([1, 2], Subset([1, 2], [0]), 7, None):
        with pytest.raises(hsipack.ConflictError, match="give a packed dataset"):
            make(thing)


def test_random_samplers_draw_as_torchs_do(dataset: str) -> None:
    ds = hsipack.open(dataset)
    train = ds.split("train")
    once = ids(train, sampler=RandomSampler(train))
    assert sorted(once) == train.ids
    assert len(ids(train, sampler=RandomSampler(train, num_samples=4))) == 4
    twice = ids(train, sampler=RandomSampler(train, num_samples=18))
    assert sorted(twice) == sorted(train.ids * 2)
    drawn = ids(
        train, sampler=RandomSampler(train, replacement=True, num_samples=900), batch_size=90
    )
    counts = np.bincount(drawn, minlength=CUBES)[train.ids]
    assert counts.sum() == 900
    assert (abs(counts - 100) < 50).all()
    assert len(ids(train, sampler=RandomSampler(train, replacement=True))) == len(train)
    for sampler, message in [
        (RandomSampler(ds), r"RandomSampler has 12 samples, but 9 .*ds.split"),
        (SequentialSampler(ds), "SequentialSampler has 12 samples, but 9"),
        (RandomSampler(train, generator=torch.Generator()), r"seed=generator.initial_seed\(\)"),
        (WeightedRandomSampler([1.0] * 9, 9, replacement=False), "replacement=True"),
        (WeightedRandomSampler([1.0] * 12, 9), "one weight for every sample"),
        (BatchSampler(SequentialSampler(train), 2, False), "samplers of type BatchSampler"),
        (["a"] * 9, "one weight for every sample"),
        (0.5, "one weight for every sample"),
        ("random", "class_balanced, groups_spread"),
    ]:
        with pytest.raises(hsipack.Error, match=message):
            make(train, sampler=sampler)


class Own(RandomSampler):
    """A user's own sampler, which may do anything."""


def test_samplers_of_the_users_own_are_not_taken_for_what_they_derive_from(dataset: str) -> None:
    ds = hsipack.open(dataset)
    own: Sampler[int] = Own(ds)
    with pytest.raises(hsipack.UnsupportedError, match="samplers of type Own"):
        make(ds, sampler=own)


# A DataLoader's arguments.


def test_every_argument_of_a_dataloader_is_taken_or_gets_an_answer(dataset: str) -> None:
    import inspect

    ours = set(inspect.signature(hsipack.Loader).parameters)
    theirs = {*inspect.signature(DataLoader).parameters, "transform"}
    for name in sorted(theirs - ours - {"drop_last"}):
        with pytest.raises(hsipack.UnsupportedError, match=f"^{name} is an option of") as caught:
            make(dataset, **{name: None})
        assert caught.value.remedy
    with pytest.raises(hsipack.UnsupportedError, match="num_threads"):
        make(dataset, num_workers=4)
    with pytest.raises(TypeError, match="unexpected keyword argument 'bacth_size'"):
        make(dataset, bacth_size=4)
    with pytest.raises(hsipack.UnsupportedError, match="dataset with a transform"):
        make(hsipack.open(dataset, transform=lambda sample: sample))


# Options that were once misread or had no effect.


def test_names_alone_are_lists_of_one(dataset: str) -> None:
    batch = next(iter(make(hsipack.open(dataset).with_masks("labels").select(columns="age"))))
    assert {"labels", "age"} < set(batch)
    assert "layers" not in batch
    assert hsipack.open(dataset, masks="labels").masks == ["labels"]


def test_element_types_may_be_numpys_or_texts(dataset: str) -> None:
    for dtype in (np.float32, np.dtype("float32"), "float32", "torch.float32", torch.float32):
        assert next(iter(make(dataset, dtype=dtype)))["image"].dtype == torch.float32
        assert hsipack.open(dataset, dtype=dtype)[0]["image"].dtype == torch.float32
    assert (
        next(iter(make(hsipack.open(dataset).with_masks(dtype=np.int64))))["labels"].dtype
        == torch.int64
    )


def test_numpys_and_torchs_numbers_are_numbers(dataset: str) -> None:
    loader = make(
        hsipack.open(dataset).select(nan=np.float32(0)),
        np.int64(3),
        shuffle=np.bool_(True),
        seed=torch.tensor(5),
        slots=np.uint8(3),
        crop=np.array([4, 5]),
    )
    assert next(iter(loader))["image"].shape == (3, BANDS, 4, 5)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cache": "decoded"}, r"needs a size \(give cache_size .* takes \d+\)"),
    ({"cache": "compressed"}, r"needs a size"),
    ({"cache": None, "cache_size": 1 << 20}, r"needs a cache \(give cache="),
    ({"cache": True, "cache_size": 5}, "cache=True"),
    ({"cache": "decoded", "cache_size": "1GB"}, "cache_size='1GB'"),
    ({"crop": hsipack.augment.RandomCrop((4, 4))}, r"hsipack.RandomCrop\(…\) chooses what is read"),
    ({"crop": hsipack.augment.RandomHorizontalFlip()}, r"augmentations belong into augment=\[…\]"),
    ({"crop": "16"}, r"crop='16' .*\(rows, columns\)"),
    ({"crop": "16x16"}, r"crop='16x16' .*\(rows, columns\)"),
    ({"crop": (16,)}, r"crop=\(16,\)"),
    ({"crop": (0, 4)}, r"crop=\(0, 4\)"),
    ({"crop": 4.5}, r"crop=4.5"),
    ({"crop": True}, r"crop=True"),
    ({"crop": hsipack.RandomCrop("8")}, "RandomCrop: size='8'"),  # type: ignore[arg-type]
    ({"crop": hsipack.RandomCrop(8, per_cube=0)}, "RandomCrop: per_cube=0"),
    ({"crop": hsipack.RandomCrop(8, min_labelled="half")}, "min_labelled='half'"),  # type: ignore[arg-type]
    ({"crop": hsipack.GridCrop(8, step=(4, "x"))}, "GridCrop: step="),  # type: ignore[arg-type]
    ({"crop": hsipack.GridCrop(8, step=4, overlap=4)}, "both step and overlap"),
    (
        {"crop": hsipack.GridCrop(8, overlap=-1)},
        r"GridCrop: overlap=-1 .*overlap=\(rows, columns\)",
    ),
    ({"crop": hsipack.GridCrop((8, 6), overlap=6)}, "GridCrop: overlap=6 .*less than .*8x6"),
    ({"crop": hsipack.GridCrop(8, pad="wrap")}, "GridCrop: pad='wrap'"),
    ({"crop": hsipack.GridCrop(99)}, "larger than sample .*pad of GridCrop"),
    ({"shuffle": "yes"}, r"shuffle='yes' \(give True or False"),
    ({"shuffle": 1}, "shuffle=1"),
    ({"last": None}, "last=None"),
    ({"last": "full"}, "unknown last 'full'"),
    ({"copy": 0}, "copy=0"),
    ({"batch_size": "4"}, r"batch_size='4' \(give a whole number"),
    ({"batch_size": 4.0}, "batch_size=4.0"),
    ({"batch_size": True}, "batch_size=True"),
    ({"batch_size": 2**70}, f"batch_size={2**70}"),
    ({"batch_size": 0}, "batch_size=0 .*from 1 on"),
    ({"seed": -1}, "seed=-1 .*from 0 on"),
    ({"seed": 2**64}, "seed="),
    ({"epoch_length": 0}, "epoch_length=0"),
    ({"num_threads": 0}, "num_threads=0"),
    ({"num_threads": "all"}, "num_threads='all'"),
    ({"slots": None}, "slots=None"),
    ({"rank": "0", "world_size": 1}, "rank='0'"),
    ({"rank": 0, "world_size": 1.5}, "world_size=1.5"),
    ({"dtype": "float99"}, "float99"),
    ({"dtype": None}, "dtype=None"),
    ({"dtype": object()}, "dtype="),
    ({"split": 3}, "split=3"),
    ({"on_damage": 1}, "on_damage=1"),
    ({"output": 5}, "no output 5"),
    ({"device": "gpu"}, "device='gpu'"),
    ({"device": 1.5}, "device=1.5"),
    ({"augment": 5}, "5 is not an augmentation"),
    ({"augment": [5]}, "5 is not an augmentation"),
    ({"augment": kornia.RandomHorizontalFlip()}, r"kornia\S*\.RandomHorizontalFlip .*same name"),
    ({"augment": [kornia.RandomRotation(5.0)]}, r"kornia\S*\.RandomRotation .*same name"),
    (
        {"augment": kornia.AugmentationSequential(kornia.RandomHorizontalFlip())},
        r"kornia\S*\.AugmentationSequential .*same name",
    ),
    ({"augment": torch.nn.Identity()}, "in your loop"),
    (
        {
            "augment": hsipack.augment.AugmentationSequential(
                hsipack.augment.RandomErasing(), mask_fill={"organs": 255, "labels": 1}
            )
        },
        r"mask_fill names 'organs', .*masks are labels, layers",
    ),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_values_that_mean_nothing_are_errors_that_name_the_option(
    dataset: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(hsipack.Error, match=message) as caught:
        make(dataset, **options)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("option", "value", "how"),
    [
        ("drop_last", True, 'write last="drop"'),
        ("pad_last", True, 'write last="pad"'),
        ("locked", False, "leave it out"),
        ("trace", True, r"loader.start_trace\(\)"),
    ],
)
def test_arguments_that_have_moved_say_where(
    dataset: str, option: str, value: Any, how: str
) -> None:
    with pytest.raises(TypeError, match=how) as caught:
        make(dataset, **{option: value})
    assert isinstance(caught.value, hsipack.ArgumentTypeError)


def test_columns_and_pad_are_short_for_what_they_stand_for(dataset: str) -> None:
    ds = hsipack.open(dataset)
    with make(ds, columns=["age"], pad="edge") as loader:
        whole = hsipack.WholeCubes(pad="edge")
        with make(ds.select(columns=["age"]), crop=whole) as other:
            for ours, theirs in zip(loader, other, strict=True):
                assert ours.keys() == theirs.keys()
                assert "age" in ours
                assert torch.equal(ours["image"], theirs["image"])
    with pytest.raises(hsipack.ConflictError, match="pad is for whole cubes"):
        make(ds, pad=0, crop=8)
    with pytest.raises(
        hsipack.UnsupportedError, match="columns cannot be given for several datasets"
    ):
        make(hsipack.concat([ds, ds]), columns="age")


def test_samples_and_batches_follow_what_the_dataset_says(dataset: str) -> None:
    ds = hsipack.open(dataset, split="val", output="torch")
    read = ds.select(columns=["age", "smoker", "group"], bands=[5, 1], physical=True)
    read = read.with_masks(remap_classes={2: 9}, other_class=7, dtype=torch.int64, layers=False)
    with make(read, 3, dtype=torch.float16) as loader:
        (batch,) = loader
    for place, sample in enumerate(read):
        assert set(sample) < set(batch)
        for name in ("image", "labels", "layers"):
            assert torch.equal(sample[name], batch[name][place]), name
            assert sample[name].dtype == batch[name].dtype
        for name in ("label", "id", "name", "age", "smoker", "group"):
            assert sample[name] == batch[name][place], name
    stored = ds[0]["labels"]
    assert torch.equal(read[0]["labels"], torch.where(stored == 2, 9, 7))
    assert read.class_counts("labels").keys() == {7, 9}
    again = pickle.loads(pickle.dumps(read))
    assert torch.equal(again[1]["labels"], read[1]["labels"])
    assert (again[1]["age"], again.select([1])[0]["age"]) == (read[1]["age"], read[1]["age"])
    numpy = hsipack.open(dataset, output="numpy").with_masks("labels", remap_classes={1: 3})
    assert numpy[0]["labels"].dtype == np.uint8
    assert set(np.unique(numpy[0]["labels"])) <= {0, 2, 3}
    assert read.select(columns=[])[0].keys() == ds[0].keys()


def test_nan_is_replaced_in_samples_as_in_batches(gappy: Path) -> None:
    ds = hsipack.open(gappy, output="numpy").select(nan=-3)
    (batch,) = make(ds, len(ds), output="numpy")
    for place, sample in enumerate(ds):
        np.testing.assert_array_equal(sample["image"], batch["image"][place])
        assert (sample["image"] == -3).any() or not np.isnan(sample["image"]).any()
    assert (batch["image"] == -3).any()


def test_what_the_native_part_cannot_read_is_an_error_that_names_it(dataset: str) -> None:
    ds = hsipack.open(dataset)
    settings = make(ds)._settings
    for name, value in [("slots", "x"), ("seed", -1), ("nan", "x"), ("masks", 5)]:
        with pytest.raises(hsipack.ConflictError, match=rf"^{name}={value!r} \(give "):
            _hsipack.Loader([(ds._native, {**settings, name: value})], None, None)


def test_wrong_values_of_datasets_and_their_methods(dataset: str) -> None:
    ds = hsipack.open(dataset)
    loader = make(ds)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: ds.select(physical="x"), "physical='x'"),
        (lambda: ds.select(nan="0"), "nan='0'"),
        (lambda: ds.select(columns=5), "columns=5"),
        (lambda: ds.select(columns=["name"]), "columns has 'name', which is already a key"),
        (lambda: ds.with_masks(3), r"masks=3 \(give a name"),
        (lambda: ds.with_masks([3]), r"masks=\[3\]"),
        (lambda: ds.with_masks(layers=[]), r"layers=\[\]"),
        (lambda: make(ds.with_masks(dtype="classes")), "classes"),
        (lambda: ds.with_masks(dtype="int8")[0], "does not fit dtype=int8"),
        (lambda: hsipack.open(5), "path=5"),
        (lambda: hsipack.open(None), "path=None"),
        (lambda: hsipack.open(dataset, verify=True), "verify=True"),
        (lambda: hsipack.open(dataset, store=3), "store=3"),
        (lambda: hsipack.open(dataset, physical="yes"), "physical='yes'"),
        (lambda: hsipack.open(dataset, dtype="float99"), "dtype='float99'"),
        (lambda: hsipack.open(dataset, transform=3), "transform=3"),
        (lambda: hsipack.open(dataset, masks=5), "masks=5"),
        (lambda: ds[1.5], r"index=1.5 .*ds.select"),
        (lambda: ds[True], "index=True"),
        (lambda: ds[0:2], r"index=slice\(0, 2, None\) .*ds.select"),
        (lambda: ds[[0, 1]], r"index=\[0, 1\]"),
        (lambda: ds.read(0, rows=5), "rows=5 .*slice"),
        (lambda: ds.samples["name"], "index='name'"),
        (lambda: ds.samples.column("weather"), "unknown column 'weather' .*age"),
        (lambda: loader.set_epoch(-1), r"epoch=-1 .*from 0 on"),
        (lambda: loader.set_epoch("3"), "epoch='3'"),
        (lambda: loader.load_state_dict("state"), "state='state'"),
        (lambda: hsipack.validate(None), "path=None"),
        (lambda: hsipack.validate(dataset, num_threads=0), "num_threads=0"),
        (lambda: hsipack.validate(dataset, quick="yes"), "quick='yes'"),
        (lambda: hsipack.validate(dataset, progress=True), "progress=True"),
    ]
    for call, message in calls:
        with pytest.raises(hsipack.ConflictError, match=message):
            call()


PACKING: list[tuple[dict[str, Any], str]] = [
    ({"table": pandas.DataFrame({"name": ["a"]})}, r"table=DataFrame.*to_csv"),
    ({"table": 5}, "table=5"),
    ({"inputs": 5}, "inputs=5"),
    ({"inputs": [5]}, "inputs=5"),
    ({"output": None}, "output=None"),
    ({"mask_fill": 3}, "mask_fill without mask"),
    ({"mask": 5}, "mask=5"),
    ({"mask": {"organs": 5}}, "mask=5"),
    ({"mask": "m/{stem}.png", "mask_fill": -1}, "mask_fill=-1"),
    ({"mask": "m/{stem}.png", "mask_fill": 70000}, "mask_fill=70000"),
    ({"bands": [True] * BANDS}, r"np.flatnonzero\(mask\)"),
    ({"bands": "0-2"}, r"give a list of numbers of bands\)"),
    ({"bands": slice(0, 3)}, "list"),
    ({"bands": [-1]}, "bands=-1"),
    ({"bands": ["red"]}, "bands='red'"),
    ({"wavelengths": [450, 900]}, r"wavelengths=\[450, 900\]"),
    ({"resume": "yes"}, "resume='yes'"),
    ({"append": 1}, "append=1"),
    ({"exclude": 5}, "exclude=5"),
    ({"dtype": 5}, "dtype=5"),
    ({"scale": None}, "scale=None"),
    ({"fill": [1]}, r"fill=\[1\]"),
    ({"keep_bits": 7.5}, "keep_bits=7.5"),
    ({"chunk": "8x8"}, "chunk='8x8'"),
    ({"chunk": 0}, "chunk=0"),
    ({"level": "high"}, "level='high'"),
    ({"level": -1}, "level=-1"),
    ({"num_threads": 0}, "num_threads=0"),
    ({"buffer_size": "1GB"}, "buffer_size='1GB'"),
    ({"shard_size": 0.5}, "shard_size=0.5"),
    ({"codec": 4}, "codec=4"),
    ({"white_reflectance": "bright"}, "white_reflectance='bright'"),
    ({"progress": 5}, "progress=5"),
]


@pytest.mark.parametrize(("options", "message"), PACKING)
def test_wrong_values_for_packing_are_errors_that_name_the_option(
    cubes: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(hsipack.Error, match=message) as caught:
        hsipack.convert(**{"inputs": cubes, "output": tmp_path / "new.hsipack", **options})
    assert caught.value.remedy
    assert not (tmp_path / "new.hsipack").exists()


def test_packing_takes_what_is_plainly_meant(cubes: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.hsipack"
    masks = cubes.parent / "masks"
    report = hsipack.convert(
        cubes,
        path,
        mask=masks / "{stem}.png",
        exclude="*_1*",
        bands=np.array([6, 0]),
        dtype=np.float32,
        chunk=np.int64(8),
        num_threads=np.int64(2),
    )
    assert report.cubes == 10
    ds = hsipack.open(path)
    stack = next(iter(ds.stacks.values()))
    assert (stack.shape, stack.dtype, ds.masks) == ((ROWS, COLUMNS, 2), "float32", ["mask"])
    command = (path / "zarr.json").read_text()
    assert "bands=[6, 0]" in command
    assert "chunk=8" in command


# Bands without values.


@pytest.fixture
def gappy(cubes: Path, tmp_path: Path) -> Path:
    """A dataset whose band 2 is all NaN, band 4 has some NaN, and band 5 is marked bad."""
    import spectral.io.envi as envi

    rng = np.random.default_rng(1)
    for number in range(2):
        cube = rng.random((6, 5, 7), dtype=np.float32)
        cube[:, :, 2] = np.nan
        cube[number, 0, 4] = np.nan
        envi.save_image(
            str(tmp_path / f"cube_{number}.hdr"),
            cube,
            metadata={"bbl": [1, 1, 1, 1, 1, 0, 1]},
            dtype=np.float32,
        )
    path = tmp_path / "gappy.hsipack"
    hsipack.convert(str(tmp_path / "*.hdr"), path)
    return path


def test_bad_bands_are_those_without_values_and_those_marked(gappy: Path, dataset: str) -> None:
    ds = hsipack.open(gappy)
    stack = ds.stacks["6x5x7"]
    assert stack.bad_bands == (2, 5)
    assert "2 bad bands" in repr(stack)
    assert hsipack.open(dataset).stacks[f"{ROWS}x{COLUMNS}x{BANDS}"].bad_bands == ()


def test_normalising_over_nan_says_so_once(gappy: Path, dataset: str) -> None:
    message = r"2 of 7 bands of stack 6x5x7 \(2, 4\) and stay NaN; .*bands=.*nan=…"
    with pytest.warns(UserWarning, match=message) as caught:
        functools.reduce(operator.iadd, [list(make(gappy, normalize="l2")) for _ in range(2)])
    assert len(caught) == 2  # one for each loader; by default Python shows the first
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(gappy)
        make(hsipack.open(gappy).select(nan=0), normalize="l2")
        make(gappy, normalize="l2", bands=[0, 1, 3, 5])
        make(dataset, normalize="snv")


# Short texts.


def test_what_notebooks_show_is_short(dataset: str) -> None:
    ds = hsipack.open(dataset)
    assert repr(ds.stats).startswith("<hsipack.Stats of 7 bands: mean ")
    text = repr(ds.stacks)
    assert "<hsipack.Stack 20x24x7: 12 cubes; float16; 450 to 600 nm; masks labels, layers>" in text
    assert repr(ds.samples) == f"<hsipack.Samples: 12 of {dataset}>"
    for value in (ds.stats, ds.stacks, ds.samples):
        assert len(repr(value)) < 200


DIAGNOSES: list[tuple[dict[str, Any], str]] = [
    ({"rounds": "3"}, "rounds='3'"),
    ({"rounds": 0}, "rounds=0"),
    ({"rounds": 1.5}, "rounds=1.5"),
    ({"seconds": "x"}, "seconds='x'"),
    ({"seconds": -1}, "seconds=-1"),
    ({"seconds": float("nan")}, "seconds=nan"),
    ({"verify": "yes"}, "verify='yes'"),
    ({"device": "tpu"}, "device='tpu'"),
    ({"device": -5}, "device=-5"),
    ({"train_step": None}, "train_step=None"),
    ({"loader": 3}, "loader=3"),
    ({"loader": "scans.hsipack"}, "loader='scans.hsipack'"),
]


@pytest.mark.parametrize(("arguments", "message"), DIAGNOSES)
def test_wrong_arguments_of_diagnose_are_named(arguments: dict[str, Any], message: str) -> None:
    given = {"loader": [1, 2], "train_step": lambda batch: None} | arguments
    with pytest.raises(hsipack.ConflictError) as caught:
        hsipack.diagnose(given.pop("loader"), given.pop("train_step"), **given)
    assert message in str(caught.value)
    assert caught.value.remedy


def test_options_of_diagnose_are_those_of_the_library() -> None:
    fields = json.loads(_hsipack.diagnose_defaults())
    parameters = dict(inspect.signature(hsipack.diagnose).parameters)
    for of_python in ("loader", "train_step", "device", "progress"):
        del parameters[of_python]
    assert {name: one.default for name, one in parameters.items()} == fields


def test_options_of_convert_are_those_of_the_library() -> None:
    fields = json.loads(_hsipack.convert_defaults())
    # The command is recorded by the package. Two options select bands.
    del fields["command"]
    fields |= {"wavelengths": fields["bands"], "num_threads": fields.pop("threads")}
    parameters = dict(inspect.signature(hsipack.convert).parameters)
    for of_python in ("executor", "progress", "storage_options"):
        del parameters[of_python]
    assert set(parameters) == set(fields)
    for name, parameter in parameters.items():
        if parameter.default not in (None, inspect.Parameter.empty):
            expected = fields[name]
            assert parameter.default == (tuple(expected) if expected == [] else expected), name


def test_old_names_of_arguments_are_errors_with_the_new_ones(dataset: str, cubes: Path) -> None:
    ds = hsipack.open(dataset)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: hsipack.convert(cubes, "new", jobs=2), "write num_threads="),  # type: ignore[call-arg]
        (lambda: hsipack.pack([], "new", ignore_value=0), "write nodata="),  # type: ignore[call-arg]
        (lambda: hsipack.validate(dataset, jobs=2), "write num_threads="),  # type: ignore[call-arg]
        (lambda: ds.with_masks(classes={1: 2}), "write remap_classes="),  # type: ignore[call-arg]
        (lambda: ds.class_counts("labels", jobs=1), "write num_threads="),  # type: ignore[call-arg]
        (lambda: hsipack.Stitcher(ds, classes=True), "write class_ids="),  # type: ignore[call-arg]
        (
            lambda: hsipack.LabelledPatches(3, mask="labels", classes=[1]),  # type: ignore[call-arg]
            "LabelledPatches has no argument classes .write only_classes=",
        ),
    ]
    for call, message in calls:
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(hsipack.ConflictError, match="fill decides how missing values are packed"):
        hsipack.convert(cubes, "new", nodata="nan")  # type: ignore[arg-type]


def test_short_names_of_published_programs_are_taken(dataset: str) -> None:
    def ids(**names: Any) -> list[int]:
        with make(dataset, masks="labels", **names) as loader:
            return sorted({int(one) for batch in loader for one in batch["labels"].unique()})

    assert ids(classes={1: 2}, ignore=9) == ids(remap_classes={1: 2}, other_class=9) == [2, 9]
    ds = hsipack.open(dataset)
    assert ds.classes == ds.label_names == ["healthy", "tumour"]


def test_options_of_pack_are_those_of_convert() -> None:
    convert = inspect.signature(hsipack.convert).parameters
    for name, parameter in inspect.signature(hsipack.pack).parameters.items():
        if name in convert and name != "output":
            assert parameter.default == convert[name].default, name


def test_every_option_of_convert_is_documented() -> None:
    words = inspect.getdoc(hsipack.convert) or ""
    documented = re.findall(r"^    ([a-z_, ]+): ", words, re.MULTILINE)
    names = {name for line in documented for name in line.split(", ")}
    assert set(inspect.signature(hsipack.convert).parameters) <= names


def test_what_a_dataset_says_can_be_said_to_the_loader(gappy: Path) -> None:
    ds = hsipack.open(gappy)
    said = ds.select(nan=5, physical=False)
    wanted = next(iter(hsipack.Loader(said, 2, device="cpu")))
    loader = hsipack.Loader(ds, 2, device="cpu", nan=5, physical=False)
    batch = next(iter(loader))
    assert torch.equal(batch["image"], wanted["image"])
    with pytest.raises(hsipack.Error, match="nan cannot be given for several datasets"):
        hsipack.Loader(hsipack.concat([ds, ds]), 2, device="cpu", nan=5)


def test_short_cuts_to_masks_keep_what_the_dataset_says(dataset: Path) -> None:
    ds = hsipack.open(dataset).with_masks(dtype=torch.int64, remap_classes={1: 3}, other_class=9)
    loader = hsipack.Loader(ds, 2, device="cpu", ignore=8)
    mask = next(iter(loader))[ds.masks[0]]
    assert mask.dtype == torch.int64
    assert set(mask.unique().tolist()) <= {3, 8}
    assert ds.masks[0] not in next(iter(hsipack.Loader(ds, 2, device="cpu", masks=[])))
