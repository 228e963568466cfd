"""Values: normalising, standardising and calibrating, compared with NumPy."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch
from conftest import BANDS, CUBES, cube

NORMS = {
    "l1": hsipack.augment.L1Normalize,
    "l2": hsipack.augment.L2Normalize,
    "snv": hsipack.augment.SNV,
}


def normalised(values: np.ndarray, how: str) -> np.ndarray:
    """The definition for each spectrum: values that are not finite are left out and become NaN. If
    there is nothing to divide by, the result is 0. SNV divides by n - 1."""
    out = np.full(values.shape, np.nan)
    for place in np.ndindex(values.shape[:-1]):
        spectrum = values[place].astype(np.float64)
        known = np.isfinite(spectrum)
        x = spectrum[known]
        if how == "l1":
            divisor = np.abs(x).sum()
        elif how == "l2":
            divisor = np.sqrt((x * x).sum())
        else:
            constant = len(x) < 2 or (x == x[0]).all()
            divisor = 0.0 if constant else x.std(ddof=1)
            x = x - x.mean() if len(x) else x
        out[place][known] = x / divisor if divisor > 0 else 0.0
    return out


def gappy() -> np.ndarray:
    """(rows, columns, bands) float32, exact in float16: spectra with every kind of gap."""
    rng = np.random.default_rng(5)
    values = (rng.integers(-40, 400, (5, 5, 9)) / 16).astype(np.float32)
    values[0, 0, 3] = values[0, 1, 8] = np.nan
    values[0, 2, 0], values[0, 3, 4] = np.inf, -np.inf
    values[0, 4, [1, 2]] = np.nan, np.inf
    values[1, 0] = np.nan
    values[1, 1] = 0
    values[1, 2], values[1, 2, 5] = 0, np.nan
    values[1, 3] = -0.25
    values[1, 4], values[1, 4, 0] = 3.5, np.inf
    values[2, 0, 1:] = np.nan
    values[2, 1, 2:] = np.nan
    values[2, 2] = np.inf
    values[2, 3, 1:], values[2, 3, 0] = np.nan, 0
    return values


@pytest.mark.parametrize("how", list(NORMS))
def test_convert_loader_and_augmentations_normalise_by_one_rule(how: str, tmp_path: Path) -> None:
    values = gappy()
    want = normalised(values, how)
    np.save(tmp_path / "cube.npy", values)
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    hsipack.convert(tmp_path / "cube.npy", plain)
    report = hsipack.convert(tmp_path / "cube.npy", packed, normalize=how)
    assert report.nan == np.isnan(want).sum()
    assert report.inf == 0

    def check(image: Any, reference: np.ndarray = want) -> None:
        got = np.moveaxis(np.asarray(image, dtype=np.float64), 0, -1)
        np.testing.assert_allclose(got, reference, rtol=1e-3, atol=1e-6)

    check(hsipack.open(packed)[0]["image"])
    for dtype in (torch.float16, torch.float32):
        loader = hsipack.Loader(plain, normalize=how, dtype=dtype, device="cpu")
        check(next(iter(loader))["image"][0])
        image = hsipack.open(plain)[0]["image"].to(dtype)
        check(NORMS[how]()(image[None])[0])
        loader = hsipack.Loader(plain, augment=NORMS[how](), dtype=dtype, device="cpu")
        check(next(iter(loader))["image"][0])
    # The value that replaces NaN is in no sum, in convert and in the loader.
    filled = np.nan_to_num(want, nan=7)
    hsipack.convert(tmp_path / "cube.npy", tmp_path / "filled", normalize=how, fill=7)
    check(hsipack.open(tmp_path / "filled")[0]["image"], filled)
    loader = hsipack.Loader(hsipack.open(plain).select(nan=7), normalize=how, device="cpu")
    check(next(iter(loader))["image"][0], filled)


def test_nan_is_filled_after_standardising(tmp_path: Path) -> None:
    values = gappy()
    values[np.isinf(values)] = np.nan
    np.save(tmp_path / "cube.npy", values)
    hsipack.convert(tmp_path / "cube.npy", tmp_path / "packed")
    ds = hsipack.open(tmp_path / "packed").select(nan=0)
    loader = hsipack.Loader(ds, normalize="standardize", dtype=torch.float32, device="cpu")
    stats = loader.dataset.stats
    assert stats is not None
    want = np.nan_to_num((values - stats.mean) / stats.std, nan=0.0)
    got = next(iter(loader))["image"][0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------- standardise


def of_split(split: str) -> np.ndarray:
    """All pixels of a split's cubes, in float16."""
    chosen = [number for number in range(CUBES) if (number % 4 == 3) == (split == "val")]
    cubes = np.stack([cube(number) for number in chosen])
    return cubes.astype(np.float16).astype(np.float64).reshape(-1, BANDS)


