"""NumPy .npy and .npz files, written by NumPy itself."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from . import synthetic

DTYPES = ["<f2", ">f4", "<f8", "|i1", "|u1", ">i2", "<u2", "<i4", ">u4", ">i8", "<u8"]
SMALL = (3, 4, 5)


def write(folder: Path) -> dict[str, object]:
    """Writes every element type, both orders, three header versions, and archives."""
    (folder / "numpy").mkdir(parents=True, exist_ok=True)
    entries: dict[str, object] = {}

    def npy(name: str, values: np.ndarray, version: tuple[int, int] = (1, 0)) -> None:
        with (folder / "numpy" / name).open("wb") as file:
            np.lib.format.write_array(file, values, version=version)
        if values.ndim in (2, 3):
            entries[f"numpy/{name}"] = synthetic.truth(values)

    for dtype in DTYPES:
        values = synthetic.cube(np.dtype(dtype).newbyteorder("="), SMALL).astype(dtype)
        order = "big" if dtype.startswith(">") else "little"
        npy(f"{np.dtype(dtype).name}_{order}.npy", values)
    npy("bool.npy", synthetic.cube("uint8", SMALL) % 2 == 1)
    npy("version2_fortran.npy", np.asfortranarray(synthetic.cube()), (2, 0))
    npy(
        "version3_big_fortran.npy", np.asfortranarray(synthetic.cube("int16").astype(">i2")), (3, 0)
    )
    npy("mask.npy", synthetic.classes())
    npy("mask_fortran.npy", np.asfortranarray(synthetic.classes()))
    npy("one_row.npy", synthetic.cube("uint16", (1, 9, 12)))
    npy("bands_first.npy", np.ascontiguousarray(synthetic.cube().transpose(2, 0, 1)))
    entries["numpy/bands_first.npy"] = synthetic.truth(synthetic.cube())
    entries.update(keys_in_another_order(folder))
    refused(folder)
    entries.update(archives(folder))
    return entries


def keys_in_another_order(folder: Path) -> dict[str, object]:
    """A header as other programs write it: other key order, spacing and quotes."""
    values = synthetic.cube("uint16")
    header = b'{"shape":(7,9,12),"descr":"<u2","fortran_order":False}\n'
    path = folder / "numpy" / "foreign_header.npy"
    path.write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + values.tobytes()
    )
    np.testing.assert_array_equal(np.load(path), values)
    return {"numpy/foreign_header.npy": synthetic.truth(values)}


def refused(folder: Path) -> None:
    """Arrays that are not cubes, and truncated files."""
    np.save(folder / "numpy" / "complex.npy", synthetic.cube("float32", SMALL).astype("complex64"))
    np.save(folder / "numpy" / "structured.npy", np.zeros(SMALL, dtype=[("größe", "<f4")]))
    np.save(folder / "numpy" / "text.npy", np.full(SMALL, "a"))
    np.save(folder / "numpy" / "four_axes.npy", np.zeros((2, *SMALL), dtype="uint8"))
    np.save(folder / "numpy" / "empty.npy", np.zeros((0, 4, 5), dtype="uint8"))
    objects = np.empty(SMALL, dtype=object)
    np.save(folder / "numpy" / "object.npy", objects, allow_pickle=True)
    whole = (folder / "numpy" / "uint16_little.npy").read_bytes()
    (folder / "numpy" / "cut_short.npy").write_bytes(whole[:-1])
    (folder / "numpy" / "cut_in_header.npy").write_bytes(whole[:40])
    (folder / "numpy" / "two_arrays.npy").write_bytes(whole + whole)


def archives(folder: Path) -> dict[str, object]:
    """Archives with wavelengths, masks and several cubes, stored and deflated."""
    cube, mask = synthetic.cube(), synthetic.classes()
    fortran = np.asfortranarray(synthetic.cube("uint16").astype(">u2"))
    waves: dict[str, Any] = {"wavelengths": synthetic.WAVELENGTHS, "fwhm": synthetic.FWHM}
    known = {
        "wavelength": synthetic.WAVELENGTHS.tolist(),
        "fwhm": synthetic.FWHM.tolist(),
    }
    numpy = folder / "numpy"
    np.savez(numpy / "stored.npz", cube=cube, gt=mask, **waves)
    np.savez_compressed(numpy / "deflated.npz", cube=cube, gt=mask, **waves)
    np.savez_compressed(
        numpy / "deflated_fortran.npz",
        cube=fortran,
        wvl=(synthetic.WAVELENGTHS / 1000).astype("float32"),
        bbl=np.arange(12) % 2,
    )
    np.savez_compressed(numpy / "several.npz", cube=cube, second=fortran)
    np.savez(numpy / "wrong_wavelengths.npz", arr=cube, wavelengths=np.arange(400.0, 410.0))
    np.savez(numpy / "only_mask.npz", gt=mask, wavelengths=synthetic.WAVELENGTHS)
    contradiction(numpy / "contradiction.npz", cube)
    broken(numpy)
    return {
        "numpy/stored.npz#cube": synthetic.truth(cube, **known),
        "numpy/stored.npz#gt": synthetic.truth(mask),
        "numpy/deflated.npz#cube": synthetic.truth(cube, **known),
        "numpy/deflated.npz#gt": synthetic.truth(mask),
        "numpy/deflated_fortran.npz#cube": synthetic.truth(
            fortran, good_bands=(np.arange(12) % 2 == 1).tolist()
        ),
        "numpy/several.npz#cube": synthetic.truth(cube),
        "numpy/several.npz#second": synthetic.truth(fortran),
        "numpy/wrong_wavelengths.npz#arr": synthetic.truth(cube),
    }


def contradiction(path: Path, values: np.ndarray) -> None:
    """An archive whose member is shorter than its own header says."""
    member = io.BytesIO()
    np.save(member, values)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("cube.npy"), member.getvalue()[:-100])


def broken(folder: Path) -> None:
    """Archives with damaged deflated bytes, checksum or end."""
    whole = (folder / "several.npz").read_bytes()
    (folder / "cut_short.npz").write_bytes(whole[: len(whole) // 2])
    with zipfile.ZipFile(folder / "deflated_fortran.npz") as archive:
        crc = archive.getinfo("cube.npy").CRC.to_bytes(4, "little")
    sound = (folder / "deflated_fortran.npz").read_bytes()
    (folder / "bad_checksum.npz").write_bytes(sound.replace(crc, bytes(4)))
