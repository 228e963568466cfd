"""Materials, plants and medicine."""

import json
import pickle
from pathlib import Path
from typing import Any

import blosc
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
    # Each image has pages for its own tissues, which overlap. The last one is not annotated.
    tissues = {0: range(25), 1: range(20, 35), 2: ()}
    for number in range(3):
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
        bits = np.zeros(cube.shape[:2], np.uint64)
        if tissues[number]:
            with tifffile.TiffWriter(root / f"teeth_{number}_masks.tif") as file:
                for tissue in tissues[number]:
                    mask = labels(cube, number + tissue, 1)
                    bits |= mask.astype(np.uint64) << np.uint64(tissue)
                    tag = (65001, "s", 0, f"Tissue {tissue}", True)
                    file.write(mask * 255, photometric="minisblack", metadata=None, extratags=[tag])
        expected[f"teeth_{number}"] = Expected(stored, {"tissue": bits}, wavelengths=nanometres)
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


def hyperpri(root: Path) -> dict[str, Expected]:
    folder = root / "Peanut_968x608"
    for name in ("hsi_files", "mask_files", "rgb_files"):
        (folder / name).mkdir(parents=True)
    nanometres = np.linspace(400, 996, 299)
    expected = {}
    for number, (date, box) in enumerate([("20220624", "box33"), ("20220701", "box12")]):
        name = f"{date}_{box}_ref"
        cube = scene(number, 20, 31, 299)
        mask = labels(cube, number, 1)
        header = folder / f"hsi_files/{name}.hdr"
        write_envi(header, cube, "bsq", ending=".dat", wavelength=nanometres, wavelength_units="nm")
        # All files share one header.
        header.rename(folder / "hsi_files/hinalea_hsi.hdr")
        Image.fromarray(mask * 255).save(folder / f"mask_files/{name}_mask.png")
        Image.new("RGB", (31, 20)).save(folder / f"rgb_files/{name}.png")
        columns = {"date": date, "group": box}
        expected[name] = Expected(cube, {"roots": mask}, columns, nanometres)
    return expected


def hyperleaf(root: Path) -> dict[str, Expected]:
    (root / "images").mkdir()
    table = ["ImageId,GrainWeight,Gsw,PhiPS2,Fertilizer,Heerup,Kvium,Rembrandt,Sheriff"]
    expected = {}
    for number in range(1, 4):
        name = f"{number:05}"
        cube = numbers(number, 24, 35, 204)
        # 16-bit numbers, the greatest of which do not fit float16.
        cube[0, 0, 0] = 65535
        tifffile.imwrite(
            root / f"images/{name}.tiff", cube, photometric="minisblack", planarconfig="contig"
        )
        values = {"GrainWeight": 40.25 + number, "Fertilizer": number / 4, "Kvium": 1}
        if number < 3:
            weight, fertilizer = values["GrainWeight"], values["Fertilizer"]
            table.append(f"{name},{weight},0.31,0.62,{fertilizer},0,1,0,0")
            expected[name] = Expected(cube, columns=values)
        else:
            expected[name] = Expected(cube)
    (root / "train.csv").write_text("\n".join(table) + "\n")
    (root / "test.csv").write_text("ImageId\n00003\n")
    return expected


def deephs(root: Path) -> dict[str, Expected]:
    (root / "annotations").mkdir()
    expected = {}
    number = 0
    for split, states in {
        "train_only_labeled": ["unripe", "perfect", "overripe"],
        "val": ["perfect"],
        "test": ["unripe"],
    }.items():
        records: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for state in states:
            number += 1
            name = f"Avocado/VIS/day_{number:02}/avocado_{number:02}_front"
            cube = scene(number, 20 + number, 30 - number, 24)
            write_envi(root / f"{name}.hdr", cube, "bip", ending=".bin")
            files = {"header_file": f"{name}.hdr", "data_file": f"{name}.bin"}
            record = {"fruit": "Avocado", "side": "front", "day": f"day_{number:02}"}
            record_id = len(records)
            records.append({"id": record_id, **record, "camera_type": "VIS", "files": files})
            measured = {"firmness": 19750 - number, "ripeness_state": state}
            annotations.append({"id": 10 + number, "record_id": record_id, **measured})
            if split == "train_only_labeled":
                columns = {"label": state, "firmness": 19750 - number, **record}
                expected[name] = Expected(cube, columns=columns)
        document = {"info": {}, "records": records, "annotations": annotations}
        (root / f"annotations/{split}_v2.json").write_text(json.dumps(document))
    return expected


def heiporspectral(root: Path) -> dict[str, Expected]:
    (root / "intermediates/segmentations").mkdir(parents=True)
    expected = {}
    for number, (subject, time) in enumerate(
        [("P086", "2021_04_15_09_22_02"), ("P093", "2021_04_28_08_49_12")]
    ):
        name = f"{subject}#{time}"
        folder = root / f"data/subjects/{subject}/{time}"
        folder.mkdir(parents=True)
        cube = scene(number, 24, 32, 100)
        masks = {f"polygon#annotator{n}": labels(cube, number + n, 20) for n in (1, 2)}
        (folder / f"{time}_SpecCube.dat").write_bytes(speccube(cube))
        (folder / f"{time}_meta.log").write_text("Camera_CamID: 0102-00085\n")
        Image.new("RGB", (32, 24)).save(folder / f"{time}_RGB-Image.png")
        segmentation = root / f"intermediates/segmentations/{name}.blosc"
        segmentation.write_bytes(named(masks))
        columns = {"group": subject, "time": time}
        bands = np.linspace(500, 1000, 100)
        organs = {"organs": masks["polygon#annotator1"]}
        expected[name] = Expected(cube, organs, columns, bands)
    return expected


def named(arrays: dict[str, np.ndarray]) -> bytes:
    """The bytes of a file of several arrays, as HTC's compress_file writes it."""
    frames = {name: blosc.compress(values.tobytes(), typesize=1) for name, values in arrays.items()}
    header = {name: (a.shape, a.dtype, len(frames[name])) for name, a in arrays.items()}
    return pickle.dumps(header) + b"".join(frames.values())


def speccube(cube: np.ndarray) -> bytes:
    """The bytes of a Tivita SpecCube, as HTC reads it."""
    raw = np.flip(cube.swapaxes(0, 1), axis=1).astype(">f4")
    rows, columns, bands = cube.shape
    return np.array([columns, rows, bands], ">i4").tobytes() + raw.tobytes()


FOLDERS: dict[str, Folder] = {
    "deephs": deephs,
    "heiporspectral": heiporspectral,
    "hsi-human-brain": hsi_human_brain,
    "hyperblood": hyperblood,
    "hyperleaf": hyperleaf,
    "hyperpri": hyperpri,
    "lib-hsi": lib_hsi,
    "odsi-db": odsi_db,
}