def test_a_split_has_statistics_of_its_own(dataset: str) -> None:
    ds = hsipack.open(dataset)
    everything = np.concatenate([of_split("train"), of_split("val")])
    (stack,) = ds.stacks.values()
    assert set(stack.split_stats) == {"train", "val"}
    for view, pixels in [
        (ds, everything),
        (ds.split("train"), of_split("train")),
        (hsipack.open(dataset, split="val"), of_split("val")),
        (ds.split("val").select([2]), of_split("val")),
        (ds.split(["val", "train"]), everything),
        (ds.select([0, 3]), everything),
        (hsipack.open(dataset, split="train", bands=[5, 2]), of_split("train")[:, [5, 2]]),
    ]:
        stats = view.stats
        assert stats is not None
        np.testing.assert_allclose(stats.mean, pixels.mean(0), rtol=1e-6)
        np.testing.assert_allclose(stats.std, pixels.std(0), rtol=1e-5)
        np.testing.assert_array_equal(stats.min, pixels.min(0))
        np.testing.assert_array_equal(stats.max, pixels.max(0))


def test_the_train_split_standardises_every_loader(dataset: str) -> None:
    ds = hsipack.open(dataset)
    train = of_split("train")
    for view in (ds, ds.split("train"), ds.split("val")):
        loader = hsipack.Loader(view, normalize="standardize", dtype=torch.float32, device="cpu")
        assert loader.report().standardized_by == {"20x24x7": "train"}
        batch = next(iter(loader))
        raw = ds[int(batch["id"][0])]["image"].permute(1, 2, 0).numpy().astype(np.float64)
        got = batch["image"][0].permute(1, 2, 0).numpy()
        np.testing.assert_allclose(got, (raw - train.mean(0)) / train.std(0), atol=2e-5)
    assert hsipack.Loader(ds, normalize="l1", device="cpu").report().standardized_by == {}


