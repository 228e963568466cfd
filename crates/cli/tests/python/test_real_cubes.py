"""Every real cube is packed with the same bits as NumPy's cast, and can be opened in zarr-python,
TensorStore and xarray."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import readers
from helpers import (
    Hsipack,
    assert_same_bits,
    attributes,
    check_statistics,
    check_sums,
    expected,
    only_stack,
    open_xarray,
    partial,
    read_everywhere,
    read_zarr,
    root,
    samples,
)
from readers import CASES, NOT_CUBES, Case, Cube


def test_every_cube_of_the_truth_is_tested(shared: Path) -> None:
    truth = json.loads((shared / "TRUTH.json").read_text())
    assert {case.truth for case in CASES} | NOT_CUBES == set(truth)


def read(case: Case, shared: Path) -> Cube:
    """Reads a cube independently, and checks that TRUTH.json agrees."""
    cube = case.read(shared / case.file)
    truth = json.loads((shared / "TRUTH.json").read_text())[case.truth]
    assert list(cube.stored.shape) == truth["shape"]
    stored = np.ascontiguousarray(cube.stored).astype(truth["dtype"])
    np.testing.assert_array_equal(stored, cube.stored)
    assert hashlib.sha256(stored.tobytes()).hexdigest() == truth["sha256_canonical"]
    return Cube(**{**vars(cube), "stored": np.ascontiguousarray(cube.stored)})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.truth)
def test_packed_values_are_numpys(
    case: Case, shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = read(case, shared)
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(case.input(shared), *case.words, out=out)
    stack = only_stack(out)
    assert stack == "x".join(map(str, cube.stored.shape))
    scale = attributes(out).get("scale_factor", 1.0)
    assert (scale == 1.0) == (not case.options)

    want = cube.packed(scale)
    packed = read_everywhere(out)
    assert_same_bits(packed[0], want)

    exact = cube.packed(scale, "float64")
    check_statistics(out, packed, exact[None], stack)
    line = samples(out)[0]
    assert (line["nan"], line["inf"]) == (int(np.isnan(want).sum()), int(np.isinf(want).sum()))
    assert line["range"] == [
        float(want[np.isfinite(want)].min()),
        float(want[np.isfinite(want)].max()),
    ]
    assert (report["nan"], report["inf"]) == (line["nan"], line["inf"])
    check_sums(out)

    labelled = open_xarray(out)
    assert labelled["image"].dims == ("sample", "y", "x", "band")
    physical = labelled["image"].values[0].astype(np.float64)
    np.testing.assert_array_equal(physical, want.astype(np.float64) * scale)
    for name, values in (("wavelength", cube.wavelength), ("fwhm", cube.fwhm)):
        if values is None:
            assert name not in labelled.variables
        else:
            assert name in labelled["image"].coords
            coordinate = labelled[name]
            assert coordinate.dims == ("band",)
            assert coordinate.attrs["units"] == "nm"
            assert coordinate.dtype == np.float64
            np.testing.assert_allclose(coordinate.values, values, rtol=1e-12)
    assert attributes(out)["hsipack"].get("good_bands") == cube.good


@pytest.mark.parametrize(
    "name",
    [
        "derived/m3_scaled.dat",
        "derived/neon_layout.h5",
        "derived/prisma_layout.he5#VNIR_Cube",
        "derived/prisma_layout.he5#SWIR_Cube",
    ],
)
def test_raw_values_are_the_stored_numbers(
    name: str, shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    case = next(case for case in CASES if case.truth == name)
    cube = read(case, shared)
    out = tmp_path / "out.hsipack"
    scale = 4.0
    hsipack.convert(case.input(shared), "--raw-values", "--scale", scale, out=out)
    assert_same_bits(read_zarr(out)[0], expected(cube.stored, ignore=cube.ignore, scale=scale))
    assert root(out)["recipe"]["values"]["raw_values"] is True
    assert "scaling" not in samples(out)[0]["source"]


def test_both_axis_orders_of_one_container(shared: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    """The band axis of an HDF5 cube is the axis with the length of the wavelengths."""
    file = shared / "derived/generic.h5"
    packed = []
    for variable in ("/scan/cube", "/scan/cube_bsq"):
        out = tmp_path / Path(variable).name
        hsipack.convert(f"{file}::{variable}", out=out)
        packed.append(read_everywhere(out)[0])
    assert_same_bits(packed[0], expected(readers.generic(True)(file).stored))
    assert_same_bits(packed[0], packed[1])


def test_containers_of_several_cubes_ask_for_one(
    shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    for file, variables in [
        ("generic.h5", ("/scan/cube", "/scan/cube_bsq")),
        ("prisma_layout.he5", (readers.VNIR, readers.SWIR)),
    ]:
        path = shared / "derived" / file
        message = hsipack.refuse(path, out=tmp_path / "out", names=path)
        for variable in variables:
            assert f"{file}::{variable}" in message
        assert f"'{path}::{variables[0]}'" in message


def test_htc_masks_are_masks_and_no_cubes(shared: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    file = shared / "derived/htc_segmentations.blosc"
    message = hsipack.refuse(file, out=tmp_path / "refused", names=file)
    assert "2-D array can be a mask" in message
    masks = readers.htc_masks(file)
    out = tmp_path / "out.hsipack"
    options = [f"--mask=a{n}={{dir}}/{file.name}::polygon#annotator{n}" for n in (1, 2)]
    hsipack.convert(shared / "derived/htc_raw16.blosc", *options, out=out)
    for number in (1, 2):
        packed = read_everywhere(out, array=f"a{number}")
        assert packed.dtype == np.uint8
        np.testing.assert_array_equal(packed[0], masks[f"polygon#annotator{number}"])


def test_all_real_cubes_in_one_dataset(shared: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    """Packs a folder with many formats and shapes."""
    out = tmp_path / "out.hsipack"
    folders = [shared / "envi", shared / "tiff"]
    report = hsipack.convert(*folders, out=out)
    assert report["cubes"] == 5
    assert {line["name"] for line in samples(out)} == {
        Path(case.truth).with_suffix("").name
        for case in CASES
        if case.truth.startswith(("envi/", "tiff/"))
    }
    for case in CASES:
        if not case.truth.startswith(("envi/", "tiff/")):
            continue
        cube = read(case, shared)
        stack = "x".join(map(str, cube.stored.shape))
        line = next(
            line for line in samples(out) if line["name"] == Path(case.truth).with_suffix("").name
        )
        packed = read_zarr(out, stack)[line["index"]]
        assert_same_bits(packed, expected(cube.stored, ignore=cube.ignore))


# ------------------------------------------------------------------------------------- malformed


def test_a_wavelength_list_of_another_length_is_dropped_and_said(
    shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    file = shared / "envi_malformed/darkReference2"
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(file, out=out)
    assert any("35 values for 978 bands" in note for note in report["notes"])
    assert "wavelength" not in open_xarray(out).variables
    stored = np.fromfile(file, "<u2").reshape(1, 978, 1600).transpose(0, 2, 1)
    assert_same_bits(read_zarr(out)[0], expected(stored))


def test_a_camera_s_esri_header_is_read(shared: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    """Its BANDROWBYTES is wrong, and its wavelengths are of another camera."""
    file = shared / "envi_malformed/darkReference_arcgis"
    report = hsipack.convert(file, out=tmp_path / "out")
    assert any("636 numbers for 978 bands" in note for note in report["notes"])
    stored = np.fromfile(file, "<u2").reshape(1, 978, 1600).transpose(0, 2, 1)
    assert_same_bits(read_zarr(tmp_path / "out")[0], expected(stored))


@pytest.mark.parametrize(
    ("file", "names", "reason"),
    [
        ("envi_malformed/darkReference4.hdr", None, "bup"),
        ("envi_malformed/image_no_data_upper_BSQ.hdr", None, "data file"),
        ("derived/corn_bsq_c64.img", "derived/corn_bsq_c64", "complex"),
        ("derived/corn_bsq_c64.hdr", "derived/corn_bsq_c64", "complex"),
        ("derived/corn_bsq_c128.img", "derived/corn_bsq_c128", "complex"),
        (
            "derived/emit_nan_inf.img",
            None,
            "band 11 (462.599 nm), row 5, column 5: the value 70000",
        ),
    ],
)
def test_malformed_files_are_refused(
    file: str, names: str | None, reason: str, shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    message = hsipack.refuse(
        shared / file, out=tmp_path / "out.hsipack", names=shared / (names or file)
    )
    assert reason in message


def test_one_bad_file_among_good_ones_stops_all_or_is_left_out(
    shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    good, bad = shared / "derived/emit_f2.npy", shared / "derived/corn_bsq_c64.img"
    out = tmp_path / "out.hsipack"
    hsipack.refuse(good, bad, out=out, names=shared / "derived/corn_bsq_c64")
    report = hsipack.convert(good, bad, "--skip-errors", out=out)
    assert report["cubes"] == 1
    assert len(report["skipped"]) == 1
    assert "complex" in report["skipped"][0]
    assert not partial(out).exists()
