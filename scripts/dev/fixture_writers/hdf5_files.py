"""HDF5, NetCDF-4, HDF-EOS5 and MATLAB v7.3 fixtures, written by h5py and netCDF4."""

import zlib
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np

from . import synthetic
from .synthetic import FWHM, WAVELENGTHS, truth

UM = WAVELENGTHS / 1000


def write(folder: Path) -> dict[str, dict[str, object]]:
    """Writes fixtures/hdf5/ and returns its contents."""
    (folder / "hdf5").mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, object]] = {}
    for writer in (
        _types,
        _orders,
        _attributes,
        _netcdf,
        _matlab,
        _masks,
        _structure,
        _elsewhere,
        _filters,
        _products,
        _not_cubes,
        _malformed,
    ):
        for name, entry in writer(folder / "hdf5").items():
            found[f"hdf5/{name}"] = entry
    return found


def _file(path: Path, **options: Any) -> h5py.File:
    return h5py.File(path, "w", track_order=False, **options)


def _types(folder: Path) -> dict[str, dict[str, object]]:
    """Every element type, also big-endian."""
    found = {}
    with _file(folder / "types.h5") as file:
        file["wavelength"] = WAVELENGTHS
        names = ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"]
        for name in [*names, ">u2", ">i4", ">f4", ">f8", ">i8"]:
            values = synthetic.cube(np.dtype(name).newbyteorder("<"))
            label = name.replace("<", "").replace(">", "be_")
            file.create_dataset(f"c/{label}", data=values.astype(name))
            file.create_dataset(
                f"z/{label}", data=values.astype(name), chunks=(3, 4, 5), compression="gzip"
            )
            found[f"types.h5#c/{label}"] = found[f"types.h5#z/{label}"] = truth(values)
        flags = synthetic.cube() > 0.4
        file["c/bool"] = flags
        file.create_dataset("z/bool", data=flags, chunks=(3, 4, 5), compression="gzip")
        found["types.h5#c/bool"] = found["types.h5#z/bool"] = truth(flags)
        half = synthetic.cube("<f2")
        file["c/be_f2"] = half.astype(">f2")
        # Read as float32, because libhdf5 does not show which kind of two-byte float it is.
        found["types.h5#c/be_f2"] = truth(half.astype("<f4"))
    return found


def _orders(folder: Path) -> dict[str, dict[str, object]]:
    """All six axis orders, contiguous and chunked. Wavelengths identify only the band axis."""
    found = {}
    cube = synthetic.cube("uint16")
    with _file(folder / "orders.h5") as file:
        file["lambda"] = UM
        file["lambda"].attrs["units"] = "um"
        for order in ("yxb", "ybx", "byx", "bxy", "xyb", "xby"):
            values = cube.transpose(["yxb".index(axis) for axis in order])
            file.create_dataset(f"flat/{order}", data=values)
            file.create_dataset(
                f"chunked/{order}",
                data=values,
                chunks=(4, 5, 3),
                shuffle=True,
                fletcher32=True,
                compression="lzf",
            )
            # Without --axes, the first of the other two axes is the row axis.
            taken = np.moveaxis(values, order.index("b"), 2)
            found[f"orders.h5#flat/{order}"] = truth(taken)
            found[f"orders.h5#chunked/{order}"] = truth(taken)
    with _file(folder / "square.h5") as file:
        file["cube"] = synthetic.cube("uint16", (12, 9, 12))
        file["wavelength"] = WAVELENGTHS
    with _file(folder / "no_wavelength.h5") as file:
        file["cube"] = cube
    found["no_wavelength.h5"] = truth(cube)
    return found


