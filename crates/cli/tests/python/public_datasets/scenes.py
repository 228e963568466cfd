"""Scenes that are classified pixel by pixel, each with a ground truth."""

from pathlib import Path

import numpy as np
import tifffile
from helpers import write_envi

from .folders import Expected, Folder, labels, numbers, scene, write_matlab, write_matlab_73


def classic_scenes(root: Path) -> dict[str, Expected]:
    expected = {}
    files = {
        "Indian_pines": ("Indian_pines_corrected", "indian_pines_corrected", "indian_pines_gt"),
        "Salinas": ("Salinas_corrected", "salinas_corrected", "salinas_gt"),
        "SalinasA": ("SalinasA_corrected", "salinasA_corrected", "salinasA_gt"),
        "PaviaU": ("PaviaU", "paviaU", "paviaU_gt"),
        "Pavia": ("Pavia", "pavia", "pavia_gt"),
        "KSC": ("KSC", "KSC", "KSC_gt"),
        "Botswana": ("Botswana", "Botswana", "Botswana_gt"),
    }
    for number, (name, (file, key, truth)) in enumerate(files.items()):
        cube = numbers(number, 30 + number, 40 - number, 20 + number)
        mask = labels(cube, number, 9)
        write_matlab(root / f"{file}.mat", **{key: cube})
        write_matlab(root / f"{name}_gt.mat", **{truth: mask})
        expected[name] = Expected(cube, {"gt": mask})
    return expected


