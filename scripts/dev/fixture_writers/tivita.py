"""Tivita SpecCube files, written as HTC's reader expects them (htc/tivita/hsi.py)."""

from pathlib import Path

import numpy as np

from . import synthetic


def speccube(values: np.ndarray) -> bytes:
    """The file for an image (row, column, band): raw[x, height - 1 - y] = image[y, x]."""
    rows, columns, bands = values.shape
    raw = np.flip(values.swapaxes(0, 1), axis=1).astype(">f4")
    return np.array([columns, rows, bands], dtype=">i4").tobytes() + raw.tobytes()


def write(folder: Path) -> dict[str, object]:
    """Writes a cube with the sensor's 100 bands, a smaller one, and broken ones."""
    tivita = folder / "tivita"
    tivita.mkdir(parents=True, exist_ok=True)
    sensor = synthetic.cube(shape=(4, 3, 100))
    cut = synthetic.cube()
    whole = speccube(sensor)
    (tivita / "2026_11_21_12_00_00_SpecCube.dat").write_bytes(whole)
    (tivita / "renamed.raw").write_bytes(speccube(cut))
    (tivita / "cut_short_SpecCube.dat").write_bytes(whole[:-4])
    (tivita / "negative_SpecCube.dat").write_bytes(b"\xff" * 12 + whole[12:])
    (tivita / "tiny_SpecCube.dat").write_bytes(whole[:7])
    return {
        "tivita/2026_11_21_12_00_00_SpecCube.dat": synthetic.truth(
            sensor, wavelength=np.linspace(500, 1000, 100).tolist()
        ),
        "tivita/renamed.raw": synthetic.truth(cut),
    }
