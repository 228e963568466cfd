"""Further images of a sample: packed, checked, read, cut with windows and augmented."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import spectral.io.envi as envi
import tifffile
import torch
import xarray
import zarr
from conftest import BANDS, COLUMNS, CUBES, ROWS, cube, labels
from fake_cuda import FakeCuda, has_kernels
from hsipack import augment
from PIL import Image

STACK = f"{ROWS}x{COLUMNS}x{BANDS}"
# The further images: their rows and columns for one of the cube, and their bands.
RATIOS = {"before": Fraction(1), "rgb": Fraction(2), "fine": Fraction(3), "thermal": Fraction(1, 2)}
COUNTS = {"before": 4, "rgb": 3, "fine": 1, "thermal": 2}
NAMES = sorted(RATIOS)


def scaled(length: int, ratio: Fraction) -> int:
    whole = length * ratio
    assert whole.denominator == 1
    return int(whole)


def values(name: str, number: int) -> np.ndarray:
    """A further image (rows, columns, bands) as a program gives it."""
    rng = np.random.default_rng(1000 + 10 * number + NAMES.index(name))
    shape = (scaled(ROWS, RATIOS[name]), scaled(COLUMNS, RATIOS[name]), COUNTS[name])
    if name == "rgb":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    if name == "thermal":
        return rng.integers(0, 65_536, shape, dtype=np.uint16)
    array = rng.normal(0, 3, shape).astype(np.float32)
    if name == "before":
        array[2:5, 7] = np.nan
    return array


def stored(name: str, number: int) -> np.ndarray:
    """The same as it is packed."""
    kind = np.float32 if name == "thermal" else np.float16
    return values(name, number).astype(kind)


def all_cubes(count: int = CUBES, first: int = 0) -> list[tuple[str, np.ndarray, dict[str, Any]]]:
    return [
        (
            f"cube_{number:02}",
            cube(number),
            {
                "images": {name: values(name, number) for name in NAMES},
                "masks": {"labels": labels(number)},
            },
        )
        for number in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed dataset, with chunks of 8 rows and 4 cubes in a shard."""
    path = tmp_path_factory.mktemp("packed") / "images.hsipack"
    shard = 4 * ROWS * COLUMNS * BANDS * 2
    hsipack.pack(all_cubes(), path, chunk=(8, 10), shard_size=shard)
    return path


# Packing.


def test_other_libraries_open_further_images(packed: Path) -> None:
    root: Any = zarr.open_group(packed, mode="r")
    opened = xarray.open_zarr(packed, group=STACK, consolidated=False)
    for name in NAMES:
        for number in (0, CUBES - 1):
            want = stored(name, number)
            assert np.array_equal(root[f"{STACK}/{name}"][number], want, equal_nan=True)
            assert np.array_equal(opened[name].values[number], want, equal_nan=True)
    assert opened["before"].dims == ("sample", "y", "x", "before_band")
    assert opened["rgb"].dims == ("sample", "rgb_y", "rgb_x", "rgb_band")
    assert opened["rgb"].attrs["hsipack"]["ratio"] == [2, 1]
    assert opened["thermal"].attrs["hsipack"]["ratio"] == [1, 2]
    assert "ratio" not in opened["before"].attrs["hsipack"]
    assert hsipack.validate(packed).ok


def test_whole_numbers_of_pictures_are_packed_exactly(packed: Path) -> None:
    ds = hsipack.open(packed, output="numpy")
    assert np.array_equal(ds[3]["rgb"].transpose(1, 2, 0).astype(np.uint8), values("rgb", 3))
    thermal = ds[3]["thermal"].transpose(1, 2, 0)
    assert np.array_equal(thermal.astype(np.uint16), values("thermal", 3))


