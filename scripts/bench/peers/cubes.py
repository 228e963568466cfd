"""The cubes that all peers pack, and with which their batches are compared."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Half = NDArray[np.float16]
Single = NDArray[np.float32]


def read_source(path: Path) -> Single:
    """A cube that scripts/dev/make_cubes.py drew, as (row, column, band)."""
    if path.suffix == ".npy":
        cube: Single = np.load(path)
        return cube
    header = dict(line.split(" = ", 1) for line in path.read_text().splitlines() if " = " in line)
    rows, columns, bands = (int(header[key]) for key in ("lines", "samples", "bands"))
    values: Single = np.fromfile(path.with_suffix(".img"), "<f4")
    if header["interleave"] == "bil":
        return np.ascontiguousarray(values.reshape(rows, bands, columns).transpose(0, 2, 1))
    return np.ascontiguousarray(values.reshape(bands, rows, columns).transpose(1, 2, 0))


class Cubes:
    """The drawn cubes, and a float16 file of each that can be memory-mapped."""

    def __init__(self, sources: Path, half: Path) -> None:
        self.sources = sources
        self.folder = half
        self.paths = sorted([*sources.glob("scene_*.hdr"), *sources.glob("scene_*.npy")])
        self.names = [path.stem for path in self.paths]

    def __len__(self) -> int:
        return len(self.paths)

    def write_half(self) -> None:
        """Rounds every cube to float16 once, as `hsipack convert` does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.paths:
            wanted = self.folder / f"{path.stem}.npy"
            if not wanted.exists():
                partial = wanted.with_suffix(".partial")
                with partial.open("wb") as file:
                    np.save(file, read_source(path).astype(np.float16))
                partial.rename(wanted)

    def single(self, number: int) -> Single:
        """A cube as it was drawn."""
        return read_source(self.paths[number])

    def half(self, number: int) -> Half:
        """A cube in float16, memory-mapped."""
        cube: Half = np.load(self.folder / f"{self.names[number]}.npy", mmap_mode="r")
        return cube

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns, bands."""
        rows, columns, bands = self.half(0).shape
        return rows, columns, bands

    @property
    def bytes_half(self) -> int:
        """The bytes of one cube."""
        return 2 * int(np.prod(self.shape))

    @cached_property
    def _by_spectrum(self) -> dict[bytes, int]:
        """The cube for each spectrum at a centre. Noise makes these spectra unique."""
        known = {middle(torch.from_numpy(self.half(n).copy())): n for n in range(len(self))}
        if len(known) != len(self):
            raise ValueError("two cubes have the same spectrum in the middle")
        return known

    def learn(self) -> None:
        """Reads the spectra that `which` needs."""
        assert self._by_spectrum

    def which(self, batch: torch.Tensor) -> list[int]:
        """The cubes of a batch (sample, row, column, band), identified by one spectrum each."""
        if batch.ndim != 4 or tuple(batch.shape[1:]) != self.shape:
            raise ValueError(f"a batch has shape {tuple(batch.shape)}, not (B, {self.shape})")
        if batch.device.type != "cpu":
            raise ValueError(f"a batch is on {batch.device}, not on the host")
        found = [self._by_spectrum.get(middle(cube), -1) for cube in batch]
        if -1 in found:
            raise ValueError(f"sample {found.index(-1)} of a batch is none of the cubes")
        return found

    def check(self, batch: torch.Tensor) -> list[int]:
        """Compares every value of a batch, and returns its cubes."""
        found = self.which(batch)
        for sample, number in zip(batch, found, strict=True):
            values = np.ascontiguousarray(sample.to(torch.float16).numpy()).view(np.uint16)
            if not np.array_equal(values, np.asarray(self.half(number)).view(np.uint16)):
                raise ValueError(f"values of {self.names[number]} differ from its float16 cube")
        return found


def middle(cube: torch.Tensor) -> bytes:
    """The spectrum at the centre, as float16."""
    spectrum = cube[cube.shape[0] // 2, cube.shape[1] // 2]
    values: NDArray[Any] = spectrum.to(torch.float16).contiguous().numpy()
    return values.tobytes()
