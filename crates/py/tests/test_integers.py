"""Integers of instruments, packed bit for bit and read as physical values."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hsipack
import hsipack_command
import numpy as np
import pytest
import spectral.io.envi as envi
import torch
import xarray
import zarr
from fake_cuda import FakeCuda
from hsipack import augment
from test_fake_cuda import END, LOADER

ROWS, COLUMNS, BANDS = 20, 24, 7
STACK = f"{ROWS}x{COLUMNS}x{BANDS}"
KINDS = {
    # Type, marker of missing values, divisor of physical values.
    "int16": (-9999, 10000),
    "uint16": (65535, None),
    "uint8": (0, 200),
}


def numbers(kind: str, number: int) -> np.ndarray:
    """The stored numbers of a cube: all of the type's range, with missing ones."""
    least, greatest = np.iinfo(kind).min, np.iinfo(kind).max
    rng = np.random.default_rng([number, np.dtype(kind).num])
    cube = rng.integers(least, greatest, (ROWS, COLUMNS, BANDS), endpoint=True).astype(kind)
    cube[0, 0] = least
    cube[0, 1] = greatest
    missing, _ = KINDS[kind]
    cube[3, 4:9] = missing
    cube[number + 5, :, 2] = missing
    return cube


def write(folder: Path, kind: str, count: int = 6, first: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    missing, divisor = KINDS[kind]
    about: dict[str, Any] = {"data ignore value": missing}
    if divisor is not None:
        about["reflectance scale factor"] = divisor
    about["wavelength"] = [400.0 + 10 * band for band in range(BANDS)]
    about["wavelength units"] = "nm"
    for number in range(first, first + count):
        cube = numbers(kind, number)
        envi.save_image(str(folder / f"cube_{number}.hdr"), cube, metadata=about, force=True)
    return folder


def physical(kind: str, number: int) -> np.ndarray:
    """The physical values in double precision, NaN where they are missing."""
    missing, divisor = KINDS[kind]
    cube = numbers(kind, number)
    values = cube.astype(np.float64) * (1.0 if divisor is None else 1.0 / divisor)
    values[cube == missing] = np.nan
    return values


def halves(kind: str, number: int) -> np.ndarray:
    """The physical values as they are computed in single precision, and rounded to float16."""
    missing, divisor = KINDS[kind]
    cube = numbers(kind, number)
    factor = np.float32(1.0 if divisor is None else 1.0 / divisor)
    with np.errstate(over="ignore"):
        values = (cube.astype(np.float32) * factor).astype(np.float16)
    values[cube == missing] = np.nan
    return values


@pytest.fixture(scope="module", params=list(KINDS))
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple:
    kind = request.param
    root = tmp_path_factory.mktemp(kind)
    path = root / "integers.hsipack"
    shard = 4 * ROWS * COLUMNS * BANDS * np.dtype(kind).itemsize
    options: dict[str, Any] = {"chunk": (8, 10), "shard_size": shard}
    report = hsipack.convert(write(root / "raw", kind), path, dtype=kind, **options)
    assert (report.dtype, report.worst, report.cubes) == (kind, None, 6)
    return kind, path


def test_numbers_are_stored_bit_for_bit(packed: tuple[str, Path]) -> None:
    kind, path = packed
    array = zarr.open_group(path, mode="r")[f"{STACK}/image"]
    assert array.dtype == kind
    missing, divisor = KINDS[kind]
    assert array.attrs["_FillValue"] == missing
    assert array.fill_value == missing
    assert array.attrs.get("scale_factor", 1.0) == (1.0 if divisor is None else 1 / divisor)
    for number in range(6):
        np.testing.assert_array_equal(array[number], numbers(kind, number))
    # xarray decodes physical values.
    with xarray.open_zarr(path, group=STACK, consolidated=False) as stack:
        image = stack["image"]
        assert image.dims == ("sample", "y", "x", "band")
        assert image.dtype.kind == "f"
        for number in range(6):
            np.testing.assert_allclose(image[number].values, physical(kind, number), rtol=1e-6)
    assert hsipack.validate(path, source=True).ok


def test_samples_are_physical_unless_told_otherwise(packed: tuple[str, Path]) -> None:
    kind, path = packed
    ds = hsipack.open(path, output="numpy")
    stack = ds.stacks[STACK]
    assert (stack.dtype, ds.dtype, stack.fill_value) == (kind, "float32", KINDS[kind][0])
    raw = ds.select(physical=False)
    assert raw.dtype == kind
    assert hsipack.open(path, dtype=kind).dtype == kind
    double = hsipack.open(path, dtype="float64", output="numpy")
    for number in range(6):
        want = physical(kind, number).transpose(2, 0, 1)
        image = ds[number]["image"]
        assert image.dtype == np.float32
        np.testing.assert_array_equal(image, want.astype(np.float32))
        np.testing.assert_allclose(double[number]["image"], want, rtol=1e-15)
        stored = raw[number]["image"]
        assert stored.dtype == kind
        np.testing.assert_array_equal(stored.transpose(1, 2, 0), numbers(kind, number))
    part = ds.select(bands=[5, 0]).read(2, slice(3, 17), slice(2, 13))["image"]
    want = physical(kind, 2)[3:17, 2:13][..., [5, 0]].transpose(2, 0, 1)
    np.testing.assert_array_equal(part, want.astype(np.float32))


def test_statistics_are_of_physical_values(packed: tuple[str, Path]) -> None:
    kind, path = packed
    ds = hsipack.open(path)
    every = np.stack([physical(kind, number) for number in range(6)])
    stats = ds.stats
    assert stats is not None
    for ours in (stats, ds.compute_stats()):
        np.testing.assert_allclose(ours.mean, np.nanmean(every, axis=(0, 1, 2)), rtol=1e-5)
        np.testing.assert_allclose(ours.std, np.nanstd(every, axis=(0, 1, 2)), rtol=1e-4)
        np.testing.assert_allclose(ours.min, np.nanmin(every, axis=(0, 1, 2)), rtol=1e-7)
        np.testing.assert_array_equal(ours.nan, np.isnan(every).sum(axis=(0, 1, 2)))
    raw = ds.select(physical=False)
    assert raw.stats is not None
    assert raw.stats.max.max() <= np.iinfo(kind).max
    np.testing.assert_array_equal(raw.stats.max, raw.compute_stats().max)


def batches(loader: hsipack.Loader) -> Iterator[dict[str, Any]]:
    with loader:
        yield from loader


@pytest.mark.parametrize("cache", [None, "compressed", "decoded"])
def test_batches_are_physical(packed: tuple[str, Path], cache: str | None) -> None:
    kind, path = packed
    if kind == "uint16":
        with pytest.raises(hsipack.ConflictError, match="float16"):
            hsipack.Loader(path, 2, device="cpu")
    for dtype in ("float16", "float32"):
        if (kind, dtype) == ("uint16", "float16"):
            continue
        size = {} if cache is None else {"cache_size": 1 << 24}
        loader = hsipack.Loader(path, 4, dtype=dtype, cache=cache, device="cpu", **size)
        for _ in range(2):
            for batch in loader:
                for image, number in zip(batch["image"], batch["id"].tolist(), strict=True):
                    want = halves(kind, number)
                    if dtype == "float32":
                        want = physical(kind, number).astype(np.float32)
                    assert str(image.dtype) == f"torch.{dtype}"
                    np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), want)
        loader.close()


