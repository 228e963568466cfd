"""Collections of airborne and satellite images."""

from pathlib import Path

import h5py
import numpy as np
import tifffile
from helpers import write_envi

from .folders import Expected, Folder, labels, numbers, scene, write_matlab, write_split

SPLITS = ("train", "val", "test")


def write_tiff(path: Path, cube: np.ndarray) -> None:
    """Writes a cube with a plane for each band, as GDAL does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(
        path, np.moveaxis(cube, 2, 0), photometric="minisblack", planarconfig="separate"
    )


def whu_ohs(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, (split, name) in enumerate(
        [("tr", "S1_0001"), ("tr", "T1_0002"), ("val", "S1_0003"), ("ts", "S1_0004")]
    ):
        cube = numbers(number, 32, 32, 32)
        mask = labels(cube, number, 24)
        write_tiff(root / f"{split}/image/{name}.tif", cube)
        (root / split / "label").mkdir(exist_ok=True)
        tifffile.imwrite(root / f"{split}/label/{name}.tif", mask)
        expected[name] = Expected(cube, {"landcover": mask}, {"split": split})
    return expected


def ohid_1(root: Path) -> dict[str, Expected]:
    (root / "labels").mkdir()
    expected = {}
    for number in (1, 2, 10):
        name = f"201912_{number}"
        cube = numbers(number, 32, 32, 32)
        mask = labels(cube, number, 7)
        write_tiff(root / f"image/{name}.tif", cube)
        tifffile.imwrite(root / f"labels/{name}.tif", mask)
        expected[name] = Expected(cube, {"landcover": mask})
    return expected


def hyspecnet(root: Path) -> dict[str, Expected]:
    tile = "ENMAP01-____L2A-DT0000004950_20221103T161737Z_001_V010110_20221118T145147Z"
    expected = {}
    parts = ["Y01460273_X03110438", "Y03110438_X04390566", "Y04390566_X05670694"]
    for number, (part, split) in enumerate(zip(parts, SPLITS, strict=True)):
        patch = f"{tile}-{part}"
        stem = root / "patches" / tile / patch / patch
        whole = numbers(number, 32, 32, 24).astype(np.int16)
        cube = (whole[..., 1:23] / np.float32(10000)).astype(np.float32)
        mask = labels(cube, number, 3)
        write_tiff(stem.with_name(f"{patch}-SPECTRAL_IMAGE.TIF"), whole)
        np.save(stem.with_name(f"{patch}-DATA.npy"), np.moveaxis(cube, 2, 0))
        tifffile.imwrite(stem.with_name(f"{patch}-QL_QUALITY_CLASSES.TIF"), mask)
        tifffile.imwrite(stem.with_name(f"{patch}-QL_QUALITY_CLOUD.TIF"), mask)
        write_split(root / f"splits/easy/{split}.csv", f"{tile}/{patch}/{patch}-DATA.npy")
        expected[patch] = Expected(cube, {"quality": mask}, {"split": split})
    return expected


def enmap_cdl(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, split in enumerate(SPLITS):
        cube = numbers(number, 32, 32, 40).astype(np.int16)
        mask = labels(cube, number, 210)
        write_tiff(root / f"enmap_cdl/enmap/patch_{number}.tif", cube)
        (root / "enmap_cdl/cdl").mkdir(exist_ok=True)
        tifffile.imwrite(root / f"enmap_cdl/cdl/patch_{number}.tif", mask)
        write_split(root / f"splits/enmap_cdl/{split}.txt", f"patch_{number}.tif")
        expected[f"patch_{number}"] = Expected(cube, {"cdl": mask}, {"split": split})
    return expected


def eurosat(root: Path) -> dict[str, Expected]:
    expected = {}
    kinds = ["AnnualCrop", "SeaLake", "Forest"]
    for number, (kind, split) in enumerate(zip(kinds, SPLITS, strict=True), 1):
        cube = numbers(number, 64, 64, 13)
        name = f"{kind}_{number}"
        folder = root / "ds/images/remote_sensing/otherDatasets/sentinel_2/tif" / kind
        folder.mkdir(parents=True)
        tifffile.imwrite(
            folder / f"{name}.tif", cube, photometric="minisblack", planarconfig="contig"
        )
        # The lists are of the RGB pictures.
        write_split(root / f"eurosat-{split}.txt", f"{name}.jpg")
        expected[name] = Expected(cube, columns={"label": kind, "split": split})
    return expected


def hyperglobal(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, (name, bands) in enumerate([("EO1-part1/a_1", 45), ("GF5-part1/b_2", 70)]):
        cube = numbers(number, 64, 64, bands)
        write_matlab(root / f"{name}.mat", img=np.moveaxis(cube, 2, 0))
        expected[name] = Expected(cube)
    return expected


def toulouse(root: Path) -> dict[str, Expected]:
    expected = {}
    nanometres = np.linspace(399.3, 2498.1, 310).round(2)
    for number, time in enumerate(["10-41-20", "10-49-30"]):
        name = f"TLS_1b_2021-06-15_{time}_reflectance_rect"
        cube = numbers(number, 20, 31 + number, 310)
        place = "{UTM, 1, 1, 576000, 4832000, 1, 1, 31, North, WGS-84, units=Meters}"
        write_envi(
            root / f"images/{name}.hdr",
            cube,
            "bsq",
            ending=".bsq",
            wavelength=nanometres,
            wavelength_units="Nanometers",
            map_info=place,
        )
        expected[name] = Expected(cube, wavelengths=nanometres)
    return expected


def neon(root: Path) -> dict[str, Expected]:
    folder = root / "DP3.30006.001/2019/FullSite/D03/2019_OSBS_5/L3/Spectrometer/Reflectance"
    folder.mkdir(parents=True)
    expected = {}
    nanometres = np.linspace(382.3, 2511.5, 26)
    for number, (east, north) in enumerate([("404000", "3285000"), ("405000", "3285000")]):
        name = f"NEON_D03_OSBS_DP3_{east}_{north}_reflectance"
        cube = numbers(number, 20, 20, 26).astype(np.int16)
        with h5py.File(folder / f"{name}.h5", "w") as file:
            group = file.create_group("OSBS/Reflectance")
            data = group.create_dataset("Reflectance_Data", data=cube)
            data.attrs["Scale_Factor"] = 10000.0
            data.attrs["Data_Ignore_Value"] = -9999.0
            spectral = group.create_group("Metadata/Spectral_Data")
            spectral.create_dataset("Wavelength", data=nanometres)
            spectral.create_dataset("FWHM", data=np.full(26, 5.0))
        columns = {"site": "OSBS", "easting": east, "northing": north}
        expected[name] = Expected(cube / 10000, columns=columns, wavelengths=nanometres)
    return expected


def neon_tree_evaluation(root: Path) -> dict[str, Expected]:
    expected = {}
    for number, plot in enumerate(["OSBS_029_2019", "TEAK_052_2018"]):
        name = f"{plot}_hyperspectral"
        cube = scene(number, 40, 40, 42)
        write_tiff(root / f"evaluation/Hyperspectral/{name}.tif", cube)
        write_tiff(root / f"evaluation/RGB/{plot}.tif", np.zeros((40, 40, 3), np.uint8))
        expected[name] = Expected(cube)
    return expected


def uav_hsi_crop(root: Path) -> dict[str, Expected]:
    expected = {}
    folders = {"Training": "Train/Training", "Validation": "Train/Validation", "Test": "Test"}
    for number, (split, folder) in enumerate(folders.items()):
        for part in ("rs", "gt"):
            (root / folder / part).mkdir(parents=True)
        name = f"MJK_N_{number}"
        cube = scene(number, 24, 24, 40)
        mask = labels(cube, number, 29)
        np.save(root / folder / f"rs/{name}.npy", cube)
        np.save(root / folder / f"gt/{name}.npy", mask)
        expected[name] = Expected(cube, {"crop": mask}, {"split": split})
    return expected


def starcop(root: Path) -> dict[str, Expected]:
    expected = {}
    nanometres = np.array([460, 550, 640, 2004, 2109, 2310, 2488])
    rows: dict[str, list[str]] = {"train": [], "test": []}
    for number, (part, split) in enumerate(
        [("train_easy", "train"), ("train_remaining_part1", "train"), ("test", "test")]
    ):
        name = f"ang20190922t192642_r{number}_c0_w512_h512"
        folder = root / f"STARCOP_{part}" / name
        folder.mkdir(parents=True)
        cube = scene(number, 32, 32, len(nanometres))
        mask = labels(cube, number, 1)
        for band, wavelength in enumerate(nanometres):
            tifffile.imwrite(folder / f"TOA_AVIRIS_{wavelength}nm.tif", cube[..., band])
        for product in ("mag1c", "weight_mag1c"):
            tifffile.imwrite(folder / f"{product}.tif", cube[..., 0])
        tifffile.imwrite(folder / "label_rgba.tif", np.zeros((32, 32, 4), np.uint8))
        tifffile.imwrite(folder / "labelbinary.tif", mask)
        rows[split].append(f"{name},{number * 100.5},{bool(number)}\n")
        columns = {"split": split}
        targets = {"mag1c": cube[..., 0], "weight_mag1c": cube[..., 0]}
        expected[name] = Expected(cube, {"plume": mask}, columns, nanometres, targets)
    for split, lines in rows.items():
        (root / f"{split}.csv").write_text("id,qplume,has_plume\n" + "".join(lines))
    return expected


def hyperview(root: Path) -> dict[str, Expected]:
    (root / "train_data").mkdir()
    expected, table = {}, ["sample_index,P,K,Mg,pH"]
    for number in range(4):
        cube = numbers(number, 11 + number, 12 + 2 * number, 30)
        outside = labels(cube, number, 1)
        stored = np.broadcast_to(outside.astype(bool), (30, *outside.shape))
        np.savez_compressed(
            root / f"train_data/{number}.npz", data=np.moveaxis(cube, 2, 0), mask=stored
        )
        values = {"P": number * 10.5, "K": 20.25 + number, "Mg": 100.5, "pH": 6 + number / 8}
        table.append(",".join(map(str, [number, *values.values()])))
        expected[str(number)] = Expected(cube, {"outside": outside}, values)
    (root / "train_gt.csv").write_text("\n".join(table) + "\n")
    return expected


FOLDERS: dict[str, Folder] = {
    "enmap-cdl": enmap_cdl,
    "eurosat": eurosat,
    "hyperglobal": hyperglobal,
    "hyperview": hyperview,
    "hyspecnet": hyspecnet,
    "neon": neon,
    "neon-tree-evaluation": neon_tree_evaluation,
    "ohid-1": ohid_1,
    "starcop": starcop,
    "toulouse": toulouse,
    "uav-hsi-crop": uav_hsi_crop,
    "whu-ohs": whu_ohs,
}
