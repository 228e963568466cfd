"""TIFF fixtures, written by tifffile."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import tifffile

from .synthetic import FWHM, WAVELENGTHS, classes, cube, truth


def _gdal_xml() -> bytes:
    """GDAL metadata as GDAL writes them: micrometres, a bad band, one scale for all bands."""
    items = ['<Item name="wavelength_units">Micrometers</Item>']
    for band, (wavelength, fwhm) in enumerate(zip(WAVELENGTHS, FWHM, strict=True)):
        items += [
            f'<Item name="wavelength" sample="{band}">{wavelength / 1000:.6f}</Item>',
            f'<Item name="fwhm" sample="{band}">{fwhm / 1000:.5f}</Item>',
            f'<Item name="bbl" sample="{band}">{int(band != 3)}</Item>',
            f'<Item name="SCALE" sample="{band}" role="scale">0.0001</Item>',
            f'<Item name="OFFSET" sample="{band}" role="offset">-0.1</Item>',
            f'<Item name="DESCRIPTION" sample="{band}" role="description">'
            f"band {band} &amp; co</Item>",
        ]
    return ("<GDALMetadata>\n" + "\n".join(items) + "\n</GDALMetadata>\n").encode() + b"\0"


def write(folder: Path) -> dict[str, object]:
    """Writes the files in `folder` / tiff."""
    (folder / "tiff").mkdir(parents=True, exist_ok=True)
    entries: dict[str, object] = {}

    def contiguous(name: str, values: np.ndarray, **options: Any) -> None:
        options = {"photometric": "minisblack", "metadata": None, "software": False} | options
        path = folder / "tiff" / name
        tifffile.imwrite(path, values, planarconfig="contig", **options)
        entries[f"tiff/{name}"] = truth(values)

    def planar(name: str, values: np.ndarray, **options: Any) -> None:
        path = folder / "tiff" / name
        tifffile.imwrite(
            path,
            values.transpose(2, 0, 1),
            photometric="minisblack",
            planarconfig="separate",
            metadata=None,
            software=False,
            **options,
        )
        entries[f"tiff/{name}"] = truth(values)

    def pages(
        name: str, values: np.ndarray, order: Literal["<", ">"] = "<", **options: Any
    ) -> None:
        big = options.pop("bigtiff", False)
        options = {"photometric": "minisblack", "metadata": None, "software": False} | options
        with tifffile.TiffWriter(folder / "tiff" / name, byteorder=order, bigtiff=big) as file:
            for band in range(values.shape[2]):
                file.write(np.ascontiguousarray(values[:, :, band]), **options)
        entries[f"tiff/{name}"] = truth(values)

    contiguous("contig_u16_strips.tif", cube("uint16"), rowsperstrip=3)
    contiguous(
        "contig_gdal.tif",
        cube("int16"),
        rowsperstrip=2,
        extratags=[
            (42112, 2, 0, _gdal_xml(), True),
            (42113, 2, 0, b"-9999\0", True),
        ],
    )
    contiguous("contig_f32_deflate_pred3.tif", cube(), compression="zlib", predictor=3)
    contiguous(
        "contig_f64_lzw_pred3_be.tif",
        cube("float64"),
        compression="lzw",
        predictor=3,
        byteorder=">",
        rowsperstrip=4,
    )
    contiguous(
        "contig_u16_lzw_pred2_tiled.tif",
        cube("uint16", (37, 21, 12)),
        compression="lzw",
        predictor=2,
        tile=(16, 16),
    )
    contiguous("contig_i64_tiled_be.tif", cube("int64", (18, 35, 12)), tile=(16, 16), byteorder=">")
    contiguous("contig_f16_one_strip.tif", cube("float16"), compression="zlib", rowsperstrip=7)
    contiguous(
        "contig_rgb_and_more.tif",
        cube("uint8"),
        photometric="rgb",
        compression="zlib",
        predictor=2,
        extrasamples=["unspecified"] * 9,
    )
    contiguous("rgb.tif", cube("uint8", (7, 9, 3)), photometric="rgb")
    planar("planar_i16_zstd.tif", cube("int16"), compression="zstd", rowsperstrip=3)
    planar(
        "planar_u32_lzw_be.tif",
        cube("uint32"),
        compression="lzw",
        rowsperstrip=2,
        byteorder=">",
        predictor=2,
    )
    planar(
        "planar_f32_tiled_big.tif",
        cube("float32", (20, 33, 12)),
        tile=(16, 16),
        bigtiff=True,
        compression="zlib",
    )
    pages("pages_f64_zstd_be.tif", cube("float64"), order=">", compression="zstd")
    pages("pages_u8_packbits.tif", cube("uint8"), compression="packbits", rowsperstrip=2)
    pages("pages_i8.tif", cube("int8"), rowsperstrip=4)
    pages("pages_i32_tiled.tif", cube("int32", (20, 33, 12)), compression="lzw", tile=(16, 16))
    pages("pages_u64_big_be.tif", cube("uint64"), order=">", bigtiff=True)
    pages("pages_white_is_zero.tif", cube("uint16"), photometric="miniswhite", compression="zlib")

    _with_thumbnail(folder, entries)
    _sparse(folder, entries)
    _headless(folder, entries)
    _masks(folder, entries)
    _refused(folder)
    return entries


def _with_thumbnail(folder: Path, entries: dict[str, object]) -> None:
    """A copy of half the size follows every band, as in pyramids."""
    values = cube("uint16", (8, 10, 5))
    with tifffile.TiffWriter(folder / "tiff/pages_pyramid.tif") as file:
        for band in range(values.shape[2]):
            page = np.ascontiguousarray(values[:, :, band])
            options: dict[str, Any] = {"photometric": "minisblack", "metadata": None}
            file.write(page, software=False, **options)
            file.write(
                np.ascontiguousarray(page[::2, ::2]), subfiletype=1, software=False, **options
            )
    entries["tiff/pages_pyramid.tif"] = truth(values)


def _sparse(folder: Path, entries: dict[str, object]) -> None:
    """Two of four tiles are not in the file; GDAL fills them with the ignore value."""
    values = cube("int16", (20, 30, 4))
    values[:16, 16:] = -7
    values[16:, :16] = -7
    padded = np.zeros((32, 32, 4), "int16")
    padded[:20, :30] = values
    tiles = [padded[:16, :16], None, None, padded[16:, 16:]]
    tifffile.imwrite(
        folder / "tiff/sparse_tiles.tif",
        iter(tiles),
        shape=values.shape,
        dtype="int16",
        tile=(16, 16),
        photometric="minisblack",
        planarconfig="contig",
        compression="zlib",
        metadata=None,
        software=False,
        extratags=[(42113, 2, 0, b"-7\0", True)],
    )
    entries["tiff/sparse_tiles.tif"] = truth(values)


def _headless(folder: Path, entries: dict[str, object]) -> None:
    """One directory, followed by all images, as ImageJ and tifffile write files above 4 GB."""
    values = cube("uint16")
    path = folder / "tiff/imagej_headless.tif"
    pages = np.ascontiguousarray(values.transpose(2, 0, 1).astype(">u2"))
    tifffile.imwrite(
        path,
        pages[0],
        byteorder=">",
        photometric="minisblack",
        description="ImageJ=1.53k\nimages=12\nslices=12\nloop=false\n",
        metadata=None,
        software=False,
    )
    with path.open("ab") as file:
        file.write(pages[1:].tobytes())
    entries["tiff/imagej_headless.tif"] = truth(values)
    tifffile.imwrite(
        folder / "tiff/tifffile_truncated.tif",
        values.transpose(2, 0, 1),
        photometric="minisblack",
        software=False,
        truncate=True,
        metadata={},
    )
    entries["tiff/tifffile_truncated.tif"] = truth(values)


def _masks(folder: Path, entries: dict[str, object]) -> None:
    mask = classes()
    options: dict[str, Any] = {"metadata": None, "software": False}
    tifffile.imwrite(folder / "tiff/mask_u8.tif", mask, photometric="minisblack", **options)
    entries["tiff/mask_u8.tif"] = truth(mask)
    colours = np.zeros((3, 256), "uint16")
    colours[:, 1:4] = 1000
    tifffile.imwrite(
        folder / "tiff/mask_palette.tif",
        mask,
        photometric="palette",
        colormap=colours,
        compression="lzw",
        **options,
    )
    entries["tiff/mask_palette.tif"] = truth(mask)
    for bits in (1, 2, 4):
        few = mask & ((1 << bits) - 1)
        tifffile.imwrite(
            folder / f"tiff/mask_{bits}bit.tif",
            few if bits > 1 else few.astype(bool),
            photometric="minisblack",
            bitspersample=bits if bits > 1 else None,
            **options,
        )
        entries[f"tiff/mask_{bits}bit.tif"] = truth(few)


def _refused(folder: Path) -> None:
    """Files with no cube, or with more than one."""
    options: dict[str, Any] = {"photometric": "minisblack", "software": False}
    with tifffile.TiffWriter(folder / "tiff/refused_pages_differ.tif") as file:
        file.write(cube("uint16")[:, :, 0], metadata=None, **options)
        file.write(cube("uint16")[:, :, 1], metadata=None, **options)
        file.write(cube("uint16")[:4, :, 2], metadata=None, **options)
    with tifffile.TiffWriter(folder / "tiff/refused_two_cubes.tif") as file:
        for _ in range(2):
            file.write(cube("uint16"), planarconfig="contig", metadata=None, **options)
    stack = np.stack([cube("uint8").transpose(2, 0, 1)] * 2)
    tifffile.imwrite(folder / "tiff/refused_4d.tif", stack, **options)
    tifffile.imwrite(
        folder / "tiff/refused_complex.tif",
        cube("float32").astype("complex64"),
        planarconfig="contig",
        metadata=None,
        **options,
    )
    tifffile.imwrite(
        folder / "tiff/refused_lzma.tif",
        cube("uint16"),
        planarconfig="contig",
        compression="lzma",
        metadata=None,
        **options,
    )
