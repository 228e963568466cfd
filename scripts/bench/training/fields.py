"""A scene of fields. Each has a spectrum of its own, close to that of its class."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BANDS, CLASSES, FIELD = 40, 6, 16


def draw(side: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Draws a cube of `side` x `side` pixels, and its class ids, which are 0 between fields."""
    random = np.random.default_rng(3)
    bands = np.linspace(0, 1, BANDS)
    bumps = np.exp(-(((bands - np.linspace(0.1, 0.9, 12)[:, None]) / 0.12) ** 2))
    means = 0.4 + random.normal(0, 0.05, (CLASSES, 12)) @ bumps
    classes = np.zeros((side, side), np.uint8)
    cube = np.full((side, side, BANDS), 0.3)
    for row in range(0, side - FIELD + 1, FIELD):
        for column in range(0, side - FIELD + 1, FIELD):
            kind = int(random.integers(CLASSES))
            own = means[kind] + random.normal(0, 0.06, 12) @ bumps
            place = np.s_[row + 1 : row + FIELD - 1, column + 1 : column + FIELD - 1]
            cube[place], classes[place] = own, kind + 1
    return (cube + random.normal(0, 0.02, cube.shape)).astype(np.float32), classes
