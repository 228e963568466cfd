"""`hsipack.spectra` gives the table that NumPy computes from the samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import hsipack
import numpy as np
import pandas as pd
import pytest
from conftest import BANDS, CUBES, labels
from hsipack import ConflictError


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_the_table(dataset: str, tmp_path: Path, statistic: Literal["mean", "median"]) -> None:
    ds = hsipack.open(dataset, output="numpy")
    out = tmp_path / "a.parquet"
    table = hsipack.spectra(ds, "labels", statistic, output=out)
    rows = pd.DataFrame(table)
    assert len(rows) == 2 * CUBES
    for _, row in rows.iterrows():
        sample = ds[row["sample"]]
        pixels = sample["image"].astype("f8")[:, labels(row["sample"]) == row["region"]]
        numpys = {"mean": np.mean, "median": np.median}[statistic]
        np.testing.assert_allclose(row["spectrum"], numpys(pixels, axis=1), rtol=1e-12)
        np.testing.assert_allclose(row["std"], pixels.std(axis=1), rtol=1e-9)
        assert (row["pixels"], row["name"]) == (pixels.shape[1], sample["name"])
        assert np.array_equal(row["wavelength"], ds.wavelengths)
        assert row["missing"].tolist() == [0] * BANDS
    assert np.stack(table["spectrum"]).shape == (2 * CUBES, BANDS)
    assert table["age"].dtype == np.int64
    assert table["smoker"].dtype == np.bool_
    written = pd.read_parquet(out)
    assert list(written) == list(rows)
    for name in rows:
        same = [np.array_equal(a, b) for a, b in zip(written[name], rows[name], strict=True)]
        assert all(same) or rows[name].isna().all(), name


def test_parts_of_datasets(dataset: str) -> None:
    def of(*words: Any, **options: Any) -> set[int]:
        return set(hsipack.spectra(*words, "labels", **options)["sample"].tolist())

    ds = hsipack.open(dataset)
    assert of(dataset, split="val") == of(ds.split("val")) == set(ds.split("val").ids)
    assert of(ds.where("age < 30")) == {0, 1, 2}
    assert of(dataset, split=["val", "train"]) == set(range(CUBES))
    assert set(hsipack.spectra(ds, "labels", background=True, ignore=1)["region"]) == {0, 2}
    assert len(hsipack.spectra(ds, "labels", min_pixels=10_000)["region"]) == 0
    layers = pd.DataFrame(hsipack.spectra(ds.select([0]), "layers"))
    assert layers["class"].tolist() == ["valid", "tissue"]


def test_refusals(dataset: str, tmp_path: Path) -> None:
    there = tmp_path / "there.csv"
    there.write_text("mine")
    with pytest.raises(ConflictError, match="force=True"):
        hsipack.spectra(dataset, "labels", output=there)
    assert there.read_text() == "mine"
    hsipack.spectra(dataset, "labels", output=there, force=True)
    assert len(pd.read_csv(there)) == 2 * CUBES
    with pytest.raises(ConflictError, match="no mask bones"):
        hsipack.spectra(dataset, "bones")
    with pytest.raises(ConflictError, match="unknown statistic 'mode'"):
        hsipack.spectra(dataset, "labels", "mode")  # type: ignore[arg-type]
    with pytest.raises(hsipack.UnsupportedError, match=r"use \.parquet or \.csv"):
        hsipack.spectra(dataset, "labels", output=tmp_path / "a.xlsx")