def test_samples_have_their_further_images(packed: Path) -> None:
    ds = hsipack.open(packed, output="numpy")
    assert ds.images == NAMES
    about = ds.stacks[STACK].images
    assert {name: image.ratio for name, image in about.items()} == {n: RATIOS[n] for n in NAMES}
    assert about["rgb"].shape == (2 * ROWS, 2 * COLUMNS, 3)
    assert about["rgb"].dtype == "float16"
    assert "further images before, fine, rgb, thermal" in repr(ds.stacks[STACK])
    sample = ds[5]
    for name in NAMES:
        want = stored(name, 5).transpose(2, 0, 1)
        assert sample[name].dtype == want.dtype
        assert np.array_equal(sample[name], want, equal_nan=True)
    part = ds.read(5, slice(4, 16), slice(2, 12))
    for name in NAMES:
        ends = [scaled(end, RATIOS[name]) for end in (4, 16, 2, 12)]
        want = stored(name, 5)[ends[0] : ends[1], ends[2] : ends[3]].transpose(2, 0, 1)
        assert np.array_equal(part[name], want, equal_nan=True)
    with pytest.raises(hsipack.ConflictError, match=r"rows 3\.\.16 do not begin and end") as caught:
        ds.read(5, slice(3, 16), slice(2, 12))
    assert "multiples of 2" in str(caught.value.remedy)
    odd = ds.with_images(["rgb"]).read(5, slice(3, 16), slice(2, 12))
    assert odd["rgb"].shape == (3, 26, 20)
    assert not {*NAMES} & {*ds.with_images([])[0]}
    assert hsipack.open(packed, images="rgb").select([1]).images == ["rgb"]
    with pytest.raises(hsipack.ConflictError, match="no further image 'depth'"):
        ds.with_images("depth")
    assert torch.equal(hsipack.open(packed)[5]["rgb"], torch.tensor(sample["rgb"]))


@pytest.fixture
def files(cubes: Path, tmp_path: Path) -> Path:
    """A folder with the files of further images: PNG, JPEG, TIFF, ENVI and NumPy."""
    for number in range(CUBES):
        stem = f"cube_{number:02}"
        Image.fromarray(values("rgb", number)).save(tmp_path / f"{stem}.png")
        Image.fromarray(values("rgb", number)).save(
            tmp_path / f"{stem}.jpg", quality=95, subsampling=0
        )
        tifffile.imwrite(tmp_path / f"{stem}_k.tif", values("thermal", number)[..., 0])
        before = values("before", number)
        metadata = {"wavelength": [500, 600, 700, 800], "wavelength units": "nm"}
        envi.save_image(str(tmp_path / f"{stem}_t0.hdr"), before, metadata=metadata, force=True)
        np.save(tmp_path / f"{stem}_fine.npy", values("fine", number).transpose(2, 0, 1))
    return tmp_path


def test_images_are_read_from_files_of_many_formats(
    cubes: Path, files: Path, tmp_path: Path
) -> None:
    path = tmp_path / "files.hsipack"
    ends = {"rgb": ".png", "photo": ".jpg", "kelvin": "_k.tif", "before": "_t0.hdr"}
    image = {name: f"{files}/{{stem}}{end}" for name, end in ends.items()}
    # The bands come first in this array, and only its rows and columns say so.
    image["fine"] = f"{files}/{{stem}}_fine.npy"
    report = hsipack.convert(cubes, path, image=image)
    assert report.stacks[0].images[3:] == [
        "photo (float16, 3 bands, 2 x the rows and columns)",
        "rgb (float16, 3 bands, 2 x the rows and columns)",
    ]
    ds = hsipack.open(path, output="numpy")
    assert ds.stacks[STACK].images["before"].wavelengths.tolist() == [500, 600, 700, 800]
    for number in range(CUBES):
        sample = ds[number]
        for name in ("rgb", "before", "fine"):
            want = stored(name, number).transpose(2, 0, 1)
            assert np.array_equal(sample[name], want, equal_nan=True)
        assert np.array_equal(sample["kelvin"][0], values("thermal", number)[..., 0])
        photo = np.asarray(Image.open(files / f"cube_{number:02}.jpg"))
        # Decoders of JPEG round differently.
        assert np.allclose(sample["photo"], photo.transpose(2, 0, 1), atol=4)
    assert hsipack.validate(path, source=True).ok
    changed = values("rgb", 3)
    changed[7, 9, 1] ^= 1
    Image.fromarray(changed).save(files / "cube_03.png")
    (problem,) = hsipack.validate(path, source=True).problems
    assert "further image rgb: row 7, column 9, band 1" in problem.what


def test_images_of_a_folder_of_cubes_are_not_packed_as_cubes(tmp_path: Path) -> None:
    for number in range(2):
        np.save(tmp_path / f"s{number}.npy", cube(number))
        np.save(tmp_path / f"s{number}_t0.npy", values("before", number))
    report = hsipack.convert(
        tmp_path, tmp_path / "d.hsipack", image={"before": "{dir}/{stem}_t0.npy"}
    )
    assert report.cubes == 2
    assert any("further image" in note for note in report.notes)


