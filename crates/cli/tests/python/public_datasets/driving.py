"""Driving: HSI-Drive, HSI-Road."""

from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

from .folders import Expected, Folder, labels, scene, write_matlab


def hsi_drive(root: Path) -> dict[str, Expected]:
    (root / "labels").mkdir()
    expected = {}
    for number, name in enumerate(["nf3122_147", "nf3122_148", "nd1113_12"]):
        cube = scene(number, 27, 51, 25)
        mask = labels(cube, number, 10)
        write_matlab(root / f"cubes_fl32/{name}_TC.mat", cube=np.moveaxis(cube, 2, 0))
        Image.fromarray(mask).save(root / f"labels/{name}.png")
        expected[name] = Expected(cube, {"semantic": mask})
    # The same cubes after a median filter.
    write_matlab(root / "cubes_fl32/MF/nf3122_147_MF_TC.mat", cube=np.moveaxis(cube, 2, 0))
    return expected


def hsi_road(root: Path) -> dict[str, Expected]:
    for folder in ("images", "masks"):
        (root / folder).mkdir()
    expected = {}
    for number in (1, 2, 5):
        for sensor, bands in [("rgb", 3), ("vis", 16), ("nir", 25)]:
            cube = (scene(number + bands, 19, 38, bands) * 255).astype(np.uint8)
            mask = labels(cube, number + bands, 1)
            name = f"{number}_{sensor}.tif"
            tifffile.imwrite(
                root / "images" / name, np.moveaxis(cube, 2, 0), photometric="minisblack"
            )
            tifffile.imwrite(root / "masks" / name, mask)
            if sensor == "vis":
                expected[str(number)] = Expected(cube, {"road": mask})
    (root / "all.txt").write_text("1\n2\n5\n")
    (root / "train.txt").write_text("1\n5\n")
    (root / "valid.txt").write_text("2\n")
    return expected


FOLDERS: dict[str, Folder] = {"hsi-drive": hsi_drive, "hsi-road": hsi_road}
