"""Tables of `hsipack spectra`, read by pandas, compared with NumPy over zarr-python's arrays."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import Hsipack, attributes, check_refusal, read_zarr, samples, write_envi
from numpy.typing import NDArray

WAVELENGTHS = [460.25, 550.5, 640.125, 850.0, 1200.1]


def cube(seed: int) -> NDArray[np.float32]:
    """A cube of 37 x 29 x 5, with missing values."""
    values = np.random.default_rng(seed).normal(0.4, 0.3, (37, 29, 5)).astype("<f4")
    values[np.random.default_rng(seed + 9).random(values.shape) < 0.02] = np.nan
    values[:20, :, 2] = np.nan
    return values


@pytest.fixture(scope="module")
def packed(hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three cubes in tiles, with a mask, a table and a scale."""
    folder = tmp_path_factory.mktemp("spectra")
    for seed, name in enumerate("abc"):
        write_envi(
            folder / f"{name}.hdr", cube(seed), wavelength=WAVELENGTHS, wavelength_units="nm"
        )
        ids = np.random.default_rng(seed).integers(0, 4 + seed, (37, 29)).astype("u1")
        ids[:5] = 200
        np.save(folder / f"{name}_mask.npy", ids)
    table = folder / "table.csv"
    table.write_text("name,split,group,label,age\na,train,p1,liver,41\nb,val,p2,,\nc,train,p1,,7\n")
    out = folder / "d.hsipack"
    options = ["--chunk", "8x10", "--scale", "8", "--mask", "organs={dir}/{stem}_mask.npy"]
    hsipack.convert(*sorted(folder.glob("*.hdr")), *options, "--table", table, out=out)
    return out


def oracle(path: Path, mask: str, statistic: str, stack: str | None = None) -> dict[Any, Any]:
    """Spectrum, deviation, missing values and pixels by sample and region, computed by NumPy."""
    images, masks = read_zarr(path, stack), read_zarr(path, stack, mask)
    own = attributes(path, stack)
    mean: Any = {"mean": np.nanmean, "median": np.nanmedian}[statistic]
    found = {}
    for sample, (image, ids) in enumerate(zip(images, masks, strict=True)):
        physical = image.astype("f8") * own.get("scale_factor", 1.0)
        for region in np.unique(ids[ids > 0]):
            pixels = physical[ids == region]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # for bands without a value
                found[sample, int(region)] = (
                    mean(pixels, axis=0),
                    np.nanstd(pixels, axis=0),
                    np.isnan(pixels).sum(axis=0),
                    len(pixels),
                )
    return found


def check(found: dict[Any, Any], rows: pd.DataFrame, statistic: str) -> None:
    """Checks that rows with lists of bands agree with NumPy."""
    assert list(zip(rows["sample"], rows["region"], strict=True)) == list(found)
    for (_, row), (value, std, missing, pixels) in zip(
        rows.iterrows(), found.values(), strict=True
    ):
        assert row["pixels"] == pixels
        assert np.array_equal(row["missing"], missing)
        np.testing.assert_allclose(row["spectrum"], value, rtol=1e-12)
        np.testing.assert_allclose(row["std"], std, rtol=1e-9, atol=1e-12)
        if statistic == "median":
            np.testing.assert_array_equal(row["spectrum"], value)


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_parquet(packed: Path, hsipack: Hsipack, tmp_path: Path, statistic: str) -> None:
    words = ["spectra", packed, "--mask", "organs", "--statistic", statistic, "--json"]
    for jobs in [1, 3]:
        out = tmp_path / f"{jobs}.parquet"
        done = hsipack.run(*words, "--threads", jobs, "-o", out)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "3.parquet").read_bytes()
    report = json.loads(done.stdout)
    rows = pd.read_parquet(out)
    found = oracle(packed, "organs", statistic)
    assert (report["rows"], report["samples"], len(rows)) == (len(found), 3, len(found))
    check(found, rows, statistic)
    assert all(np.array_equal(row, WAVELENGTHS) for row in rows["wavelength"])
    listed = samples(packed)
    for column in ["name", "split", "group", "label", "age"]:
        want = [listed[sample].get(column) for sample in rows["sample"]]
        have = [None if pd.isna(one) else one for one in rows[column]]
        assert have == want, column
    long = rows.explode(["wavelength", "spectrum", "std"])
    assert len(long) == 5 * len(rows)


