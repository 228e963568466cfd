"""Shared by the folders: expected samples, random cubes and labels, MATLAB files."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io


@dataclass
class Expected:
    """A sample as it must be packed."""

    cube: np.ndarray
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)
    wavelengths: np.ndarray | None = None
    targets: dict[str, np.ndarray] = field(default_factory=dict)


Folder = Callable[[Path], dict[str, Expected]]


def scene(seed: int, rows: int = 24, columns: int = 32, bands: int = 31) -> np.ndarray:
    """A cube (row, column, band) of values that float16 holds to a thousandth."""
    return np.random.default_rng(seed).uniform(0.01, 1, (rows, columns, bands)).astype(np.float32)


def numbers(seed: int, rows: int = 24, columns: int = 32, bands: int = 31) -> np.ndarray:
    """A cube of whole numbers that float16 holds exactly."""
    return np.random.default_rng(seed).integers(1, 2048, (rows, columns, bands)).astype(np.uint16)


def labels(cube: np.ndarray, seed: int, top: int, dtype: str = "uint8") -> np.ndarray:
    """Class ids from 0 to `top`, each at least once, for the pixels of a cube."""
    ids = np.random.default_rng(seed).integers(0, top + 1, cube.shape[:2])
    ids.flat[: top + 1] = np.arange(top + 1)
    return ids.astype(dtype)


def write_matlab(path: Path, **arrays: object) -> None:
    """Writes a file of MATLAB v5."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, arrays, do_compression=True, long_field_names=True)


def write_matlab_73(path: Path, **arrays: np.ndarray) -> None:
    """Writes a file as MATLAB does with -v7.3: HDF5 with the axes reversed, after a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            file[name] = np.atleast_2d(values).T
            file[name].attrs["MATLAB_class"] = np.bytes_(
                {"float32": "single", "float64": "double"}.get(values.dtype.name, values.dtype.name)
            )
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")


def write_split(path: Path, *lines: str) -> None:
    """Writes a list of samples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
