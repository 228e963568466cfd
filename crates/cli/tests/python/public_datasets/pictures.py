"""Natural scenes, people and videos: ARAD_1K, CASSI, CAVE, Harvard, HOT, Hyper-Skin, ICVL."""

from pathlib import Path

import numpy as np
from PIL import Image

from .folders import (
    Expected,
    Folder,
    labels,
    numbers,
    scene,
    write_matlab,
    write_matlab_73,
    write_split,
)

CASSI = np.array(
    [
        *(453.5, 457.5, 462, 466, 471.5, 476.5, 481.5, 487, 492.5, 498, 504, 510, 516, 522.5),
        *(529.5, 536.5, 544, 551.5, 558.5, 567.5, 575.5, 584.5, 594.5, 604, 614.5, 625, 636.5, 648),
    ]
)


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


def arad_1k_mst(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, split in [(1, "train"), (2, "train"), (901, "valid")]:
        cube = scene(number)
        bands = np.arange(400.0, 701.0, 10.0)
        name = f"ARAD_1K_{number:04d}"
        write_matlab_73(root / f"Train_Spec/{name}.mat", cube=cube, bands=bands)
        expected[name] = Expected(cube, columns={"split": split}, wavelengths=bands)
    (root / "Train_RGB").mkdir()
    Image.new("RGB", (32, 24)).save(root / "Train_RGB/ARAD_1K_0001.jpg")
    # The lists also have scenes that are missing in the folder.
    write_split(root / "split_txt/train_list.txt", "ARAD_1K_0001", "ARAD_1K_0002", "ARAD_1K_0003")
    write_split(root / "split_txt/valid_list.txt", "ARAD_1K_0901")
    return expected


def harvard(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, path in enumerate(["CZ_hsdb/img1", "CZ_hsdb/imgb2", "CZ_hsdbi/imga3"]):
        cube = scene(number, 26, 35)
        valid = labels(cube, number, 1, "float64")
        write_matlab(root / f"{path}.mat", ref=cube.astype(np.float64), lbl=valid)
        expected[Path(path).name] = Expected(
            cube, {"valid": valid}, wavelengths=np.arange(420.0, 721.0, 10.0)
        )
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
        bands = np.arange(400.0, 701.0, 10.0)
        expected[name] = Expected(cube, columns=columns, wavelengths=bands)
    return expected


def cassi_cave(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, key in [(1, "img_expand"), (2, "img"), (205, "img_expand")]:
        stored = np.round(scene(number, 32, 32, 28) * 65535).astype(np.uint16)
        write_matlab(root / f"cave_1024_28/scene{number}.mat", **{key: stored})
        expected[f"scene{number}"] = Expected(stored, wavelengths=CASSI)
    return expected


def cassi_kaist(root: Path) -> dict[str, Expected]:
    expected = {}
    for number in (1, 2, 10):
        cube = scene(number, 32, 32, 28)
        write_matlab(root / f"TSA_simu_data/Truth/scene{number:02}.mat", img=cube.astype(float))
        expected[f"scene{number:02}"] = Expected(cube, wavelengths=CASSI)
    write_matlab(root / "TSA_simu_data/mask.mat", mask=cube[..., 0])
    return expected


def cave(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, name in enumerate(["balloons_ms", "beads_ms"]):
        folder = root / name / name
        folder.mkdir(parents=True)
        cube = np.round(scene(number) * 65535).astype(np.uint16)
        for band in range(31):
            Image.fromarray(cube[..., band]).save(folder / f"{name}_{band + 1:02}.png")
        Image.new("RGB", (32, 24)).save(folder / f"{name.removesuffix('ms')}RGB.bmp")
        bands = np.arange(400.0, 701.0, 10.0)
        expected[f"{name}/{name}"] = Expected(cube, wavelengths=bands)
    # Images of this scene are in colour.
    folder = root / "watercolors_ms/watercolors_ms"
    folder.mkdir(parents=True)
    for band in range(1, 32):
        Image.new("RGBA", (32, 24)).save(folder / f"watercolors_ms_{band:02}.png")
    return expected


def hot(root: Path) -> dict[str, Expected]:
    expected = {}
    videos = [("train", "ball"), ("train", "car3"), ("test", "toy1")]
    for number, (split, video) in enumerate(videos):
        frames, pictures = (root / split / video / name for name in ("HSI", "HSI-FalseColor"))
        frames.mkdir(parents=True)
        pictures.mkdir()
        (frames / "groundtruth_rect.txt").write_text("1\t2\t3\t4\n" * 2)
        for frame in (1, 2):
            cube = numbers(10 * number + frame, 13, 17, 16)
            # Band k is at row k // 4 and column k % 4 of each square of 4 x 4 pixels.
            mosaic = cube.reshape(13, 17, 4, 4).transpose(0, 2, 1, 3).reshape(52, 68)
            Image.fromarray(mosaic).save(frames / f"{frame:04}.png")
            Image.new("RGB", (17, 13)).save(pictures / f"{frame:04}.jpg")
            columns = {"split": split, "group": video}
            expected[f"{video}/{frame:04}"] = Expected(cube, columns=columns)
    return expected


def icvl(root: Path) -> dict[str, Expected]:
    expected = {}
    bands = np.arange(400.0, 701.0, 10.0)
    for number, name in enumerate(["BGU_0403-1419-1", "eve_0331-1551"]):
        cube = numbers(number, 26, 28)
        rgb = cube[..., [25, 15, 5]] / 4095
        write_matlab_73(root / f"{name}.mat", bands=bands, rad=cube.astype(np.float64), rgb=rgb)
        expected[name] = Expected(cube, wavelengths=bands)
    return expected


FOLDERS: dict[str, Folder] = {
    "arad-1k": arad_1k,
    "arad-1k-mst": arad_1k_mst,
    "cassi-cave": cassi_cave,
    "cassi-kaist": cassi_kaist,
    "cave": cave,
    "harvard": harvard,
    "hot": hot,
    "hyper-skin": hyper_skin,
    "icvl": icvl,
}
