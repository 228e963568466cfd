"""Masks of every format, read back by zarr-python, TensorStore and xarray."""

import hashlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import spectral.io.envi
import tifffile
from helpers import (
    Hsipack,
    assert_same_bits,
    attributes,
    class_map,
    expected,
    metadata,
    open_xarray,
    read_everywhere,
    read_zarr,
    write_cubes,
    write_envi,
)
from PIL import Image

CLASSES = ["background", "soft tissue", "bone", "a", "b", "c"]


def write_mask(folder: Path, kind: str, ids: np.ndarray) -> str:
    """Writes a mask next to cube_000.npy. Returns its pattern."""
    small = ids.astype(np.uint8)
    if kind == "png":
        Image.fromarray(small).save(folder / "cube_000_gt.png")
    elif kind == "png16":
        Image.fromarray(ids.astype(np.uint16)).save(folder / "cube_000_gt.png")
    elif kind == "palette":
        image = Image.fromarray(small).convert("P")
        image.putdata(small.ravel().tolist())
        image.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9, 1, 2, 3])
        image.save(folder / "cube_000_gt.png")
    elif kind == "npy":
        np.save(folder / "cube_000_gt.npy", small)
    elif kind == "npy_f8":
        np.save(folder / "cube_000_gt.npy", ids.astype(np.float64))
    elif kind == "npy_fortran":
        np.save(folder / "cube_000_gt.npy", np.asfortranarray(ids.astype(np.int64)))
    elif kind == "mat":
        scipy.io.savemat(
            folder / "cube_000_gt.mat", {"x": np.zeros((2, 2)), "map": ids.astype(float)}
        )
        return "{dir}/{stem}_gt.mat::map"
    elif kind == "h5":
        with h5py.File(folder / "cube_000_gt.h5", "w") as file:
            file["labels/gt"] = small
        return "{dir}/{stem}_gt.h5::/labels/gt"
    elif kind == "tif":
        tifffile.imwrite(folder / "cube_000_gt.tif", small, compression="zlib")
    elif kind == "envi":
        write_envi(
            folder / "cube_000_gt.hdr", small[:, :, None], "bsq",
            file_type="ENVI Classification", classes=6, class_names=CLASSES,
        )  # fmt: skip
        return "{dir}/{stem}_gt.img"
    return "{dir}/{stem}_gt." + {"png16": "png", "palette": "png"}.get(kind, kind.split("_")[0])


@pytest.mark.parametrize(
    "kind",
    ["png", "png16", "palette", "npy", "npy_f8", "npy_fortran", "mat", "h5", "tif", "envi"],
)
@pytest.mark.parametrize("chunk", [None, "5x4"])
def test_every_mask_format(kind: str, chunk: str | None, hsipack: Hsipack, tmp_path: Path) -> None:
    cube = write_cubes(tmp_path / "in", 1)[0]
    ids = class_map()
    pattern = write_mask(tmp_path / "in", kind, ids)
    out = tmp_path / "out.hsipack"
    options = [] if chunk is None else ["--chunk", chunk]
    file = tmp_path / "in/cube_000.npy"
    hsipack.convert(file, "--mask", pattern, *options, "--shard-size", "1MB", out=out)
    packed = read_everywhere(out, array="mask")
    assert packed.dtype == np.uint8
    np.testing.assert_array_equal(packed[0], ids)
    assert metadata(out, array="mask")["dimension_names"] == ["sample", "y", "x"]
    mask = open_xarray(out)["mask"]
    assert mask.dims == ("sample", "y", "x")
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(mask.values[0], ids)
    assert_same_bits(read_everywhere(out)[0], expected(cube))
    if kind == "envi":
        own = attributes(out, array="mask")
        assert own["flag_values"] == list(range(6))
        assert own["flag_meanings"] == "background soft_tissue bone a b c"
        assert own["hsipack"]["class_names"] == CLASSES


