"""Checks batches on a GPU as arrays of other libraries. A program, for machines without pytest.

usage: python check_arrays.py LIBRARY [DEVICE]        (cupy, jax or torch; default: cuda)

Writes a small dataset with only hsipack and NumPy, takes batches on DEVICE as arrays of LIBRARY
through DLPack, computes with them, and compares them with the samples. The exit status is 0 if
everything was right, and 77 if LIBRARY is not installed. scripts/gpu_check runs it.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import hsipack
import numpy as np

CUBES, ROWS, COLUMNS, BANDS = 12, 40, 56, 24


def taken(library: str, array: Any) -> Any:
    """An array of the library over the same memory."""
    if library == "jax":
        return importlib.import_module("jax").dlpack.from_dlpack(array)
    return importlib.import_module(library).from_dlpack(array)


def on_host(library: str, array: Any) -> Any:
    """The same array in NumPy."""
    if library == "cupy":
        return array.get()
    return np.asarray(array.cpu() if library == "torch" else array)


def check(library: str, device: str, folder: Path) -> None:
    rng = np.random.default_rng(0)
    cubes = rng.random((CUBES, ROWS, COLUMNS, BANDS), np.float32)
    masks = rng.integers(0, 5, (CUBES, ROWS, COLUMNS), np.uint8)
    files = []
    for number in range(CUBES):
        np.save(folder / f"cube_{number:02}.npy", cubes[number])
        np.save(folder / f"cube_{number:02}_mask.npy", masks[number])
        files.append(folder / f"cube_{number:02}.npy")
    output = folder / "cubes.hsipack"
    hsipack.convert(files, output, mask="{dir}/{stem}_mask.npy")
    stored = cubes.astype(np.float16).transpose(0, 3, 1, 2)
    loader = hsipack.Loader(str(output), 4, shuffle=True, device=device, output="dlpack")
    kept = []
    for _ in range(4):
        for batch in loader:
            ids = batch["id"].tolist()
            image = taken(library, batch["image"])
            assert tuple(image.shape) == (4, BANDS, ROWS, COLUMNS), image.shape
            # This work is queued at once, on the stream that the library names.
            twice = image + image
            kept.append((ids, image, twice, taken(library, batch["mask"])))
            del batch
    # Later batches did not overwrite the kept arrays.
    for ids, image, twice, mask in kept:
        np.testing.assert_array_equal(on_host(library, image), stored[ids])
        np.testing.assert_array_equal(on_host(library, twice), stored[ids] + stored[ids])
        np.testing.assert_array_equal(on_host(library, mask), masks[ids])
    loader.close()
    print(f"{len(kept)} batches on {device} are right as arrays of {library}")


def main() -> int:
    library = sys.argv[1]
    try:
        importlib.import_module(library)
    except ModuleNotFoundError:
        print(f"no {library} here")
        return 77
    if library != "torch":
        assert "torch" not in sys.modules
    with tempfile.TemporaryDirectory() as folder:
        check(library, sys.argv[2] if len(sys.argv) > 2 else "cuda", Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
