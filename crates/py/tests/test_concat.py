"""Several packed datasets as one: samples, their order, and resuming."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
from conftest import BANDS, CUBES, ROWS
from hsipack import augment


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset of 7 smaller cubes with the bands of ``dataset``, and its own labels."""
    folder = tmp_path_factory.mktemp("other")
    rng = np.random.default_rng(3)
    lines = ["name,label"]
    for number in range(7):
        np.save(folder / f"scan_{number}.npy", rng.random((9, 10, BANDS), dtype=np.float32))
        lines.append(f"scan_{number},{('tumour', 'artefact')[number % 2]}")
    table = folder / "table.csv"
    table.write_text("\n".join(lines))
    path = folder / "other.hsipack"
    hsipack.convert(sorted(folder.glob("*.npy")), path, axes="yxb", table=table)
    return str(path)


@pytest.fixture
def joined(dataset: str, other: str) -> hsipack.Concat:
    return hsipack.concat([hsipack.open(dataset, masks=[]), other])


def make(joined: hsipack.Concat, batch_size: int = 4, **options: Any) -> Any:
    shared = {"shuffle": True, "seed": 5, "device": "cpu", "num_threads": 1, "output": "numpy"}
    return hsipack.Loader(joined, batch_size, **{**shared, **options})


def told(batches: Any) -> list[tuple[int, list[int]]]:
    """The dataset and the samples of each batch."""
    return [(batch["dataset"], batch["id"].tolist()) for batch in batches]


def samples(batches: list[tuple[int, list[int]]]) -> Counter[tuple[int, int]]:
    return Counter((number, one) for number, ids in batches for one in ids)


def test_every_sample_of_every_dataset_comes_once_an_epoch(joined: hsipack.Concat) -> None:
    everything = Counter([(0, one) for one in range(CUBES)] + [(1, one) for one in range(7)])
    with make(joined) as loader:
        assert len(loader) == 5
        epochs = [told(loader) for _ in range(4)]
        assert loader.epoch == 4
    for epoch in epochs:
        assert samples(epoch) == everything
    orders = [[number for number, _ in epoch] for epoch in epochs]
    assert len({tuple(order) for order in orders}) > 1
    assert any(order != sorted(order) for order in orders)
    with make(joined) as again:
        assert [told(again) for _ in range(4)] == epochs


def test_without_shuffling_one_comes_after_the_other(joined: hsipack.Concat) -> None:
    with make(joined, shuffle=False) as loader:
        numbers = [(number, one) for number, ids in told(loader) for one in ids]
    assert numbers == [(0, one) for one in range(CUBES)] + [(1, one) for one in range(7)]


def test_batches_are_those_of_their_dataset(joined: hsipack.Concat) -> None:
    with make(joined) as loader:
        for batch in loader:
            dataset = joined.datasets[batch["dataset"]]
            rows = ROWS if batch["dataset"] == 0 else 9
            assert batch["image"].shape[1:3] == (BANDS, rows)
            for place, one in enumerate(batch["id"].tolist()):
                wanted = hsipack.open(dataset.path, output="numpy")[one]["image"]
                np.testing.assert_array_equal(batch["image"][place], wanted)


def test_labels_are_places_among_the_classes_of_all(joined: hsipack.Concat) -> None:
    assert joined.label_names == ["artefact", "healthy", "tumour"]
    with make(joined) as loader:
        for batch in loader:
            dataset = joined.datasets[batch["dataset"]]
            labels = [dataset.samples[one]["label"] for one in batch["id"].tolist()]
            assert [joined.label_names[label] for label in batch["label"]] == labels
    assert [joined[place]["label"] for place in (CUBES, CUBES + 1)] == [2, 0]
    assert joined[-1]["dataset"] == 1
    assert len(joined) == len(list(joined)) == CUBES + 7
    with pytest.raises(IndexError):
        joined[CUBES + 7]