def test_ids_above_255_make_the_mask_wider(hsipack: Hsipack, tmp_path: Path) -> None:
    """The whole array is wider, even if only one of the cubes has such ids."""
    write_cubes(tmp_path / "in", 3)
    maps = [class_map(seed=seed, top=top) for seed, top in enumerate([5, 65535, 255])]
    for number, ids in enumerate(maps):
        np.save(tmp_path / f"in/cube_{number:03}.gt.npy", ids.astype(np.uint16))
    out = tmp_path / "out.hsipack"
    hsipack.convert(
        tmp_path / "in", "--exclude", "*.gt.npy", "--mask", "{dir}/{stem}.gt.npy", out=out
    )
    packed = read_everywhere(out, array="mask")
    assert packed.dtype == np.uint16
    np.testing.assert_array_equal(packed, np.stack(maps))


def test_several_masks(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2)
    maps: dict[tuple[str, int], np.ndarray] = {}
    for name in ("organs", "tools"):
        for number in range(2):
            ids = class_map(seed=len(name) * 10 + number)
            maps[name, number] = ids
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            np.save(folder / f"cube_{number:03}.npy", ids.astype(np.uint8))
    out = tmp_path / "out.hsipack"
    hsipack.convert(
        tmp_path / "in",
        f"--mask=tools={tmp_path}/tools/{{name}}.npy",
        f"--mask=organs={tmp_path}/organs/{{stem}}.npy",
        out=out,
    )
    for name in ("organs", "tools"):
        packed = read_everywhere(out, array=name)
        np.testing.assert_array_equal(packed, np.stack([maps[name, 0], maps[name, 1]]))
    assert {"organs", "tools", "image"} <= set(open_xarray(out).data_vars)


