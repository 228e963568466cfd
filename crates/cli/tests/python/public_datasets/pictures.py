"""Natural scenes and people: ARAD_1K, Harvard, Hyper-Skin."""

from pathlib import Path

import numpy as np
from PIL import Image

from .folders import Expected, Folder, labels, scene, write_matlab, write_matlab_73


def arad_1k(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, split in [(1, "Train"), (2, "Train"), (901, "Valid")]:
        cube = scene(number)
        bands = np.arange(400.0, 701.0, 10.0)
        name = f"ARAD_1K_{number:04d}"
        write_matlab_73(root / f"{split}_spectral/{name}.mat", cube=cube, bands=bands)
        (root / f"{split}_RGB").mkdir(exist_ok=True)
        Image.new("RGB", (32, 24)).save(root / f"{split}_RGB/{name}.jpg")
        expected[name] = Expected(cube, columns={"split": split}, wavelengths=bands)
    return expected


def harvard(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, path in enumerate(["CZ_hsdb/img1", "CZ_hsdb/imgb2", "CZ_hsdbi/imga3"]):
        cube = scene(number, 26, 35)
        valid = labels(cube, number, 1, "float64")
        write_matlab(root / f"{path}.mat", ref=cube.astype(np.float64), lbl=valid)
        expected[Path(path).name] = Expected(cube, {"valid": valid})
    (root / "CZ_hsdb/calib.txt").write_text("1\n" * 31)
    return expected


def hyper_skin(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, (split, name) in enumerate(
        [
            ("train", "p001_smile_left"),
            ("valid", "p012_neutral_front"),
            ("test", "p044_smile_right"),
        ]
    ):
        cube = scene(number, 40, 40)
        write_matlab_73(root / f"{split}/VIS/{name}.mat", cube=cube)
        (root / split / "RGB").mkdir()
        Image.new("RGB", (40, 40)).save(root / split / f"RGB/{name}.jpg")
        group, pose, view = name.split("_")
        columns = {"split": split, "group": group, "pose": pose, "view": view}
        expected[name] = Expected(cube, columns=columns)
    return expected


FOLDERS: dict[str, Folder] = {"arad-1k": arad_1k, "harvard": harvard, "hyper-skin": hyper_skin}