def test_images_are_brought_to_the_pixels_of_their_cubes(
    cubes: Path, files: Path, tmp_path: Path
) -> None:
    image = {"fine": f"{files}/{{stem}}_fine.npy", "kelvin": f"{files}/{{stem}}_k.tif"}
    for fit in ("nearest", "mean"):
        path = tmp_path / f"{fit}.hsipack"
        hsipack.convert(cubes, path, image=image, fit=fit, dtype="float32")
        sample = hsipack.open(path, output="numpy")[4]
        fine = values("fine", 4)[..., 0]
        if fit == "nearest":
            want = fine[1::3, 1::3]
        else:
            blocks = fine.reshape(ROWS, 3, COLUMNS, 3).astype(np.float64)
            want = blocks.mean(axis=(1, 3)).astype(np.float32)
        assert np.allclose(sample["fine"][0], want, rtol=1e-6, atol=1e-6)
        kelvin = values("thermal", 4)[..., 0].repeat(2, axis=0).repeat(2, axis=1)
        assert np.array_equal(sample["kelvin"][0], kelvin)
        assert hsipack.validate(path, source=True).ok


def test_wrong_images_are_refused_before_anything_is_written(
    cubes: Path, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "never.hsipack"
    Image.fromarray(values("rgb", 7)[:-1]).save(files / "cube_07.png")
    (files / "cube_08.jpg").unlink()
    np.save(files / "cube_09_fine.npy", values("before", 9))
    for name, end, message in [
        ("rgb", ".png", 'further image "rgb" has 39x48 pixels, but its cube .* has 20x24'),
        ("photo", ".jpg", 'further image "photo" is missing: there is no .*cube_08.jpg'),
        ("fine", "_fine.npy", r'"fine" has 4 bands, but 1 in other cubes'),
        ("fwhm", "_k.tif", "cannot be the name of a further image"),
    ]:
        with pytest.raises(hsipack.Error, match=message) as caught:
            hsipack.convert(cubes, out, image={name: f"{files}/{{stem}}{end}"})
        assert caught.value.remedy or "other cubes" in message
        assert not out.exists()
        assert not out.with_name("never.hsipack.partial").exists()
    same = {"t": f"{files}/{{stem}}_k.tif"}
    with pytest.raises(hsipack.ConflictError, match="a target and a further image are named t"):
        hsipack.convert(cubes, out, image=same, target=same)
    with pytest.raises(hsipack.ConflictError, match="fit without target or image"):
        hsipack.convert(cubes, out, fit="mean")
    for given, message in [
        ({"rgb": values("rgb", 0)[:-1]}, r"image 'rgb' of cube 'a' has the shape \(39, 48, 3\)"),
        ({"rgb": values("rgb", 0).astype(np.complex64)}, "is of complex64"),
        (values("rgb", 0), "images="),
    ]:
        with pytest.raises(hsipack.Error, match=message):
            hsipack.pack([("a", cube(0), {"images": given})], out)
        assert not out.exists()
    two: list[Any] = [("a", cube(0), {"images": {"rgb": values("rgb", 0)}}), ("b", cube(1))]
    with pytest.raises(hsipack.ConflictError, match="the first one 'rgb'"):
        hsipack.pack(two, out)
    clash = {"images": {"x": values("rgb", 0)}, "targets": {"x": np.zeros((ROWS, COLUMNS))}}
    with pytest.raises(hsipack.ConflictError, match="a target and a further image with the name"):
        hsipack.pack([("a", cube(0), clash)], out)
    assert not out.exists()


def test_a_dataset_without_images_records_nothing_of_them(dataset: str) -> None:
    root = (Path(dataset) / "zarr.json").read_text()
    assert '"images"' not in root
    assert '"fit"' not in root
    assert hsipack.open(dataset).images == []


# Batches. The oracle cuts windows of whole arrays with NumPy.


def mirrored(position: int, length: int) -> tuple[int, bool]:
    """The pixel at a position of an axis that is mirrored at its outermost pixels, and whether it
    is turned.
    """
    position %= 2 * (length - 1)
    return (position, False) if position < length else (2 * (length - 1) - position, True)


def axis(start: int, size: int, length: int, ratio: Fraction, pad: Any) -> list[int | None]:
    """The pixels of an axis of a further image for a window of the cube; None for padding."""
    finer, pixels = ratio.numerator, scaled(length, ratio)
    found: list[int | None] = []
    for place in range(scaled(start, ratio), scaled(start + size, ratio)):
        if 0 <= place < pixels:
            found.append(place)
        elif pad == "reflect":
            if ratio < 1:
                turned = place % (2 * pixels)
                found.append(min(turned, 2 * pixels - 1 - turned))
                continue
            pixel, is_turned = mirrored(place // finer, length)
            within = place % finer
            found.append(pixel * finer + (finer - 1 - within if is_turned else within))
        elif pad == "edge":
            found.append(min(max(place, 0), pixels - 1))
        else:
            found.append(None)
    return found


def cut(name: str, number: int, window: Any, pad: Any) -> np.ndarray:
    """A window of the cube, (bands, rows, columns) of the further image."""
    row, column, rows, columns = (int(one) for one in window)
    array, ratio = stored(name, number), RATIOS[name]
    down = axis(row, rows, ROWS, ratio, pad)
    across = axis(column, columns, COLUMNS, ratio, pad)
    fill = np.nan if pad in (None, "reflect", "edge") else pad
    out = np.full((len(down), len(across), array.shape[2]), fill, array.dtype)
    for to, source in enumerate(down):
        for place, pixel in enumerate(across):
            if source is not None and pixel is not None:
                out[to, place] = array[source, pixel]
    return out.transpose(2, 0, 1)


def check_batch(batch: dict[str, Any], pad: Any, names: list[str]) -> None:
    for place, (number, window) in enumerate(zip(batch["id"], batch["window"], strict=True)):
        for name in names:
            want = cut(name, int(number), np.asarray(window), pad)
            got = np.asarray(batch[name][place])
            assert got.dtype == want.dtype
            assert np.array_equal(got, want, equal_nan=True), (name, number, window)


CROPS: list[tuple[Any, Any, list[str]]] = [
    (None, None, NAMES),
    (hsipack.RandomCrop((10, 12), per_cube=2), None, NAMES),
    (hsipack.CenterCrop((6, 4)), None, NAMES),
    (hsipack.GridCrop((8, 10), step=(6, 8)), None, NAMES),
    (hsipack.GridCrop((26, 30), step=26, pad="reflect"), "reflect", NAMES),
    (hsipack.GridCrop((26, 30), step=26, pad="edge"), "edge", NAMES),
    (hsipack.GridCrop((26, 30), step=26, pad=0.5), 0.5, NAMES),
    (hsipack.RandomCrop((9, 11), per_cube=2), None, ["before", "fine", "rgb"]),
    (hsipack.LabelledPatches((7, 9), mask="labels"), "reflect", ["before", "fine", "rgb"]),
    (hsipack.LabelledPatches((7, 9), mask="labels", pad="edge"), "edge", ["fine", "rgb"]),
    (hsipack.LabelledPatches((45, 3), mask="labels"), "reflect", ["rgb", "fine"]),
    (hsipack.Regions(9, mask="labels"), "reflect", ["before", "rgb"]),
]


@pytest.mark.parametrize("cache", [None, "decoded", "compressed"])
@pytest.mark.parametrize(("crop", "pad", "names"), CROPS)
def test_windows_cut_the_same_ground_from_all_images(
    packed: Path, crop: Any, pad: Any, names: list[str], cache: Any
) -> None:
    ds = hsipack.open(packed).with_images(names)
    kept = {} if cache is None else {"cache_size": 1 << 24}
    shared: dict[str, Any] = {"shuffle": True, "seed": 3, "output": "numpy", "device": "cpu"}
    loader = hsipack.Loader(ds, 5, crop=crop, cache=cache, **kept, **shared)
    assert loader.report().images == names
    for passed, batch in enumerate(loader):
        check_batch(batch, pad, names)
        if passed == 8:
            break
    loader.close()


@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_batches_of_any_output_have_the_images(packed: Path, output: Any) -> None:
    for batch in hsipack.Loader(packed, 5, crop=(8, 8), output=output, device="cpu"):
        assert batch["rgb"].shape[1:] == (3, 16, 16)
        assert batch["thermal"].shape[1:] == (2, 4, 4)
        check_batch(batch, None, NAMES)


def test_random_crops_begin_with_pixels_of_coarser_images(packed: Path) -> None:
    ds = hsipack.open(packed)
    crop = hsipack.RandomCrop((8, 8), per_cube=20)
    starts = [
        tuple(window[:2])
        for batch in hsipack.Loader(ds, 12, crop=crop, seed=1, output="numpy", device="cpu")
        for window in batch["window"].tolist()
    ]
    assert all(row % 2 == column % 2 == 0 for row, column in starts)
    assert {row for row, _ in starts} == set(range(0, 13, 2))
    free = hsipack.Loader(
        ds.with_images(["rgb"]), 12, crop=crop, seed=1, output="numpy", device="cpu"
    )
    assert any(int(window[0]) % 2 for batch in free for window in batch["window"])


@pytest.mark.parametrize(
    ("crop", "message"),
    [
        (hsipack.RandomCrop((9, 8)), "windows of 9x8 pixels do not fit the further image"),
        (hsipack.GridCrop((8, 8), step=3), "windows that are 3x3 pixels apart do not fit"),
        (hsipack.LabelledPatches((8, 8), mask="labels"), "patches, regions and listed windows do"),
    ],
)
def test_windows_across_coarser_pixels_are_refused(packed: Path, crop: Any, message: str) -> None:
    with pytest.raises(hsipack.ConflictError, match=message) as caught:
        hsipack.Loader(packed, 2, crop=crop, device="cpu")
    assert "read without that image" in str(caught.value.remedy)


def test_a_loader_reads_the_images_of_its_dataset(packed: Path) -> None:
    ds = hsipack.open(packed).with_images("rgb").with_masks([])
    batch = next(iter(hsipack.Loader(ds, 3, device="cpu")))
    assert {"rgb", "thermal"} & set(batch) == {"rgb"}
    with pytest.raises(hsipack.ConflictError, match="with further images"):
        hsipack.concat([ds, ds.with_images([])])
    short = next(iter(hsipack.Loader(packed, 3, images=["thermal"], device="cpu")))
    assert {"rgb", "thermal"} & set(short) == {"thermal"}


def test_two_epochs_resume_with_the_same_windows(packed: Path) -> None:
    def loader() -> Any:
        crop = hsipack.RandomCrop((8, 8), per_cube=2)
        return hsipack.Loader(packed, 4, crop=crop, shuffle=True, seed=5, device="cpu")

    whole = loader()
    batches = [batch["thermal"].clone() for batch in whole]
    first = loader()
    iterator = iter(first)
    for _ in range(3):
        next(iterator)
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    rest = [batch["thermal"].clone() for batch in second]
    assert len(rest) == len(batches) - 3
    assert all(torch.equal(a, b) for a, b in zip(rest, batches[3:], strict=True))


# Augmentations.


def between(array: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The oracle: bilinear values of (bands, rows, columns) at positions inside the frame."""
    rows, columns = array.shape[1:]
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    total = np.zeros((array.shape[0], *x.shape))
    for down in (0, 1):
        for across in (0, 1):
            part = np.abs(1 - across - (x - left)) * np.abs(1 - down - (y - top))
            rows_at = np.clip(top + down, 0, rows - 1)
            total += array[:, rows_at, np.clip(left + across, 0, columns - 1)] * part
    return total


def smooth(ratio: Fraction) -> np.ndarray:
    """The x and y of the ground at the centres of pixels, in the cube's: (2, rows, columns).
    A map of the ground is linear in them, so bilinear interpolation of any resolution is exact.
    """
    factor = float(ratio)
    rows, columns = scaled(ROWS, ratio), scaled(COLUMNS, ratio)
    y, x = np.mgrid[:rows, :columns]
    return np.stack([(x + 0.5) / factor - 0.5, (y + 0.5) / factor - 0.5])


SCALES = [Fraction(1), Fraction(2), Fraction(3), Fraction(1, 2), Fraction(1, 4)]
WARPS = [
    augment.RandomAffine(40, (0.1, 0.2), (0.8, 1.2), 10, padding_mode="border", p=1.0),
    augment.RandomRotation(30, padding_mode="border", p=1.0),
    augment.RandomPerspective(0.2, padding_mode="border", p=1.0),
    augment.RandomResizedCrop((12, 16), (0.5, 1.0), (0.9, 1.1)),
    augment.Resize((28, 32)),
]


@pytest.mark.parametrize("through", [None, "torch"])
@pytest.mark.parametrize("ratio", SCALES)
@pytest.mark.parametrize("op", WARPS, ids=lambda op: type(op).__name__)
def test_warps_move_images_of_any_resolution_over_the_same_ground(
    op: Any, ratio: Fraction, through: str | None
) -> None:
    """Images hold positions on the ground. After a warp, a pixel of a further image holds the
    position that the image holds between its pixels at the same place, or NumPy's at its own.
    """
    op = augment.AugmentationSequential(op, seed=5)
    op._through = through
    ground = np.stack([smooth(Fraction(1))] * 4)
    further = torch.tensor(np.stack([smooth(ratio)] * 4))
    image, arrays = op(torch.tensor(ground), {"x": further}, ids=list(range(4)), image_keys=["x"])
    moved, got = image.numpy(), arrays["x"].numpy()
    rows, columns = moved.shape[2:]
    assert got.shape[2:] == (scaled(rows, ratio), scaled(columns, ratio))
    y, x = np.mgrid[: got.shape[2], : got.shape[3]]
    at = [(x + 0.5) / float(ratio) - 0.5, (y + 0.5) / float(ratio) - 0.5]
    is_projective = isinstance(op._augmentations[0], augment.RandomPerspective)
    for sample in range(4):
        want = between(moved[sample], np.clip(at[0], 0, columns - 1), np.clip(at[1], 0, rows - 1))
        # Pixels whose ground is inside all frames, without clamping.
        margin = max(1.0, 0.5 / float(ratio)) + 0.5
        keep = (at[0] >= 0) & (at[0] <= columns - 1) & (at[1] >= 0) & (at[1] <= rows - 1)
        for axis_of, length in ((0, COLUMNS), (1, ROWS)):
            keep &= (want[axis_of] > margin) & (want[axis_of] < length - 1 - margin)
        assert keep.mean() > 0.15
        tolerance = 0.05 if is_projective else 2e-3
        assert np.allclose(got[sample][:, keep], want[:, keep], atol=tolerance)


@pytest.mark.parametrize("through", [None, "torch"])
@pytest.mark.parametrize("ratio", SCALES)
def test_flips_and_turns_move_images_of_any_resolution_unchanged(
    ratio: Fraction, through: str | None
) -> None:
    ops = {
        "h": (augment.RandomHorizontalFlip(p=1.0), lambda a: a[:, :, :, ::-1]),
        "v": (augment.RandomVerticalFlip(p=1.0), lambda a: a[:, :, ::-1]),
        "turn": (augment.RandomRotation90((1, 1), p=1.0), lambda a: np.rot90(a, 1, (2, 3))),
        "half": (augment.RandomRotation90((2, 2), p=1.0), lambda a: np.rot90(a, 2, (2, 3))),
    }
    rng = np.random.default_rng(4)
    side = 24
    image = rng.random((3, 2, side, side), dtype=np.float32)
    further = rng.random((3, 3, scaled(side, ratio), scaled(side, ratio)), dtype=np.float32)
    for op, oracle in ops.values():
        sequence = augment.AugmentationSequential(op, seed=1)
        sequence._through = through
        moved, arrays = sequence(
            torch.tensor(image), {"x": torch.tensor(further)}, ids=[0, 1, 2], image_keys=["x"]
        )
        assert np.array_equal(moved.numpy(), oracle(image))
        assert np.array_equal(arrays["x"].numpy(), oracle(further))


def test_crops_take_the_same_ground_or_are_refused() -> None:
    image = torch.rand(3, 2, ROWS, COLUMNS)
    further = {"x": torch.tensor(np.stack([smooth(Fraction(2))] * 3)).float()}
    op = augment.AugmentationSequential(augment.RandomCrop((8, 10)), seed=3)
    _, arrays = op(image, further, ids=[0, 1, 2], image_keys=["x"])
    assert arrays["x"].shape == (3, 2, 16, 20)
    for sample in arrays["x"].numpy():
        # Whole pixels of the finer image, from a whole pixel of the cube.
        assert np.allclose(np.diff(sample[0], axis=1), 0.5, atol=1e-5)
        assert (sample[0, 0, 0] + 0.25) % 1 == pytest.approx(0, abs=1e-5)
    coarse = {"x": torch.rand(3, 2, ROWS // 4, COLUMNS // 4)}
    odd = augment.AugmentationSequential(augment.RandomCrop((9, 8)), seed=3)
    with pytest.raises(hsipack.ConflictError, match="9 x 8 pixels do not fit the further image x"):
        odd(image, coarse, ids=[0, 1, 2], image_keys=["x"])
    for op in (
        augment.RandomElasticTransform((9, 11), (3.0, 4.0), (0.5, 0.6), p=1.0),
        augment.RandomTransplantation(mask="m", p=1.0),
    ):
        masks = {**coarse, "m": torch.ones(3, ROWS, COLUMNS, dtype=torch.uint8)}
        with pytest.raises(hsipack.UnsupportedError, match="to the further image x, which has 1/4"):
            augment.AugmentationSequential(op, seed=1)(
                image, masks, ids=[0, 1, 2], image_keys=["x"]
            )


@pytest.mark.parametrize("through", [None, "torch"])
def test_values_change_in_the_image_only(through: str | None) -> None:
    op = augment.AugmentationSequential(
        augment.Gain((0.5, 0.9)),
        augment.RandomGaussianNoise(0.1, 0.2, p=1.0),
        augment.RandomChannelDropout(1, p=1.0),
        augment.RandomErasing(value=1.0, p=1.0),
        augment.SNV(),
        seed=2,
    )
    op._through = through
    image, further = torch.rand(4, BANDS, 8, 8), torch.rand(4, 3, 16, 16)
    changed, arrays = op(image, {"x": further}, ids=list(range(4)), image_keys=["x"])
    assert not torch.equal(changed, image)
    assert torch.equal(arrays["x"], further)


@pytest.mark.parametrize("through", [None, "torch"])
def test_values_of_the_images_that_arrays_names_change(through: str | None) -> None:
    image, further = torch.rand(4, BANDS, 8, 8), torch.rand(4, 3, 16, 16)

    def applied(*ops: Any, arrays: Any) -> tuple[torch.Tensor, torch.Tensor]:
        op = augment.AugmentationSequential(*ops, seed=2, arrays=arrays)
        assert augment.from_config(op.to_json()) == op
        op._through = through
        changed, out = op(image, {"x": further}, ids=list(range(4)), image_keys=["x"])
        return changed, out["x"]

    gain = augment.Gain((0.5, 0.9))
    changed, out = applied(gain, arrays=["image", "x"])
    factors = (changed / image).mean(dim=(1, 2, 3), keepdim=True)
    assert torch.allclose(out, further * factors, rtol=1e-5)
    changed, out = applied(gain, augment.RandomHorizontalFlip(p=1.0), arrays=["x"])
    assert torch.equal(changed, image.flip(3))
    assert torch.allclose(out, further.flip(3) * factors, rtol=1e-5)
    for op in (
        augment.RandomGaussianNoise(0.1, 0.2, p=1.0),
        augment.RandomGaussianBlur(3, (0.5, 2.0), p=1.0),
        augment.IlluminationRamp((0.1, 0.2)),
    ):
        _, out = applied(op, arrays=["image", "x"])
        assert not torch.equal(out, further)
        assert out.isfinite().all()
    _, out = applied(augment.SNV(), arrays=["image", "x"])
    assert torch.allclose(out.mean(dim=1), torch.zeros(4, 16, 16), atol=1e-5)


def test_values_that_do_not_fit_an_image_are_refused(packed: Path) -> None:
    mean = augment.AugmentationSequential(
        {"op": "standardize", "mean": [0.5] * BANDS, "std": [2.0] * BANDS},
        seed=1,
        arrays=["image", "rgb"],
    )
    with pytest.raises(
        hsipack.ConflictError, match="cannot change the further image rgb"
    ) as caught:
        hsipack.Loader(packed, 4, augment=mean, device="cpu")
    assert "leave the image out of arrays" in str(caught.value.remedy)
    unknown = augment.AugmentationSequential(augment.Gain((0.5, 0.9)), arrays=["image", "depth"])
    with pytest.raises(hsipack.ConflictError, match="arrays names depth, which is no image"):
        hsipack.Loader(packed, 4, augment=unknown, device="cpu")
    with pytest.raises(hsipack.ConflictError, match="arrays names depth"):
        unknown(torch.rand(2, 3, 4, 4), ids=[0, 1])


@pytest.mark.parametrize("through", [None, "torch"])
@pytest.mark.parametrize("ratio", [Fraction(1), Fraction(2), Fraction(1, 4)])
def test_mixing_mixes_images_of_any_resolution(ratio: Fraction, through: str | None) -> None:
    """Every image holds the number of its sample, so pasted pixels say where they are from."""
    numbers = torch.arange(6.0)[:, None, None, None]
    image = numbers.expand(6, 2, ROWS, COLUMNS)
    further = numbers.expand(6, 1, scaled(ROWS, ratio), scaled(COLUMNS, ratio))
    op = augment.AugmentationSequential(augment.RandomCutMixV2(p=1.0), seed=4)
    op._through = through
    mixed, arrays = op(image, {"x": further}, ids=list(range(6)), image_keys=["x"])
    got = arrays["x"].numpy()[:, 0]
    assert not torch.equal(arrays["x"], further)
    if ratio >= 1:
        step = int(ratio)
        want = mixed.numpy()[:, 0].repeat(step, axis=1).repeat(step, axis=2)
        assert np.array_equal(got, want)
    else:
        step = int(1 / ratio)
        # A coarse pixel is that of the sample at its centre.
        assert np.array_equal(got, mixed.numpy()[:, 0, step // 2 :: step, step // 2 :: step])
    op = augment.AugmentationSequential(augment.RandomMixUpV2((0.2, 0.4), p=1.0), seed=4)
    op._through = through
    mixed, arrays = op(image, {"x": further}, ids=list(range(6)), image_keys=["x"])
    assert torch.allclose(arrays["x"][:, 0, 0, 0], mixed[:, 0, 0, 0])


def test_arrays_that_are_no_further_images_are_refused() -> None:
    op = augment.AugmentationSequential(augment.RandomHorizontalFlip(p=1.0), seed=1)
    image = torch.rand(2, 3, 8, 8)
    for array, message in [
        (torch.rand(2, 3, 12, 8), "which does not fit images of shape"),
        (torch.ones(2, 3, 16, 16, dtype=torch.uint8), "the further image x has shape"),
        (torch.rand(2, 16, 16), "the further image x has shape"),
    ]:
        with pytest.raises(hsipack.ConflictError, match=message):
            op(image, {"x": array}, ids=[0, 1], image_keys=["x"])
    with pytest.raises(hsipack.ConflictError, match="lacks the arrays"):
        op({"image": image}, image_keys=["x"])
    batch = {"image": image, "x": torch.rand(2, 3, 16, 16)}
    assert torch.equal(op(batch)["x"], batch["x"])
    assert torch.equal(op(batch, image_keys=["x"])["x"], batch["x"].flip(3))


def test_a_loader_augments_images_as_a_call_does(packed: Path) -> None:
    op = augment.AugmentationSequential(
        augment.RandomHorizontalFlip(), augment.RandomRotation(30, p=0.7), seed=8
    )
    plain = hsipack.Loader(packed, 4, seed=1, shuffle=True, device="cpu")
    changed = hsipack.Loader(packed, 4, seed=1, shuffle=True, augment=op, device="cpu")
    different = 0
    for batch, augmented in zip(plain, changed, strict=True):
        given = {key: batch[key] for key in ("image", *NAMES, "id", "repeat")}
        want = op(given, epoch=batch["epoch"], image_keys=NAMES)
        for key in ("image", *NAMES):
            assert torch.equal(want[key].nan_to_num(-3), augmented[key].nan_to_num(-3))
        different += not torch.equal(batch["rgb"], augmented["rgb"])
    assert different
    elastic = augment.RandomElasticTransform((9, 11), (3.0, 4.0), (0.5, 0.6), p=1.0)
    with pytest.raises(hsipack.UnsupportedError, match="cannot be applied to the further image"):
        hsipack.Loader(packed, 4, augment=elastic, device="cpu")


PROGRAM = """
import ctypes
import sys
import numpy as np
from fake_cuda import Driver
import hsipack

address_of = ctypes.pythonapi.PyCapsule_GetPointer
address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
driver, context = Driver(), ctypes.c_void_p()
driver.call("cuInit", 0)
driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
driver.call("cuCtxPushCurrent_v2", context)
stream = driver.stream()
packed, decode, crop, kept = sys.argv[1:5]
crops = {
    "whole": None,
    "grid": hsipack.GridCrop((26, 30), step=26, pad="reflect"),
    "random": hsipack.RandomCrop((8, 10), per_cube=2),
}
options = {"seed": 2, "shuffle": True, "num_threads": 2, "crop": crops[crop]}
kept = {"device_cache": None if kept == "none" else kept, "device_cache_size": 1 << 25}
if kept["device_cache"] is None:
    del kept["device_cache_size"]
device = hsipack.Loader(
    packed, 3, device="cuda:0", decode=decode, output="dlpack", **kept, **options
)
host = hsipack.Loader(packed, 3, output="numpy", **options)
for epoch in range(2):
    for batch, want in zip(device, host, strict=True):
        assert batch["id"].tolist() == want["id"].tolist()
        for name in ("image", "before", "fine", "rgb", "thermal"):
            values = np.ascontiguousarray(want[name].transpose(0, 2, 3, 1))
            capsule = batch[name].__dlpack__(stream=stream)
            address = ctypes.cast(
                address_of(capsule, b"dltensor"), ctypes.POINTER(ctypes.c_uint64)
            )[0]
            driver.read(stream, address, values.tobytes())
            driver.finish()
            del capsule
        del batch
device.close()
driver.finish()
driver.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))
driver.call("cuCtxPopCurrent_v2", None)
driver.call("cuDevicePrimaryCtxRelease_v2", 0)
print("same")
"""


@pytest.mark.parametrize("kept", ["none", "decoded", "compressed"])
@pytest.mark.parametrize("crop", ["whole", "grid", "random"])
@pytest.mark.parametrize("decode", ["host", "device"])
def test_images_are_copied_to_a_device(
    packed: Path, tmp_path: Path, decode: str, crop: str, kept: str
) -> None:
    if decode == "device" and not has_kernels():
        pytest.skip("the stand-in was built without a C++ compiler")
    if (kept, decode) == ("compressed", "host"):
        pytest.skip("compressed samples need a device that decodes")
    done = FakeCuda(tmp_path).run(PROGRAM, packed, decode, crop, kept)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "same\n"