def _attributes(folder: Path) -> dict[str, dict[str, object]]:
    """Wavelengths and similar metadata in attributes; lists of the wrong length."""
    cube = synthetic.cube("int16")
    with _file(folder / "attributes.h5") as file:
        data = file.create_dataset("cube", data=cube)
        data.attrs["wavelengths"] = UM
        data.attrs["wavelength_units"] = "Micrometers"
        data.attrs["fwhm"] = FWHM / 1000
        data.attrs["bbl"] = np.array([1] * 10 + [0, 1], "u1")
        data.attrs["_FillValue"] = np.int16(-32768)
        data.attrs["scale_factor"] = 0.0001
        data.attrs["add_offset"] = -0.5
    with _file(folder / "misfit.h5") as file:
        data = file.create_dataset("cube", data=cube)
        data.dims[0].label, data.dims[1].label, data.dims[2].label = "y", "x", "band"
        file["wavelength"] = WAVELENGTHS[:5]
        data.attrs["Scale_Factor"] = 10000.0
        data.attrs["nodata"] = "-9999"
        data.attrs["missing_value"] = -1
    with _file(folder / "wavenumbers.h5") as file:
        file["cube"] = cube
        file["wavelength"] = 1e7 / WAVELENGTHS
        file["wavelength"].attrs["units"] = "cm-1"
    names = ("attributes.h5", "misfit.h5", "wavenumbers.h5")
    return {name: truth(cube) for name in names}


def _netcdf(folder: Path) -> dict[str, dict[str, object]]:
    """Named dimensions: with a coordinate, without one, and columns before rows."""
    cube = synthetic.cube("float32")
    with netCDF4.Dataset(folder / "dims.nc", "w") as file:
        for name, length in (("wavelength", 12), ("lat", 7), ("lon", 9)):
            file.createDimension(name, length)
        nm = file.createVariable("wavelength", "f8", ("wavelength",))
        nm[:], nm.units = UM, "micrometers"
        options: dict[str, Any] = {"zlib": True, "chunksizes": (5, 7, 4), "fill_value": -9999.0}
        data = file.createVariable("rho", "f4", ("wavelength", "lat", "lon"), **options)
        data[:] = cube.transpose(2, 0, 1)
    with netCDF4.Dataset(folder / "bare_dims.nc", "w") as file:
        for name, length in (("x", 9), ("y", 7), ("wavelength", 12)):
            file.createDimension(name, length)
        file.createVariable("rho", "f4", ("x", "y", "wavelength"))[:] = cube.transpose(1, 0, 2)
    return {"dims.nc": truth(cube), "bare_dims.nc": truth(cube)}


def _matlab_header(path: Path) -> None:
    text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: fixed"
    with path.open("r+b") as file:
        file.write(text.ljust(116, b" ") + bytes(8) + b"\x00\x02IM")


def _matlab(folder: Path) -> dict[str, dict[str, object]]:
    """MATLAB v7.3: the opposite index order, structs, logicals, cells in #refs#."""
    cube = synthetic.cube("int16")
    other = synthetic.cube("uint8", (5, 6, 4))
    path = folder / "v73.mat"
    with _file(path, userblock_size=512) as file:

        def put(name: str, values: np.ndarray, kind: str, **options: Any) -> h5py.Dataset:
            data = file.create_dataset(name, data=values.T, **options)
            data.attrs["MATLAB_class"] = np.bytes_(kind)
            return data

        put("scene/cube", cube, "int16", chunks=(5, 4, 3), compression="gzip")
        put("scene/wavelength", WAVELENGTHS[None, :], "double")
        put("scene/label", np.frombuffer("corn".encode("utf-16le"), "u2")[None, :], "char")
        put("other", other, "uint8")
        logical = put("good", (other > 50).astype("u1"), "logical")
        logical.attrs["MATLAB_int_decode"] = np.int32(1)
        put("gt", synthetic.classes(), "uint8")
        put("#refs#/a", cube, "int16")
        cells = file.create_dataset("cells", (1, 1), h5py.ref_dtype)
        cells[0, 0] = file["#refs#/a"].ref
        cells.attrs["MATLAB_class"] = np.bytes_("cell")
    _matlab_header(path)
    return {
        "v73.mat#scene": truth(cube),
        "v73.mat#cube": truth(cube),
        "v73.mat#other": truth(other),
        "v73.mat#good": truth(other > 50),
    }