def test_weights_are_shares_of_the_samples(dataset: str, other: str) -> None:
    datasets = [hsipack.open(dataset, masks=[]), other]
    weighted = hsipack.concat(datasets, weights=[1, 3])
    with make(weighted, epoch_length=40) as loader:
        for _ in range(2):
            epoch = samples(told(loader))
            assert sum(count for (number, _), count in epoch.items() if number == 0) == 10
            assert sum(count for (number, _), count in epoch.items() if number == 1) == 30
    with make(hsipack.concat(datasets, weights=[0, 1])) as loader:
        assert {number for number, _ in told(loader)} == {1}
    for weights in ([1], [0, 0], [-1, 2], [1, float("nan")]):
        with pytest.raises(hsipack.ConflictError, match="weights="):
            hsipack.concat(datasets, weights=weights)


@pytest.mark.parametrize("given", range(6))
def test_it_goes_on_behind_any_batch(joined: hsipack.Concat, given: int) -> None:
    with make(joined) as whole:
        epochs = [told(whole) for _ in range(3)]
    loader = make(joined)
    assert told(loader) == epochs[0]
    iteration = iter(loader)
    first = told(next(iteration) for _ in range(given))
    resumed = make(joined)
    resumed.load_state_dict(loader.state_dict())
    for again in (resumed, pickle.loads(pickle.dumps(loader))):
        if given < 5:
            assert first + told(again) == epochs[1]
        # After the last batch of an epoch, the next epoch begins.
        assert told(again) == epochs[2]
        again.close()


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(
    joined: hsipack.Concat, dataset: str
) -> None:
    loader = make(joined)
    iteration = iter(loader)
    next(iteration)
    state = loader.state_dict()
    whole = hsipack.open(dataset, masks=[])
    others = [
        (make(joined, seed=6), "seed 5, but seed 6"),
        (make(hsipack.concat([whole] * 3)), "of 2 datasets, but the loader reads 3"),
        (make(hsipack.concat([whole, whole])), "another dataset"),
        (make(joined, last="drop"), "in the middle of epoch 0"),
        (make(hsipack.concat(joined.datasets, weights=[2, 1])), "in the middle of epoch 0"),
    ]
    for changed, why in others:
        before = changed.state_dict()
        with pytest.raises(hsipack.ConflictError, match=why):
            changed.load_state_dict(state)
        assert changed.state_dict() == before
    with make(whole) as alone, pytest.raises(hsipack.ConflictError, match="of 2 datasets"):
        alone.load_state_dict(state)
    with pytest.raises(hsipack.Error, match="not a training state"):
        loader.load_state_dict({"epoch": 1})
    with pytest.raises(hsipack.ConflictError, match=r"set_epoch\(3\)"):
        loader.load_state_dict({"epoch": 3, "given": 2, "order": [3, 2], "seed": 5, "parts": []})
    assert loader.state_dict() == state


@pytest.mark.parametrize("given", [0, 1, 3])
def test_the_rest_of_an_epoch_is_divided_again_for_other_batches_and_ranks(
    joined: hsipack.Concat, given: int
) -> None:
    loader = make(joined)
    iteration = iter(loader)
    first = told(next(iteration) for _ in range(given))
    state = loader.state_dict()
    rest: Counter[tuple[int, int]] = Counter()
    for rank in range(2):
        with make(joined, 3, rank=rank, world_size=2) as resumed:
            resumed.load_state_dict(state)
            rest += samples(
                [(batch["dataset"], batch["id"][~batch["padding"]].tolist()) for batch in resumed]
            )
    everything = Counter([(0, one) for one in range(CUBES)] + [(1, one) for one in range(7)])
    assert samples(first) + rest == everything


def test_one_ring_serves_all_datasets(joined: hsipack.Concat, tmp_path: Path) -> None:
    with make(joined, slots=3, cache=None) as loader:
        loader.start_trace()
        assert sum(len(batch["id"]) for batch in loader) == CUBES + 7
        stats, report = loader.stats(), loader.report()
        loader.save_trace(tmp_path / "trace.json")
    assert (stats.batches, stats.loader.samples, stats.loader.threads) == (5, CUBES + 7, 1)
    assert report.memory is not None
    assert report.transfer is not None
    # The larger cubes fill a slot: 4 of them.
    assert report.transfer.slot_bytes - 4 * ROWS * 24 * BANDS * 2 in range(4096)
    assert [cache.kind for cache in report.caches] == ["none", "none"]
    assert report.cache.needed_bytes == sum(cache.needed_bytes for cache in report.caches)
    assert "decode" in (tmp_path / "trace.json").read_text()


