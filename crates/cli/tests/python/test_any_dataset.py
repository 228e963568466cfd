"""Datasets in the forms in which they are published: many cubes in one file, a file for each band,
shared headers, pictures, frames of snapshot cameras, and folders that hold more than cubes.

Files are written by NumPy, h5py, scipy, zarr-python, tifffile and Pillow. Values, wavelengths and
masks are compared with NumPy's.
"""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import tifffile
import zarr
from helpers import Hsipack, open_xarray, read_zarr, samples, smooth_cube, stacks, write_envi
from PIL import Image
from public_datasets.driving import write_hsd
from public_datasets.folders import scene

ROWS, COLUMNS, BANDS = 6, 7, 5
COUNT = 4
# The letters of the axes, in NumPy's order of arrays of samples.
LETTERS = "nyxb"


def series(count: int = COUNT, dtype: str = "uint16") -> np.ndarray:
    """Cubes (sample, row, column, band) of numbers that are all different."""
    numbers = np.arange(count * ROWS * COLUMNS * BANDS) + 1
    return numbers.reshape(count, ROWS, COLUMNS, BANDS).astype(dtype)


SERIES = series()
LABELS = np.random.default_rng(3).integers(0, 5, (COUNT, ROWS, COLUMNS)).astype(np.uint8)


def packed(path: Path) -> dict[str, np.ndarray]:
    """The images of a dataset by the names of the samples."""
    images = {stack: read_zarr(path, stack) for stack in stacks(path)}
    return {one["name"]: images[one["stack"]][one["index"]] for one in samples(path)}


def masks(path: Path, name: str = "mask") -> dict[str, np.ndarray]:
    arrays = {stack: read_zarr(path, stack, name) for stack in stacks(path)}
    return {one["name"]: arrays[one["stack"]][one["index"]] for one in samples(path)}


def check(path: Path, cubes: dict[str, np.ndarray]) -> None:
    """The dataset holds exactly these cubes, which are exact in float16."""
    found = packed(path)
    assert list(found) == list(cubes)
    for name, cube in cubes.items():
        np.testing.assert_array_equal(found[name], cube.astype(np.float16), err_msg=name)


def check_sources(hsipack: Hsipack, path: Path) -> None:
    """Every value is found again in the sources."""
    done = hsipack.run("validate", path, "--source")
    assert done.returncode == 0, done.stdout + done.stderr


def wavelengths(path: Path) -> np.ndarray:
    return np.asarray(open_xarray(path)["wavelength"])


# Many cubes in one file.


def write_tree(path: Path, cubes: dict[str, np.ndarray], labels: dict[str, np.ndarray]) -> None:
    """A container with groups: each has an image and labels."""
    arrays = {f"{name}/image": cube for name, cube in cubes.items()}
    arrays |= {f"{name}/labels": label for name, label in labels.items()}
    match path.suffix:
        case ".h5":
            with h5py.File(path, "w") as file:
                for name, array in arrays.items():
                    file[name] = array
        case ".npz":
            np.savez(path, **arrays)  # type: ignore[arg-type]
        case ".zarr":
            root = zarr.open_group(path, mode="w")
            for name, array in arrays.items():
                root.create_array(name, data=array)
        case ".mat":
            structs = {name: {"image": cubes[name], "labels": labels[name]} for name in cubes}
            scipy.io.savemat(path, structs)


@pytest.mark.parametrize("ending", ["h5", "npz", "zarr", "mat"])
def test_stars_name_arrays_in_every_container(
    hsipack: Hsipack, tmp_path: Path, ending: str
) -> None:
    names = ["first", "second", "third"]
    cubes = dict(zip(names, SERIES, strict=False))
    labels = dict(zip(names, LABELS, strict=False))
    write_tree(tmp_path / f"all.{ending}", cubes, labels)
    out = tmp_path / "out"
    pattern = f"{tmp_path}/*.{ending}::*/image"
    hsipack.convert(pattern, "--axes", "yxb", "--mask", "{path}::{group}/labels", out=out)
    check(out, {f"all::{name}/image": cube for name, cube in cubes.items()})
    for name, mask in masks(out).items():
        np.testing.assert_array_equal(mask, labels[name.split("::")[1].split("/")[0]])
    check_sources(hsipack, out)


def test_a_star_that_matches_no_cube_lists_at_most_five_arrays(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **{f"cube_{number}": SERIES[0] for number in range(8)})
    message = hsipack.refuse(f"{path}::scan_*", out=tmp_path / "out", names=path)
    assert "no cube matches 'scan_*'" in message
    assert "cube_4" in message
    assert "…" in message
    assert "cube_5" not in message
    hsipack.convert(f"{path}::cube_?", "--axes", "yxb", out=tmp_path / "out")
    assert len(samples(tmp_path / "out")) == 8