def _masks(folder: Path) -> dict[str, dict[str, object]]:
    """Label images, tested with the option for masks."""
    layers = np.stack([synthetic.classes() == label for label in range(4)], axis=2)
    with _file(folder / "masks.h5") as file:
        file["labels"] = synthetic.classes()
        file.create_dataset("layers", data=layers, chunks=(2, 9, 4), compression="gzip")
        file["one"] = synthetic.classes()[:, :, None]
        file["scores"] = synthetic.cube()
        file["single"] = np.uint8(1)
    return {
        "masks.h5#labels": truth(synthetic.classes()),
        "masks.h5#layers": truth(layers),
        "masks.h5#one": truth(synthetic.classes()),
    }


def _structure(folder: Path) -> dict[str, dict[str, object]]:
    """Cyclic links, equal names, five axes, values that were never written, virtual data."""
    cube = synthetic.cube("uint16")
    with _file(folder / "links.h5") as file:
        file["a/b/cube"] = cube
        file["a/b/wavelength"] = WAVELENGTHS
        file["a/b/again"] = file["a"]
        file["a/same"] = file["a/b/cube"]
        file["soft"] = h5py.SoftLink("/a/b/cube")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["self"] = h5py.SoftLink("/self")
        file["outside"] = h5py.ExternalLink("no_such_file.h5", "/cube")
    with _file(folder / "names.h5") as file:
        for group in ("day1", "day2"):
            file[f"{group}/cube"] = cube
            file[f"{group}/wavelength"] = WAVELENGTHS
        file["day1/Thumb"] = synthetic.classes()
    with _file(folder / "five.h5") as file:
        file["Image"] = cube.transpose(2, 0, 1)[:, None, None]
        file["wavelength"] = WAVELENGTHS
        file["stack"] = np.zeros((2, 3, 4, 5), "u1")
    with _file(folder / "sparse.h5") as file:
        data = file.create_dataset(
            "cube", (7, 9, 12), "f4", chunks=(3, 9, 12), fillvalue=-1, compression="gzip"
        )
        data[3:6] = synthetic.cube()[3:6]
        file["wavelength"] = WAVELENGTHS
        sparse = np.full((7, 9, 12), -1, "f4")
        sparse[3:6] = synthetic.cube()[3:6]
    for name, source in (("virtual.h5", "names.h5"), ("virtual_missing.h5", "gone.h5")):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_obj_track_times(False)
        space = h5py.h5s.create_simple(cube.shape)
        plist.set_virtual(space, source.encode(), b"day1/cube", space)
        with _file(folder / name) as file:
            h5py.h5d.create(file.id, b"cube", h5py.h5t.STD_U16LE, space, plist)
            file["wavelength"] = WAVELENGTHS
    return {
        "links.h5": truth(cube),
        "links.h5#soft": truth(cube),
        "names.h5#day2/cube": truth(cube),
        "five.h5": truth(cube),
        "sparse.h5": truth(sparse),
        "virtual.h5": truth(cube),
    }


def _create_virtual(file: h5py.File, layout: h5py.VirtualLayout, fillvalue: int = 0) -> None:
    """Creates the virtual dataset `cube` like h5py, but without the time of writing."""
    plist = layout._get_dcpl(file.filename)
    plist.set_obj_track_times(False)
    plist.set_fill_value(np.array([fillvalue]))
    space = h5py.h5s.create_simple(layout.shape)
    h5py.h5d.create(file.id, b"cube", h5py.h5t.py_create(np.dtype("u2")), space, plist)


def _virtual(path: Path, parts: list[h5py.VirtualSource], bands_last: bool = True) -> None:
    """Writes a virtual dataset with one band for each part, as in h5py's documentation."""
    layout = h5py.VirtualLayout(shape=(7, 9, 12) if bands_last else (12, 7, 9), dtype="u2")
    for band, part in enumerate(parts):
        layout[(slice(None), slice(None), band) if bands_last else band] = part
    with _file(path) as file:
        _create_virtual(file, layout)
        file["wavelength"] = WAVELENGTHS