def test_raw_batches_are_the_integers(packed: tuple[str, Path]) -> None:
    kind, path = packed
    ds = hsipack.open(path).select(physical=False)
    for batch in batches(hsipack.Loader(ds, 4, device="cpu", output="numpy")):
        assert batch["image"].dtype == kind
        for image, number in zip(batch["image"], batch["id"].tolist(), strict=True):
            np.testing.assert_array_equal(image.transpose(1, 2, 0), numbers(kind, number))
    for batch in batches(hsipack.Loader(ds, 4, device="cpu", output="numpy", dtype="float32")):
        for image, number in zip(batch["image"], batch["id"].tolist(), strict=True):
            want = numbers(kind, number).astype(np.float32)
            want[numbers(kind, number) == KINDS[kind][0]] = np.nan
            np.testing.assert_array_equal(image.transpose(1, 2, 0), want)
    for unfit in ({"augment": [augment.RandomHorizontalFlip()]}, {"normalize": "l2"}):
        with pytest.raises(hsipack.ConflictError, match="float"):
            hsipack.Loader(ds.select(nan=0.0), 4, device="cpu", **unfit)


def test_crops_bands_and_padding(packed: tuple[str, Path]) -> None:
    kind, path = packed
    ds = hsipack.open(path).select(bands=[6, 1, 2])
    for crop in ((9, 11), hsipack.GridCrop(9, pad="reflect"), hsipack.GridCrop(9, pad=2.5)):
        options: dict[str, Any] = {"dtype": "float32", "device": "cpu", "output": "numpy"}
        for batch in batches(hsipack.Loader(ds, 5, crop=crop, seed=1, **options)):
            windows = zip(batch["image"], batch["id"], batch["window"], strict=True)
            for image, number, (row, column, rows, columns) in windows:
                whole = physical(kind, int(number)).astype(np.float32)[..., [6, 1, 2]]
                inside = whole[row : row + rows, column : column + columns]
                got = image.transpose(1, 2, 0)[: inside.shape[0], : inside.shape[1]]
                np.testing.assert_array_equal(got, inside)
                if not isinstance(crop, tuple) and inside.shape[0] < rows and crop.pad == 2.5:
                    assert (image[:, inside.shape[0] :] == 2.5).all()


