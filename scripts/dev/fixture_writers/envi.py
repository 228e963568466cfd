"""ENVI cubes, written by the `spectral` package, or by hand if it cannot write the variant."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from spectral.io import envi

from .synthetic import FWHM, WAVELENGTHS, classes, cube, truth

Truth = dict[str, dict[str, object]]

AXES = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}
CODES = {"u1": 1, "i2": 2, "i4": 3, "f4": 4, "f8": 5, "u2": 12, "u4": 13, "i8": 14, "u8": 15}


def write(folder: Path) -> Truth:
    out = folder / "envi"
    out.mkdir(parents=True, exist_ok=True)
    return {
        **types_and_layouts(out),
        **metadata(out),
        **classification(out),
        **by_hand(out),
    }


def types_and_layouts(out: Path) -> Truth:
    """Every pair of interleave and byte order. Together they cover every data type."""
    found: Truth = {}
    types = iter([*CODES, *CODES])
    for interleave in AXES:
        for order in ("little", "big"):
            for _ in range(2):
                dtype = next(types)
                name = f"{interleave}_{order}_{dtype}"
                values = cube(dtype)
                save(out / f"{name}.hdr", values, interleave=interleave, byteorder=order)
                found[f"envi/{name}.img"] = truth(values)
    values = cube("u2", (1, 9, 12))
    save(out / "one_row.hdr", values, interleave="bsq", ext="")
    found["envi/one_row"] = truth(values)
    return found


def metadata(out: Path) -> Truth:
    """Band lists in micrometres, an ignore value and a scale factor; also a header `x.dat.hdr`."""
    values = cube("i2")
    values[0, :3] = -9999
    keys = {
        "wavelength units": "Micrometers",
        "wavelength": [f"{value / 1000:.6f}" for value in WAVELENGTHS],
        "fwhm": [f"{value / 1000:.6f}" for value in FWHM],
        "bbl": [0, *[1] * 10, 0],
        "band names": [f"band {index}" for index in range(12)],
        "data ignore value": "-9.999e+03",
        "reflectance scale factor": 4000.0,
    }
    save(out / "metadata.dat.hdr", values, interleave="bil", ext="", metadata=keys)
    return {"envi/metadata.dat": truth(values)}


def classification(out: Path) -> Truth:
    """A label image with the names of its classes."""
    values = classes()
    envi.save_classification(
        str(out / "classes.hdr"),
        values,
        force=True,
        ext=".img",
        class_names=["none", "tumour", "vessel", "bone"],
    )
    return {"envi/classes.img": truth(values)}


def by_hand(out: Path) -> Truth:
    """Variants that `spectral` cannot write: gzip, offsets, other spellings, upper-case names."""
    values = cube("f4")
    found: Truth = {}
    for interleave in AXES:
        name = f"gzip_{interleave}_offset"
        data = b"\xaa" * 100 + flat(values, interleave, ">f4")
        (out / f"{name}.img").write_bytes(gzip.compress(data, mtime=0))
        text = header(values, interleave, 4, 1, "header offset = 100\nfile compression = 1\n")
        (out / f"{name}.hdr").write_text(text)
        found[f"envi/{name}.img"] = truth(values)
    half = len(flat(values, "bip", "<f4")) // 2
    parts = flat(values, "bip", "<f4")[:half], flat(values, "bip", "<f4")[half:]
    members = b"".join(gzip.compress(part, mtime=0) for part in parts)
    (out / "gzip_two_members.img.gz").write_bytes(members)
    (out / "gzip_two_members.img.hdr").write_text(header(values, "bip", 4, 0, ""))
    found["envi/gzip_two_members.img.gz"] = truth(values)

    values = cube("u2")
    text = header(values, "BSQ", 12, 0, "description = {bands = 99\n}\n", newline="\r\n")
    (out / "SPELLING.HDR").write_bytes(text.replace("samples", "SAMPLES  ").encode())
    (out / "SPELLING.BSQ").write_bytes(flat(values, "bsq", "<u2"))
    found["envi/SPELLING.BSQ"] = truth(values)
    return found


def flat(values: np.ndarray, interleave: str, dtype: str) -> bytes:
    return np.ascontiguousarray(values.transpose(AXES[interleave])).astype(dtype).tobytes()


def header(
    values: np.ndarray, interleave: str, code: int, order: int, more: str, newline: str = "\n"
) -> str:
    lines, samples, bands = values.shape
    wavelengths = f"{newline},".join(str(value) for value in WAVELENGTHS)
    text = (
        f"ENVI\n; written by hand\nsamples = {samples}\nlines = {lines}\nbands = {bands}\n"
        f"data type = {code}\ninterleave = {interleave}\nbyte order = {order}\n{more}"
        f"wavelength units = nm\nwavelength = {{\n; a comment\n{wavelengths}}}"
    )
    return text.replace("\r\n", "\n").replace("\n", newline)


def save(path: Path, values: np.ndarray, **how: Any) -> None:
    envi.save_image(str(path), values, force=True, **{"ext": ".img", **how})
