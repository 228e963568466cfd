"""Driving: HSI-Drive, HSI-Road, HyKo2, HS3-Bench, Hyperspectral City."""

from pathlib import Path

import h5py
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
                split = "valid" if number == 2 else "train"
                expected[str(number)] = Expected(cube, {"road": mask}, {"split": split})
    (root / "all.txt").write_text("1\n2\n5\n")
    (root / "train.txt").write_text("1\n5\n")
    (root / "valid.txt").write_text("2\n")
    return expected


def hyko2(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, (sensor, bands) in enumerate([("vis", 15), ("vis", 15), ("nir", 25)]):
        name = f"set-_0{number}282_spec_annotated"
        cube = scene(number, 25, 51, bands)
        semantic, material = labels(cube, number, 10), labels(cube, number, 8)
        nanometres = np.linspace(470.0, 630.0, bands)
        arrays = {
            "data": cube.astype(np.float64),
            "image": (cube[..., :3] * 255).astype(np.uint8),
            "wavelengths": nanometres,
            "label_spectral_reflectances": material,
        }
        # Some files have only one of the two label arrays.
        if number == 1:
            semantic = np.zeros_like(semantic)
        else:
            arrays["label_Semantic Classes for Urban Scenes"] = semantic
        write_matlab(root / f"{sensor}_annotated/{name}.mat", **arrays)
        masks = {"semantic": semantic, "material": material}
        expected[name] = Expected(cube, masks, wavelengths=nanometres)
    return expected


def hs3_bench(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, split in enumerate(["train", "test", "val"]):
        with h5py.File(root / f"hyko2_{split}.h5", "w") as file:
            for part in range(2):
                name = f"set-_0{number}28{part}_spec_annotated"
                cube = scene(10 * number + part, 25, 51, 15)
                mask = labels(cube, number, 10)
                file[f"{name}/image"], file[f"{name}/labels"] = cube, mask
                expected[name] = Expected(cube, {"semantic": mask}, {"split": split})
    return expected


def write_hsd(path: Path, cube: np.ndarray, components: int, last: int) -> np.ndarray:
    """Writes a cube by its principal components, and returns what is left of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    spectra = cube.reshape(-1, cube.shape[2]).astype(np.float64)
    mean = spectra.mean(axis=0).astype("<f4")
    _, _, directions = np.linalg.svd(spectra - mean, full_matrices=False)
    directions = directions[:components].astype("<f4")
    scores = ((spectra - mean) @ directions.T).astype("<f4")
    with path.open("wb") as file:
        np.array([*cube.shape, components, 450], "<i4").tofile(file)
        np.array([4], "<f4").tofile(file)
        np.array([last], "<i4").tofile(file)
        for values in (mean, directions, scores):
            values.tofile(file)
    left: np.ndarray = np.dot(scores, directions) + mean
    return left.reshape(cube.shape)


def hyperspectral_city(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, split in enumerate(["train", "train", "test"]):
        name = f"20181022_14325{number}"
        cube = scene(number, 22, 18, 16)
        cube = write_hsd(root / f"{split}/{name}.hsd", cube, 8, last=510)
        mask = labels(cube, number, 18)
        Image.fromarray((cube[..., [9, 5, 1]] * 255).clip(0, 255).astype(np.uint8)).save(
            root / f"{split}/rgb{name}.jpg"
        )
        if number == 2:
            mask = np.full_like(mask, 255)
        else:
            Image.fromarray(mask).save(root / f"{split}/rgb{name}_gray.png")
        centers = np.arange(450.0, 511.0, 4.0)
        expected[name] = Expected(cube, {"semantic": mask}, {"split": split}, centers)
    return expected


FOLDERS: dict[str, Folder] = {
    "hs3-bench": hs3_bench,
    "hsi-drive": hsi_drive,
    "hsi-road": hsi_road,
    "hyko2": hyko2,
    "hyperspectral-city": hyperspectral_city,
}