@pytest.mark.parametrize("count", [1, 3, 8, 9, 16, 17, 32, 33, 64])
def test_boolean_layers_are_packed_into_bits(count: int, hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    layers = np.random.default_rng(count).integers(0, 2, (count, 12, 9)).astype(bool)
    options = []
    for number, layer in enumerate(layers):
        # Values other than zero are true, such as 255 in images.
        Image.fromarray(layer.astype(np.uint8) * 255).save(tmp_path / f"{number}.png")
        options += [f"--mask=tissue:layer {number}={tmp_path}/{number}.png"]
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", *options, out=out)
    packed = read_everywhere(out, array="tissue")
    assert packed.dtype.itemsize == next(size for size in (1, 2, 4, 8) if count <= 8 * size)
    own = attributes(out, array="tissue")
    assert own["flag_masks"] == [1 << bit for bit in range(count)]
    assert own["flag_meanings"] == " ".join(f"layer_{number}" for number in range(count))
    assert own["hsipack"]["layers"] == [f"layer {number}" for number in range(count)]
    for bit, layer in enumerate(layers):
        np.testing.assert_array_equal((packed[0] >> bit) & 1, layer)
    assert int(packed.max()) < 1 << count


def test_layers_of_one_file_and_one_hot_probabilities(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    layers = np.random.default_rng(2).integers(0, 2, (12, 9, 4)).astype(np.uint8)
    np.save(tmp_path / "layers.npy", layers)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", f"--mask={tmp_path}/layers.npy", out=out)
    bits = (layers << np.arange(4, dtype=np.uint8)).sum(-1)
    np.testing.assert_array_equal(read_everywhere(out, array="mask")[0], bits)
    np.save(tmp_path / "layers.npy", layers.astype(np.float32) * 0.25)
    file = tmp_path / "layers.npy"
    hsipack.refuse(tmp_path / "in", f"--mask={file}", out=tmp_path / "no", names=file)


@pytest.mark.parametrize("first", ["ids", "layers"])
def test_class_ids_and_layers_are_not_mixed(hsipack: Hsipack, tmp_path: Path, first: str) -> None:
    """Ids would be read as sets of layers."""
    write_cubes(tmp_path, 2)
    random = np.random.default_rng(1)
    masks = {
        "ids": random.integers(0, 5, (12, 9)).astype(np.uint8),
        "layers": random.integers(0, 2, (12, 9, 4)).astype(np.uint8),
    }
    other = "layers" if first == "ids" else "ids"
    np.save(tmp_path / "cube_000_m.npy", masks[first])
    np.save(tmp_path / "cube_001_m.npy", masks[other])
    cubes = [tmp_path / f"cube_00{number}.npy" for number in range(2)]
    words = ["--mask", "m={dir}/{stem}_m.npy"]
    out = tmp_path / "out"
    message = hsipack.refuse(*cubes, *words, out=out, names=cubes[1])
    assert "mask m has class ids in some cubes, and boolean layers in others" in message
    hsipack.convert(cubes[0], *words, out=out)
    done = hsipack.run("convert", cubes[1], *words, "-o", out, "--append")
    assert done.returncode != 0
    assert "class ids in some cubes" in done.stderr
    assert len(read_everywhere(out, array="m")) == 1
    # An empty mask fits both.
    empty = np.zeros_like(masks[other])
    np.save(tmp_path / "cube_001_m.npy", empty if other == "ids" else empty[..., 0])
    hsipack.convert(*cubes, *words, out=tmp_path / "both")
    assert not read_everywhere(tmp_path / "both", array="m")[1].any()


def test_more_than_64_layers_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    options = [f"--mask=m:{number}={tmp_path}/x.png" for number in range(65)]
    message = hsipack.refuse(tmp_path / "in", *options, out=tmp_path / "out", names=None)
    assert "more than 64 layers" in message


def test_masks_that_do_not_fit(hsipack: Hsipack, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_cubes(folder, 1)
    mask, out = tmp_path / "mask.npy", tmp_path / "out"
    bad = class_map().astype(np.int32)
    bad[3, 4] = -1
    large, half = class_map().astype(np.int32), class_map().astype(np.float32)
    large[5, 6] = 65536
    half[7, 8] = 1.5
    cases: list[tuple[np.ndarray, str]] = [
        (np.zeros((9, 12), np.uint8), "9x12 pixels, but its cube"),
        (bad, "row 3, column 4 of the mask is -1"),
        (large, "row 5, column 6 of the mask is 65536"),
        (half, "row 7, column 8 of the mask is 1.5"),
    ]
    for values, reason in cases:
        np.save(mask, values)
        message = hsipack.refuse(folder, f"--mask={mask}", out=out, names=mask)
        assert reason in message
    mask.unlink()
    message = hsipack.refuse(folder, f"--mask={mask}", out=out, names=folder / "cube_000.npy")
    assert f'its mask "mask" is missing: there is no {mask}' in message
    assert "--mask-fill" in message


def test_a_fill_without_masks_is_wrong_usage(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    done = hsipack.run("convert", tmp_path / "in", "--mask-fill", 3, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "--mask <" in done.stderr
    assert not (tmp_path / "out").exists()


def test_cubes_without_a_mask_are_filled(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 3)
    np.save(tmp_path / "cube_001_gt.npy", class_map().astype(np.uint8))
    for fill, dtype in [(0, np.uint8), (255, np.uint8), (300, np.uint16)]:
        out = tmp_path / str(fill)
        pattern = f"--mask={tmp_path}/{{stem}}_gt.npy"
        hsipack.convert(tmp_path / "in", pattern, "--mask-fill", fill, out=out)
        packed = read_everywhere(out, array="mask")
        assert packed.dtype == dtype
        np.testing.assert_array_equal(packed[1], class_map())
        assert (packed[[0, 2]] == fill).all()


@pytest.mark.parametrize("name", ["image", "wavelength", "fwhm", "c", ".hidden", "__x"])
def test_reserved_names_of_masks(name: str, hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    hsipack.refuse(
        tmp_path / "in", f"--mask={name}={tmp_path}/x.npy", out=tmp_path / "o", names=None
    )


def test_the_same_name_twice(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    message = hsipack.refuse(
        tmp_path / "in", "--mask=a=x.npy", "--mask=a=y.npy", out=tmp_path / "o", names=None
    )
    assert "two masks are named a" in message


def test_skipped_cubes_leave_no_gap(hsipack: Hsipack, tmp_path: Path) -> None:
    """A cube whose mask has other layers is skipped, and the other cubes keep their values."""
    cubes = write_cubes(tmp_path / "in", 4)
    for number, layers in enumerate([2, 3, 2, 2]):
        values = np.random.default_rng(number).integers(0, 2, (12, 9, layers)).astype(np.uint8)
        np.save(tmp_path / f"cube_{number:03}.npy", values)
    out = tmp_path / "out"
    report = hsipack.convert(
        tmp_path / "in", f"--mask={tmp_path}/{{stem}}.npy", "--skip-errors", out=out
    )
    assert report["cubes"] == 3
    assert len(report["skipped"]) == 1
    packed = read_everywhere(out)
    assert_same_bits(packed, np.stack([expected(cubes[number]) for number in (0, 2, 3)]))


def test_mat_variables_of_the_cube_itself(shared: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    """`{path}::map`: cube and mask in one file, MATLAB v5 and v7.3."""
    wanted = scipy.io.loadmat(shared / "derived/m3_v5_z.mat")["map"]
    for name in ("m3_v5_z", "m3_v73"):
        out = tmp_path / name
        file = shared / f"derived/{name}.mat"
        hsipack.convert(f"{file}::data", "--mask", "{path}::map", out=out)
        np.testing.assert_array_equal(read_everywhere(out, array="mask")[0], wanted)


def test_relative_patterns_are_tried_beside_the_cube_too(hsipack: Hsipack, tmp_path: Path) -> None:
    (cube,) = write_cubes(tmp_path / "in", 1)
    ids = class_map(cube.shape[:2])
    masks = tmp_path / "in/masks"
    masks.mkdir()
    Image.fromarray(ids.astype(np.uint8)).save(masks / "cube_000.png")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = ["convert", tmp_path / "in", "-o", tmp_path / "out", "--mask", "masks/{stem}.png"]
    assert hsipack.run(*words, cwd=elsewhere).returncode == 0
    assert (read_everywhere(tmp_path / "out", array="mask")[0] == ids).all()
    # There is another one in the working directory: hsipack does not choose between them.
    (elsewhere / "masks").mkdir()
    Image.fromarray(np.zeros_like(ids, np.uint8)).save(elsewhere / "masks/cube_000.png")
    words[3] = tmp_path / "other"
    done = hsipack.run(*words, cwd=elsewhere)
    assert done.returncode == 1
    assert f"  masks/cube_000.png\n  {masks / 'cube_000.png'}\n" in done.stderr
    assert "write {dir}/masks/{stem}.png" in done.stderr
    words[5] = "{dir}/masks/{stem}.png"
    assert hsipack.run(*words, cwd=elsewhere).returncode == 0


def test_all_places_that_were_tried_are_named(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    message = hsipack.refuse(
        tmp_path / "in",
        "--mask",
        "masks/{stem}.png",
        out=tmp_path / "out",
        names=tmp_path / "in/cube_000.npy",
    )
    places = f"masks/cube_000.png, and no {tmp_path}/in/masks/cube_000.png"
    assert f'its mask "mask" is missing: there is no {places}' in message


def test_unknown_fields_of_patterns_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    done = hsipack.run(
        "convert", tmp_path / "in", "-o", tmp_path / "out", "--mask", "{folder}/{stem}.png"
    )
    assert done.returncode == 1
    assert "unknown field {folder}" in done.stderr
    assert all(field in done.stderr for field in ("{dir}", "{stem}", "{name}", "{path}"))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("extra", [{}, {"wavelength": np.arange(5.0)}])
def test_one_column_of_matlab_is_folded_to_the_image(
    axis: int, extra: dict[str, np.ndarray], hsipack: Hsipack, tmp_path: Path
) -> None:
    (cube,) = write_cubes(tmp_path / "in", 1)
    ids = class_map(cube.shape[:2]).astype(np.uint8)
    column = np.expand_dims(ids.ravel(order="F"), 1 - axis)
    scipy.io.savemat(tmp_path / "in/cube_000_gt.mat", {"gt": column} | extra)
    words = [tmp_path / "in", "--exclude=*.mat", "--mask={dir}/{stem}_gt.mat"]
    hsipack.convert(*words, out=tmp_path / "out")
    assert (read_everywhere(tmp_path / "out", array="mask")[0] == ids).all()
    assert hsipack.run("validate", tmp_path / "out", "--source").returncode == 0
    # A column of another length is not a mask of this cube.
    scipy.io.savemat(tmp_path / "in/cube_000_gt.mat", {"gt": column.ravel()[:-1, None]} | extra)
    hsipack.refuse(*words, out=tmp_path / "no", names=tmp_path / "in/cube_000_gt.mat")


def test_masks_of_cubes_with_one_column_are_read_from_matlab(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in/line.npy", np.ones((9, 1, 5), np.float32))
    ids = np.arange(9, dtype=np.uint8)[:, None]
    scipy.io.savemat(tmp_path / "in/line_gt.mat", {"gt": ids})
    words = [tmp_path / "in", "--exclude=*.mat", "--mask={dir}/{stem}_gt.mat"]
    hsipack.convert(*words, out=tmp_path / "out")
    assert (read_everywhere(tmp_path / "out", array="mask")[0] == ids).all()


@pytest.mark.parametrize("kind", ["png", "envi"])
def test_classes_get_other_ids(kind: str, hsipack: Hsipack, tmp_path: Path) -> None:
    """In packing, in the record, in the comparison with sources, and in appending."""
    write_cubes(tmp_path / "in", 1)
    cube = tmp_path / "in/cube_000.npy"
    ids = class_map()
    pattern = write_mask(tmp_path / "in", kind, ids)
    out = tmp_path / "out.hsipack"
    bone = "bone" if kind == "envi" else "2"
    options = [
        "--mask",
        f"gt={pattern}",
        "--remap-classes",
        f"gt.{bone}=300,3=1",
        "--remap-classes",
        "*=7",
    ]
    hsipack.convert(cube, *options, out=out)
    want = np.full(ids.shape, 7)
    want[ids == 2], want[ids == 3] = 300, 1
    packed = read_everywhere(out, array="gt")
    assert packed.dtype == np.uint16
    np.testing.assert_array_equal(packed[0], want)
    if kind == "envi":
        own = attributes(out, array="gt")
        assert own["hsipack"]["class_names"][300] == "bone"
        assert own["flag_values"] == [1, 300]
        assert own["flag_meanings"].split() == ["a", "bone"]
    checked = hsipack.run("validate", out, "--source", "--json")
    assert checked.returncode == 0, checked.stdout
    dry = hsipack.run("convert", cube, *options, "-o", tmp_path / "no", "--dry-run")
    assert dry.returncode == 0, dry.stderr


def test_class_ids_that_mean_nothing_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    cube = tmp_path / "in/cube_000.npy"
    pattern = write_mask(tmp_path / "in", "png", class_map())
    out = tmp_path / "out.hsipack"
    mask = ["--mask", pattern]
    for options, names, what in [
        (["--remap-classes", "bone=1"], None, "does not name its classes"),
        (["--remap-classes", "1=2,1=3"], None, "has two new ids"),
        ([f"--mask=b={pattern}", "--remap-classes", "1=2"], None, "the masks are mask, b"),
        ([f"--mask=b:x={pattern}", "--remap-classes", "b.1=2"], None, "boolean layers"),
    ]:
        assert what in hsipack.refuse(cube, *mask, *options, out=out, names=names), options
    for wrong in (["--remap-classes", "1"], ["--remap-classes", "1=70000"]):
        assert hsipack.run("convert", cube, *mask, *wrong, "-o", out).returncode == 2


@pytest.mark.parametrize("kind", ["png", "envi"])
def test_classes_are_named(kind: str, hsipack: Hsipack, tmp_path: Path) -> None:
    """In place of the names in the mask's file, if it has any."""
    write_cubes(tmp_path / "in", 1)
    cube = tmp_path / "in/cube_000.npy"
    pattern = write_mask(tmp_path / "in", kind, class_map())
    out = tmp_path / "out.hsipack"
    options = ["--mask", f"gt={pattern}", "--class-names", "1=left lung,gt.2=bone marrow"]
    hsipack.convert(cube, *options, "--class-names", "3=fat=lipids", out=out)
    own = attributes(out, array="gt")
    rest = CLASSES[4:] if kind == "envi" else []
    zero = CLASSES[0] if kind == "envi" else ""
    named = ["left lung", "bone marrow", "fat=lipids"]
    assert own["hsipack"]["class_names"] == [zero, *named, *rest]
    assert own["flag_values"] == ([0, 1, 2, 3, 4, 5] if kind == "envi" else [1, 2, 3])
    assert "left_lung bone_marrow fat=lipids" in own["flag_meanings"]
    checked = hsipack.run("validate", out, "--source", "--json")
    assert checked.returncode == 0, checked.stdout
    table = tmp_path / "spectra.csv"
    done = hsipack.run("spectra", out, "--mask", "gt", "-o", table)
    assert done.returncode == 0, done.stderr
    assert "bone marrow" in table.read_text()
    shown = hsipack.run("info", out, "--count-classes")
    assert "left lung" in shown.stdout, shown.stdout
    if kind == "png":
        assert "classes 1 left lung, 2 bone marrow, 3 fat=lipids\n" in shown.stdout, shown.stdout
    exported = tmp_path / "mask.hdr"
    done = hsipack.run("export", out, "--sample", "0", "--mask", "gt", "-o", exported)
    assert done.returncode == 0, done.stderr
    header = spectral.io.envi.read_envi_header(exported)
    assert header["class names"][:2] == [zero or "class 0", "left lung"]


def test_class_names_that_mean_nothing_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    cube = tmp_path / "in/cube_000.npy"
    pattern = write_mask(tmp_path / "in", "png", class_map())
    out = tmp_path / "out.hsipack"
    mask = ["--mask", pattern]
    for options, what in [
        (["--class-names", "1=a,1=b"], 'class 1 of mask mask has two names: "a" and "b"'),
        (["--class-names", "70000=a"], "not a class id"),
        ([f"--mask=b={pattern}", "--class-names", "1=a"], "the masks are mask, b"),
        ([f"--mask=b:x={pattern}", "--class-names", "b.1=a"], "boolean layers"),
    ]:
        assert what in hsipack.refuse(cube, *mask, *options, out=out, names=None), options
    for wrong in (["--class-names", "1"], ["--class-names", "=a"]):
        assert hsipack.run("convert", cube, *mask, *wrong, "-o", out).returncode == 2
    assert hsipack.run("convert", cube, "--class-names", "1=a", "-o", out).returncode == 2


def write_classes(folder: Path, scenes: dict[str, list[str]], *, grow: bool) -> list[str]:
    """Writes a cube for each scene, and an ENVI mask with these classes beside the folder. With
    `grow`, each has one row more than the one before. Returns the option for the masks."""
    folder.mkdir()
    for number, (stem, classes) in enumerate(scenes.items()):
        rows = 6 + (number if grow else 0)
        np.save(folder / f"{stem}.npy", np.ones((rows, 5, 4), np.float32))
        ids = np.resize(np.arange(len(classes), dtype=np.uint8), (rows, 5))
        write_envi(
            folder.parent / f"{stem}.hdr", ids[:, :, None], "bsq",
            file_type="ENVI Classification", classes=len(classes), class_names=classes,
        )  # fmt: skip
    return ["--mask", f"gt={folder.parent}/{{stem}}.img"]


def class_names(out: Path, stack: str) -> list[str]:
    """The names in the dataset."""
    own: dict[str, list[str]] = attributes(out, stack=stack, array="gt")["hsipack"]
    return own.get("class_names", [])


@pytest.mark.parametrize("grow", [False, True])
def test_an_id_that_means_two_things_is_refused(
    grow: bool, hsipack: Hsipack, tmp_path: Path
) -> None:
    """ENVI numbers the classes of each scene anew, so ids may differ while names agree."""
    folder, out = tmp_path / "in", tmp_path / "out.hsipack"
    names = {"a": ["none", "oak", "pine"], "b": ["Background", "pine", "oak", "ash"]}
    mask = write_classes(folder, names, grow=grow)
    stack = "7x5x4" if grow else "6x5x4"
    error = hsipack.refuse(folder, *mask, out=out, names=folder / "b.npy")
    assert 'class 1 of mask gt is called "pine" here, but "oak" in other cubes' in error
    assert "the same ids with --remap-classes, or, if it is the same class, one name with" in error

    # By name, they have the same ids in all scenes. Not every scene has every class.
    by_name = ["--remap-classes", "oak=1,pine=2,ash=3"]
    hsipack.convert(folder, *mask, *by_name, out=tmp_path / "by_name")
    packed = read_everywhere(tmp_path / "by_name", stack=stack, array="gt")[-1]
    assert packed.ravel()[:5].tolist() == [0, 2, 1, 3, 0]
    for one in {stack, "6x5x4"}:
        assert class_names(tmp_path / "by_name", one)[1:] == ["oak", "pine", "ash"]

    hsipack.convert(folder / "a.npy", *mask, out=out)
    words = ["convert", folder / "b.npy", *mask, "-o", out]
    refused = hsipack.run(*words, "--append")
    assert refused.returncode == 1
    assert 'but "oak" in other cubes' in refused.stderr
    done = hsipack.run(*words, "--append", *by_name)
    assert done.returncode == 0, done.stderr
    packed = read_everywhere(out, stack=stack, array="gt")[-1]
    assert packed.ravel()[:5].tolist() == [0, 2, 1, 3, 0]

    hsipack.convert(folder, *mask, "--class-names", "1=tree,2=other tree", out=tmp_path / "same")
    # Classes that are made one have one name, whatever their order in a file.
    hsipack.convert(folder, *mask, "--remap-classes", "oak=1,pine=1", out=tmp_path / "one")
    assert class_names(tmp_path / "one", stack)[1:] == ["oak", "", "ash"]
    unknown = [*by_name, "--remap-classes", "elm=4"]
    error = hsipack.refuse(folder, *mask, *unknown, out=tmp_path / "no", names=None)
    assert 'no file of mask gt has a class named "elm" (their classes: ' in error


def test_names_of_classes_are_those_of_all_stacks(hsipack: Hsipack, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out.hsipack"
    scenes = ["a", "b", "c"]
    write_classes(folder, {scene: ["none", "oak", "pine"] for scene in scenes}, grow=True)
    for number, scene in enumerate(scenes):
        ids = np.resize(np.arange(3, dtype=np.uint8), (6 + number, 5))
        np.save(tmp_path / f"{scene}.npy", ids)
    plain = ["--mask", f"gt={tmp_path}/{{stem}}.npy"]
    hsipack.convert(folder / "a.npy", *plain, out=out)
    append = ["--append", "-o", out]
    named = ["--class-names", "1=oak,2=pine"]
    done = hsipack.run("convert", folder / "b.npy", *plain, *named, *append)
    assert done.returncode == 0, done.stderr
    note = "the classes of mask gt have no names in stack 6x5x4, to which no cube is added"
    assert note in done.stdout + done.stderr
    assert class_names(out, "6x5x4") == []
    # A new stack has the names that the dataset has.
    done = hsipack.run("convert", folder / "c.npy", *plain, *append)
    assert done.returncode == 0, done.stderr
    assert class_names(out, "7x5x4") == class_names(out, "8x5x4") == ["", "oak", "pine"]


def test_a_dataset_whose_stacks_disagree_can_be_appended_to(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    """Older versions packed such datasets."""
    folder, out = tmp_path / "in", tmp_path / "out.hsipack"
    mask = write_classes(folder, {one: ["none", "oak"] for one in ("a", "b")}, grow=True)
    hsipack.convert(folder, *mask, out=out)
    file = out / "7x5x4/gt/zarr.json"
    before, sums = file.read_bytes(), out / "SHA256SUMS"
    after = before.replace(b"oak", b"elm")
    file.write_bytes(after)
    old, new = (hashlib.sha256(content).hexdigest() for content in (before, after))
    sums.write_text(sums.read_text().replace(old, new))
    (folder / "b.npy").rename(folder / "d.npy")
    other = tmp_path / "d.hdr"
    ids = np.ones((7, 5, 1), np.uint8)
    write_envi(
        other, ids, "bsq",
        file_type="ENVI Classification", classes=2, class_names=["none", "elm"],
    )  # fmt: skip
    done = hsipack.run("convert", folder / "d.npy", *mask, "--append", "-o", out)
    assert done.returncode == 0, done.stderr
    note = "stacks of the dataset name the classes of mask gt differently"
    assert note in done.stdout + done.stderr
    assert class_names(out, "7x5x4") == ["none", "elm"]


@pytest.mark.parametrize(("dtype", "nodata"), [("uint8", 255), ("int16", 255), ("uint16", 65535)])
def test_declared_nodata_is_filled(
    hsipack: Hsipack, tmp_path: Path, dtype: str, nodata: int
) -> None:
    labels = np.array([[0, 1, 2], [nodata, 1, nodata]]).astype(dtype)
    np.save(tmp_path / "c.npy", np.zeros((2, 3, 4), np.float32))
    tifffile.imwrite(
        tmp_path / "m.tif", labels, photometric="minisblack",
        extratags=[(42113, "s", 0, str(nodata), True)],
    )  # fmt: skip
    words = [tmp_path / "c.npy", "--axes", "yxb", "--mask", f"gt={tmp_path / 'm.tif'}"]
    hsipack.convert(*words, out=tmp_path / "ids")
    assert np.array_equal(read_zarr(tmp_path / "ids", array="gt")[0], labels)
    hsipack.convert(*words, "--mask-fill", 7, out=tmp_path / "filled")
    want = [[0, 1, 2], [7, 1, 7]]
    assert np.array_equal(read_zarr(tmp_path / "filled", array="gt")[0], want)
    # The user's own id for it comes first.
    remap = ["--remap-classes", f"{nodata}=3", "--mask-fill", 7]
    hsipack.convert(*words, *remap, out=tmp_path / "remapped")
    want = [[0, 1, 2], [3, 1, 3]]
    assert np.array_equal(read_zarr(tmp_path / "remapped", array="gt")[0], want)
    assert hsipack.run("validate", tmp_path / "filled", "--source").returncode == 0


@pytest.mark.parametrize("what", ["mask", "target", "white"])
def test_files_that_changed_since_are_not_mixed_in_by_a_repair(
    what: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    def write(number: int) -> None:
        np.save(tmp_path / "mask.npy", np.full((24, 20), number, np.uint8))
        np.save(tmp_path / "target.npy", np.full((24, 20), number, np.float32))
        np.save(tmp_path / "white.npy", np.full((3, 20, 5), number, np.float32))

    write(1)
    np.save(tmp_path / "c.npy", np.ones((24, 20, 5), np.float32))
    words: list[object] = ["--axes", "yxb", "--chunk", "8x20"]
    words += ["--white", tmp_path / "white.npy", "--mask", f"mask={tmp_path / 'mask.npy'}"]
    words += ["--target", f"target={tmp_path / 'target.npy'}"]
    out = tmp_path / "out"
    hsipack.convert(tmp_path / "c.npy", *words, out=out)
    array = {"white": "image"}.get(what, what)
    (shard,) = (file for file in (out / "24x20x5" / array / "c").rglob("*") if file.is_file())
    whole = shard.read_bytes()
    content = bytearray(whole)
    content[20] ^= 0xFF
    shard.write_bytes(content)
    write(2)
    done = hsipack.run("repair", out)
    assert done.returncode == 1
    assert "has changed since the conversion" in done.stdout + done.stderr
    assert shard.read_bytes() == bytes(content)
    write(1)
    done = hsipack.run("repair", out)
    assert done.returncode == 0, done.stderr
    assert shard.read_bytes() == whole
