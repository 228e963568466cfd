"""Statistics of chosen samples: the same as NumPy's, and as those recorded when packing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
from conftest import BANDS, CUBES

SHAPES = [(8, 9), (11, 5), (8, 9)]


def check(stats: hsipack.Stats | None, values: np.ndarray[Any, Any]) -> None:
    """Compares with NumPy's statistics of values (samples, bands)."""
    assert stats is not None
    values = values.astype(np.float64)
    np.testing.assert_array_equal(stats.nan, np.isnan(values).sum(axis=0))
    np.testing.assert_array_equal(stats.count, np.isfinite(values).sum(axis=0))
    np.testing.assert_allclose(stats.min, np.nanmin(values, axis=0))
    np.testing.assert_allclose(stats.max, np.nanmax(values, axis=0))
    np.testing.assert_allclose(stats.mean, np.nanmean(values, axis=0), rtol=1e-6)
    np.testing.assert_allclose(stats.std, np.nanstd(values, axis=0), rtol=1e-5)


def pixels(dataset: hsipack.Dataset) -> np.ndarray[Any, Any]:
    """All stored values, (pixels, bands)."""
    images = [dataset[number]["image"] for number in range(len(dataset))]
    return np.concatenate([image.reshape(len(image), -1).T for image in map(np.asarray, images)])


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two stacks, with missing values. The scale factor is 4."""
    path = tmp_path_factory.mktemp("shapes") / "shapes.hsipack"
    draw = np.random.default_rng(5)

    def cubes() -> Any:
        for number, shape in enumerate(SHAPES):
            cube = draw.normal(100 * number, 30, (*shape, 4)).astype(np.float32)
            cube[number, :2, number] = np.nan
            yield f"cube {number}", cube, {"group": "ab"[number % 2]}

    hsipack.pack(cubes(), path, scale=4.0)
    return path


def test_they_are_those_of_the_chosen_samples(dataset: str) -> None:
    ds = hsipack.open(dataset, output="numpy")
    for part in (ds, ds.select([7, 2, 3]), ds.select([7, 2]).select([1]), ds.split("val")):
        check(part.compute_stats(), pixels(part))
        check(part.compute_stats(num_threads=1), pixels(part))
    few = hsipack.open(dataset, output="numpy", bands=[5, 0])
    check(few.select([1, 4]).compute_stats(), pixels(few.select([1, 4])))


def test_they_equal_the_recorded_ones(dataset: str) -> None:
    ds = hsipack.open(dataset)
    for part in (ds, ds.split("train")):
        computed, recorded = part.compute_stats(), part.stats
        assert recorded is not None
        for name in ("min", "max", "nan", "count"):
            np.testing.assert_array_equal(getattr(computed, name), getattr(recorded, name))
        np.testing.assert_allclose(computed.mean, recorded.mean, rtol=1e-12)
        np.testing.assert_allclose(computed.std, recorded.std, rtol=1e-12)


def test_stacks_count_together_in_stored_or_physical_units(shapes: Path) -> None:
    ds = hsipack.open(shapes, output="numpy")
    assert len(ds.stacks) == 2
    check(ds.compute_stats(), pixels(ds))
    physical = hsipack.open(shapes, output="numpy", physical=True)
    assert np.nanmax(physical[0]["image"]) == 4 * np.nanmax(ds[0]["image"])
    check(ds.compute_stats(physical=True), pixels(physical))
    check(ds.where("group == 'b'").compute_stats(), pixels(ds.select([1])))


@pytest.mark.parametrize("physical", [False, True])
def test_loaders_standardise_by_them(shapes: Path, physical: bool) -> None:
    fold = hsipack.open(shapes).select([0, 2], physical=physical, nan=0.0)
    stats = fold.compute_stats()
    options: dict[str, Any] = {"dtype": "float32", "device": "cpu", "output": "numpy"}
    images = [batch["image"] for batch in hsipack.Loader(fold, 1, normalize=stats, **options)]
    values = np.concatenate([image[0].reshape(4, -1) for image in images], axis=1)
    np.testing.assert_allclose(values.mean(axis=1), 0, atol=1e-5)
    # Missing values have become the mean, 0.
    shares = stats.count / (stats.count + stats.nan)
    np.testing.assert_allclose(values.std(axis=1), np.sqrt(shares), rtol=1e-5)
    pair = hsipack.Loader(fold, 1, normalize=(stats.mean, stats.std), **options)
    for image, batch in zip(images, pair, strict=True):
        np.testing.assert_array_equal(image, batch["image"])


def test_they_are_those_of_a_dataset_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "grows.hsipack"
    draw = np.random.default_rng(7)
    hsipack.pack([(f"{n}", draw.random((5, 6, 3), np.float32)) for n in range(4)], path)
    before = hsipack.open(path)
    recorded = before.stats
    assert recorded is not None
    hsipack.pack([("one more", np.full((5, 6, 3), 9e3, np.float32))], path, append=True)
    grown, then = hsipack.open(path), hsipack.open(path, as_of=before.fingerprint)
    assert (len(grown), len(then)) == (5, 4)
    np.testing.assert_allclose(then.compute_stats().mean, recorded.mean, rtol=1e-12)
    np.testing.assert_allclose(before.compute_stats().std, recorded.std, rtol=1e-12)
    assert grown.compute_stats().max.tolist() == [9000] * 3


def test_joined_datasets_count_together(dataset: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(6)
    hsipack.pack([("a", draw.random((20, 24, BANDS), np.float32))], tmp_path / "a.hsipack")
    paths = (dataset, tmp_path / "a.hsipack")
    parts = [hsipack.open(path, output="numpy", masks=[]) for path in paths]
    check(hsipack.concat(parts).compute_stats(), np.concatenate([pixels(part) for part in parts]))
    check(hsipack.concat([parts[0], parts[1].select([])]).compute_stats(), pixels(parts[0]))
    scaled = tmp_path / "scaled.hsipack"
    hsipack.pack([("b", draw.random((20, 24, BANDS), np.float32))], scaled, scale=8.0)
    joined = hsipack.concat([parts[1], hsipack.open(scaled)])
    with pytest.raises(hsipack.ConflictError, match=r"select\(physical=True\)"):
        joined.compute_stats()
    physical = [part.select(physical=True) for part in (parts[1], hsipack.open(scaled))]
    assert hsipack.concat(physical).compute_stats().max.max() <= 1


def test_what_is_wrong_is_named(dataset: str, own_dataset: Path, tmp_path: Path) -> None:
    ds = hsipack.open(dataset)
    with pytest.raises(hsipack.ConflictError, match="there are no samples"):
        ds.select([]).compute_stats()
    with pytest.raises(hsipack.ConflictError, match="num_threads"):
        ds.compute_stats(num_threads=0)
    with pytest.raises(hsipack.ConflictError, match=r"\(mean, std\), or an hsipack.Stats"):
        hsipack.Loader(ds, 2, normalize=3, device="cpu")  # type: ignore[arg-type]

    cubes = [(f"of {bands}", np.ones((4, 4, bands), np.float32)) for bands in (3, 5)]
    hsipack.pack(cubes, tmp_path / "bands.hsipack")
    mixed = hsipack.open(tmp_path / "bands.hsipack")
    with pytest.raises(hsipack.ConflictError, match="different numbers of bands"):
        mixed.compute_stats()
    two = hsipack.open(tmp_path / "bands.hsipack", bands=[0, 2])
    assert two.compute_stats().count.tolist() == [32, 32]

    shard = next(file for file in own_dataset.rglob("image/c/**/0") if file.is_file())
    damaged = bytearray(shard.read_bytes())
    damaged[50:90] = bytes(40)
    shard.write_bytes(damaged)
    with pytest.raises(hsipack.DamagedError):
        hsipack.open(own_dataset).compute_stats()


def test_progress_is_told_and_can_stop_it(dataset: str) -> None:
    told: list[tuple[int, int]] = []
    ds = hsipack.open(dataset)
    ds.compute_stats(progress=lambda done, total: told.append((done, total)))
    size = CUBES * 20 * 24 * BANDS * 2
    assert told[-1] == (size, size)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ds.compute_stats(progress=stop)
