"""Reads every cube of TRUTH.json from its original file, as stored, with independent libraries, or
by hand if no library can read it."""

import gzip
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import blosc
import h5py
import hdf5plugin  # noqa: F401  (registers filters with h5py)
import netCDF4
import numpy as np
import scipy.io
import spectral
import tifffile
import zarr
from helpers import expected

VNIR = "/HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/VNIR_Cube"
SWIR = "/HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/SWIR_Cube"


@dataclass
class Cube:
    """A cube and the metadata of its file."""

    stored: np.ndarray
    wavelength: np.ndarray | None = None
    fwhm: np.ndarray | None = None
    good: list[bool] | None = None
    ignore: float | None = None
    multiply: float | np.ndarray = 1.0
    divide: float | np.ndarray = 1.0
    add: float | np.ndarray = 0.0
    empty: list[int] = field(default_factory=list)

    def packed(self, scale: float = 1.0, dtype: str = "float16") -> np.ndarray:
        """The expected packed values."""
        return expected(
            self.stored,
            ignore=self.ignore,
            multiply=self.multiply,
            divide=self.divide,
            add=self.add,
            empty=self.empty,
            scale=scale,
            dtype=dtype,
        )


@dataclass(frozen=True)
class Case:
    """How the command names a cube of TRUTH.json, and how to read it without the command."""

    truth: str
    read: Callable[[Path], Cube]
    variable: str | None = None
    options: tuple[str, ...] = field(default=())
    # Whether only its lengths say what the axes are, and could be those of (band, row, column).
    asks: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The options of the command."""
        return (*self.options, "--axes", "yxb") if self.asks else self.options

    @property
    def file(self) -> str:
        return self.truth.split("#")[0]

    def input(self, shared: Path) -> str:
        path = str(shared / self.file)
        return f"{path}::{self.variable}" if self.variable else path


def header_list(text: str, key: str) -> np.ndarray | None:
    """Reads a list of numbers in an ENVI header."""
    found = re.search(rf"^\s*{key}\s*=\s*\{{([^}}]*)\}}", text, re.MULTILINE | re.IGNORECASE)
    return (
        np.array([float(part) for part in re.findall(r"[-+.\deE]+", found[1])]) if found else None
    )


def header_number(text: str, key: str) -> float | None:
    found = re.search(rf"^\s*{key}\s*=\s*([-+.\deE]+)", text, re.MULTILINE | re.IGNORECASE)
    return float(found[1]) if found else None


def envi(path: Path) -> Cube:
    """Reads with Spectral Python. It returns some lists, as text, so lists are read by hand."""
    header = next(
        candidate
        for candidate in (path.with_suffix(".hdr"), path.with_name(path.name + ".hdr"))
        if candidate.is_file()
    )
    text = header.read_text()
    if "file compression" in text:
        stored = _by_hand(gzip.decompress(path.read_bytes()), text)
    elif header_number(text, "byte order") is None:  # Spectral Python requires it
        stored = _by_hand(path.read_bytes(), text)
    else:
        image = spectral.io.envi.open(str(header), str(path))
        stored = np.array(image.open_memmap(interleave="bip", writable=False))
    good = header_list(text, "bbl")
    return Cube(
        stored,
        wavelength=header_list(text, "wavelength"),
        fwhm=header_list(text, "fwhm"),
        good=None if good is None else [value != 0 for value in good],
        ignore=header_number(text, "data ignore value"),
        divide=header_number(text, "reflectance scale factor") or 1.0,
    )


def _by_hand(content: bytes, text: str) -> np.ndarray:
    """Reads ENVI BIL, unsigned 16 bits."""
    assert re.search(r"interleave\s*=\s*bil", text)
    assert header_number(text, "data type") == 12
    shape = [int(header_number(text, key) or 0) for key in ("lines", "bands", "samples")]
    return np.frombuffer(content, "<u2").reshape(shape).transpose(0, 2, 1)


def tivita(path: Path) -> Cube:
    content = path.read_bytes()
    width, height, bands = np.frombuffer(content, ">i4", 3)
    raw = np.frombuffer(content, ">f4", offset=12).reshape(width, height, bands)
    return Cube(raw[:, ::-1].transpose(1, 0, 2), wavelength=np.linspace(500, 1000, 100))


def npy(path: Path) -> Cube:
    return Cube(np.load(path))


def npz(path: Path) -> Cube:
    with np.load(path) as archive:
        return Cube(archive["cube"], wavelength=archive["wavelengths"])


def tiff_bands_first(path: Path) -> Cube:
    return Cube(tifffile.imread(path).transpose(1, 2, 0))


def tiff_bands_last(path: Path) -> Cube:
    return Cube(tifffile.imread(path))


def m3_tiff(path: Path) -> Cube:
    """The wavelengths are only in the band names, which are not sorted."""
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        assert isinstance(page, tifffile.TiffPage)
        text = str(page.tags[42112].value)
        ignore = float(page.tags[42113].value)
    bands = re.findall(r'<Item name="Band_(\d+)">[^<]*\(([\d.]+)\)<', text)
    numbers = [nm for _, nm in sorted(bands, key=lambda band: int(band[0]))]
    return Cube(tifffile.imread(path), wavelength=np.array(numbers, float), ignore=ignore)


def mat5(variable: str) -> Callable[[Path], Cube]:
    return lambda path: Cube(scipy.io.loadmat(path)[variable])


def mat5_struct(path: Path) -> Cube:
    struct = scipy.io.loadmat(path, squeeze_me=True, struct_as_record=True)["hsi"]
    names = struct.dtype.names or ()
    cube = next(name for name in names if struct[name].item().ndim == 3)
    nm = next(name for name in names if "wave" in name.lower())
    return Cube(struct[cube].item(), wavelength=struct[nm].item().astype(float))


def mat5_pixels(path: Path) -> Cube:
    """`Y` is (band, pixel), pixels column by column."""
    file = scipy.io.loadmat(path)
    rows, columns = int(file["nRow"].item()), int(file["nCol"].item())
    return Cube(file["Y"].reshape(-1, columns, rows).transpose(2, 1, 0))


def mat73(path: Path) -> Cube:
    with h5py.File(path) as file:
        return Cube(file["data"][()].transpose(2, 1, 0))


def generic(bands_first: bool) -> Callable[[Path], Cube]:
    def read(path: Path) -> Cube:
        with h5py.File(path) as file:
            nm = file["scan/wavelength"][()]
            if bands_first:
                return Cube(file["scan/cube_bsq"][()].transpose(1, 2, 0), wavelength=nm)
            return Cube(file["scan/cube"][()], wavelength=nm)

    return read


def emit(path: Path) -> Cube:
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        parameters = file["sensor_band_parameters"]
        return Cube(
            np.asarray(file["reflectance"][:]),
            wavelength=np.asarray(parameters["wavelengths"][:], float),
            fwhm=np.asarray(parameters["fwhm"][:], float),
            good=[bool(value) for value in np.asarray(parameters["good_wavelengths"][:])],
            ignore=float(file["reflectance"].getncattr("_FillValue")),
        )


def neon(path: Path) -> Cube:
    with h5py.File(path) as file:
        data = file["SITE/Reflectance/Reflectance_Data"]
        bands = file["SITE/Reflectance/Metadata/Spectral_Data"]
        return Cube(
            data[()],
            wavelength=bands["Wavelength"][()].astype(float),
            fwhm=bands["FWHM"][()].astype(float),
            ignore=float(data.attrs["Data_Ignore_Value"]),
            divide=float(data.attrs["Scale_Factor"]),
        )


def prisma(detector: str, place: str) -> Callable[[Path], Cube]:
    def read(path: Path) -> Cube:
        with h5py.File(path) as file:
            low, high = (float(file.attrs[f"L2Scale{detector}{end}"]) for end in ("Min", "Max"))
            flags = file.attrs[f"List_Cw_{detector}_Flags"]
            centres = file.attrs[f"List_Cw_{detector}"].astype(float)
            return Cube(
                file[place][()].transpose(0, 2, 1),
                wavelength=centres,
                fwhm=file.attrs[f"List_Fwhm_{detector}"].astype(float),
                good=[bool(flag) for flag in flags],
                multiply=high - low,
                divide=65535.0,
                add=low,
                # Bands that the sensor does not use.
                empty=np.flatnonzero(centres == 0).tolist(),
            )

    return read


def htc(path: Path) -> Cube:
    """A pickled (shape, dtype), then one frame. The files are ours, so unpickling is safe."""
    with path.open("rb") as file:
        shape, dtype = pickle.load(file)
        values = np.frombuffer(blosc.decompress(file.read()), dtype).reshape(shape)
    return Cube(values, wavelength=np.linspace(500, 1000, 100))


def htc_masks(path: Path) -> dict[str, np.ndarray]:
    """A pickled dict of (shape, dtype, bytes), then the frames in the same order."""
    with path.open("rb") as file:
        entries = pickle.load(file)
        return {
            name: np.frombuffer(blosc.decompress(file.read(size)), dtype).reshape(shape)
            for name, (shape, dtype, size) in entries.items()
        }


def zarr_array(path: Path) -> Cube:
    array = zarr.open_array(path, mode="r")
    return Cube(np.asarray(array[...]))


CASES = [
    Case("envi/corn-kernel-hyperspectral.raw", envi),
    Case("envi/darkReference", envi),
    Case("envi/fenix_Radiometric_8x2_1x1.dat", envi),
    Case("envi/emit20250324t221005_jpl_unmix_ex", envi),
    Case("tiff/M3_4030seg_L2_aristcrater.tif", m3_tiff),
    Case("derived/corn_bip_be_off128.img", envi),
    Case("derived/corn_bil_gz.img", envi),
    Case("derived/corn_bsq_u8.img", envi),
    Case("derived/corn_bsq_i16.img", envi),
    Case("derived/corn_bip_i32.img", envi),
    Case("derived/corn_bil_f64.img", envi),
    Case("derived/corn_bsq_u32_be.img", envi),
    Case("derived/corn_bip_i64.img", envi),
    Case("derived/corn_bil_u64.img", envi),
    Case("derived/m3_scaled.dat", envi),
    Case("derived/emit_nan_inf.img", envi, options=("--scale", "auto")),
    Case("derived/corn_c_u2.npy", npy, asks=True),
    Case("derived/emit_fortran_f4.npy", npy),
    Case("derived/emit_be_f4.npy", npy),
    Case("derived/emit_f2.npy", npy),
    Case("derived/emit_deflate.npz", npz),
    Case("derived/corn_stored.npz", npz),
    Case("derived/m3_v5_z.mat", mat5("data")),
    Case("derived/corn_v5_raw.mat", mat5("cube")),
    Case("derived/m3_v5_bandsxpix.mat", mat5_pixels),
    Case("derived/corn_v5_struct.mat", mat5_struct),
    Case("derived/m3_v73.mat", mat73),
    Case("derived/corn_multipage_deflate.tif", tiff_bands_first),
    Case("derived/m3_planar_be_bigtiff.tif", tiff_bands_first),
    Case("derived/m3_contig_lzw_pred3_tiled.tif", tiff_bands_last),
    Case("derived/m3_v2.zarr", zarr_array),
    Case("derived/corn_v3.zarr", zarr_array, asks=True),
    Case("derived/m3_v3_shard.zarr", zarr_array),
    Case("derived/emit_layout.nc", emit),
    Case("derived/generic.h5", generic(False), variable="/scan/cube"),
    Case("derived/neon_layout.h5", neon),
    Case("derived/prisma_layout.he5#VNIR_Cube", prisma("Vnir", VNIR), variable=VNIR),
    Case("derived/prisma_layout.he5#SWIR_Cube", prisma("Swir", SWIR), variable=SWIR),
    Case("derived/2026_01_01_00_00_00_SpecCube.dat", tivita),
    Case("derived/htc_raw16.blosc", htc),
    Case("derived/htc_raw32.blosc", htc),
]

# Entries of TRUTH.json that are not cubes to pack. They have their own tests.
NOT_CUBES = {
    "envi_malformed/darkReference2",
    "envi_malformed/darkReference_arcgis",
    "derived/htc_segmentations.blosc#polygon#annotator1",
}