def test_patches_from_memory(packed: tuple[str, Path]) -> None:
    kind, path = packed
    windows = [(number, row, row) for number in range(6) for row in (0, 3, 8, 12)]
    crop = hsipack.Windows(windows, 4)
    for cache in ("decoded", "compressed"):
        options: dict[str, Any] = {"dtype": "float32", "device": "cpu", "output": "numpy"}
        loader = hsipack.Loader(path, 6, crop=crop, cache=cache, cache_size=1 << 24, **options)
        for _ in range(2):
            for batch in loader:
                got = zip(batch["image"], batch["id"], batch["window"], strict=True)
                for image, number, (row, column, rows, columns) in got:
                    whole = physical(kind, int(number)).astype(np.float32)
                    want = whole[row : row + rows, column : column + columns]
                    np.testing.assert_array_equal(image.transpose(1, 2, 0), want)
        loader.close()


def test_a_loader_goes_on_from_its_state(packed: tuple[str, Path]) -> None:
    _, path = packed

    def make() -> hsipack.Loader:
        return hsipack.Loader(path, 2, shuffle=True, seed=3, dtype="float32", device="cpu")

    with make() as first:
        taken = iter(first)
        next(taken)
        state = first.state_dict()
        rest = [batch["image"].clone() for batch in taken]
    with make() as other:
        other.load_state_dict(state)
        for want, batch in zip(rest, other, strict=True):
            assert torch.equal(torch.nan_to_num(want, 9.0), torch.nan_to_num(batch["image"], 9.0))


def test_augmented_and_normalised_as_floats_are(packed: tuple[str, Path], tmp_path: Path) -> None:
    kind, path = packed
    cubes = [(f"cube_{number}", physical(kind, number).astype(np.float32)) for number in range(6)]
    floats = tmp_path / "floats"
    hsipack.pack(cubes, floats, dtype="float32")
    pipeline = [
        augment.RandomHorizontalFlip(),
        augment.RandomAffine(degrees=20),
        augment.Gain((0.9, 1.1)),
    ]
    for normalize in (None, "standardize", "l1"):
        options: dict[str, Any] = {"augment": pipeline, "normalize": normalize, "seed": 5}
        options |= {"dtype": "float32", "device": "cpu", "shuffle": True}
        ours = batches(hsipack.Loader(hsipack.open(path).select(nan=0.0), 3, **options))
        theirs = batches(hsipack.Loader(hsipack.open(floats).select(nan=0.0), 3, **options))
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one["image"], other["image"], rtol=2e-4, atol=2e-4)