def test_csv(packed: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    words = ["spectra", packed, "--mask", "organs", "-o"]
    assert hsipack.run(*words, tmp_path / "a.csv").returncode == 0
    assert hsipack.run(*words, tmp_path / "a.parquet").returncode == 0
    wide, lists = pd.read_csv(tmp_path / "a.csv"), pd.read_parquet(tmp_path / "a.parquet")
    labels = [f"{nm:g}" for nm in WAVELENGTHS]
    for name, prefix in [("spectrum", ""), ("std", "std_"), ("missing", "missing_")]:
        have = wide[[prefix + label for label in labels]].to_numpy()
        np.testing.assert_array_equal(have, np.stack(lists[name]))
    assert wide["pixels"].tolist() == lists["pixels"].tolist()
    assert wide["age"].isna().sum() == lists["age"].isna().sum()


def test_choices(packed: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"

    def rows(*more: object) -> pd.DataFrame:
        words = ["spectra", packed, "--mask", "organs", "-o", out, "--force", *more]
        done = hsipack.run(*words)
        assert done.returncode == 0, done.stderr
        return pd.read_parquet(out)

    assert set(rows("--split", "train")["sample"]) == {0, 2}
    both = rows("--split", "train,val")
    pd.testing.assert_frame_equal(both, rows("--split", "val", "--split", "train"))
    assert set(both["sample"]) == {0, 1, 2}
    assert 200 not in set(rows("--ignore", "200,3")["region"])
    assert 0 in set(rows("--background")["region"])
    assert rows("--min-pixels", 150)["pixels"].min() >= 150
    assert len(rows("--min-pixels", 10_000)) == 0


def test_refusals(packed: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("mine")
    words = ["spectra", packed, "--mask", "organs", "-o"]
    message = check_refusal(hsipack.run(*words, tmp_path / "there.csv"), tmp_path / "there.csv")
    assert "--force" in message
    assert (tmp_path / "there.csv").read_text() == "mine"
    check_refusal(hsipack.run(*words, tmp_path / "a.xlsx"), tmp_path / "a.xlsx")
    nothing = ["spectra", packed, "--mask", "bones", "-o", tmp_path / "a.csv"]
    assert "organs" in check_refusal(hsipack.run(*nothing), packed)
    check_refusal(hsipack.run(*words, tmp_path / "a.csv", "--split", "test"), packed)
    assert [file.name for file in tmp_path.iterdir()] == ["there.csv"]


def test_bands_of_several_shapes(hsipack: Hsipack, tmp_path: Path) -> None:
    """Stacks with different bands: CSV has columns for all of them, Parquet has a list for each."""
    for name, bands in [("a", 3), ("b", 2)]:
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(1).random((4, 5, bands), "f4"))
        np.save(tmp_path / f"{name}_mask.npy", np.ones((4, 5), "u1"))
    out = tmp_path / "d.hsipack"
    masks = ["--mask", "{dir}/{stem}_mask.npy"]
    hsipack.convert(tmp_path / "a.npy", tmp_path / "b.npy", *masks, out=out)
    for ending in ["csv", "parquet"]:
        words = ["spectra", out, "--mask", "mask", "-o", tmp_path / f"o.{ending}"]
        assert hsipack.run(*words).returncode == 0
    wide = pd.read_csv(tmp_path / "o.csv")
    assert wide[["band_0", "band_1", "band_2"]].notna().sum().tolist() == [2, 2, 1]
    lists = pd.read_parquet(tmp_path / "o.parquet")
    assert [len(row) for row in lists["spectrum"]] == [3, 2]
    assert lists["wavelength"].isna().all()


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_a_real_cube(hsipack: Hsipack, shared: Path, tmp_path: Path, statistic: str) -> None:
    """The cube and the polygons of two annotators of HeiPorSPECTRAL's demonstration."""
    masks = [f"--mask=a{n}={{dir}}/htc_segmentations.blosc::polygon#annotator{n}" for n in (1, 2)]
    out = tmp_path / "d.hsipack"
    hsipack.convert(shared / "derived/htc_raw16.blosc", "--scale", "auto", *masks, out=out)
    for mask in ("a1", "a2"):
        table = tmp_path / f"{mask}.parquet"
        words = ["spectra", out, "--mask", mask, "--statistic", statistic, "-o", table]
        done = hsipack.run(*words)
        assert done.returncode == 0, done.stderr
        rows = pd.read_parquet(table)
        assert len(rows) > 0
        check(oracle(out, mask, statistic), rows, statistic)