def test_hundreds_of_cubes_in_one_file_are_packed(hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "many.h5"
    cube = np.ones((2, 2, 3), np.float32)
    with h5py.File(path, "w") as file:
        for number in range(300):
            file[f"{number:04}/cube"] = cube * number
    hsipack.convert(f"{path}::*/cube", "--axes", "yxb", out=tmp_path / "out")
    found = read_zarr(tmp_path / "out")
    assert (found[:, 0, 0, 0] == np.arange(300)).all()


def write_samples(path: Path, array: np.ndarray, labels: np.ndarray, form: str) -> str:
    """Writes arrays of samples; returns the input that names the cubes."""
    match form:
        case "npy":
            np.save(path / "a.npy", array)
            return f"{path}/a.npy"
        case "fortran":
            np.save(path / "a.npy", np.asfortranarray(array))
            return f"{path}/a.npy"
        case "npz":
            np.savez(path / "a.npz", data=array, labels=labels)
            return f"{path}/a.npz::data"
        case "deflated":
            np.savez_compressed(path / "a.npz", data=array, labels=labels)
            return f"{path}/a.npz"
        case "mat":
            scipy.io.savemat(path / "a.mat", {"data": array, "labels": labels})
            return f"{path}/a.mat::data"
        case "compressed":
            content = {"data": array, "labels": labels}
            scipy.io.savemat(path / "a.mat", content, do_compression=True)
            return f"{path}/a.mat::data"
        case "h5":
            with h5py.File(path / "a.h5", "w") as file:
                file["data"], file["labels"] = array, labels
            return f"{path}/a.h5::data"
        case "chunked":
            with h5py.File(path / "a.h5", "w") as file:
                chunks = tuple(max(1, length // 2) for length in array.shape)
                file.create_dataset("data", data=array, chunks=chunks, compression="gzip")
                file["labels"] = labels
            return f"{path}/a.h5::data"
        case _:
            root = zarr.open_group(path / "a.zarr", mode="w")
            root.create_array("data", data=array, chunks=tuple(min(3, n) for n in array.shape))
            root.create_array("labels", data=labels)
            return f"{path}/a.zarr::data"


FORMS = ["npy", "fortran", "npz", "deflated", "mat", "compressed", "h5", "chunked", "zarr"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("axes", ["nyxb", "nbyx", "yxbn", "ynxb", "byxn", "xnby"])
def test_each_sample_of_an_array_is_a_cube(
    hsipack: Hsipack, tmp_path: Path, form: str, axes: str
) -> None:
    array = np.ascontiguousarray(SERIES.transpose([LETTERS.index(axis) for axis in axes]))
    given = write_samples(tmp_path, array, LABELS, form)
    has_labels = form not in ("npy", "fortran")
    words = ["--mask", "{path}::labels"] if has_labels else []
    out = tmp_path / "out"
    # Very little memory, so that a cube is read in several blocks.
    hsipack.convert(given, "--axes", axes, "--buffer-size", "200", *words, out=out)
    name = "a" if form in ("npy", "fortran") else "a::data"
    check(out, {f"{name}[{number}]": cube for number, cube in enumerate(SERIES)})
    if has_labels:
        found = np.stack(list(masks(out).values()))
        np.testing.assert_array_equal(found, LABELS)
    check_sources(hsipack, out)


def test_one_sample_can_be_named(hsipack: Hsipack, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", data=SERIES, other=SERIES[0])
    out = tmp_path / "out"
    hsipack.convert(f"{tmp_path}/a.npz::data[2]", "--axes", "nyxb", out=out)
    check(out, {"a::data[2]": SERIES[2]})
    wrong = f"{tmp_path}/a.npz::data[4]"
    message = hsipack.refuse(wrong, "--axes", "nyxb", out=tmp_path / "b", names=tmp_path / "a.npz")
    assert "there is no sample 4; the array has 4" in message
    message = hsipack.refuse(
        tmp_path / "a.npz", "--axes", "1nyxb", out=tmp_path / "b", names=tmp_path / "a.npz"
    )
    assert "no array has the 5 axes '1nyxb'" in message


def test_the_variable_of_all_files_and_a_mask_of_the_cube_s_shape(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    cubes, outside = {}, {}
    for number in range(3):
        cube = np.random.default_rng(number).integers(0, 2000, (20, 5 + number, 6))
        mask = np.zeros(cube.shape, bool)
        mask[:, :, :2] = True
        np.savez_compressed(tmp_path / f"{number}.npz", data=cube.astype(np.int16), mask=mask)
        cubes[f"{number}::data"] = cube.transpose(1, 2, 0)
        outside[f"{number}::data"] = mask[0]
    out = tmp_path / "out"
    words = ["--axes", "byx", "--mask", "outside={path}::mask"]
    hsipack.convert(f"{tmp_path}/*.npz::data", *words, out=out)
    check(out, cubes)
    for name, mask in masks(out, "outside").items():
        np.testing.assert_array_equal(mask, outside[name])
    check_sources(hsipack, out)
    mask = np.zeros((20, 5, 6), bool)
    mask[3, 1, 2] = True
    np.savez(tmp_path / "0.npz", data=np.ones((20, 5, 6), np.int16), mask=mask)
    message = hsipack.refuse(
        f"{tmp_path}/*.npz::data", *words, out=tmp_path / "b", names=tmp_path / "0.npz"
    )
    assert "20 bands that differ in row 1, column 2" in message


# A file for each band.


def write_bands(folder: Path, cube: np.ndarray, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for band, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        match path.suffix:
            case ".png":
                Image.fromarray(cube[..., band]).save(path)
            case ".npy":
                np.save(path, cube[..., band])
            case _:
                tifffile.imwrite(path, cube[..., band], photometric="minisblack")


@pytest.mark.parametrize("ending", ["png", "tif", "npy"])
def test_a_folder_with_a_file_for_each_band_is_a_cube(
    hsipack: Hsipack, tmp_path: Path, ending: str
) -> None:
    root = tmp_path / "in"
    for number, name in enumerate(["balloons_ms", "beads_ms"]):
        # Numbers without zeros in front: 10 follows 9, not 1.
        bands = np.concatenate([SERIES[number], SERIES[number + 1], SERIES[number + 2]], axis=2)
        files = [f"{name}_{band + 1}.{ending}" for band in range(bands.shape[2])]
        write_bands(root / name / name, bands, files)
        (root / name / name / "picture.bmp").write_bytes(b"BM")
    out = tmp_path / "out"
    words = ["--bands-from", f"*_{{band}}.{ending}", "--band-centers", "400:700"]
    hsipack.convert(root, *words, out=out)
    cubes = {
        f"{name}/{name}": np.concatenate(list(SERIES[number : number + 3]), axis=2)
        for number, name in enumerate(["balloons_ms", "beads_ms"])
    }
    check(out, cubes)
    np.testing.assert_allclose(wavelengths(out), np.linspace(400, 700, 15))
    check_sources(hsipack, out)


def test_the_type_of_integers_is_chosen_without_excluded_bands(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    root = tmp_path / "in"
    bands = 100 * np.arange(60, dtype=np.int32).reshape(4, 5, 3)
    bands[..., 2] += 100_000  # too large for 16 bits
    write_bands(root, bands, ["a_1.tif", "a_2.tif", "a_3.tif"])
    out = tmp_path / "out"
    words = ["--bands-from", "*_{band}.tif", "--exclude", "*_3.tif", "--dtype", "auto"]
    hsipack.convert(root, *words, out=out)
    (image,) = read_zarr(out)
    assert image.dtype == np.int16
    assert np.array_equal(image, bands[..., :2])


def test_wavelengths_in_names_order_the_bands_and_stars_name_the_cubes(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    root = tmp_path / "in"
    centers = ["400", "450.5", "500", "1000", "990"]
    for number, name in enumerate(["leaf", "stone"]):
        write_bands(root / "day1", SERIES[number], [f"{name}_{nm}nm.tif" for nm in centers])
    out = tmp_path / "out"
    hsipack.convert(root, "--bands-from", "*_{nm}nm.tif", out=out)
    order = [0, 1, 2, 4, 3]
    names = ["day1/leaf", "day1/stone"]
    check(out, {name: SERIES[number][..., order] for number, name in enumerate(names)})
    np.testing.assert_allclose(wavelengths(out), [400, 450.5, 500, 990, 1000])
    check_sources(hsipack, out)
    # A folder for each band.
    root = tmp_path / "folders"
    for number, name in enumerate(["leaf", "stone"]):
        micrometres = ["0.4", "0.4505", "0.5", "1.0", "0.99"]
        write_bands(root, SERIES[number], [f"{um}/{name}.tif" for um in micrometres])
    out = tmp_path / "out2"
    hsipack.convert(root, "--bands-from", "{um}/*.tif", out=out)
    check(out, {name: SERIES[n][..., order] for n, name in enumerate(["leaf", "stone"])})
    np.testing.assert_allclose(wavelengths(out), [400, 450.5, 500, 990, 1000])


def test_bands_that_are_missing_doubled_or_of_another_size_are_named(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    names = [f"a_{band}.png" for band in range(1, BANDS + 1)]

    def refuse(root: Path, *words: str, names: Path) -> str:
        return hsipack.refuse(root, "--bands-from", "*_{band}.*", *words, out=out, names=names)

    gap = tmp_path / "gap"
    write_bands(gap, SERIES[0], names)
    (gap / "a_3.png").unlink()
    assert "files of bands are missing: 3 " in refuse(gap, names=gap)
    assert "missing: 3 " in refuse(gap, "--band-centers", "400:700", names=gap)
    # The user may say that the cube has these bands only.
    hsipack.convert(
        gap, "--bands-from", "*_{band}.*", "--band-centers", "1,2,4,5um", out=tmp_path / "four"
    )
    np.testing.assert_allclose(wavelengths(tmp_path / "four"), [1000, 2000, 4000, 5000])
    both = tmp_path / "both"
    write_bands(both / "x", SERIES[0], names)
    write_bands(both / "y", SERIES[0], names[:-1])
    assert "missing: 5 " in refuse(both, names=both / "y")
    double = tmp_path / "double"
    write_bands(double, SERIES[0], names)
    (double / "a_02.png").write_bytes((double / "a_2.png").read_bytes())
    assert "band 2 has two files: a_02.png and a_2.png" in refuse(double, names=double)
    size = tmp_path / "size"
    write_bands(size, SERIES[0], names)
    Image.fromarray(SERIES[0][:4, :, 0]).save(size / "a_4.png")
    assert "this band is 4x7 uint16, but a_1.png is 6x7" in refuse(size, names=size / "a_4.png")
    message = hsipack.refuse(size, "--bands-from", "*.png", out=out, names=None)
    assert "which part of a name is the band" in message


# Facts that files lack.


def write_raw(folder: Path, count: int = 3) -> None:
    folder.mkdir()
    for number in range(count):
        SERIES[number].transpose(2, 0, 1).tofile(folder / f"scan_{number}.dat")
    (folder / "camera.hdr").write_text(
        f"ENVI\nsamples = {COLUMNS}\nlines = {ROWS}\nbands = {BANDS}\ndata type = 12\n"
        "interleave = bsq\nbyte order = 0\nwavelength = {400, 410, 420, 430, 440}\n"
    )


@pytest.mark.parametrize("given", ["in", "in/*.dat", "in/*"])
def test_one_header_describes_many_raw_files(hsipack: Hsipack, tmp_path: Path, given: str) -> None:
    write_raw(tmp_path / "in")
    (tmp_path / "in/notes.txt").write_text("not a cube")
    if given == "in/*":
        (tmp_path / "in/notes.txt").unlink()
    out = tmp_path / "out"
    hsipack.convert(tmp_path / given, "--header", "{dir}/camera.hdr", out=out)
    check(out, {f"scan_{number}": SERIES[number] for number in range(3)})
    np.testing.assert_allclose(wavelengths(out), 400 + 10 * np.arange(BANDS))
    check_sources(hsipack, out)


def test_a_shared_header_that_is_missing_or_does_not_fit_is_named(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    write_raw(tmp_path / "in")
    given = f"{tmp_path}/in/*.dat"
    message = hsipack.refuse(
        given, "--header", "{dir}/no.hdr", out=tmp_path / "out", names=tmp_path / "in/scan_0.dat"
    )
    assert "its header is missing: there is no" in message
    (tmp_path / "in/scan_1.dat").write_bytes(bytes(100))
    message = hsipack.refuse(
        given,
        "--header",
        "{dir}/camera.hdr",
        out=tmp_path / "out",
        names=tmp_path / "in/scan_1.dat",
    )
    assert "has 100 bytes" in message
    message = hsipack.refuse(given, "--header", "{foo}.hdr", out=tmp_path / "out", names=None)
    assert "unknown field {foo}" in message


CENTERS = np.array([400.0, 410.5, 421.0, 431.5, 450.0])


def write_centers(folder: Path, form: str) -> str:
    """Writes band centres in some form; returns the option."""
    match form:
        case "list":
            return ",".join(map(str, CENTERS))
        case "um":
            return ",".join(f"{nm / 1000}um" for nm in CENTERS)
        case "text":
            np.savetxt(folder / "centers.txt", CENTERS)
        case "csv":
            rows = "".join(f"{band},{nm}\n" for band, nm in enumerate(CENTERS))
            (folder / "centers.csv").write_text("band,wavelength (nm)\n" + rows)
        case "hdr":
            listed = ", ".join(map(str, CENTERS))
            (folder / "centers.hdr").write_text(
                "ENVI\nsamples = 1\nlines = 1\nbands = 5\ndata type = 4\ninterleave = bsq\n"
                f"byte order = 0\nwavelength = {{{listed}}}\n"
            )
        case "npy":
            np.save(folder / "centers.npy", CENTERS / 1000)
        case "mat":
            scipy.io.savemat(folder / "centers.mat", {"wl": CENTERS, "other": np.arange(3.0)})
            return f"{folder}/centers.mat::wl"
        case _:
            return "{path}::centres"
    return f"{folder}/centers.{'txt' if form == 'text' else form}"


@pytest.mark.parametrize("form", ["list", "um", "text", "csv", "hdr", "npy", "mat", "array"])
def test_band_centres_come_from_lists_and_files(
    hsipack: Hsipack, tmp_path: Path, form: str
) -> None:
    (tmp_path / "in").mkdir()
    np.savez(tmp_path / "in/a.npz", cube=SERIES[0], centres=CENTERS, other=np.arange(3))
    option = write_centers(tmp_path, form)
    out = tmp_path / "out"
    given = f"{tmp_path}/in/a.npz::cube"
    hsipack.convert(given, "--axes", "yxb", "--band-centers", option, out=out)
    np.testing.assert_allclose(wavelengths(out), CENTERS)
    check(out, {"a::cube": SERIES[0]})


def test_wrong_band_centres_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", SERIES[0])
    (tmp_path / "words.txt").write_text("red green blue")
    for option, text in [
        ("1,2,3", "it has 5 bands, but 3 band centres are given"),
        (f"{tmp_path}/none.txt", "its band centres are missing: there is no"),
        ("400:400", "is not a range of band centres"),
        ("{foo}.txt", "unknown field {foo}"),
        (f"{tmp_path}/words.txt", "holds something else than numbers"),
        (f"{tmp_path}/a.npy", "the file holds no list of wavelengths"),
    ]:
        words = ["--axes", "yxb", "--band-centers", option]
        message = hsipack.refuse(tmp_path / "a.npy", *words, out=tmp_path / "out", names=None)
        assert text in message


# Folders that hold more than cubes.


def test_masks_and_references_in_a_folder_are_not_cubes(hsipack: Hsipack, tmp_path: Path) -> None:
    root = tmp_path / "in"
    (root / "image").mkdir(parents=True)
    (root / "label").mkdir()
    for number in range(3):
        stack = SERIES[number].transpose(2, 0, 1)
        tifffile.imwrite(root / f"image/{number}.tif", stack, photometric="minisblack")
        tifffile.imwrite(root / f"label/{number}.tif", LABELS[number])
    np.save(root / "white.npy", np.ones((9, COLUMNS, BANDS), np.uint16))
    out = tmp_path / "out"
    words = ["--mask", "{dir}/../label/{stem}.tif", "--white", root / "white.npy"]
    report = hsipack.convert(root, *words, out=out)
    assert report["cubes"] == 3
    check(out, {f"image/{number}": SERIES[number] for number in range(3)})
    np.testing.assert_array_equal(np.stack(list(masks(out).values())), LABELS[:3])


@pytest.mark.parametrize("pattern", ["label", "label/", "*/label", "lab*"])
def test_exclude_prunes_folders(hsipack: Hsipack, tmp_path: Path, pattern: str) -> None:
    root = tmp_path / "in"
    for folder in ["image", "label/deep"]:
        (root / folder).mkdir(parents=True)
        np.save(root / folder / "a.npy", SERIES[0])
    hsipack.convert(root, "--exclude", pattern, "--axes", "yxb", out=tmp_path / "out")
    check(tmp_path / "out", {"image/a": SERIES[0]})


def test_a_2_d_array_beside_cubes_is_offered_as_a_mask(hsipack: Hsipack, tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    for number in range(3):
        scipy.io.savemat(root / f"{number}.mat", {"cube": SERIES[number]})
        scipy.io.savemat(root / f"{number}_gt.mat", {"gt": LABELS[number]})
    out = tmp_path / "out"
    report = hsipack.convert(root, "--axes", "yxb", out=out)
    check(out, {str(number): SERIES[number] for number in range(3)})
    notes = " ".join(report["notes"])
    assert "3 files hold a 2-D array" in notes
    assert "--mask '{dir}/{stem}_gt.mat'" in notes or "--mask {dir}/{stem}_gt.mat" in notes
    # A folder of nothing else is an error, as before.
    for path in root.glob("?.mat"):
        path.unlink()
    assert "2-D" in hsipack.refuse(root, out=tmp_path / "b", names=root / "0_gt.mat")


def test_spectral_libraries_beside_cubes_are_passed_over(hsipack: Hsipack, tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    np.save(root / "a.npy", SERIES[0])
    spectra = smooth_cube((5, 11, 1))
    for name in ("soils", "leaves"):
        write_envi(root / f"{name}.hdr", spectra, file_type="ENVI Spectral Library", ending=".sli")
    report = hsipack.convert(root, "--axes", "yxb", out=tmp_path / "out")
    check(tmp_path / "out", {"a": SERIES[0]})
    names = f"{root}/leaves.hdr, {root}/soils.hdr"
    assert (
        f"2 files are ENVI spectral libraries, not cubes, and are not packed: {names}"
        in report["notes"]
    )
    # By name, and in a folder of nothing else, it is an error.
    (root / "a.npy").unlink()
    for path in (root / "leaves.sli", root / "leaves.hdr", root):
        message = hsipack.refuse(path, out=tmp_path / "b", names=root / "leaves.hdr")
        assert "an ENVI spectral library" in message
        assert "write them as a CSV" in message


def test_the_same_cube_in_two_forms_is_packed_once(hsipack: Hsipack, tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    for number in range(2):
        stack = SERIES[number].transpose(2, 0, 1)
        tifffile.imwrite(root / f"{number}.tif", stack, photometric="minisblack")
        np.save(root / f"{number}.npy", np.ascontiguousarray(stack))
    report = hsipack.convert(root, out=tmp_path / "out")
    check(tmp_path / "out", {str(number): SERIES[number] for number in range(2)})
    assert any("holds the same cube in another form" in note for note in report["notes"])
    # Another shape is another cube.
    np.save(root / "1.npy", SERIES[1][:3])
    message = hsipack.refuse(root, "--axes", "yxb", out=tmp_path / "b", names=None)
    assert "another cube already has the name 1" in message


@pytest.mark.parametrize("shared", ["margin", "first rows", "all"])
def test_cubes_with_equal_margins_are_different_cubes(
    hsipack: Hsipack, tmp_path: Path, shared: str
) -> None:
    first, other = SERIES[0].copy(), SERIES[1].copy()
    match shared:
        case "margin":
            for cube in (first, other):
                cube[:2], cube[-2:] = 0, 0
        case "first rows":
            other[:2] = first[:2]
        case "all":
            # Values that are all equal do not show which cube it is.
            first[:], other[:] = 0, 0
    root = tmp_path / "in"
    root.mkdir()
    write_envi(root / "a.hdr", first)
    tifffile.imwrite(root / "a.tif", other.transpose(2, 0, 1), photometric="minisblack")
    message = hsipack.refuse(root, out=tmp_path / "out", names=None)
    assert "another cube already has the name a" in message
    # The same cube is found despite its margin.
    if shared == "margin":
        tifffile.imwrite(root / "a.tif", first.transpose(2, 0, 1), photometric="minisblack")
        report = hsipack.convert(root, out=tmp_path / "out")
        check(tmp_path / "out", {"a": first})
        assert any("holds the same cube in another form" in note for note in report["notes"])


def test_a_folder_without_cubes_says_what_it_holds(hsipack: Hsipack, tmp_path: Path) -> None:
    for number in range(9):
        Image.fromarray(LABELS[0]).save(tmp_path / f"{number}.png")
    (tmp_path / "a.hsd").write_bytes(bytes(100))
    message = hsipack.refuse(tmp_path, out=tmp_path / "out", names=tmp_path)
    assert "9 .png (a PNG picture)" in message
    assert "1 .hsd" in message
    assert "--bands-from" in message


def test_axes_that_a_file_does_not_say_follow_from_its_mask(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    root = tmp_path / "in"
    root.mkdir()
    for number in range(COUNT):
        np.save(root / f"{number}.npy", np.ascontiguousarray(SERIES[number].transpose(2, 0, 1)))
        Image.fromarray(LABELS[number]).save(root / f"{number}.png")
    message = hsipack.refuse(root, out=tmp_path / "out", names=root / "0.npy")
    assert "--axes" in message
    out = tmp_path / "out"
    report = hsipack.convert(root, "--mask", "{dir}/{stem}.png", out=out)
    check(out, {str(number): SERIES[number] for number in range(COUNT)})
    assert any("its axes are byx, according to the shape" in note for note in report["notes"])
    assert len(report["notes"]) == 1, report["notes"]
    check_sources(hsipack, out)


def test_one_cube_s_evidence_serves_all_of_the_same_lengths(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    root = tmp_path / "in"
    root.mkdir()
    for number in range(COUNT):
        content: dict[str, Any] = {"cube": SERIES[number].transpose(2, 0, 1)}
        if number == 2:
            content["wavelength"] = CENTERS
        scipy.io.savemat(root / f"{number}.mat", content)
    out = tmp_path / "out"
    hsipack.convert(root, out=out)
    check(out, {str(number): SERIES[number] for number in range(COUNT)})
    check_sources(hsipack, out)
    # Without any evidence, it asks.
    (root / "2.mat").unlink()
    assert "--axes" in hsipack.refuse(root, out=tmp_path / "b", names=root / "0.mat")


# Pictures and frames.


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "I;16"])
def test_png_pictures_are_cubes_if_they_are_named(
    hsipack: Hsipack, tmp_path: Path, mode: str
) -> None:
    rng = np.random.default_rng(1)
    colours = rng.integers(0, 256, (9, 8, 3)).astype(np.uint8)
    image = Image.fromarray(colours)
    if mode == "I;16":
        image = Image.fromarray(rng.integers(0, 2000, (9, 8)).astype(np.uint16))
    elif mode == "P":
        image = image.quantize(16)
    else:
        image = image.convert(mode)
    image.save(tmp_path / "a.png")
    want = np.asarray(image.convert("RGB") if mode == "P" else image)
    hsipack.convert(f"{tmp_path}/*.png", out=tmp_path / "out")
    check(tmp_path / "out", {"a": want.reshape(9, 8, -1)})
    # Beside other cubes, and in folders, pictures are not cubes.
    np.save(tmp_path / "b.npy", SERIES[0])
    (tmp_path / "only").mkdir()
    for name in ["a.png", "b.npy"]:
        (tmp_path / name).rename(tmp_path / "only" / name)
    for given in [tmp_path / "only", f"{tmp_path}/only/*"]:
        out = tmp_path / f"out_{str(given).endswith('*')}"
        hsipack.convert(given, "--axes", "yxb", out=out)
        check(out, {"b": SERIES[0]})


def test_jpeg_pictures_are_cubes_as_pillow_decodes_them(hsipack: Hsipack, tmp_path: Path) -> None:
    x, y = np.meshgrid(np.arange(40), np.arange(32))
    smooth = np.stack([x * 6, y * 7, (x + y) * 3], axis=-1).astype(np.uint8)
    Image.fromarray(smooth).save(tmp_path / "a.jpg", quality=95, subsampling=0)
    Image.fromarray(smooth[..., 0]).save(tmp_path / "b.jpeg", quality=95)
    hsipack.convert(tmp_path / "a.jpg", tmp_path / "b.jpeg", out=tmp_path / "out")
    found = packed(tmp_path / "out")
    for name, path in [("a", "a.jpg"), ("b", "b.jpeg")]:
        want = np.asarray(Image.open(tmp_path / path)).reshape(32, 40, -1).astype(int)
        # Decoders may differ in the last bit of each transform.
        assert np.abs(found[name].astype(int) - want).max() <= 2
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    names = tmp_path / "cut.jpg"
    assert "JPEG" in hsipack.refuse(names, out=tmp_path / "b", names=names)


@pytest.mark.parametrize("form", ["png", "npy", "tif"])
def test_frames_of_a_mosaic_become_cubes_of_whole_tiles(
    hsipack: Hsipack, tmp_path: Path, form: str
) -> None:
    root = tmp_path / "in"
    root.mkdir()
    frame = np.random.default_rng(5).integers(0, 2000, (21, 34)).astype(np.uint16)
    write_bands(root, frame[..., None], [f"a.{form}"])
    out = tmp_path / "out"
    hsipack.convert(root, "--mosaic", "4x4", out=out)
    tiles = frame[:20, :32].reshape(5, 4, 8, 4)
    check(out, {"a": tiles.transpose(0, 2, 1, 3).reshape(5, 8, 16)})
    check_sources(hsipack, out)
    for wrong in ["4", "0x4", "1x1"]:
        done = hsipack.run("convert", root, "-o", tmp_path / "b", "--mosaic", wrong)
        assert done.returncode == 2
        assert "mosaic" in done.stderr


def test_python_takes_the_same_options(tmp_path: Path) -> None:
    import hsipack

    np.save(tmp_path / "a.npy", SERIES)
    centers = list(CENTERS)
    hsipack.convert(tmp_path / "a.npy", tmp_path / "out", axes="nyxb", band_centers=centers)
    ds = hsipack.open(tmp_path / "out", output="numpy")
    assert len(ds) == COUNT
    assert ds.wavelengths is not None
    np.testing.assert_allclose(ds.wavelengths, CENTERS)
    root = json.loads((tmp_path / "out/zarr.json").read_text())
    assert "band_centers=[400.0, 410.5" in json.dumps(root)
    frame = np.arange(64, dtype=np.uint16).reshape(8, 8)
    np.save(tmp_path / "frame.npy", frame)
    hsipack.convert(tmp_path / "frame.npy", tmp_path / "frames", mosaic=(4, 4))
    assert next(iter(hsipack.open(tmp_path / "frames").stacks)) == "2x2x16"


def test_bands_with_other_markers_of_missing_values_are_refused(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for band, nodata in [(1, "-9999"), (2, "-1")]:
        page = np.full((ROWS, COLUMNS), band, np.int16)
        tag = (42113, "s", 0, nodata, True)
        tifffile.imwrite(folder / f"s_{band}.tif", page, metadata=None, extratags=[tag])
    words = (folder, "--bands-from", "s_{band}.tif")
    message = hsipack.refuse(*words, out=out, names=folder / "s_2.tif")
    assert "-1 marks missing values in this band, but -9999 in s_1.tif" in message
    files = f"{folder}/*.tif"
    message = hsipack.refuse(files, *words[1:], out=out, names=folder / "s_1.tif")
    assert "give the folder" in message


def test_bands_of_different_places_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    page = np.ones((ROWS, COLUMNS), np.int16)

    def write(band: int, x: float, epsg: int = 32632) -> None:
        keys = (1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, epsg)
        tags = [
            (33550, "d", 3, (30.0, 30.0, 0.0), True),
            (33922, "d", 6, (0.0, 0.0, 0.0, x, 5e6, 0.0), True),
            (34735, "H", len(keys), keys, True),
        ]
        tifffile.imwrite(folder / f"s_{band}.tif", page, metadata=None, extratags=tags)

    words = (folder, "--bands-from", "s_{band}.tif")
    write(1, 5e5)
    for x, epsg in [(5e5 + 600, 32632), (5e5, 32633)]:
        write(2, x, epsg)
        message = hsipack.refuse(*words, out=out, names=folder / "s_2.tif")
        assert "this band lies elsewhere on Earth than s_1.tif" in message
    write(2, 5e5 + 0.001)
    hsipack.convert(*words, out=out)
    assert len(packed(out)) == 1


def test_texts_of_stars_tell_cubes_apart(hsipack: Hsipack, tmp_path: Path) -> None:
    out = tmp_path / "out"
    page = np.ones((ROWS, COLUMNS), np.uint8)
    for folder, names in [("mixed", ["a_b_1_c", "a_2_b_c"]), ("empty", ["1", "2", "a1", "a2"])]:
        (tmp_path / folder).mkdir()
        for name in names:
            Image.fromarray(page).save(tmp_path / folder / f"{name}.png")
    words = (tmp_path / "mixed", "--bands-from", "*_{band}_*.png")
    assert "two cubes" in hsipack.refuse(*words, out=out, names=tmp_path / "mixed")
    hsipack.convert(tmp_path / "empty", "--bands-from", "*{band}.png", out=out)
    assert sorted(packed(out)) == ["a", "empty"]


def test_files_of_classes_are_not_cubes(hsipack: Hsipack, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    np.save(folder / "a.npy", SERIES[0])
    for name in ("fat", "skin"):
        np.save(folder / f"a_{name}.npy", np.ones((ROWS, COLUMNS, 1), np.uint8))
    pattern = "organs:{class}={dir}/{stem}_{class}.npy"
    report = hsipack.convert(folder, "--mask", pattern, out=out)
    check(out, {"a": SERIES[0]})
    assert any(
        "2 inputs are masks, targets, further images or references" in note
        for note in report["notes"]
    )


def test_files_of_one_name_with_other_values_are_two_cubes(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    np.save(folder / "s.npy", SERIES[0])
    with h5py.File(folder / "s.h5", "w") as file:
        file["cube"] = SERIES[0] * 10
    message = hsipack.refuse(folder, out=tmp_path / "out", names=folder / "s.npy")
    assert "another cube already has the name s" in message


def test_arrays_of_samples_that_cannot_be_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data", (2 * 10**9, 2, 3, 4), "u1", chunks=(1, 2, 3, 4))
    words = (f"{path}::data", "--axes", "nyxb")
    message = hsipack.refuse(*words, out=tmp_path / "out", names=path, memory=1 << 30)
    assert "more than 4194304 samples" in message


def test_spectra_of_hsd_are_computed_from_components(hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "in/a.hsd"
    cube = write_hsd(path, scene(0, 21, 34, 126), 20, last=950)
    out = tmp_path / "out"
    report = hsipack.convert(path, "--chunk", "8x8", "--buffer-size", "100kB", out=out)
    assert report["stacks"][0]["wavelengths"] == [450, 950]
    np.testing.assert_allclose(read_zarr(out), cube[None], rtol=1e-3, atol=2e-4)
    hsipack.convert(path, "--bands", "125,0", out=tmp_path / "two")
    np.testing.assert_allclose(
        read_zarr(tmp_path / "two"), cube[None, ..., [125, 0]], rtol=1e-3, atol=2e-4
    )
    # A step that does not lead to the last centre says nothing.
    write_hsd(path, cube, 3, last=960)
    report = hsipack.convert(path, out=tmp_path / "none")
    assert report["stacks"][0]["wavelengths"] is None
    assert any("do not end at 960 nm" in note for note in report["notes"])


def test_damaged_hsd_is_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "a.hsd"
    write_hsd(path, scene(0, 5, 6, 7), 3, last=474)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert "cut short" in hsipack.refuse(path, out=tmp_path / "o", names=path)
    for field in range(4):
        for number in (-1, 0, 2**31 - 1):
            head = np.frombuffer(whole[:28], "<i4").copy()
            head[field] = number
            path.write_bytes(head.tobytes() + whole[28:])
            hsipack.refuse(path, out=tmp_path / "o", names=path, memory=2 << 30)
