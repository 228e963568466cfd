"""Reads every product of sensors/TRUTH.json by its maker's definition, without hsipack."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import tifffile
from readers import Case, Cube, envi, header_list

PLACE = "HDFEOS/{0}/{1}/Data Fields"


def _values(text: ElementTree.Element, path: str, name: str) -> np.ndarray:
    """The numbers in the elements `name` of the list at `path`."""
    return np.array([float(node.findtext(name) or "nan") for node in text.findall(path)])


def _metadata(image: Path) -> ElementTree.Element:
    found = [path for path in image.parent.iterdir() if path.name.lower().endswith("-metadata.xml")]
    return ElementTree.parse(found[0]).getroot()


def enmap(path: Path) -> Cube:
    """L1B, L1C or L2A, of one detector or both."""
    root = _metadata(path)
    band = "specific/bandCharacterisation/bandID"
    vnir = int(root.findtext("specific/numberOfVNIRBands") or 0)
    bands = slice(None)
    if "_VNIR" in path.name:
        bands = slice(0, vnir)
    elif "_SWIR" in path.name:
        bands = slice(vnir, None)
    means = _values(root, "product/bandStatistics/bandID", "mean")[bands]
    empty = np.flatnonzero(means == -1000000)
    level_2 = "L2A" in path.name
    return Cube(
        tifffile.imread(path).transpose(1, 2, 0),
        wavelength=_values(root, band, "wavelengthCenterOfBand")[bands],
        fwhm=_values(root, band, "FWHMOfBand")[bands],
        good=[number not in empty for number in range(len(means))],
        ignore=-32768 if level_2 else float(root.findtext("specific/backgroundValue") or 0),
        multiply=_values(root, band, "GainOfBand")[bands],
        add=_values(root, band, "OffsetOfBand")[bands],
        empty=empty.tolist(),
    )


def enmap_patch(path: Path) -> Cube:
    """L2A without its XML."""
    stored = tifffile.imread(path)
    stored = stored.transpose(1, 2, 0) if stored.shape[0] == 224 else stored
    return Cube(stored, ignore=-32768, multiply=1e-4)


def desis(path: Path) -> Cube:
    root = _metadata(path)
    band = "specific/bandCharacterisation/band"
    return Cube(
        tifffile.imread(path),
        wavelength=_values(root, band, "wavelengthCenterOfBand"),
        fwhm=_values(root, band, "wavelengthWidthOfBand"),
        ignore=-32768,
        multiply=_values(root, band, "gainOfBand"),
        add=_values(root, band, "offsetOfBand"),
    )


def wyvern(path: Path) -> Cube:
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        assert isinstance(page, tifffile.TiffPage)
        text = str(page.tags[42112].value)
    lists = {
        key: np.array(re.findall(rf'<Item name="{key}" sample="\d+">([\d.]+)<', text), float)
        for key in ("wavelength", "FWHM")
    }
    return Cube(
        tifffile.imread(path), wavelength=lists["wavelength"], fwhm=lists["FWHM"], ignore=-9999
    )


def aviris_classic(path: Path) -> Cube:
    cube = envi(path)
    (gain,) = path.parent.glob("*.gain")
    cube.divide = np.loadtxt(gain)[:, 0]
    cube.ignore = -50
    return cube


def aviris_ng(path: Path) -> Cube:
    """The names of the bands are their centres."""
    cube = envi(path)
    text = path.with_name(path.name + ".hdr").read_text()
    cube.wavelength = np.array(re.findall(r"([\d.]+) Nanometers", text), float)
    return cube


def micrometres(path: Path) -> Cube:
    cube = envi(path)
    cube.wavelength = header_list(path.with_suffix(".hdr").read_text(), "wavelength")
    assert cube.wavelength is not None
    cube.wavelength = cube.wavelength * 1e3
    return cube


def tanager(path: Path) -> Cube:
    with h5py.File(path) as file:
        kind = next(iter(set(file["HDFEOS"]) & {"SWATHS", "GRIDS"}))
        data = file[PLACE.format(kind, "HYP") + "/surface_reflectance"]
        return Cube(
            data[()].transpose(1, 2, 0),
            wavelength=data.attrs["wavelengths"],
            fwhm=data.attrs["fwhm"],
            good=[bool(flag) for flag in data.attrs["good_wavelengths"]],
            ignore=-9999,
        )


def prisma(detector: str) -> Callable[[Path], Cube]:
    def read(path: Path) -> Cube:
        level = path.name[4:7]
        with h5py.File(path) as file:
            place = PLACE.format("SWATHS", f"PRS_{level}_HCO") + f"/{detector.upper()}_Cube"
            low, high = (float(file.attrs[f"L2Scale{detector}{end}"]) for end in ("Min", "Max"))
            centres = file.attrs[f"List_Cw_{detector}"].astype(float)
            return Cube(
                file[place][()].transpose(0, 2, 1),
                wavelength=centres,
                fwhm=file.attrs[f"List_Fwhm_{detector}"].astype(float),
                good=[bool(flag) for flag in file.attrs[f"List_Cw_{detector}_Flags"]],
                ignore=0 if level == "L2D" else None,
                multiply=high - low,
                divide=65535.0,
                add=low,
                empty=np.flatnonzero(centres == 0).tolist(),
            )

    return read


def pace_l1b(detector: str) -> Callable[[Path], Cube]:
    def read(path: Path) -> Cube:
        with h5py.File(path) as file:
            bands = file["sensor_band_parameters"]
            widths = bands.get(f"{detector}_bandpass")
            return Cube(
                file[f"observation_data/rhot_{detector}"][()].transpose(1, 2, 0),
                wavelength=bands[f"{detector}_wavelength"][()].astype(float),
                fwhm=None if widths is None else widths[()].astype(float),
                ignore=-32767,
            )

    return read


def pace_l2(path: Path) -> Cube:
    with h5py.File(path) as file:
        data = file["geophysical_data/Rrs"]
        return Cube(
            data[()],
            wavelength=file["sensor_band_parameters/wavelength_3d"][()].astype(float),
            ignore=-32767,
            multiply=float(data.attrs["scale_factor"][0]),
            add=float(data.attrs["add_offset"][0]),
        )


def emit(name: str) -> Callable[[Path], Cube]:
    def read(path: Path) -> Cube:
        with h5py.File(path) as file:
            bands = file["sensor_band_parameters"]
            lists = {key: bands[key][()].astype(float) if key in bands else None for key in LISTS}
            good = lists["good_wavelengths"]
            return Cube(
                file[name][()],
                wavelength=lists["wavelengths"],
                fwhm=lists["fwhm"],
                good=None if good is None else [value != 0 for value in good],
                ignore=-9999,
            )

    return read


LISTS = ("wavelengths", "fwhm", "good_wavelengths")

ENMAP = "enmap_{0}/ENMAP01-____{1}-DT0000009901_20230612T102020Z_001_V010400_20240215T{2}Z-"
PATCH = (
    "enmap_tiff_only/ENMAP01-____L2A-DT0000004950_20221103T162438Z_001_V010110_"
    "20221118T145147Z-Y01460273_X05670694-SPECTRAL_IMAGE.TIF"
)
DESIS = "desis_{0}/DESIS-HSI-{1}-DT0456789012_004-20200601T234520-V0210-SPECTRAL_IMAGE.tif"
TANAGER = "tanager/20250423_134021_00_4001_{0}_sr_hdf5.h5#HDFEOS/{1}/HYP/Data Fields/"
PRISMA = "prisma/PRS_{0}_STD_20230502102837_20230502102842_0001.he5#HDFEOS/SWATHS/PRS_{0}_HCO/"
PACE = "pace/PACE_OCI.20240601T174521."


def _case(truth: str, read: Callable[[Path], Cube]) -> Case:
    _, _, variable = truth.partition("#")
    return Case(truth, read, variable=variable or None)


CASES = [
    _case(ENMAP.format("l1b", "L1B", "101112") + "SPECTRAL_IMAGE_VNIR.TIF", enmap),
    _case(ENMAP.format("l1b", "L1B", "101112") + "SPECTRAL_IMAGE_SWIR.TIF", enmap),
    _case(ENMAP.format("l1c", "L1C", "111213") + "SPECTRAL_IMAGE.TIF", enmap),
    _case(ENMAP.format("l2a", "L2A", "121314") + "SPECTRAL_IMAGE.TIF", enmap),
    _case(PATCH, enmap_patch),
    *(_case(DESIS.format(level.lower(), level), desis) for level in ("L1B", "L1C", "L2A")),
    _case("wyvern/wyvern_dragonette-001_20240808T073501_51b92993.tiff", wyvern),
    _case("aviris_classic/f201013t01p00r10rdn_e_sc01_ort_img", aviris_classic),
    _case("aviris/ang20160910t185702_2rdn_img", aviris_ng),
    _case("aviris/AV320250308t200738_rdn.img", micrometres),
    _case("aviris/prm20231110t071521_rdn_two_px", envi),
    _case(TANAGER.format("basic", "SWATHS") + "surface_reflectance", tanager),
    _case(TANAGER.format("ortho", "GRIDS") + "surface_reflectance", tanager),
    *(
        _case(f"{PRISMA.format(level)}Data Fields/{detector.upper()}_Cube", prisma(detector))
        for level in ("L2B", "L2C", "L2D")
        for detector in ("Vnir", "Swir")
    ),
    *(
        _case(f"{PACE}L1B.V3.nc#observation_data/rhot_{detector}", pace_l1b(detector))
        for detector in ("blue", "red", "SWIR")
    ),
    _case(f"{PACE}L2.OC_AOP.V3_1.nc#geophysical_data/Rrs", pace_l2),
    _case("emit/EMIT_L1B_RAD_001_20250324T221005_2508314_013.nc#radiance", emit("radiance")),
    _case("emit/fake_EMIT_L2A_with_good_wavelengths.nc#reflectance", emit("reflectance")),
]
