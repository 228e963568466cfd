"""MATLAB v5 files, written by SciPy. Variants that it cannot write are written here by hand, and
SciPy reads them back.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.io
import scipy.sparse

from . import synthetic

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32"]
MI_TYPES = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 9}


def save(path: Path, variables: Mapping[str, object], *, compress: bool) -> None:
    """Saves variables without the time of day in the header."""
    scipy.io.savemat(path, variables, do_compression=compress)
    data = bytearray(path.read_bytes())
    data[:116] = b"MATLAB 5.0 MAT-file, written by SciPy for hsipack's tests".ljust(116)
    path.write_bytes(data)


def element(kind: int, data: bytes, order: str) -> bytes:
    """The bytes of one element, padded."""
    return struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8)


def by_hand(
    path: Path, name: str, values: np.ndarray, array_class: int, order: Literal["<", ">"]
) -> None:
    """Saves one array as a class whose values are stored in the type of `values`."""
    stored = values.dtype.newbyteorder(order)
    matrix = element(6, struct.pack(f"{order}II", array_class, 0), order)
    matrix += element(5, struct.pack(f"{order}{values.ndim}i", *values.shape), order)
    matrix += element(1, name.encode(), order)
    kind = MI_TYPES[values.dtype.str[1:]]
    matrix += element(kind, values.astype(stored).tobytes(order="F"), order)
    version = struct.pack(f"{order}H", 0x0100) + (b"IM" if order == "<" else b"MI")
    header = b"MATLAB 5.0 MAT-file, Platform: nt".ljust(116) + bytes(8) + version
    path.write_bytes(header + element(14, matrix, order))
    back = scipy.io.loadmat(path)[name]
    np.testing.assert_array_equal(back, values)
    assert back.dtype.newbyteorder("=") == values.dtype, back.dtype


def spectra(values: np.ndarray) -> np.ndarray:
    """A matrix (bands, pixels), with the pixels column by column, as in unmixing data sets."""
    return values.transpose(2, 0, 1).reshape(values.shape[2], -1, order="F")


def write(folder: Path) -> dict[str, object]:
    """Writes every numeric class, both byte orders, structs, matrices of spectra, broken files."""
    matlab = folder / "matlab"
    matlab.mkdir(parents=True, exist_ok=True)
    entries: dict[str, object] = {}
    for dtype in DTYPES:
        values = synthetic.cube(dtype, (3, 4, 5))
        save(matlab / f"{dtype}.mat", {"cube": values}, compress=dtype.startswith("u"))
        entries[f"matlab/{dtype}.mat#cube"] = synthetic.truth(values)
    entries.update(stored_types(matlab))
    entries.update(containers(matlab))
    entries.update(matrices(matlab))
    refused(matlab)
    return entries


def stored_types(matlab: Path) -> dict[str, object]:
    """Values stored in a narrower type than their class, and in the other byte order."""
    narrow, big = synthetic.cube("uint16"), synthetic.cube("float64")
    by_hand(matlab / "narrow.mat", "indian_pines_corrected", narrow, 6, "<")
    by_hand(matlab / "big_endian.mat", "cube", big, 6, ">")
    by_hand(matlab / "big_endian_narrow.mat", "cube", synthetic.cube("int16"), 6, ">")
    logical = synthetic.classes() > 1
    save(matlab / "logical.mat", {"mask": logical}, compress=True)
    return {
        "matlab/narrow.mat#indian_pines_corrected": synthetic.truth(narrow),
        "matlab/big_endian.mat#cube": synthetic.truth(big),
        "matlab/big_endian_narrow.mat#cube": synthetic.truth(synthetic.cube("int16")),
        "matlab/logical.mat#mask": synthetic.truth(logical),
    }


def containers(matlab: Path) -> dict[str, object]:
    """Cubes beside masks, wavelengths, structs, cells, text, sparse and complex arrays."""
    cube, mask = synthetic.cube(), synthetic.classes()
    known = {"wavelength": synthetic.WAVELENGTHS.tolist(), "fwhm": synthetic.FWHM.tolist()}
    cells = np.empty((1, 2), dtype=object)
    cells[0, 0], cells[0, 1] = cube, "text"
    others: dict[str, object] = {
        "cells": cells,
        "text": "a text",
        "sparse": scipy.sparse.csc_matrix(mask.astype("float64")),
        "complexes": cube.astype("complex64"),
        "structs": np.array([[(1.0,), (2.0,)]], dtype=[("a", "O")]),
        "empty": np.zeros((0, 0)),
    }
    waves = {"wavelength": synthetic.WAVELENGTHS, "fwhm": synthetic.FWHM[:, np.newaxis]}
    for compress in (False, True):
        name = "compressed" if compress else "plain"
        save(
            matlab / f"mixed_{name}.mat",
            others | {"data": cube, "map": mask} | waves,
            compress=compress,
        )
    inner = {"text": "first", "image": {"data": cube, "wvl": synthetic.WAVELENGTHS / 1000}}
    save(matlab / "nested.mat", {"scene": inner, "fwhm": synthetic.FWHM / 1000}, compress=True)
    save(matlab / "nested_plain.mat", {"scene": inner}, compress=False)
    second = synthetic.cube("uint16")
    save(matlab / "several.mat", {"s": {"cube": cube}, "cube": second, "b": cube}, compress=True)
    return {
        "matlab/mixed_plain.mat#data": synthetic.truth(cube, **known),
        "matlab/mixed_compressed.mat#data": synthetic.truth(cube, **known),
        "matlab/mixed_plain.mat#map": synthetic.truth(mask),
        "matlab/mixed_compressed.mat#map": synthetic.truth(mask),
        "matlab/nested.mat#scene.image.data": synthetic.truth(cube),
        "matlab/nested_plain.mat#data": synthetic.truth(cube),
        "matlab/several.mat#s.cube": synthetic.truth(cube),
        "matlab/several.mat#cube": synthetic.truth(second),
    }


def matrices(matlab: Path) -> dict[str, object]:
    """Matrices of spectra."""
    cube, mask = synthetic.cube("uint16"), synthetic.classes()
    flat = spectra(cube)
    size = {"nRow": 7, "nCol": 9}
    save(matlab / "spectra.mat", {"Y": flat, **size, "nBand": 12}, compress=True)
    save(matlab / "spectra_lines.mat", {"Y": flat, "lines": 7.0, "cols": 9.0}, compress=False)
    save(matlab / "spectra_map.mat", {"Y": flat, "map": mask}, compress=True)
    pixels_first = {"s": {"X": flat.T, "height": 7, "width": 9}}
    save(matlab / "spectra_pixels_first.mat", pixels_first, compress=True)
    by_rows = cube.transpose(2, 0, 1).reshape(12, -1)
    save(matlab / "spectra_by_rows.mat", {"Y": by_rows, **size}, compress=True)
    save(matlab / "spectra_disagree.mat", {"Y": flat, "nRow": 7, "nCol": 8}, compress=True)
    save(matlab / "spectra_alone.mat", {"Y": flat}, compress=True)
    abundances = np.ones((3, 63))
    save(matlab / "cube_and_matrix.mat", {"img": cube, "A": abundances, **size}, compress=True)
    return {
        "matlab/spectra.mat#Y": synthetic.truth(cube),
        "matlab/spectra_lines.mat#Y": synthetic.truth(cube),
        "matlab/spectra_map.mat#Y": synthetic.truth(cube),
        "matlab/spectra_pixels_first.mat#X": synthetic.truth(cube),
        "matlab/spectra_by_rows.mat#Y": synthetic.truth(cube),
        "matlab/cube_and_matrix.mat#img": synthetic.truth(cube),
    }


def refused(matlab: Path) -> None:
    """Files that are not v5 files, contain no cube, or are damaged."""
    matrix = synthetic.classes().astype("float64")
    scipy.io.savemat(matlab / "version4.mat", {"map": matrix}, format="4")
    save(matlab / "four_axes.mat", {"cubes": np.zeros((2, 3, 4, 5))}, compress=True)
    whole = (matlab / "mixed_compressed.mat").read_bytes()
    (matlab / "cut_short.mat").write_bytes(whole[:-100])
    (matlab / "only_header.mat").write_bytes(whole[:128])
    (matlab / "no_header.mat").write_bytes(b"not a MATLAB file, but long enough to be" * 10)
    # Larger than the decoder's window, so that the checksum is not read together with the values.
    pattern = (np.arange(50 * 40 * 40) % 251).astype("uint8").reshape(50, 40, 40)
    save(matlab / "large.mat", {"cube": pattern}, compress=True)
    checksum = bytearray((matlab / "large.mat").read_bytes())
    checksum[-1] ^= 0xFF
    (matlab / "bad_checksum.mat").write_bytes(checksum)