def _elsewhere(folder: Path) -> dict[str, dict[str, object]]:
    """Values that are in other files."""
    cube = synthetic.cube("uint16")
    (folder / "parts").mkdir(exist_ok=True)
    for half in range(2):
        with _file(folder / f"parts/half{half}.h5") as file:
            file["bands"] = cube.transpose(2, 0, 1)[6 * half : 6 * half + 6]
    halves = [
        h5py.VirtualSource(f"parts/half{band // 6}.h5", "bands", shape=(6, 7, 9))[band % 6]
        for band in range(12)
    ]
    _virtual(folder / "virtual_bands.h5", halves)
    _virtual(folder / "virtual_bsq.h5", halves, bands_last=False)
    # A virtual dataset of another one, which names its parts relative to its own folder.
    own = [
        h5py.VirtualSource(f"half{band // 6}.h5", "bands", shape=(6, 7, 9))[band % 6]
        for band in range(12)
    ]
    _virtual(folder / "parts/inner.h5", own)
    outer = h5py.VirtualSource("parts/inner.h5", "cube", shape=(7, 9, 12))
    _virtual(folder / "virtual_nested.h5", [outer[:, :, band] for band in range(12)])
    with _file(folder / "parts/lines.h5") as file:
        file["data"] = cube[:4]
    layout = h5py.VirtualLayout(shape=(7, 9, 12), dtype="u2")
    layout[[0, 2, 5, 6]] = h5py.VirtualSource("parts/lines.h5", "data", shape=(4, 9, 12))
    with _file(folder / "virtual_lines.h5") as file:
        _create_virtual(file, layout, fillvalue=3)
        file["wavelength"] = WAVELENGTHS
    lines = np.full(cube.shape, 3, "u2")
    lines[[0, 2, 5, 6]] = cube[:4]
    with _file(folder / "virtual_own.h5") as file:
        file["raw"] = cube.transpose(2, 0, 1)
        layout = h5py.VirtualLayout(shape=(7, 9, 12), dtype="u2")
        for band in range(12):
            layout[:, :, band] = h5py.VirtualSource(file["raw"])[band]
        _create_virtual(file, layout)
        file["wavelength"] = WAVELENGTHS
    for name, source in (("upward.h5", "../names.h5"), ("absolute.h5", "/etc/passwd")):
        layout = h5py.VirtualLayout(shape=cube.shape, dtype="u2")
        layout[...] = h5py.VirtualSource(source, "day1/cube", shape=cube.shape)
        with _file(folder / "parts" / name) as file:
            _create_virtual(file, layout)
            file["wavelength"] = WAVELENGTHS
    with _file(folder / "external_storage.h5") as file:
        values = file.create_dataset("cube", (7, 9, 12), "u1", external=[("/etc/passwd", 0, 756)])
        assert values.external
        file["wavelength"] = WAVELENGTHS
    with _file(folder / "external_wavelengths.h5") as file:
        file["cube"] = cube
        file["cube"].dims[2].label = "band"
        file.create_dataset("wavelength", (12,), "u1", external=[("/etc/passwd", 0, 12)])
    with _file(folder / "external_link.h5") as file:
        file["cube"] = h5py.ExternalLink("whole.h5", "/cube")
        file["group"] = h5py.ExternalLink("whole.h5", "/")
    names = ("virtual_bands.h5", "virtual_bsq.h5", "virtual_nested.h5", "virtual_own.h5#cube")
    found = {name: truth(cube) for name in names}
    return {**found, "virtual_lines.h5": truth(lines), "external_wavelengths.h5": truth(cube)}


def _filters(folder: Path) -> dict[str, dict[str, object]]:
    """Built-in filters, and one (Blosc) that is not built in."""
    whole, real = synthetic.cube("int32"), synthetic.cube("uint16")
    with _file(folder / "filters.h5") as file:
        file["wavelength"] = WAVELENGTHS
        file.create_dataset("scaleoffset", data=whole, chunks=(7, 9, 2), scaleoffset=0)
        file.create_dataset(
            "wide_chunk", data=real, chunks=(7, 1, 12), compression="gzip", shuffle=True
        )
    path = folder / "blosc.h5"
    with _file(path) as file:
        file["wavelength"] = WAVELENGTHS
        file.create_dataset("cube", data=real, chunks=(7, 9, 12), compression="lzf")
    # Replaces the number of the LZF filter, four fields before its name, by Blosc's number.
    file_bytes = bytearray(path.read_bytes())
    at = file_bytes.index(b"lzf\0") - 8
    assert file_bytes[at : at + 2] == (32000).to_bytes(2, "little")
    file_bytes[at : at + 2] = (32001).to_bytes(2, "little")
    path.write_bytes(file_bytes)
    return {"filters.h5#scaleoffset": truth(whole), "filters.h5#wide_chunk": truth(real)}


