"""The synthetic cubes of the fixtures, and the record of their true values."""

import hashlib
from typing import Any

import numpy as np

WAVELENGTHS = np.round(np.linspace(400.0, 1000.0, 12), 3)
FWHM = np.full(12, 5.25)


def cube(dtype: Any = "float32", shape: tuple[int, int, int] = (7, 9, 12)) -> np.ndarray:
    """A cube (row, column, band) whose axes all differ: smooth spectra, a gradient, some noise."""
    rows, columns, bands = shape
    y, x, b = np.meshgrid(np.arange(rows), np.arange(columns), np.arange(bands), indexing="ij")
    noise = np.random.RandomState(20261121).uniform(size=shape)
    values: np.ndarray = 0.2 + 0.3 * np.sin(0.4 * b + 0.1 * x) ** 2 + 0.02 * y + 0.01 * noise
    if np.issubdtype(np.dtype(dtype), np.floating):
        floating: np.ndarray = values.astype(dtype)
        return floating
    top = min(4000, np.iinfo(dtype).max)
    whole: np.ndarray = np.round(values / values.max() * top).astype(dtype)
    return whole


def classes(shape: tuple[int, int] = (7, 9)) -> np.ndarray:
    """A label image of classes 0 to 3, uint8."""
    y, x = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    return ((x // 3 + y // 3) % 4).astype(np.uint8)


def truth(values: np.ndarray, **more: object) -> dict[str, object]:
    """The expected result of a reader: `values` as (row, column, band), stored numbers."""
    values = values if values.ndim == 3 else values[:, :, np.newaxis]
    little = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<")))
    return {
        "shape": list(values.shape),
        "dtype": little.dtype.str,
        "sha256_canonical": hashlib.sha256(little.tobytes()).hexdigest(),
        **more,
    }