def test_cubes_of_every_size_are_standardised_alike(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    sizes = [(20, 1, "train"), (20, 1, "train"), (24, 5, "train"), (28, 9, "val")]
    cubes = [random.normal(level, 0.5, (side, 20, 3)).astype("f4") for side, level, _ in sizes]
    for cube_of_level in cubes:
        cube_of_level[0, 0] = 5
    given = [(f"s{n}", cubes[n], {"split": split}) for n, (_, _, split) in enumerate(sizes)]
    hsipack.pack(given, tmp_path / "d", dtype="float32")
    whole = hsipack.WholeCubes(pad=0.0)
    loader = hsipack.Loader(
        tmp_path / "d", 4, crop=whole, normalize="standardize", dtype="float32", device="cpu"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = next(iter(loader))
    train = np.concatenate([values.reshape(-1, 3) for values in cubes[:3]]).astype(np.float64)
    want = (5 - train.mean(0)) / train.std(0)
    np.testing.assert_allclose(batch["image"][:, :, 0, 0], np.tile(want, (4, 1)), rtol=1e-5)
    assert set(loader.report().standardized_by.values()) == {"train"}


@pytest.mark.parametrize("how", ["standardize", "snv"])
def test_integers_are_rounded_once_after_they_are_normalised(tmp_path: Path, how: str) -> None:
    values = np.random.default_rng(0).normal(12000, 6, (32, 32, 4)).round()
    made = []
    for dtype in ("int16", "float32"):
        hsipack.pack([("a", values.astype(dtype))], tmp_path / dtype, dtype=dtype)
        loader = hsipack.Loader(tmp_path / dtype, 1, normalize=how, device="cpu")
        made.append(next(iter(loader))["image"].float().numpy())
    np.testing.assert_allclose(made[0], made[1], atol=2e-3)


def test_figures_of_the_users_standardise(dataset: str) -> None:
    ds = hsipack.open(dataset)
    raw = ds[0]["image"].permute(1, 2, 0).numpy().astype(np.float64)
    mean, std = np.arange(BANDS) * 0.5, np.arange(BANDS) + 1.0
    mean[3] = std[5] = np.nan
    want = (raw - mean) / std
    want[..., [3, 5]] = raw[..., [3, 5]]
    for given in [
        (mean, std),
        (mean.tolist(), torch.from_numpy(std)),
        [torch.from_numpy(mean), std.astype(np.float32)],
    ]:
        loader = hsipack.Loader(ds, normalize=given, dtype=torch.float32, device="cpu")
        got = next(iter(loader))["image"][0].permute(1, 2, 0).numpy()
        np.testing.assert_allclose(got, want, atol=1e-5)
        assert loader.report().standardized_by == {}
    some = hsipack.Loader(
        ds, bands=[6, 1], normalize=(2.0, [4.0, 0.5]), dtype=torch.float32, device="cpu"
    )
    got = next(iter(some))["image"][0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(got, (raw[..., [6, 1]] - 2) / [4, 0.5], atol=1e-5)


def test_datasets_without_statistics_of_splits_say_so(own_dataset: Path) -> None:
    file = own_dataset / "20x24x7/image/zarr.json"
    meta = json.loads(file.read_text())
    del meta["attributes"]["hsipack"]["split_stats"]
    file.write_text(json.dumps(meta))
    listed = (own_dataset / "SHA256SUMS").read_text().splitlines()
    sums = ""
    for name in (line.split("  ", 1)[1] for line in listed):
        sums += f"{hashlib.sha256((own_dataset / name).read_bytes()).hexdigest()}  {name}\n"
    (own_dataset / "SHA256SUMS").write_text(sums)
    ds = hsipack.open(own_dataset)
    whole = ds.stats
    assert whole is not None
    with pytest.warns(UserWarning, match="no statistics of split 'train'"):
        stats = ds.split("train").stats
    assert stats is not None
    np.testing.assert_array_equal(stats.mean, whole.mean)
    with pytest.warns(UserWarning, match="no statistics of its train split"):
        loader = hsipack.Loader(ds, normalize="standardize", device="cpu")
    assert loader.report().standardized_by == {"20x24x7": None}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hsipack.Loader(ds, normalize=(whole.mean, whole.std), device="cpu")


def test_bands_without_statistics_stay_in_augmentations(tmp_path: Path) -> None:
    values = gappy()
    values[~np.isfinite(values)] = 1
    values[..., [2, 7]] = np.nan
    np.save(tmp_path / "cube.npy", values)
    hsipack.convert(tmp_path / "cube.npy", tmp_path / "packed")
    ds = hsipack.open(tmp_path / "packed")
    stats = ds.stats
    assert stats is not None
    assert np.isnan(stats.mean[[2, 7]]).all()
    image = torch.nan_to_num(ds[0]["image"].float(), nan=5.0)
    normalize = hsipack.augment.Normalize(stats.mean, stats.std)
    got = normalize(image[None])[0].permute(1, 2, 0).numpy()
    want = (values - stats.mean) / stats.std
    want[..., [2, 7]] = 5
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    # It is the same after a conversion to JSON and back, and as a configuration.
    again = hsipack.augment.sequential(normalize.to_json()).config()["ops"]
    assert json.dumps(again).count("null") == 4
    config = {"op": "standardize", "p": 1.0, "mean": stats.mean.tolist(), "std": stats.std.tolist()}
    assert hsipack.augment.sequential([config])[0] == normalize
    dropout = {"op": "band_dropout", "p": 1.0, "fill": stats.mean.tolist()}
    assert "NaN" not in hsipack.augment.sequential([dropout]).to_json()
    with pytest.raises(hsipack.ConflictError, match="NaN for all bands"):
        hsipack.augment.Normalize(float("nan"), 1.0)


# --------------------------------------------------------------------------------------- calibrate


@pytest.mark.parametrize("panel", [99, 0, -1, float("nan"), 1.01])
def test_panels_reflect_between_nothing_and_all(panel: float, tmp_path: Path) -> None:
    np.save(tmp_path / "cube.npy", gappy())
    np.save(tmp_path / "white.npy", gappy())
    with pytest.raises(hsipack.ConflictError, match="not above 0 and at most 1"):
        hsipack.convert(
            tmp_path / "cube.npy",
            tmp_path / "out",
            white=tmp_path / "white.npy",
            white_reflectance=panel,
        )
    with pytest.raises(hsipack.ConflictError, match="but no white reference"):
        hsipack.convert(tmp_path / "cube.npy", tmp_path / "out", white_reflectance=0.99)


def test_reports_have_both_greatest_errors_and_bad_bands(tmp_path: Path) -> None:
    values = np.full((4, 4, 5), 0.1, np.float32)
    values[..., 1] = 1000.3
    values[..., 3] = np.nan
    np.save(tmp_path / "cube.npy", values)
    report = hsipack.convert(tmp_path / "cube.npy", tmp_path / "out", bands=[4, 3, 1])
    worst = report.worst
    assert worst is not None
    assert (worst.absolute_band, worst.absolute_file) == (1, str(tmp_path / "cube.npy"))
    np.testing.assert_allclose(worst.absolute, abs(float(np.float16(1000.3)) - 1000.3), rtol=1e-3)
    relative = [abs(float(np.float16(x)) - x) / x for x in (0.1, 1000.3)]
    assert worst.band == (4, 1)[int(np.argmax(relative))]
    np.testing.assert_allclose(worst.relative, max(relative), rtol=1e-3)
    assert "4x4x3: band 3 is without a value in any cube; bands can leave them out" in report.notes


@pytest.mark.parametrize("greatest", [1e6, 1e-9])
def test_values_beyond_float16_are_refused_and_not_changed(greatest: float, tmp_path: Path) -> None:
    values = np.linspace(greatest / 10, greatest, 4 * 5 * 3, dtype=np.float32).reshape(4, 5, 3)
    values[0, 0, 0] = np.inf
    dataset = tmp_path / "d"
    hsipack.pack([("a", values)], dataset, dtype="float32")

    def first(**options: Any) -> np.ndarray:
        with hsipack.Loader(dataset, 1, output="numpy", **options) as loader:
            return np.asarray(next(iter(loader))["image"]).transpose(0, 2, 3, 1)[0]

    with pytest.raises(hsipack.ConflictError, match="do not fit float16"):
        first()
    assert np.array_equal(first(dtype="float32"), values)
    # After normalising they fit.
    assert np.isfinite(first(normalize="standardize")[1:]).all()


def test_stored_values_in_several_units_are_refused(tmp_path: Path) -> None:
    for name, rows, value in [("a", 8, 1e5), ("b", 9, 5e6)]:
        np.save(tmp_path / f"{name}.npy", np.full((rows, 8, 3), value, np.float32))
    dataset = tmp_path / "d"
    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    hsipack.convert(files, dataset, axes="yxb", scale="auto")
    factors = {stack.scale_factor for stack in hsipack.open(dataset).stacks.values()}
    assert len(factors) == 2
    options: dict[str, Any] = {"crop": 8, "output": "numpy", "dtype": "float32"}
    for normalize in [None, ([1e5] * 3, [1.0] * 3)]:
        with pytest.raises(hsipack.ConflictError, match="scale_factor"):
            hsipack.Loader(dataset, 2, normalize=normalize, **options)
    physical = hsipack.open(dataset).select(physical=True)
    with hsipack.Loader(physical, 2, **options) as loader:
        images = np.concatenate([batch["image"] for batch in loader])
    assert np.allclose(np.sort(images[:, 0, 0, 0]), [1e5, 5e6], rtol=2**-11)
    # Integers are read as physical values, whatever their factors are.
    with hsipack.Loader(dataset, 2, normalize="standardize", **options) as loader:
        assert np.allclose(next(iter(loader))["image"], 0)


@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_normalised_values_that_are_too_large_stay_finite(tmp_path: Path, output: Any) -> None:
    cube = np.array([[[1.0, 2.0], [-3.0, np.nan]]], np.float32)
    hsipack.pack([("a", cube)], tmp_path / "d")
    options: dict[str, Any] = {"normalize": ([0.0, 0.0], [1e-6, 1.0]), "output": output}
    with hsipack.Loader(tmp_path / "d", 1, device="cpu", **options) as loader:
        image = np.asarray(next(iter(loader))["image"][0])
    assert image.dtype == np.float16
    np.testing.assert_array_equal(image, [[[65504, -65504]], [[2, np.nan]]])
