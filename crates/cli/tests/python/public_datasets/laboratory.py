"""Materials, plants and medicine."""

from pathlib import Path

import numpy as np
import tifffile
from helpers import write_envi
from PIL import Image

from .folders import Expected, Folder, labels, numbers, scene


def lib_hsi(root: Path) -> dict[str, Expected]:
    expected = {}
    nanometres = np.linspace(397.32, 1003.58, 204).round(2)
    for number, split in enumerate(["train", "train", "validation", "test"]):
        name = f"2021-02-0{number}_scene"
        cube = scene(number, 32, 32, 204)
        write_envi(
            root / f"{split}/reflectance_cubes/{name}.hdr",
            cube,
            "bil",
            ending=".dat",
            wavelength=nanometres,
            wavelength_units="nm",
        )
        for folder in ("labels", "rgb"):
            (root / split / folder).mkdir(exist_ok=True)
            Image.new("RGB", (32, 32)).save(root / f"{split}/{folder}/{name}.png")
        expected[name] = Expected(cube, columns={"split": split}, wavelengths=nanometres)
    return expected


def odsi_db(root: Path) -> dict[str, Expected]:
    expected = {}
    nanometres = np.arange(400.0, 801.0, 10.0)
    for number in range(2):
        cube = scene(number, 30, 40, len(nanometres))
        stored = np.round(cube * 65535).astype(np.uint16)
        tags = [(65000, "f", len(nanometres), nanometres.tolist(), True)]
        with tifffile.TiffWriter(root / f"teeth_{number}.tif") as file:
            if number == 1:  # Some files begin with a picture.
                rgb = (cube[..., :3] * 255).astype(np.uint8)
                file.write(rgb, photometric="rgb", metadata=None)
            for band in range(len(nanometres)):
                file.write(
                    stored[..., band],
                    photometric="minisblack",
                    metadata=None,
                    extratags=tags if band == 0 else (),
                )
        mask = labels(cube, number, 1) * 255
        with tifffile.TiffWriter(root / f"teeth_{number}_masks.tif") as file:
            for tissue in ("Enamel", "Gingiva"):
                tag = (65001, "s", 0, tissue, True)
                file.write(mask, photometric="minisblack", metadata=None, extratags=[tag])
        expected[f"teeth_{number}"] = Expected(stored)
    return expected


def hyperblood(root: Path) -> dict[str, Expected]:
    (root / "anno").mkdir()
    expected = {}
    nanometres = np.linspace(377.1, 1046.1, 128).round(2)
    for number, name in enumerate(["A_1", "E_1", "F_1a"]):
        cube = scene(number, 26, 35, 128)
        mask = labels(cube, number, 9)
        write_envi(
            root / f"data/{name}.hdr",
            cube,
            "bil",
            ending=".float",
            wavelength=nanometres,
            wavelength_units="nm",
        )
        np.savez_compressed(root / f"anno/{name}.npz", gt=mask)
        expected[name] = Expected(cube, {"substance": mask}, wavelengths=nanometres)
    return expected


def hsi_human_brain(root: Path) -> dict[str, Expected]:
    expected = {}
    nanometres = np.linspace(400.5, 1000.9, 82).round(2)
    for number, name in enumerate(["004-02", "008-01", "008-02"]):
        reflectance = scene(number, 20, 31, 82)
        white = numbers(number, 1, 31, 82) + np.uint16(3000)
        dark = numbers(number + 50, 1, 31, 82) // np.uint16(8)
        raw = np.round(dark + reflectance * (white - dark)).astype(np.uint16)
        mask = labels(raw, number, 4)
        files = {"raw": raw, "whiteReference": white, "darkReference": dark}
        for file, values in files.items():
            header = root / f"{name}/{file}.hdr"
            data = write_envi(header, values, "bil", wavelength=nanometres, wavelength_units="nm")
            data.rename(root / name / file)
        write_envi(root / f"{name}/gtMap.hdr", mask[..., None], "bil").rename(root / name / "gtMap")
        Image.new("RGB", (31, 20)).save(root / f"{name}/image.jpg")
        cube = (raw - dark.astype(float)) / (white - dark.astype(float))
        columns = {"group": name[:3]}
        expected[name] = Expected(cube, {"tissue": mask}, columns, nanometres)
    return expected


FOLDERS: dict[str, Folder] = {
    "hsi-human-brain": hsi_human_brain,
    "hyperblood": hyperblood,
    "lib-hsi": lib_hsi,
    "odsi-db": odsi_db,
}
