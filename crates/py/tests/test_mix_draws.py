"""Long, interrupted and divided mixes. The crate ``read`` has such tests of more plans."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch
from scipy import stats
from test_mix import SIZES, loader
from test_mix import packed as packed  # the fixture

Items = list[tuple[str, int]]


def items(batches: Any) -> Items:
    return [
        (batch["source"][0], sample)
        for batch in batches
        for sample, padding in zip(batch["id"].tolist(), batch["padding"].tolist(), strict=True)
        if not padding
    ]


@pytest.mark.parametrize("weights", ["equal", {"enmap": 3, "prisma": 1}, {"enmap": 1, "prisma": 7}])
def test_a_hundred_thousand_draws_have_the_weights(packed: dict[str, Path], weights: Any) -> None:
    mixed = hsipack.mix(packed, weights)
    counts: Counter[tuple[str, int]] = Counter()
    for batch in loader(mixed, 50, shuffle=True, crop=(2, 2), epoch_length=100_000):
        counts.update((batch["source"][0], sample) for sample in batch["id"].tolist())
    weights = {"enmap": 1, "prisma": 1} if weights == "equal" else weights
    wanted = {
        (name, number): 1e5 * weights[name] / sum(weights.values()) / SIZES[name][0]
        for name in SIZES
        for number in range(SIZES[name][0])
    }
    assert counts.total() == 100_000
    found = stats.chisquare([counts[item] for item in wanted], list(wanted.values()))
    assert found.pvalue > 1e-3


@pytest.mark.parametrize(
    ("weights", "most"),
    [
        ("size", {"enmap": 1, "prisma": 1}),
        # 24 items of 9 samples.
        ("equal", {"enmap": 1, "prisma": 3}),
        ({"enmap": 3, "prisma": 1}, {"enmap": 1, "prisma": 1}),
        ({"enmap": 1, "prisma": 2}, {"enmap": 1, "prisma": 6}),
    ],
)
def test_no_sample_comes_more_often_than_weights_ask_for(
    packed: dict[str, Path], weights: Any, most: dict[str, int]
) -> None:
    batches = loader(hsipack.mix(packed, weights), shuffle=True)
    for _ in range(3):
        counts: Counter[tuple[str, int]] = Counter(items(batches))
        for (name, _), count in counts.items():
            assert count <= most[name]


def test_any_interruption_goes_on_with_the_next_batch(packed: dict[str, Path]) -> None:
    rng = np.random.default_rng(5)
    mixed = hsipack.mix(packed, {"enmap": 2, "prisma": 1})
    options = {"shuffle": True, "crop": hsipack.RandomCrop((3, 4))}
    whole = list(loader(mixed, **options))
    for _ in range(40):
        stop = int(rng.integers(0, len(whole)))
        first = loader(mixed, **options)
        iterator = iter(first)
        for _ in range(stop):
            next(iterator)
        again = loader(mixed, **options)
        again.load_state_dict(first.state_dict())
        rest = list(again)
        assert len(rest) == len(whole) - stop
        for have, want in zip(rest, whole[stop:], strict=True):
            assert have["source"] == want["source"]
            assert torch.equal(have["window"], want["window"])
            assert torch.equal(have["image"], want["image"])


@pytest.mark.parametrize("world_size", range(1, 9))
def test_worlds_of_any_size_read_a_mix_and_go_on_in_another(
    packed: dict[str, Path], world_size: int
) -> None:
    mixed = hsipack.mix(packed)
    whole = sorted(items(loader(mixed, shuffle=True)))

    def ranks(count: int, state: Any = None) -> list[list[Any]]:
        found = []
        for rank in range(count):
            part = loader(mixed, shuffle=True, rank=rank, world_size=count)
            if state is not None:
                part.load_state_dict(state)
            found.append(list(part))
        return found

    all_ranks = ranks(world_size)
    sources = [[batch["source"][0] for batch in rank] for rank in all_ranks]
    assert all(turns == sources[0] for turns in sources)
    assert sorted(items(chain(*all_ranks))) == whole
    stopped = loader(mixed, shuffle=True, rank=0, world_size=world_size)
    next(iter(stopped))
    before = [rank[0] for rank in all_ranks]
    for other in (1, 2, 5, 8):
        after = chain(*ranks(other, stopped.state_dict()))
        assert sorted(items(chain(before, after))) == whole
