"""Datasets of several sensors in one training."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch

SIZES = {"enmap": (24, 5), "prisma": (9, 3)}
"""Samples and bands of each dataset."""


def cubes(name: str) -> Any:
    count, bands = SIZES[name]
    waves = [400.0 + 100 * band + len(name) for band in range(bands)]
    for number in range(count):
        values = np.random.default_rng(number).random((8, 10, bands), dtype=np.float32)
        values += 10 * bands
        mask = np.full((8, 10), bands, np.uint8)
        yield f"{name}{number}", values, {"wavelengths": waves, "masks": {"gt": mask}}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("mix")
    for name in SIZES:
        hsipack.pack(cubes(name), folder / name, dtype="float32")
    return {name: folder / name for name in SIZES}


def loader(mixed: hsipack.Mix, batch_size: int = 3, **options: Any) -> hsipack.Loader:
    options = {"device": "cpu", "dtype": "float32", "seed": 3, **options}
    return hsipack.Loader(mixed, batch_size, **options)


@pytest.mark.parametrize("shuffle", [False, True])
def test_each_batch_is_of_one_sensor_and_every_sample_comes_once(
    packed: dict[str, Path], shuffle: bool
) -> None:
    mixed = hsipack.mix(packed)
    seen: Counter[tuple[str, int]] = Counter()
    sources = []
    for batch in loader(mixed, shuffle=shuffle, extras=["wavelength"]):
        name = batch["source"][0]
        assert batch["source"] == [name] * len(batch["id"])
        assert batch["dataset"] == list(SIZES).index(name)
        bands = SIZES[name][1]
        assert batch["image"].shape[1:] == (bands, 8, 10)
        assert batch["wavelength"].tolist() == [400 + 100 * n + len(name) for n in range(bands)]
        assert (batch["gt"] == bands).all()
        wanted = torch.stack([hsipack.open(packed[name])[n]["image"] for n in batch["id"].tolist()])
        assert torch.equal(batch["image"], wanted)
        seen.update((name, number) for number in batch["id"].tolist())
        sources.append(name)
    assert seen == Counter((name, n) for name, (count, _) in SIZES.items() for n in range(count))
    # Eight batches of one and three of the other take turns evenly.
    places = [place for place, name in enumerate(sources) if name == "prisma"]
    assert len(sources) == 11
    assert places[0] < 5
    assert places[-1] > 5


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ("size", {"enmap": 24, "prisma": 9}),
        ("equal", {"enmap": 24, "prisma": 24}),
        ({"enmap": 2, "prisma": 1}, {"enmap": 24, "prisma": 12}),
        ({"prisma": 0.0, "enmap": 1}, {"enmap": 24}),
    ],
)
def test_weights_are_fractions_of_the_samples(
    packed: dict[str, Path], weights: Any, counts: dict[str, int]
) -> None:
    mixed = hsipack.mix(packed, weights)
    found: Counter[str] = Counter()
    for batch in loader(mixed, shuffle=True):
        found.update(batch["source"])
    assert found == counts
    found = Counter()
    for batch in loader(mixed, shuffle=True, epoch_length=90):
        found.update(batch["source"])
    total = sum(counts.values())
    assert found == {name: round(90 * count / total) for name, count in counts.items()}


def test_every_hundred_batches_have_the_weights(packed: dict[str, Path]) -> None:
    mixed = hsipack.mix(packed, {"enmap": 3, "prisma": 1})
    batches = loader(mixed, 50, shuffle=True, crop=(2, 2), epoch_length=100_000)
    sources = [batch["source"][0] for batch in batches]
    assert sources.count("enmap") == 1500
    assert sources.count("prisma") == 500
    of_prisma = [sources[start : start + 100].count("prisma") for start in range(1901)]
    # Exact in the first 100 batches, the second, and so on.
    assert set(of_prisma[::100]) == {25}
    assert max(abs(count - 25) for count in of_prisma) <= 2


def test_it_goes_on_after_any_batch_and_on_other_ranks(packed: dict[str, Path]) -> None:
    mixed = hsipack.mix(packed, "equal")

    def items(batches: Any) -> list[tuple[str, int]]:
        return [
            (batch["source"][0], sample)
            for batch in batches
            for sample, padding in zip(batch["id"].tolist(), batch["padding"].tolist(), strict=True)
            if not padding
        ]

    whole = items(loader(mixed, shuffle=True))
    for stop in (1, 4, 9):
        first = loader(mixed, shuffle=True)
        iterator = iter(first)
        before = items(next(iterator) for _ in range(stop))
        again = loader(mixed, shuffle=True)
        again.load_state_dict(first.state_dict())
        assert before + items(again) == whole
        ranks = []
        for rank in range(2):
            part = loader(mixed, shuffle=True, rank=rank, world_size=2)
            part.load_state_dict(first.state_dict())
            ranks.append(list(part))
        assert [batch["source"][0] for batch in ranks[0]] == [
            batch["source"][0] for batch in ranks[1]
        ]
        assert sorted(before + items(ranks[0]) + items(ranks[1])) == sorted(whole)
    joined = hsipack.concat([packed["enmap"], packed["enmap"]])
    with pytest.raises(hsipack.ConflictError):
        loader(joined, shuffle=True).load_state_dict(first.state_dict())  # type: ignore[arg-type]


def test_each_sensor_is_standardised_by_its_own_statistics(packed: dict[str, Path]) -> None:
    for batch in loader(hsipack.mix(packed), 24, normalize="standardize"):
        assert float(batch["image"].mean().abs()) < 1e-3
        assert float(batch["image"].std()) == pytest.approx(1, abs=1e-2)


def test_samples_have_their_source(packed: dict[str, Path]) -> None:
    mixed = hsipack.mix(packed)
    assert len(mixed) == 33
    assert (mixed[0]["source"], mixed[-1]["source"]) == ("enmap", "prisma")
    assert repr(mixed).startswith("<hsipack.Mix of enmap: ")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda packed: hsipack.mix(list(packed.values())), "datasets="),
        (lambda packed: hsipack.mix({}), "datasets={}"),
        (lambda packed: hsipack.mix(packed, "most"), "unknown weights 'most'"),
        (lambda packed: hsipack.mix(packed, {"enmap": 1}), "weights="),
        (lambda packed: hsipack.mix(packed, {"enmap": 1, "prism": 1}), "weights="),
        (lambda packed: hsipack.mix(packed, {"enmap": 0, "prisma": 0}), "weights="),
        (lambda packed: hsipack.mix(packed, {"enmap": -1, "prisma": 2}), "weights="),
        (lambda packed: hsipack.mix(packed, [1, 2]), "weights=[1, 2]"),
        (lambda packed: hsipack.mix(packed).stats, "no statistics together"),
        (
            lambda packed: hsipack.mix(
                {"a": packed["enmap"], "b": hsipack.open(packed["prisma"]).with_masks([])}
            ),
            "masks",
        ),
    ],
)
def test_wrong_mixes_are_refused(packed: dict[str, Path], make: Any, what: str) -> None:
    with pytest.raises(hsipack.Error) as caught:
        make(packed)
    assert what in str(caught.value)
    assert caught.value.remedy
