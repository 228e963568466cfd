"""What batches have besides images, masks and labels: wavelengths, valid pixels, place and time."""

from __future__ import annotations

import pickle
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pyproj
import pytest
import torch
from hsipack.augment import AugmentationSequential, RandomAffine, RandomHorizontalFlip

ROWS, COLUMNS, BANDS = 16, 20, 5
WAVELENGTHS = [450.0, 550.0, 650.0, 750.0, 850.0]
FWHM = [10.0, 11.0, 12.0, 13.0, 14.0]
UTM = [634200.0, 30.0, 0.0, 5297190.0, 0.0, -30.0]
DEGREES = [9.5, 0.0003, 0.0, 47.5, 0.0, -0.0003]


def cube(number: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A cube with NaN, infinite values, and a band that is marked as bad."""
    values = np.random.default_rng(number).random((ROWS, COLUMNS, BANDS), dtype=np.float32)
    values[number, 3, 1] = np.nan
    values[5, number, 4] = np.inf
    values[7, 7, 2] = np.nan  # In the bad band.
    return values


def quality(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    ids = np.zeros((ROWS, COLUMNS), np.uint8)
    ids[10 + number % 3, :] = 1
    ids[14, 2:5] = 2
    return ids


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("extras") / "packed.hsipack"
    good = [True, True, False, True, True]
    geo = {
        0: {"crs": "EPSG:32632", "transform": UTM},
        1: {"crs": "EPSG:4326", "transform": DEGREES},
    }
    hsipack.pack(
        (
            (
                f"c{number}",
                cube(number),
                {
                    "wavelengths": WAVELENGTHS,
                    "fwhm": FWHM,
                    "good_bands": good,
                    "masks": {"quality": quality(number)},
                    "time": [None, "2026-05-01T10:30:00Z", "2026-05-01", 12.5][number],
                    "sensor": None if number == 3 else "EnMAP",
                    "geo": geo.get(number),
                },
            )
            for number in range(4)
        ),
        out,
        dtype="float32",
        class_names={"quality": ["clear", "cloud", "shadow"]},
    )
    return out


def loader(packed: Path, **options: Any) -> hsipack.Loader:
    return hsipack.Loader(packed, 4, device="cpu", dtype="float32", **options)


def test_bands_follow_the_selection(packed: Path) -> None:
    names = ["wavelength", "fwhm", "band_valid"]
    for bands in (None, [4, 2, 0]):
        batch = next(iter(loader(packed, extras=names, bands=bands)))
        chosen = list(range(BANDS)) if bands is None else bands
        assert batch["wavelength"].dtype == torch.float32
        assert batch["wavelength"].tolist() == [WAVELENGTHS[band] for band in chosen]
        assert batch["fwhm"].tolist() == [FWHM[band] for band in chosen]
        assert batch["band_valid"].tolist() == [[band != 2 for band in chosen]] * 4


@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize("nan", [None, 0.0])
def test_pixels_with_missing_values_are_not_valid(
    packed: Path, output: Any, nan: float | None
) -> None:
    wanted = np.stack([np.isfinite(cube(n)[..., [0, 1, 3, 4]]).all(-1) for n in range(4)])
    more = {} if nan is None else {"nan": nan}
    batch = next(iter(loader(packed, extras="valid", output=output, **more)))
    assert batch["valid"].shape == (4, ROWS, COLUMNS)
    assert np.array_equal(np.asarray(batch["valid"]), wanted)
    assert np.asarray(batch["valid"]).dtype == np.bool_
    only = next(iter(loader(packed, extras="valid", bands=[0, 3], output=output)))
    assert np.asarray(only["valid"]).all()
    crops = loader(packed, extras="valid", crop=(5, 6), shuffle=True, seed=3, output=output)
    for batch in crops:
        where = zip(np.asarray(batch["id"]), np.asarray(batch["window"]), strict=True)
        for valid, (sample, (row, column, rows, columns)) in zip(
            np.asarray(batch["valid"]), where, strict=True
        ):
            part = wanted[sample, row : row + rows, column : column + columns]
            assert np.array_equal(valid, part)


@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize("pad", ["reflect", "edge", 0.0])
def test_padding_of_windows_is_not_valid(packed: Path, output: Any, pad: Any) -> None:
    wanted = np.stack([np.isfinite(cube(n)[..., [0, 1, 3, 4]]).all(-1) for n in range(4)])
    wide = np.pad(wanted, ((0, 0), (ROWS, ROWS), (COLUMNS, COLUMNS)))
    flip = [RandomHorizontalFlip(p=1.0)] if output == "torch" else None
    crop = hsipack.GridCrop((5, 7), step=(4, 6), pad=pad)
    windows = [(0, -2, -3), (1, ROWS - 3, 2), (2, 1, COLUMNS - 2), (3, 0, 0)]
    for one in (crop, hsipack.Windows(windows, (5, 7), pad=pad)):
        for batch in loader(packed, extras="valid", crop=one, output=output, augment=flip):
            where = zip(np.asarray(batch["id"]), np.asarray(batch["window"]), strict=True)
            for valid, (sample, (row, column, rows, columns)) in zip(
                np.asarray(batch["valid"]), where, strict=True
            ):
                first = row + ROWS, column + COLUMNS
                part = wide[sample, first[0] : first[0] + rows, first[1] : first[1] + columns]
                assert np.array_equal(valid, part[:, ::-1] if flip else part)


def test_quality_masks_exclude_pixels(packed: Path) -> None:
    valid = np.stack([np.isfinite(cube(n)[..., [0, 1, 3, 4]]).all(-1) for n in range(4)])
    ids = np.stack([quality(number) for number in range(4)])
    for how, wanted in (
        ("quality", ids == 0),
        ({"quality": ["shadow"]}, ids != 2),
        ({"quality": [1, "shadow"]}, ids == 0),
        ({"quality": 1}, ids != 1),
    ):
        batch = next(iter(loader(packed, extras=["valid"], quality=how)))
        assert np.array_equal(batch["valid"].numpy(), valid & wanted), how


def test_augmentations_move_valid_pixels(packed: Path) -> None:
    plain = next(iter(loader(packed, extras="valid")))["valid"]
    flipped = next(iter(loader(packed, extras="valid", augment=[RandomHorizontalFlip(p=1.0)])))
    assert torch.equal(flipped["valid"], plain.flip(2))
    # Places from outside are not valid, whatever fills the masks.
    affine = AugmentationSequential(RandomAffine(45, p=1.0), mask_fill={"quality": 9})
    warped = next(iter(loader(packed, extras="valid", nan=0, seed=1, augment=affine)))
    outside = warped["quality"] == 9
    assert outside.any()
    assert not warped["valid"][outside].any()
    assert warped["valid"].dtype == torch.bool


def test_padding_is_not_valid(tmp_path: Path) -> None:
    cubes = [np.ones((6, 8, 3), np.float32), np.ones((4, 8, 3), np.float32)]
    hsipack.pack(((f"c{n}", one) for n, one in enumerate(cubes)), tmp_path / "two")
    batch = next(
        iter(
            hsipack.Loader(
                tmp_path / "two", 2, device="cpu", crop=hsipack.WholeCubes(pad=0.0), extras="valid"
            )
        )
    )
    assert torch.equal(batch["valid"], batch["inside"])
    assert not batch["valid"].all()


def test_time_and_sensor_come_from_columns(packed: Path) -> None:
    batch = next(iter(loader(packed, extras=["time", "sensor"])))
    assert batch["sensor"] == ["EnMAP", "EnMAP", "EnMAP", None]
    first = datetime(2026, 5, 1, 10, 30, tzinfo=UTC).timestamp()
    midnight = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
    assert batch["time"].dtype == torch.float64
    assert np.array_equal(batch["time"].numpy(), [np.nan, first, midnight, 12.5], equal_nan=True)


def test_places_are_those_of_pyproj(packed: Path) -> None:
    names = ["lonlat", "gsd"]
    batch = next(iter(loader(packed, extras=names)))
    convert = pyproj.Transformer.from_crs("EPSG:32632", "EPSG:4326", always_xy=True).transform
    wanted = convert(UTM[0] + 30 * COLUMNS / 2, UTM[3] - 30 * ROWS / 2)
    assert np.allclose(batch["lonlat"][0], wanted, atol=1e-9)
    wanted = (9.5 + 0.0003 * COLUMNS / 2, 47.5 - 0.0003 * ROWS / 2)
    assert np.allclose(batch["lonlat"][1], wanted, atol=1e-12)
    assert batch["lonlat"][2:].isnan().all()
    assert batch["gsd"][0] == 30
    # The side of a square of the same area.
    geod = pyproj.Geod(ellps="sphere")
    east = geod.inv(9.5, 47.5, 9.5003, 47.5)[2]
    north = geod.inv(9.5, 47.5, 9.5, 47.4997)[2]
    assert float(batch["gsd"][1]) == pytest.approx((east * north) ** 0.5, rel=1e-3)
    assert batch["gsd"][2:].isnan().all()
    crops = loader(packed, extras=names, crop=hsipack.GridCrop((4, 10)))
    for crop in crops:
        for sample, window, place in zip(
            crop["id"].tolist(), crop["window"].tolist(), crop["lonlat"], strict=True
        ):
            if sample == 1:
                row, column, rows, columns = window
                x = 9.5 + 0.0003 * (column + columns / 2)
                y = 47.5 - 0.0003 * (row + rows / 2)
                assert np.allclose(place, (x, y), atol=1e-12)


def test_columns_of_the_table_come_before_the_location(packed: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.hsipack"
    shutil.copytree(packed, own)
    hsipack.set_columns(own, {"name": ["c0", "c3"], "gsd": [20.0, 5.0]})
    batch = next(iter(loader(own, extras="gsd")))
    assert batch["gsd"][[0, 3]].tolist() == [20, 5]


def test_several_datasets_have_extras_of_their_own(packed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    # Datasets are joined if their wavelengths differ by less than 0.01 nm.
    waves = [wave + 0.005 for wave in WAVELENGTHS]
    more = {"wavelengths": waves, "sensor": "PRISMA"}
    cubes = ((f"o{n}", cube(n), more) for n in range(2))
    hsipack.pack(cubes, other, dtype="float32")
    ds = hsipack.open(packed).with_masks([])
    joined = hsipack.concat([ds, hsipack.open(other)])
    options: dict[str, Any] = {"device": "cpu", "dtype": "float32"}
    found = {}
    names = ["wavelength", "valid", "sensor"]
    for batch in hsipack.Loader(joined, 2, extras=names, **options):
        found[batch["dataset"]] = float(batch["wavelength"][0]), batch["sensor"][0]
        assert batch["valid"].shape == (2, ROWS, COLUMNS)
    assert found[0] == (450, "EnMAP")
    assert found[1] == (pytest.approx(450.005, abs=1e-4), "PRISMA")


def test_stacks_of_other_bands_give_a_list_each(tmp_path: Path) -> None:
    def cubes() -> Any:
        for number, rows in enumerate((6, 8)):
            waves = [400.0 + number, 500.0, 600.0]
            yield f"c{number}", np.ones((rows, 8, 3), np.float32), {"wavelengths": waves}

    hsipack.pack(cubes(), tmp_path / "two")
    options: dict[str, Any] = {"device": "cpu", "crop": (4, 4), "extras": "wavelength"}
    batch = next(iter(hsipack.Loader(tmp_path / "two", 2, **options)))
    by_sample = dict(zip(batch["id"].tolist(), batch["wavelength"].tolist(), strict=True))
    assert by_sample == {0: [400, 500, 600], 1: [401, 500, 600]}


def test_a_pickled_loader_has_extras(packed: Path) -> None:
    first = loader(packed, extras=["valid", "lonlat", "wavelength"])
    wanted, batch = next(iter(first)), next(iter(pickle.loads(pickle.dumps(first))))
    assert torch.equal(batch["valid"], wanted["valid"])
    assert torch.equal(batch["wavelength"], wanted["wavelength"])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"extras": ["wavelenght"]}, "unknown extra 'wavelenght'"),
        ({"extras": 3}, "extras=3"),
        ({"quality": "quality"}, "extras has no 'valid'"),
        ({"extras": "valid", "quality": "clouds"}, "the mask 'clouds' is not read"),
        ({"extras": "valid", "quality": {"quality": ["haze"]}}, "no layer or class 'haze'"),
        ({"extras": "valid", "quality": {"quality": []}}, "quality="),
        ({"extras": "valid", "quality": 3}, "quality=3"),
        ({"extras": ["time"], "columns": ["time"]}, "both an extra and a mask or column"),
    ],
)
def test_wrong_extras_are_refused(packed: Path, options: dict[str, Any], what: str) -> None:
    with pytest.raises(hsipack.Error) as caught:
        loader(packed, **options)
    assert what in str(caught.value)
    assert caught.value.remedy


def test_extras_that_no_sample_has_are_refused(tmp_path: Path) -> None:
    cubes = ((f"c{n}", np.ones((4, 5, 3), np.float32)) for n in range(2))
    hsipack.pack(cubes, tmp_path / "bare")
    for name in ("wavelength", "fwhm", "gsd", "time", "sensor", "lonlat"):
        with pytest.raises(hsipack.ConflictError) as caught:
            hsipack.Loader(tmp_path / "bare", device="cpu", extras=[name])
        assert name in str(caught.value)
    hsipack.set_columns(tmp_path / "bare", {"name": ["c0"], "time": ["noon"]})
    with pytest.raises(hsipack.ConflictError, match="sample 0 has the time 'noon'"):
        hsipack.Loader(tmp_path / "bare", device="cpu", extras=["time"])
