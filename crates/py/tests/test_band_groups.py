"""Datasets with band groups, compared with NumPy: any shape, group, window and choice of bands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import numpy.typing as npt
import pytest
from hsipack import GridCrop, LabelledPatches, RandomCrop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROWS, COLUMNS, BANDS, CUBES = 30, 26, 13, 5


def cube(number: int) -> npt.NDArray[np.float16]:
    values = np.arange(ROWS * COLUMNS * BANDS).reshape(ROWS, COLUMNS, BANDS)
    return ((values * 7 + number * 131) % 1999).astype(np.float16)


def labels(number: int) -> npt.NDArray[np.uint8]:
    rows, columns = np.mgrid[:ROWS, :COLUMNS]
    return ((rows * 3 + columns + number) % 11 == 0).astype(np.uint8)


def pack(out: Path, **options: Any) -> hsipack.Dataset:
    cubes = ((f"c{n}", cube(n), {"masks": {"a": labels(n)}}) for n in range(CUBES))
    hsipack.pack(cubes, out, **options)
    return hsipack.open(out, output="numpy")


@pytest.fixture(scope="module", params=[(4, (7, 9)), (5, 30), (1, (30, 26))])
def grouped(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    group, chunk = request.param
    return pack(tmp_path_factory.mktemp("grouped") / "out", band_group=group, chunk=chunk)


bands_of = st.one_of(st.none(), st.lists(st.integers(0, BANDS - 1), min_size=1, max_size=20))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), bands=bands_of)
def test_access_is_that_of_numpy(
    grouped: Any, data: st.DataObject, bands: list[int] | None
) -> None:
    number = data.draw(st.integers(0, CUBES - 1))
    ends = [
        sorted(data.draw(st.tuples(*2 * [st.integers(0, size - 1)]))) for size in (ROWS, COLUMNS)
    ]
    (top, bottom), (left, right) = ends
    want = cube(number)[top : bottom + 1, left : right + 1]
    rows, columns = slice(top, bottom + 1), slice(left, right + 1)
    chosen = want if bands is None else want[..., bands]
    dataset = grouped if bands is None else grouped.select(bands=bands)
    image = dataset.read(number, rows, columns)["image"]
    np.testing.assert_array_equal(image.transpose(1, 2, 0), chosen)


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    bands=bands_of,
    cache=st.sampled_from([None, "compressed", "decoded", "auto"]),
    crop=st.sampled_from(
        [
            None,
            RandomCrop((11, 9), per_cube=2),
            GridCrop((16, 16), pad="reflect"),
            LabelledPatches((5, 5), mask="a", pad="edge"),
            LabelledPatches((1, 1), mask="a"),
        ]
    ),
)
def test_batches_are_those_of_numpy(
    grouped: Any, bands: list[int] | None, cache: str | None, crop: Any
) -> None:
    kept = {"cache": cache, "cache_size": 1 << 22 if cache else 0}
    loader = hsipack.Loader(grouped, 4, bands=bands, crop=crop, seed=1, output="numpy", **kept)
    mode = {"reflect": "reflect", "edge": "edge"}.get(getattr(crop, "pad", ""), "edge")
    with loader:
        for batch in loader:
            windows = batch.get("window")
            for place, (image, sample) in enumerate(zip(batch["image"], batch["id"], strict=True)):
                padded = np.pad(cube(int(sample)), ((16, 16), (16, 16), (0, 0)), mode=mode)
                top, left, rows, columns = (
                    (0, 0, ROWS, COLUMNS) if windows is None else windows[place]
                )
                want = padded[top + 16 : top + 16 + rows, left + 16 : left + 16 + columns]
                want = want if bands is None else want[..., bands]
                # Windows of one pixel are spectra.
                have = image.transpose(1, 2, 0) if image.ndim == 3 else image[None, None]
                np.testing.assert_array_equal(have, want)


def test_drawn_bands_are_those_of_whole_spectra(tmp_path: Path) -> None:
    """Only chunks with a drawn band are decoded; the crate ``read`` has a test that counts them."""
    images = {}
    for group in (None, 4):
        pack(tmp_path / str(group), band_group=group)
        dataset = hsipack.open(tmp_path / str(group), masks=[])
        draw = hsipack.augment.RandomBands(2, contiguous=True)
        with hsipack.Loader(dataset, 2, augment=[draw], seed=3, cache=None) as loader:
            images[group] = [batch["image"].numpy() for _ in range(3) for batch in loader]
    for want, have in zip(images[None], images[4], strict=True):
        np.testing.assert_array_equal(have, want)