def _products(folder: Path) -> dict[str, dict[str, object]]:
    """Layouts that are not among the shared data: PRISMA L1, AVIRIS, NEON windows and radiance,
    Delmic.
    """
    cube, dn = synthetic.cube("float32"), synthetic.cube("uint16")
    with _file(folder / "prisma_l1.he5") as file:
        for kind, values in (("HCO", dn), ("HRC", dn[::-1])):
            group = f"HDFEOS/SWATHS/PRS_L1_{kind}/Data Fields"
            for name in ("VNIR_Cube", "SWIR_Cube"):
                file[f"{group}/{name}"] = values.transpose(0, 2, 1)
                errors = np.zeros((7, 12, 9), "u1")
                if kind == "HCO":
                    # Each code has its own band and pixel. In SWIR, the row is different.
                    for code in range(1, 5):
                        errors[1 if name == "SWIR_Cube" else 0, 2 * code, code] = code
                file[f"{group}/{name[:4]}_PIXEL_SAT_ERR_MATRIX"] = errors
        pixels = np.arange(7 * 9).reshape(7, 9)
        group = "HDFEOS/SWATHS/PRS_L1_HCO/Data Fields"
        for name in ("Cloud_Mask", "SunGlint_Mask"):
            codes = np.array([0, 1, 10, 255, len(name) % 2], "u1")
            file[f"{group}/{name}"] = codes[pixels % 5]
        file[f"{group}/LandCover_Mask"] = np.array([0, 1, 2, 3, 4, 5, 6, 10, 255], "u1")[pixels % 9]
        for sensor in ("Vnir", "Swir"):
            file.attrs[f"List_Cw_{sensor}"] = np.append(WAVELENGTHS[::-1][:-2], [0, 0]).astype("f4")
            file.attrs[f"List_Fwhm_{sensor}"] = np.append(FWHM[:-2], [0, 0]).astype("f4")
            file.attrs[f"List_Cw_{sensor}_Flags"] = np.array([0] + [1] * 11, "i4")
            file.attrs[f"ScaleFactor_{sensor}"] = np.float32(100)
            file.attrs[f"Offset_{sensor}"] = np.float32(0.25)
    with _file(folder / "aviris.nc") as file:
        data = file.create_dataset(
            "reflectance/reflectance",
            data=cube.transpose(2, 0, 1),
            chunks=(12, 4, 4),
            compression="gzip",
        )
        data.attrs["_FillValue"] = np.float32(-9999)
        file["reflectance/wavelength"] = WAVELENGTHS.astype("f4")
        file["reflectance/wavelength"].attrs["units"] = "nm"
        file["reflectance/fwhm"] = FWHM.astype("f4")
        file["geolocation_lookup_table/sample"] = np.zeros((3, 3), "i4")
    with _file(folder / "emit_l1b.nc") as file:
        data = file.create_dataset("radiance", data=cube, chunks=(4, 9, 5), compression="gzip")
        data.attrs["_FillValue"] = np.array([-9999], np.float32)
        file["sensor_band_parameters/wavelengths"] = WAVELENGTHS
        file["sensor_band_parameters/fwhm"] = FWHM
        file["location/lat"] = np.zeros((7, 9))
    with _file(folder / "neon.h5") as file:
        group = file.create_group("SERC/Reflectance")
        group.attrs["Band_Window_1_Nanometers"] = [600, 700]
        group.attrs["Band_Window_2_Nanometers"] = [900, 950]
        group["Reflectance_Data"] = synthetic.cube("int16")
        group["Reflectance_Data"].attrs["Scale_Factor"] = 10000.0
        group["Reflectance_Data"].attrs["Data_Ignore_Value"] = "-9999"
        group["Metadata/Spectral_Data/Wavelength"] = WAVELENGTHS
        group["Metadata/Spectral_Data/FWHM"] = FWHM
        group["Metadata/to-sensor_stack"] = np.zeros((7, 9, 2), "f4")
    with _file(folder / "neon_radiance.h5") as file:
        group = file.create_group("SERC/Radiance")
        for part in ("RadianceIntegerPart", "RadianceDecimalPart"):
            group[part] = synthetic.cube("int16")
        group["Metadata/Spectral_Data/Wavelength"] = WAVELENGTHS
    with _file(folder / "delmic.h5") as file:
        file["Acquisition0/ImageData/Image"] = np.zeros((1, 1, 1, 20, 30), "u2")
        file["Acquisition1/ImageData/Image"] = dn.transpose(2, 0, 1)[:, None, None]
        file["Acquisition1/ImageData/DimensionScaleC"] = WAVELENGTHS * 1e-9
    return {
        "prisma_l1.he5#VNIR_Cube": truth(dn),
        "prisma_l1.he5#PRS_L1_HRC/Data Fields/SWIR_Cube": truth(dn[::-1]),
        "aviris.nc": truth(cube),
        "emit_l1b.nc": truth(cube),
        "neon.h5": truth(synthetic.cube("int16")),
        "delmic.h5": truth(dn),
    }


