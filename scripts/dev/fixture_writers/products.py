"""Small products of sensors, with the file names of their makers, written by tifffile and h5py."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tifffile

from .synthetic import FWHM, WAVELENGTHS, cube, truth

SIZE = (7, 9)
# A different gain for each band.
GAINS = np.round(np.linspace(1e-6, 2e-5, 12), 9)
OFFSETS = np.round(np.linspace(-0.02, 0.01, 12), 6)
UTM_32 = [
    (33550, "d", 3, (30.0, 30.0, 0.0), True),
    (33922, "d", 6, (0.0, 0.0, 0.0, 634185.0, 5297205.0, 0.0), True),
    (34735, "H", 16, (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32632), True),
]


def write(folder: Path) -> dict[str, dict[str, object]]:
    """Writes fixtures/products/ and returns its contents."""
    found: dict[str, dict[str, object]] = {}
    for writer in (_enmap, _desis, _wyvern, _aviris, _hdf5):
        for name, values in writer(folder / "products").items():
            found[f"products/{name}"] = truth(values)
    return found


def _counts(bands: slice = slice(None)) -> np.ndarray:
    """Stored numbers, with a corner that the sensor did not record."""
    values: np.ndarray = cube("uint16")[:, :, bands].copy()
    values[0, :3] = 0
    return values


def _signed(bands: slice = slice(None)) -> np.ndarray:
    values: np.ndarray = cube("int16")[:, :, bands].copy()
    values[0, :3] = -32768
    return values


def _tiff(path: Path, values: np.ndarray, planar: bool = True, geo: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    one = values.shape[2] == 1
    tifffile.imwrite(
        path,
        values[:, :, 0] if one else values.transpose(2, 0, 1) if planar else values,
        photometric="minisblack",
        planarconfig=None if one else "separate" if planar else "contig",
        compression="zlib",
        metadata=None,
        software=False,
        extratags=UTM_32 if geo else [],
    )


def _enmap_xml(level: str, vnir: Iterable[int], empty: Iterable[int], images: str) -> str:
    radiance = level != "L2A"

    def band(number: int) -> str:
        gain, offset = (GAINS[number], OFFSETS[number]) if radiance else (0.0001, 0)
        return (
            f'<bandID number="{number + 1}"><wavelengthCenterOfBand>{WAVELENGTHS[number]}'
            f"</wavelengthCenterOfBand><FWHMOfBand>{FWHM[number]}</FWHMOfBand>"
            f"<GainOfBand>{gain}</GainOfBand><OffsetOfBand>{offset}</OffsetOfBand></bandID>"
        )

    def statistics(number: int) -> str:
        mean, std = (-1000000, 0) if number in empty else (0.5, 0.1)
        return (
            f'<bandID number="{number + 1}"><mean>{mean}</mean>'
            f"<stdDeviation>{std}</stdDeviation></bandID>"
        )

    vnir = list(vnir)
    channels = ",".join(str(number + 1) for number in vnir)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<level_X>\n'
        f"<metadata><schema><processingLevel>{level}</processingLevel></schema></metadata>\n"
        f"<base><format>ENMAP_{level}</format><level>{level}</level></base>\n<specific>\n"
        f"<vnirProductQuality><expectedChannelsList>{channels}</expectedChannelsList>"
        "</vnirProductQuality>\n"
        f"<numberOfSWIRBands>{12 - len(vnir)}</numberOfSWIRBands>"
        f"<numberOfVNIRBands>{len(vnir)}</numberOfVNIRBands>\n"
        "<backgroundValue>0</backgroundValue>\n<bandCharacterisation>\n"
        + "\n".join(map(band, range(12)))
        + f"\n</bandCharacterisation>\n</specific>\n<product><image>{images}</image>\n"
        "<bandStatistics>\n"
        + "\n".join(map(statistics, range(12)))
        + "\n</bandStatistics></product>\n</level_X>\n"
    )


def _image(name: str) -> str:
    rows, columns = SIZE
    return (
        f"<{name}><dimension><columns>{columns}</columns><rows>{rows}</rows></dimension></{name}>"
    )


def _enmap(folder: Path) -> dict[str, np.ndarray]:
    """L1B in two grids, L1C and L2A in the order of wavelengths, each with a quality layer."""
    found = {}
    base = "ENMAP01-____{}-DT0000000001_20230612T102020Z_001_V010400_20240215T101112Z"
    layer = np.ones((*SIZE, 1), "u1")

    def delivery(level: str) -> tuple[Path, str]:
        return folder / f"enmap_{level.lower()}", base.format(level)

    place, name = delivery("L1B")
    for detector, bands in (("VNIR", slice(0, 5)), ("SWIR", slice(5, 12))):
        path = place / f"{name}-SPECTRAL_IMAGE_{detector}.TIF"
        _tiff(path, _counts(bands), geo=False)
        found[f"{place.name}/{path.name}"] = _counts(bands)
    _tiff(place / f"{name}-QL_QUALITY_CLASSES.TIF", layer)
    text = _enmap_xml("L1B", range(5), [], _image("vnir") + _image("swir"))
    (place / f"{name}-METADATA.XML").write_text(text)

    place, name = delivery("L1C")
    _tiff(place / f"{name}-SPECTRAL_IMAGE.TIF", _counts())
    _tiff(place / f"{name}-QL_PIXELMASK.TIF", np.zeros((*SIZE, 12), "u1"))
    text = _enmap_xml("L1C", [0, 1, 2, 4, 6], [], _image("merge"))
    (place / f"{name}-METADATA.xml").write_text(text)
    found[f"{place.name}/{name}-SPECTRAL_IMAGE.TIF"] = _counts()

    place, name = delivery("L2A")
    values = _signed()
    values[:, :, 7:9] = -32768
    _tiff(place / f"{name}-SPECTRAL_IMAGE.GEOTIFF", values)
    text = _enmap_xml("L2A", range(5), [7, 8], _image("merge"))
    (place / f"{name}-METADATA.XML").write_text(text)
    found[f"{place.name}/{name}-SPECTRAL_IMAGE.GEOTIFF"] = values
    return found


def _desis(folder: Path) -> dict[str, np.ndarray]:
    """L1C with XML, L1B with only the ENVI header."""
    base = "DESIS-HSI-{}-DT0000000001_001-20200601T234520-V0210"

    def band(number: int) -> str:
        return (
            f"<band><bandNumber>{number + 1}</bandNumber><wavelengthCenterOfBand>"
            f"{WAVELENGTHS[number]}</wavelengthCenterOfBand><wavelengthWidthOfBand>{FWHM[number]}"
            f"</wavelengthWidthOfBand><gainOfBand>{GAINS[number]}</gainOfBand>"
            f"<offsetOfBand>{OFFSETS[number]}</offsetOfBand></band>"
        )

    place, name = folder / "desis_l1c", base.format("L1C")
    _tiff(place / f"{name}-SPECTRAL_IMAGE.tif", _signed(), planar=False)
    _tiff(place / f"{name}-QL_QUALITY.tif", np.zeros((*SIZE, 12), "u1"), planar=False)
    (place / f"{name}-METADATA.xml").write_text(
        '<?xml version="1.0"?>\n<hsi_doc><specific><productType>L1C</productType>'
        "<backgroundValue>-32768</backgroundValue><numberOfBands>12</numberOfBands>\n"
        "<bandCharacterisation>\n"
        + "\n".join(map(band, range(12)))
        + "\n</bandCharacterisation></specific>\n<product><interiorOrientation><band><bandNumber>1"
        "</bandNumber></band></interiorOrientation></product></hsi_doc>\n"
    )
    found = {f"{place.name}/{name}-SPECTRAL_IMAGE.tif": _signed()}

    place, name = folder / "desis_l1b", base.format("L1B")
    _tiff(place / f"{name}-SPECTRAL_IMAGE.tif", _signed(), planar=False, geo=False)
    lists = {
        "wavelength": WAVELENGTHS,
        "fwhm": FWHM,
        "data gain values": GAINS,
        "data offset values": OFFSETS,
    }
    lines = [f"{key} = {{{' ,'.join(map(str, values))}}}" for key, values in lists.items()]
    (place / f"{name}-SPECTRAL_IMAGE.hdr").write_text(
        "ENVI\nsamples = 9\nlines = 7\nbands = 12\nheader offset = 0\nfile type = TIFF\n"
        "data type = 2\ninterleave = bip\nbyte order = 0\nwavelength units = Nanometers\n"
        "data ignore value = -32768\n" + "\n".join(lines) + "\n"
    )
    found[f"{place.name}/{name}-SPECTRAL_IMAGE.tif"] = _signed()
    return found


def _wyvern(folder: Path) -> dict[str, np.ndarray]:
    """L2A, whose TIFF contains neither its bands nor its scale."""
    name = "wyvern_dragonette-001_20240808T073501_51b92993_l2a"
    place = folder / "wyvern_l2a"
    _tiff(place / f"{name}.tiff", _counts())
    _tiff(place / f"{name}_data_mask.tiff", np.zeros((*SIZE, 2), "u1"))
    bands = [
        {
            "name": f"Band_{nm:.0f}",
            "center_wavelength": nm / 1e3,
            "full_width_half_max": width / 1e3,
        }
        for nm, width in zip(WAVELENGTHS.tolist(), FWHM.tolist(), strict=True)
    ]
    item = {
        "type": "Feature",
        "properties": {"processing:level": "L2A"},
        "assets": {"thumbnail": {}, "Cloud optimized GeoTiff": {"eo:bands": bands}},
    }
    (place / f"{name}.json").write_text(json.dumps(item, indent=1) + "\n")
    return {f"{place.name}/{name}.tiff": _counts()}


def _aviris(folder: Path) -> dict[str, np.ndarray]:
    """Classic radiance: big-endian and rotated, with its lists in files of the flight line."""
    place, line = folder / "aviris_classic", "f080702t01p00r09rdn_c"
    place.mkdir(parents=True, exist_ok=True)
    values = cube("int16")
    values[0, :3] = -50
    image = place / f"{line}_sc01_ort_img"
    image.write_bytes(values.astype(">i2").tobytes())
    image.with_name(f"{image.name}.hdr").write_text(
        "ENVI\nsamples = 9\nlines = 7\nbands = 12\nheader offset = 0\nfile type = ENVI Standard\n"
        "data type = 2\ninterleave = bip\nbyte order = 1\n"
        "map info = {UTM, 1, 1, 663139.01, 4406866.6, 16.4, 16.4, 11, North, WGS-84, "
        "units=Meters, rotation=-27.0}\n"
    )
    divisors = np.repeat([300.0, 600.0, 1200.0], 4)
    gains = "".join(f"{value:12.6f} {band + 1:6d}\n" for band, value in enumerate(divisors))
    (place / f"{line}.gain").write_text(gains)
    spc = zip(WAVELENGTHS, FWHM, strict=True)
    (place / f"{line}.spc").write_text("".join(f"{nm} {width} 0.1 0.1 1\n" for nm, width in spc))
    return {f"{place.name}/{image.name}": values}


def _dataset(file: h5py.File, path: str, values: np.ndarray, **attributes: Any) -> None:
    data = file.create_dataset(path, data=values, compression="gzip")
    data.attrs.update(attributes)


def _hdf5(folder: Path) -> dict[str, np.ndarray]:
    """PRISMA L2D, Tanager ortho, PACE L1B and L2."""
    found: dict[str, np.ndarray] = {}
    counts, floats = _counts(), cube("float32")
    (folder / "hdf5").mkdir(parents=True, exist_ok=True)

    name = "hdf5/PRS_L2D_STD_20230502102837_20230502102842_0001.he5"
    with h5py.File(folder / name, "w") as file:
        for sensor, bands in (("Vnir", slice(0, 5)), ("Swir", slice(5, 12))):
            field = f"HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/{sensor.upper()}_Cube"
            stored = counts[:, :, bands]
            _dataset(file, field, stored.transpose(0, 2, 1))
            centres = WAVELENGTHS[bands][::-1].astype("f4")
            # One band at the end of each detector is not used.
            centres[0 if sensor == "Vnir" else -1] = 0
            file.attrs[f"List_Cw_{sensor}"] = centres
            file.attrs[f"List_Fwhm_{sensor}"] = np.where(centres == 0, 0, FWHM[bands]).astype("f4")
            file.attrs[f"List_Cw_{sensor}_Flags"] = (centres != 0).astype("i4")
            file.attrs[f"L2Scale{sensor}Min"] = np.float32(-0.01 if sensor == "Swir" else 0)
            file.attrs[f"L2Scale{sensor}Max"] = np.float32(0.75)
            found[f"{name}#{sensor.upper()}_Cube"] = stored
        file.attrs["Epsg_Code"] = np.int32(32632)
        for corner, (column, row) in {"UL": (0, 0), "LR": (8, 6)}.items():
            file.attrs[f"Product_{corner}corner_easting"] = np.float32(560000 + 30 * column)
            file.attrs[f"Product_{corner}corner_northing"] = np.float32(5930000 - 30 * row)

    name = "hdf5/20250423_134021_00_4001_ortho_sr_hdf5.h5"
    floats[0, :3] = -9999
    with h5py.File(folder / name, "w") as file:
        place = "HDFEOS/GRIDS/HYP/Data Fields/surface_reflectance"
        good = np.ones(12, "u1")
        good[5] = 0
        _dataset(
            file,
            place,
            floats.transpose(2, 0, 1),
            _FillValue=np.float32(-9999),
            wavelengths=WAVELENGTHS,
            wavelengths_units="nm",
            fwhm=FWHM,
            good_wavelengths=good,
        )
        _dataset(file, f"{place}_uncertainty", np.zeros((12, *SIZE), "f4"))
        file["HDFEOS/GRIDS/HYP"].attrs["epsg_code"] = 32632
        text = (
            'GROUP=GridStructure\n\tGROUP=GRID_1\n\t\tGridName="HYP"\n\t\tXDim=9\n\t\tYDim=7\n'
            "\t\tUpperLeftPointMtrs=(634200.000000,5297190.000000)\n"
            "\t\tLowerRightMtrs=(634470.000000,5296980.000000)\n"
            "\tEND_GROUP=GRID_1\nEND_GROUP=GridStructure\nEND\n"
        )
        file["HDFEOS INFORMATION/StructMetadata.0"] = np.bytes_(text.encode().ljust(8000, b"\0"))
    found[name] = floats

    name = "hdf5/PACE_OCI.20240601T174521.L1B.V3.nc"
    with h5py.File(folder / name, "w") as file:
        detectors = {"blue": [0, 1, 2, 3], "red": [3, 4, 5], "SWIR": [9, 11, 10]}
        for detector, numbers in detectors.items():
            stored = floats[:, :, numbers].copy()
            stored[stored == -9999] = -32767
            place = f"observation_data/rhot_{detector}"
            _dataset(file, place, stored.transpose(2, 0, 1), _FillValue=np.float32(-32767))
            file[f"sensor_band_parameters/{detector}_wavelength"] = WAVELENGTHS[numbers]
            found[f"{name}#{place}"] = stored
        file["sensor_band_parameters/SWIR_bandpass"] = np.array([45.0, 80.0, 75.0])

    name = "hdf5/PACE_OCI.20240601T174521.L2.OC_AOP.V3_1.nc"
    packed = cube("int16")[:, :, :10]
    with h5py.File(folder / name, "w") as file:
        _dataset(
            file,
            "geophysical_data/Rrs",
            packed,
            _FillValue=np.int16(-32767),
            scale_factor=np.float32(2e-6),
            add_offset=np.float32(0.05),
        )
        file["sensor_band_parameters/wavelength_3d"] = WAVELENGTHS[:10].round().astype("i4")
        file["sensor_band_parameters/wavelength"] = WAVELENGTHS.round().astype("i4")
    found[name] = packed
    return found