def whu_hi(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, (place, bands) in enumerate([("LongKou", 27), ("HanChuan", 28), ("HongHu", 27)]):
        name = f"WHU_Hi_{place}"
        folder = root / f"WHU-Hi-{place}"
        cube = scene(number, 31, 22 + number, bands)
        mask = labels(cube, number, 9)
        write_matlab(folder / f"{name}.mat", **{name: cube})
        write_matlab(folder / f"{name}_gt.mat", **{f"{name}_gt": mask})
        write_matlab(folder / "Training samples and test samples/Train50.mat", LKtrain50=mask)
        expected[name] = Expected(cube, {"gt": mask})
    return expected


def houston_2013(root: Path) -> dict[str, Expected]:
    cube = numbers(1, 20, 60, 144)
    masks = {name: labels(cube, seed, 15) for seed, name in enumerate(["gt", "train", "test"])}
    write_matlab(root / "HSI.mat", HSI=cube)
    write_matlab(root / "LiDAR.mat", LiDAR=cube[..., 0].astype(np.float32))
    for name, (file, key) in {
        "gt": ("gt", "gt"),
        "train": ("TRLabel", "TRLabel"),
        "test": ("TSLabel", "TSLabel"),
    }.items():
        write_matlab(root / f"{file}.mat", **{key: masks[name]})
    return {"HSI": Expected(cube, masks)}


def dcmnet(name: str, bands: int, kept: int, classes: int, other: str) -> Folder:
    """A scene of the files that DCMNet published, of which the first `kept` bands are packed."""

    def write(root: Path) -> dict[str, Expected]:
        cube = numbers(bands, 25, 36, bands)
        mask = labels(cube, bands, classes)
        write_matlab(root / f"{name}_hsi.mat", **{f"{name}_hsi": cube})
        write_matlab(root / f"{name}_gt.mat", **{f"{name}_gt": mask})
        write_matlab(root / f"{name}_{other}.mat", **{f"{name}_{other}": cube[..., :4] / 7})
        pixels = np.argwhere(mask > 0)
        write_matlab(root / f"{name}_index.mat", **{f"{name}_train": pixels[:9]})
        return {f"{name}_hsi": Expected(cube[..., :kept], {"gt": mask})}

    return write


def trento(root: Path) -> dict[str, Expected]:
    cube = scene(1, 16, 60, 63)
    mask = labels(cube, 1, 6)
    write_matlab(root / "Italy_hsi.mat", data=cube)
    write_matlab(root / "Italy_lidar.mat", data=cube[..., :2])
    write_matlab(root / "allgrd.mat", mask_test=mask)
    nanometres = np.linspace(402.89, 989.09, 63)
    return {"Italy_hsi": Expected(cube, {"gt": mask}, wavelengths=nanometres)}


def houston_cross_scene(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, name in enumerate(["Houston13", "Houston18"]):
        cube = scene(number, 21, 50 + number, 48)
        mask = labels(cube, number, 7, "float64")
        # One of the files was saved with -v7.3.
        write = write_matlab if number else write_matlab_73
        write(root / f"{name}.mat", ori_data=cube)
        write(root / f"{name}_7gt.mat", map=mask)
        expected[name] = Expected(cube, {"gt": mask})
    return expected


def pavia_cross_scene(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, name in enumerate(["paviaU", "paviaC"]):
        cube = scene(number, 30 + number, 21, 102)
        mask = labels(cube, number, 7)
        write_matlab(root / f"{name}.mat", ori_data=cube)
        write_matlab(root / f"{name}_7gt.mat", map=mask)
        expected[name] = Expected(cube, {"gt": mask})
    return expected


def muufl(root: Path) -> dict[str, Expected]:
    name = "muufl_gulfport_campus_1_hsi_220_label"
    cube = scene(1, 33, 22, 64)
    mask = labels(cube, 1, 11)
    nanometres = np.linspace(367.7, 1043.4, 64)
    hsi = {
        "Data": cube.astype(np.float64),
        "Lidar": {"z": cube[..., :2]},
        "RGB": (cube[..., :3] * 255).astype(np.uint8),
        "info": {"wavelength": nanometres, "description": "campus 1"},
        "sceneLabels": {
            "labels": np.where(mask == 0, -1.0, mask),
            "Materials_Type": np.array(["trees", "grass"], object),
        },
    }
    write_matlab(root / f"MUUFLGulfportSceneLabels/{name}.mat", hsi=hsi)
    return {f"{name}::hsi.Data": Expected(cube, {"gt": mask}, wavelengths=nanometres)}


def chikusei(root: Path) -> dict[str, Expected]:
    name = "HyperspecVNIR_Chikusei_20140729"
    cube = scene(1, 29, 23, 128)
    mask = labels(cube, 1, 19)
    write_matlab_73(root / f"{name}.mat", chikusei=cube)
    names = np.array([f"class {number}" for number in range(1, 20)], object)
    truth = {"gt": mask, "colormap": np.zeros((20, 3)), "classnames": names}
    write_matlab(root / f"{name}_Ground_Truth.mat", GT=truth)
    return {name: Expected(cube, {"gt": mask})}


def xiongan(root: Path) -> dict[str, Expected]:
    cube = numbers(1, 24, 37, 256)
    mask = labels(cube, 1, 19)
    nanometres = np.linspace(391.3, 1002.2, 256).round(2)
    write_envi(root / "XiongAn.hdr", cube, "bsq", wavelength=nanometres, wavelength_units="nm")
    write_envi(root / "farm_roi.hdr", mask[..., None], "bsq")
    return {"XiongAn": Expected(cube, {"gt": mask}, wavelengths=nanometres)}


def hyrank(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, (split, name) in enumerate(
        [("Training", "Dioni"), ("Training", "Loukia"), ("Validation", "Erato")]
    ):
        folder = root / f"{split}Set"
        folder.mkdir(exist_ok=True)
        cube = numbers(number, 25, 61 + number, 176).astype(np.int16)
        mask = labels(cube, number, 14)
        tifffile.imwrite(folder / f"{name}.tif", cube, planarconfig="contig")
        if split == "Training":
            tifffile.imwrite(folder / f"{name}_GT.tif", mask)
        else:
            mask = np.zeros_like(mask)
        expected[name] = Expected(cube, {"gt": mask}, {"split": split})
    return expected


def dfc_2018(root: Path) -> dict[str, Expected]:
    name = "2018_IEEE_GRSS_DFC_HSI_TR"
    cube = numbers(1, 30, 59, 50)
    nanometres = np.concatenate([np.linspace(374.4, 1047.1, 48).round(1), [49, 50]])
    data = write_envi(
        root / f"{name}.hdr", cube, "bil", wavelength=nanometres, wavelength_units="Nanometers"
    )
    data.rename(root / name)
    (root / f"{name}.hdr").rename(root / f"{name}.HDR")
    truth = labels(np.zeros((60, 118, 1)), 1, 20)
    tifffile.imwrite(root / "2018_IEEE_GRSS_DFC_GT_TR.tif", truth)
    return {name: Expected(cube[..., :48], wavelengths=nanometres[:48])}


def abu(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, place in enumerate(["airport", "beach", "urban"]):
        name = f"abu-{place}-{number + 1}"
        cube = numbers(number, 40, 41, 30 + number)
        mask = labels(cube, number, 1)
        write_matlab(root / f"{name}.mat", data=cube.astype(np.float64), map=mask)
        expected[name] = Expected(cube, {"anomaly": mask}, {"place": place})
    return expected


FOLDERS: dict[str, Folder] = {
    "abu": abu,
    "augsburg": dcmnet("augsburg", 180, 180, 8, "sar"),
    "berlin": dcmnet("berlin", 244, 244, 8, "sar"),
    "chikusei": chikusei,
    "classic-scenes": classic_scenes,
    "dfc-2018": dfc_2018,
    "houston-2013": houston_2013,
    "houston-2018": dcmnet("houston", 50, 48, 20, "lidar"),
    "houston-cross-scene": houston_cross_scene,
    "hyrank": hyrank,
    "muufl": muufl,
    "pavia-cross-scene": pavia_cross_scene,
    "trento": trento,
    "whu-hi": whu_hi,
    "xiongan": xiongan,
}