def _not_cubes(folder: Path) -> dict[str, dict[str, object]]:
    """Contents of HDF5 files that are not cubes."""
    with _file(folder / "not_cubes.h5") as file:
        file["image"] = synthetic.classes()
        file["complex"] = synthetic.cube().astype("c8")
        file["text"] = np.full((2, 2, 2), b"abc")
        file["table"] = np.zeros((2, 2, 2), [("a", "f4"), ("b", "i4")])
        file["enum"] = np.zeros((2, 2, 2), h5py.enum_dtype({"soil": 0, "corn": 1}, "u1"))
        file["empty"] = np.zeros((0, 3, 4))
        file["null"] = h5py.Empty("f4")
        file["list"] = WAVELENGTHS
        file["long_double"] = np.zeros((2, 2, 2), np.longdouble)
    with _file(folder / "nothing.h5") as file:
        file.create_group("a")
    return {}


def _malformed(folder: Path) -> dict[str, dict[str, object]]:
    """Truncated files, damaged data, impossible sizes."""
    with _file(folder / "whole.h5") as file:
        file["wavelength"] = WAVELENGTHS
        file.create_dataset(
            "cube", data=synthetic.cube(), chunks=(7, 9, 12), compression="gzip", fletcher32=True
        )
    whole = (folder / "whole.h5").read_bytes()
    (folder / "cut.h5").write_bytes(whole[: len(whole) * 2 // 3])
    (folder / "only_signature.h5").write_bytes(whole[:8])
    # A chunk of 8 MiB whose stream continues for 128 MiB more.
    with _file(folder / "bomb.h5") as file:
        file["wavelength"] = np.linspace(400, 1000, 256)
        shape = (128, 128, 256)
        data = file.create_dataset("cube", shape, "u2", chunks=shape, compression="gzip")
        data.dims[2].label = "band"
        data.id.write_direct_chunk((0, 0, 0), zlib.compress(bytes(136 << 20), 9))
        data = file.create_dataset("sound", shape, "u2", chunks=shape, compression="gzip")
        data.dims[2].label = "band"
        data.id.write_direct_chunk((0, 0, 0), zlib.compress(bytes(8 << 20), 9))
    with h5py.File(folder / "whole.h5") as file:
        chunk = file["cube"].id.get_chunk_info(0)
    at = chunk.byte_offset + chunk.size // 2
    damaged = bytearray(whole)
    damaged[at : at + 16] = bytes(16)
    (folder / "damaged_chunk.h5").write_bytes(damaged)
    # Changes the size of the first text in the global heap, so that a walk through the heap ends in
    # zeros.
    heap = bytearray((folder / "aviris.nc").read_bytes())
    heap[heap.index(b"GCOL") + 24] = 56
    (folder / "damaged_heap.nc").write_bytes(heap)
    with _file(folder / "huge.h5") as file:
        for name, shape in (("wide", (2, 2**40, 12)), ("overflow", (2**40, 2**40, 12))):
            file.create_dataset(name, shape, "f4", chunks=(1, 64, 12))
        file["wavelength"] = WAVELENGTHS
    return {"whole.h5": truth(synthetic.cube())}