def test_nan_is_replaced(packed: tuple[str, Path]) -> None:
    kind, path = packed
    ds = hsipack.open(path, output="numpy").select(nan=-1.0)
    want = np.nan_to_num(physical(kind, 1).astype(np.float32), nan=-1.0)
    np.testing.assert_array_equal(ds[1]["image"].transpose(1, 2, 0), want)
    loader = hsipack.Loader(ds, 6, dtype="float32", device="cpu", output="numpy")
    (batch,) = batches(loader)
    np.testing.assert_array_equal(batch["image"][1].transpose(1, 2, 0), want)


@pytest.mark.parametrize("kind", ["int16", "uint16", "uint8"])
def test_more_cubes_are_appended_and_datasets_merged(kind: str, tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", kind, 2)
    more = write(tmp_path / "more", kind, 2, first=2)
    one, two = tmp_path / "one", tmp_path / "two"
    hsipack.convert(raw, one, dtype=kind)
    hsipack.convert(more, two, dtype=kind)
    report = hsipack.merge([one, two], tmp_path / "merged")
    assert report.samples == 4
    hsipack.convert(more, one, dtype="auto", append=True)
    for path in (one, tmp_path / "merged"):
        assert hsipack.validate(path, source=True).ok
        raw_ds = hsipack.open(path, output="numpy").select(physical=False)
        for number in range(4):
            image = raw_ds[number]["image"].transpose(1, 2, 0)
            np.testing.assert_array_equal(image, numbers(kind, number))
    with pytest.raises(hsipack.ConflictError, match="dtype"):
        hsipack.convert(write(tmp_path / "third", kind, 1, first=4), one, append=True)


def test_auto_chooses_the_narrowest_exact_type(tmp_path: Path) -> None:
    for kind in KINDS:
        report = hsipack.convert(
            write(tmp_path / kind, kind, 2), tmp_path / f"{kind}.o", dtype="auto"
        )
        assert report.dtype == kind, report.notes
        assert any(kind in note and "bit for bit" in note for note in report.notes)
        assert hsipack.open(tmp_path / f"{kind}.o").stacks[STACK].dtype == kind
    # 32-bit numbers are looked at.
    rng = np.random.default_rng(1)
    for low, high, want in ((0, 256, "uint8"), (-5, 300, "int16"), (0, 60000, "uint16")):
        folder = tmp_path / f"wide_{high}"
        folder.mkdir()
        np.save(folder / "a.npy", rng.integers(low, high, (9, 8, 5)).astype(np.int32))
        report = hsipack.convert(folder, tmp_path / f"{high}.o", dtype="auto")
        assert report.dtype == want, report.notes
    folder = tmp_path / "too_wide"
    folder.mkdir()
    np.save(folder / "a.npy", np.full((9, 8, 5), 70000, np.int32))
    report = hsipack.convert(folder, tmp_path / "half", dtype="auto", scale=2)
    assert report.dtype == "float16"
    assert any("scale" in note and "float16" in note for note in report.notes)
    report = hsipack.convert(folder, tmp_path / "scaled", dtype="auto", scale="auto")
    assert report.dtype == "float16"
    assert any("70000" in note for note in report.notes), report.notes


def refused(expected: str, *args: Any, **options: Any) -> None:
    with pytest.raises(hsipack.Error, match=expected):
        hsipack.convert(*args, **options)
    assert not Path(args[1]).exists()


def test_integers_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    raw, out = write(tmp_path / "raw", "int16", 2), tmp_path / "out"
    for option, value in (
        ("scale", 2),
        ("normalize", "l2"),
        ("fill", 0.0),
        ("keep_bits", 7),
        ("white", "w.hdr"),
    ):
        refused(option, raw, out, dtype="int16", **{option: value})
    refused("does not fit uint8", raw, out, dtype="uint8")
    refused("does not fit uint16", raw, out, dtype="uint16")
    floats = tmp_path / "floats"
    floats.mkdir()
    np.save(floats / "a.npy", np.ones((9, 8, 5), np.float32))
    refused("float32, not integers", floats, out, dtype="int16")
    # Another scale, another marker of missing values.
    for about in ({"reflectance scale factor": 5000, "data ignore value": -9999}, {}):
        mixed = write(tmp_path / f"mixed_{len(about)}", "int16", 1)
        envi.save_image(str(mixed / "other.hdr"), numbers("int16", 1), metadata=about)
        refused("other|cube_0", mixed, out, dtype="int16")
    # Every integer of the type is used, and pixels are missing.
    full = tmp_path / "full"
    full.mkdir()
    cube = np.arange(-1, 256).repeat(5).reshape(-1, 1, 5).astype(np.int16)
    np.save(full / "a.npy", cube)
    refused("no integer of uint8 is free", full, out, dtype="uint8", nodata=-1)
    report = hsipack.convert(full, out, dtype="int16", nodata=-1)
    assert report.nan == 5
    assert hsipack.open(out).stacks["257x1x5"].fill_value == -1


def test_a_free_integer_marks_what_is_missing(tmp_path: Path) -> None:
    folder, out = tmp_path / "raw", tmp_path / "out"
    folder.mkdir()
    cube = np.arange(-1, 200).repeat(5).reshape(-1, 1, 5).astype(np.int16)
    np.save(folder / "a.npy", cube)
    report = hsipack.convert(folder, out, dtype="uint8", nodata=-1)
    assert report.nan == 5
    ds = hsipack.open(out, output="numpy")
    assert ds.stacks["201x1x5"].fill_value == 255
    want = cube.astype(np.float32)
    want[0] = np.nan
    np.testing.assert_array_equal(ds[0]["image"].transpose(1, 2, 0), want)
    assert hsipack.validate(out, source=True).ok


def test_arrays_are_packed_as_they_are(tmp_path: Path) -> None:
    cubes = [(f"cube_{number}", numbers("uint16", number)) for number in range(3)]
    report = hsipack.pack(cubes, tmp_path / "out", dtype="uint16", nodata=65535)
    assert report.dtype == "uint16"
    array = zarr.open_group(tmp_path / "out", mode="r")[f"{STACK}/image"]
    for number, (_, cube) in enumerate(cubes):
        np.testing.assert_array_equal(array[number], cube)
    with pytest.raises(hsipack.Error, match="not integers"):
        hsipack.pack([("a", np.ones((3, 4, 5), np.float32))], tmp_path / "no", dtype="int16")
    with pytest.raises(hsipack.ConflictError, match="dtype='auto'"):
        hsipack.pack(cubes, tmp_path / "no", dtype="auto")


def test_damage_is_found_and_repaired(packed: tuple[str, Path], tmp_path: Path) -> None:
    _kind, path = packed
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    shard = copy / STACK / "image/c/0/0/0/0"
    content = bytearray(shard.read_bytes())
    content[100] ^= 0xFF
    shard.write_bytes(content)
    assert not hsipack.validate(copy).ok
    subprocess.run([hsipack_command.PROGRAM, "repair", copy], check=True, capture_output=True)
    assert hsipack.validate(copy, source=True).ok
    assert shard.read_bytes() == (path / STACK / "image/c/0/0/0/0").read_bytes()


def test_offsets_are_added(tmp_path: Path) -> None:
    store, out = tmp_path / "a.zarr", tmp_path / "out"
    rng = np.random.default_rng(4)
    cube = rng.integers(-3000, 9000, (11, 9, 6)).astype(np.int16)
    array = zarr.create_array(
        store, data=cube, chunks=(11, 9, 6), dimension_names=("y", "x", "band")
    )
    array.attrs.update({"scale_factor": 1e-4, "add_offset": -0.1})
    report = hsipack.convert(store, out, dtype="auto")
    assert report.dtype == "int16", report.notes
    stack = hsipack.open(out).stacks["11x9x6"]
    assert (stack.scale_factor, stack.add_offset, stack.fill_value) == (1e-4, -0.1, None)
    want = cube.astype(np.float64) * 1e-4 - 0.1
    image = hsipack.open(out, output="numpy")[0]["image"].transpose(1, 2, 0)
    np.testing.assert_array_equal(image, want.astype(np.float32))
    with hsipack.Loader(out, 1, device="cpu", output="numpy") as loader:
        (batch,) = loader
    np.testing.assert_allclose(batch["image"][0].transpose(1, 2, 0), want, rtol=1e-3, atol=1e-7)
    with xarray.open_zarr(out, group="11x9x6", consolidated=False) as stack:
        np.testing.assert_allclose(stack["image"][0].values, want, atol=1e-6)


FORMS = [("int16", "float16", True), ("uint8", "float16", True), ("uint16", "float32", True)]
FORMS += [("int16", "float32", False), ("uint16", "uint16", False)]


@pytest.mark.parametrize(
    ("decode", "kept"),
    [
        ("host", None),
        ("host", "decoded"),
        ("device", None),
        ("device", "decoded"),
        ("device", "compressed"),
    ],
)
@pytest.mark.parametrize(("kind", "dtype", "physical"), FORMS)
def test_batches_on_a_device_are_those_of_the_host(
    tmp_path: Path, decode: str, kept: str | None, kind: str, dtype: str, physical: bool
) -> None:
    labels = np.arange(ROWS * COLUMNS, dtype=np.uint8).reshape(ROWS, COLUMNS) % 5
    cubes = []
    for number in range(6):
        # Rows that follow one another are equal, so that chunks compress.
        cube = np.repeat(numbers(kind, number)[:3], 7, axis=0)[:ROWS]
        cube[2, 4:9] = KINDS[kind][0]
        cubes.append((f"{number}", cube, {"masks": {"labels": labels}}))
    hsipack.pack(cubes, tmp_path / "packed", dtype=kind, nodata=KINDS[kind][0], chunk=(8, 10))
    program = f"""
ds = hsipack.open(sys.argv[1], masks="labels", physical={physical})
shared = {{"shuffle": True, "seed": 2, "slots": 3, "num_threads": 2, "dtype": {dtype!r}}}
options = {{"decode": {decode!r}, "device_cache": {kept!r}}}
device = hsipack.Loader(ds, 4, output="dlpack", device="cuda:0", **shared, **options)
host = hsipack.Loader(ds, 4, output="numpy", **shared)
streams = [driver.stream()]
copied = 0
for epoch in range(3):
    for batch, want in zip(device, host, strict=True):
        assert want["image"].dtype == {dtype!r}
        copied += want["image"].nbytes + want["labels"].nbytes
        for one in taken(batch, want, streams[0]):
            one.read()
        del batch, one
assert device.report().transfer.device_cache.kind == {kept or "none"!r}
if {decode!r} == "device":
    assert device.stats().device_decoded > 0
    assert device.stats().link_bytes < copied
"""
    folder = tmp_path / "driver"
    folder.mkdir()
    said = FakeCuda(folder).assert_clean(LOADER + program + END, tmp_path / "packed")
    assert said == "fine\n"


@pytest.mark.parametrize("bands", [None, [6, 0, 4], [3]])
def test_band_groups_of_integers(
    packed: tuple[str, Path], bands: list[int] | None, tmp_path: Path
) -> None:
    kind, path = packed
    grouped = tmp_path / "grouped.hsipack"
    options: dict[str, Any] = {"dtype": kind, "chunk": (8, 10), "band_group": 3}
    hsipack.convert(path.parent / "raw", grouped, **options)
    assert hsipack.validate(grouped, source=True).ok
    with_groups, without = (hsipack.open(one, bands=bands) for one in (grouped, path))
    # Values of uint16 do not fit float16.
    fixed: dict[str, Any] = {"shuffle": True, "seed": 1, "device": "cpu", "dtype": "float32"}
    for options in ({}, {"crop": (9, 7)}, {"cache": None}):
        loaders = (hsipack.Loader(ds, 3, **fixed, **options) for ds in (with_groups, without))
        pairs = zip(*loaders, strict=True)
        for ours, theirs in pairs:
            assert torch.equal(ours["id"], theirs["id"])
            assert torch.equal(torch.isnan(ours["image"]), torch.isnan(theirs["image"]))
            assert torch.equal(ours["image"].nan_to_num(), theirs["image"].nan_to_num())