def test_a_cache_of_a_given_size_is_divided_among_the_datasets(joined: hsipack.Concat) -> None:
    with make(joined, cache="decoded", cache_size=40_000) as loader:
        epochs = [told(loader) for _ in range(3)]
        report = loader.report()
    needed = [cache.needed_bytes for cache in report.caches]
    limits = [cache.limit_bytes for cache in report.caches]
    assert sum(limits) in range(39_998, 40_001)
    assert limits[0] / limits[1] == pytest.approx(needed[0] / needed[1], rel=1e-3)
    assert 0 < report.cache.bytes <= 40_000
    with make(joined, cache=None) as loader:
        assert [told(loader) for _ in range(3)] == epochs


def test_damaged_samples_are_skipped_in_their_dataset(
    joined: hsipack.Concat, other: str, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.hsipack"
    shutil.copytree(other, damaged)
    # Not the index at the end of the shard.
    shard = max(damaged.glob("**/c/**/0"), key=lambda file: file.stat().st_size)
    data = bytearray(shard.read_bytes())
    data[40] ^= 255
    shard.write_bytes(data)
    both = hsipack.concat([joined.datasets[0], damaged])
    with make(both, on_damage="skip") as loader:
        given = samples(told(loader))
        assert loader.stats().loader.skipped == 1
    assert len(given) == CUBES + 6
    with make(both) as loader, pytest.raises(hsipack.DamagedError, match=r"damaged\.hsipack"):
        list(loader)


def test_augmentations_of_datasets_draw_for_themselves(dataset: str) -> None:
    twice = hsipack.concat([hsipack.open(dataset, masks=[])] * 2)
    gain = [augment.Gain((0.5, 1.5), p=1.0)]
    with make(twice, 1, shuffle=False, augment=gain, dtype="float32") as loader:
        images = [batch["image"] for batch in loader]
    with make(twice, 1, shuffle=False, augment=gain, dtype="float32") as loader:
        assert all(
            np.array_equal(image, batch["image"], equal_nan=True)
            for image, batch in zip(images, loader, strict=True)
        )
    first, second = images[:CUBES], images[CUBES:]
    same = [np.array_equal(*pair, equal_nan=True) for pair in zip(first, second, strict=True)]
    assert not any(same)


def test_a_new_iteration_ends_an_older_one(joined: hsipack.Concat) -> None:
    with make(joined) as whole:
        epochs = [told(whole) for _ in range(2)]
    loader = make(joined)
    old = iter(loader)
    next(old)
    assert told(loader) == epochs[1]
    with pytest.raises(hsipack.ConflictError, match="newer iteration"):
        next(old)
    loader.set_epoch(0)
    assert told(loader) == epochs[0]


def test_ranks_read_the_same_datasets_in_step(joined: hsipack.Concat) -> None:
    loaders = [make(joined, 2, rank=rank, world_size=2) for rank in range(2)]
    parts = [told(loader) for loader in loaders]
    assert [number for number, _ in parts[0]] == [number for number, _ in parts[1]]
    both = samples(parts[0]) + samples(parts[1])
    assert set(both) == {(0, one) for one in range(CUBES)} | {(1, one) for one in range(7)}


def test_what_does_not_fit_together_is_refused(
    dataset: str, other: str, joined: hsipack.Concat, tmp_path: Path
) -> None:
    with pytest.raises(hsipack.ConflictError, match="with masks"):
        hsipack.concat([dataset, other])
    with pytest.raises(hsipack.ConflictError, match=r"datasets of \[2\] and \[7\] bands"):
        hsipack.concat([hsipack.open(dataset, bands=[0, 1], masks=[]), other])
    np.save(tmp_path / "cube.npy", np.ones((4, 5, BANDS), np.float32))
    with pytest.raises(hsipack.ConflictError, match="give a list of datasets"):
        hsipack.concat(dataset)
    with pytest.raises(hsipack.UnsupportedError, match=r"normalize=joined.stats"):
        make(joined, normalize="standardize")
    with pytest.raises(hsipack.UnsupportedError, match="weights of the datasets"):
        make(joined, shuffle=False, sampler=[1.0] * 19)


def test_statistics_are_those_of_all_values(joined: hsipack.Concat) -> None:
    values = np.concatenate(
        [
            np.asarray(sample["image"], dtype=np.float64).reshape(BANDS, -1)
            for part in joined.datasets
            for sample in hsipack.open(part.path, output="numpy")
        ],
        axis=1,
    )
    stats = joined.stats
    assert stats is not None
    np.testing.assert_allclose(stats.mean, values.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(stats.std, values.std(axis=1), rtol=1e-6)
    with make(joined, normalize=stats, dtype="float32") as loader:
        assert all(np.isfinite(batch["image"]).all() for batch in loader)


def test_it_is_diagnosed_as_an_iterable(joined: hsipack.Concat) -> None:
    with make(joined) as loader:
        found = hsipack.diagnose(loader, lambda batch: None, rounds=2, seconds=0.02, device="cpu")
    assert [level["level"] for level in found.levels] == ["step", "load"]


def test_labels_of_numbers_and_texts_are_alike_in_items_and_batches(tmp_path: Path) -> None:
    parts = []
    for name, labels in {"a": [3.5, 1.0, None], "b": ["x", "y"]}.items():
        cubes = (
            (f"{name}{number}", np.ones((4, 4, 2)), {"label": label})
            for number, label in enumerate(labels)
        )
        hsipack.pack(cubes, tmp_path / name)
        parts.append(hsipack.open(tmp_path / name))
    joined = hsipack.concat(parts)
    assert joined.label_names == [1.0, 3.5, "x", "y"]
    items = [joined[position]["label"] for position in range(5)]
    assert items == [1, 0, -1, 2, 3]
    with make(joined, 1, shuffle=False) as loader:
        assert [batch["label"].item() for batch in loader] == items


def named(path: Path, masks: dict[str, Any], class_names: dict[str, list[str]]) -> hsipack.Dataset:
    cube = np.zeros((4, 4, 2), np.float32)
    hsipack.pack([("s", cube, {"masks": masks})], path, class_names=class_names)
    return hsipack.open(path)


def test_masks_that_mean_something_else_are_refused(tmp_path: Path) -> None:
    ids, bits = np.ones((4, 4), np.uint8), np.ones((4, 4), bool)
    tissue = {
        name: named(tmp_path / name, {"m": ids}, {"m": ["none", first, second]})
        for name, first, second in [("a", "tumour", "vessel"), ("b", "vessel", "tumour")]
    }
    with pytest.raises(hsipack.ConflictError, match="class 1 of mask 'm'"):
        make(hsipack.concat([*tissue.values()]), 1)
    same = [one.with_masks(remap_classes={"tumour": 1, "vessel": 2}) for one in tissue.values()]
    with make(hsipack.concat(same), 1) as loader:
        assert sorted(int(batch["m"].max()) for batch in loader) == [1, 2]
    sky = [
        named(tmp_path / f"q{number}", {"q": dict.fromkeys(order, bits)}, {})
        for number, order in enumerate([["cloud", "shadow"], ["shadow", "cloud"]])
    ]
    with pytest.raises(hsipack.ConflictError, match="layers"):
        make(hsipack.concat(sky), 1)
    with make(hsipack.concat([one.with_masks([]) for one in sky]), 1) as loader:
        assert len([*loader]) == 2


def test_the_key_of_the_dataset_is_taken(tmp_path: Path) -> None:
    parts = [
        named(tmp_path / name, {"dataset": np.ones((4, 4), np.uint8)}, {}) for name in ("a", "b")
    ]
    with pytest.raises(hsipack.ConflictError, match="'dataset'"):
        make(hsipack.concat(parts), 1)
