"""Targets, floats for each pixel: packed, checked, merged, read, cut and augmented."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import tifffile
import torch
import xarray
import zarr
from conftest import BANDS, COLUMNS, CUBES, ROWS, cube, labels
from fake_cuda import FakeCuda, has_kernels
from hsipack import augment
from PIL import Image

STACK = f"{ROWS}x{COLUMNS}x{BANDS}"
CHANNELS = 3


def methane(number: int) -> np.ndarray:
    """A concentration (rows, columns), which is missing in a corner and at a pixel."""
    values = np.random.default_rng(100 + number).normal(0, 1e4, (ROWS, COLUMNS))
    values[: 3 + number % 4, :5] = np.nan
    values[11, 13] = np.nan
    return values.astype(np.float32)


def abundances(number: int) -> np.ndarray:
    """Shares of materials (rows, columns, channels)."""
    values = np.random.default_rng(200 + number).dirichlet(np.ones(CHANNELS), (ROWS, COLUMNS))
    return values.astype(np.float32)


def targets(number: int) -> dict[str, np.ndarray]:
    return {"mag1c": methane(number), "abundance": abundances(number)}


def all_cubes(count: int = CUBES, first: int = 0) -> list[tuple[str, np.ndarray, dict[str, Any]]]:
    return [
        (
            f"cube_{number:02}",
            cube(number),
            {"targets": targets(number), "masks": {"labels": labels(number)}},
        )
        for number in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed dataset, with chunks of 8 rows and 4 cubes in a shard."""
    path = tmp_path_factory.mktemp("packed") / "targets.hsipack"
    shard = 4 * ROWS * COLUMNS * BANDS * 2
    hsipack.pack(all_cubes(), path, chunk=(8, 10), shard_size=shard)
    return path


@pytest.fixture
def files(cubes: Path, tmp_path: Path) -> Path:
    """A folder with the files of targets: TIFF, 16-bit PNG and NumPy."""
    for number in range(CUBES):
        stem = f"cube_{number:02}"
        tifffile.imwrite(tmp_path / f"{stem}_mag1c.tif", methane(number))
        heights = (methane(number) + 60_000).clip(0, 65_535)
        heights = np.nan_to_num(heights).astype(np.uint16)
        Image.fromarray(heights).save(tmp_path / f"{stem}_height.png")
        np.save(tmp_path / f"{stem}_abundance.npy", abundances(number).astype(np.float64))
    return tmp_path


def patterns(files: Path) -> dict[str, str]:
    return {
        "mag1c": f"{files}/{{stem}}_mag1c.tif",
        "height": f"{files}/{{stem}}_height.png",
        "abundance": f"{files}/{{stem}}_abundance.npy",
    }


def tree(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


# Packing.


def test_other_libraries_open_targets(packed: Path) -> None:
    root: Any = zarr.open_group(packed, mode="r")
    for number in range(CUBES):
        assert np.array_equal(root[f"{STACK}/mag1c"][number], methane(number), equal_nan=True)
        assert np.array_equal(root[f"{STACK}/abundance"][number], abundances(number))
    assert root[f"{STACK}/mag1c"].dtype == np.float32
    opened = xarray.open_zarr(packed, group=STACK, consolidated=False)
    assert opened["mag1c"].dims == ("sample", "y", "x")
    assert opened["abundance"].dims == ("sample", "y", "x", "abundance_k")
    assert np.array_equal(opened["mag1c"].values[2], methane(2), equal_nan=True)
    chunks = opened["abundance"].encoding["chunks"]
    assert chunks == (1, 8, 10, CHANNELS)


def test_targets_lie_on_the_map_of_their_cubes(tmp_path: Path) -> None:
    geo = {"crs": "EPSG:32632", "transform": (500_000, 30, 0, 5_000_000, 0, -30)}
    more = {"targets": targets(0), "geo": geo}
    hsipack.pack([("scene", cube(0), more)], tmp_path / "d.hsipack")
    opened = xarray.open_zarr(tmp_path / "d.hsipack", group=STACK, consolidated=False)
    assert opened["mag1c"].attrs["grid_mapping"] == "spatial_ref"
    assert opened["mag1c"].x.values[0] == 500_015
    assert hsipack.validate(tmp_path / "d.hsipack").ok


def test_samples_have_their_targets(packed: Path) -> None:
    ds = hsipack.open(packed, output="numpy")
    assert ds.targets == ["abundance", "mag1c"]
    assert ds.masks == ["labels"]
    about = ds.stacks[STACK].targets
    assert about["mag1c"] == hsipack.Target("mag1c", "float32", None)
    assert about["abundance"].channels == CHANNELS
    assert "targets abundance, mag1c" in repr(ds.stacks[STACK])
    sample = ds[5]
    assert sample["mag1c"].dtype == np.float32
    assert np.array_equal(sample["mag1c"], methane(5), equal_nan=True)
    assert np.array_equal(sample["abundance"], abundances(5).transpose(2, 0, 1))
    part = ds.read(5, slice(3, 17), slice(2, 12))
    assert np.array_equal(part["mag1c"], methane(5)[3:17, 2:12], equal_nan=True)
    assert np.array_equal(part["abundance"], abundances(5)[3:17, 2:12].transpose(2, 0, 1))
    assert "mag1c" not in ds.with_targets([])[0]
    assert hsipack.open(packed, targets="mag1c").select([1]).targets == ["mag1c"]
    with pytest.raises(hsipack.ConflictError, match="no target 'depth'") as caught:
        ds.with_targets("depth")
    assert "abundance, mag1c" in str(caught.value.remedy)
    with pytest.raises(hsipack.ConflictError, match="no mask 'mag1c'"):
        ds.with_masks("mag1c")
    assert torch.equal(hsipack.open(packed)[5]["abundance"], torch.tensor(sample["abundance"]))


def test_targets_are_read_from_files_of_many_formats(
    cubes: Path, files: Path, tmp_path: Path
) -> None:
    path = tmp_path / "files.hsipack"
    report = hsipack.convert(cubes, path, target=patterns(files))
    assert report.stacks[0].targets == ["abundance", "height", "mag1c"]
    ds = hsipack.open(path, output="numpy")
    for number in range(CUBES):
        sample = ds[number]
        assert np.array_equal(sample["mag1c"], methane(number), equal_nan=True)
        heights = np.asarray(Image.open(files / f"cube_{number:02}_height.png"))
        assert np.array_equal(sample["height"], heights)
        assert np.array_equal(sample["abundance"], abundances(number).transpose(2, 0, 1))
    checked = hsipack.validate(path, source=True)
    assert checked.ok
    assert checked.sources == CUBES
    changed = methane(3)
    changed[7, 9] += 1
    tifffile.imwrite(files / "cube_03_mag1c.tif", changed)
    (problem,) = hsipack.validate(path, source=True).problems
    assert problem.sample == "cube_03"
    assert "target mag1c: row 7, column 9, channel 0" in problem.what


def test_missing_values_of_files_become_nan(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", cube(0))
    values = methane(0)
    profile = {"driver": "GTiff", "width": COLUMNS, "height": ROWS, "count": 1, "dtype": "float32"}
    rasterio = pytest.importorskip("rasterio")
    with rasterio.open(tmp_path / "a_t.tif", "w", nodata=-9999, **profile) as file:
        file.write(np.where(np.isnan(values), -9999, values).astype(np.float32), 1)
    hsipack.convert(tmp_path / "a.npy", tmp_path / "d.hsipack", target={"t": "{dir}/{stem}_t.tif"})
    stored = hsipack.open(tmp_path / "d.hsipack", output="numpy")[0]["t"]
    assert np.array_equal(stored, values, equal_nan=True)


def test_targets_of_a_folder_of_cubes_are_not_packed_as_cubes(tmp_path: Path) -> None:
    for number in range(2):
        np.save(tmp_path / f"s{number}.npy", cube(number))
        np.save(tmp_path / f"s{number}_abundance.npy", abundances(number))
    report = hsipack.convert(
        tmp_path, tmp_path / "d.hsipack", target={"abundance": "{dir}/{stem}_abundance.npy"}
    )
    assert report.cubes == 2
    assert any("target" in note for note in report.notes)


def test_targets_are_appended_with_their_cubes(packed: Path, tmp_path: Path) -> None:
    path = tmp_path / "grown.hsipack"
    shutil.copytree(packed, path)
    hsipack.pack(all_cubes(3, first=CUBES), path, append=True)
    whole = tmp_path / "whole.hsipack"
    shard = 4 * ROWS * COLUMNS * BANDS * 2
    hsipack.pack(all_cubes(CUBES + 3), whole, chunk=(8, 10), shard_size=shard)
    for target in ("mag1c", "abundance"):
        ours, theirs = (tree(one / STACK / target) for one in (path, whole))
        assert {name: content for name, content in ours.items() if name.startswith("c")} == {
            name: content for name, content in theirs.items() if name.startswith("c")
        }
    assert hsipack.validate(path).ok
    before = tree(path)
    name, array, more = all_cubes(1, first=30)[0]
    for wrong, message in [
        ({"masks": more["masks"]}, r"the targets \[\"abundance\", \"mag1c\"\]"),
        ({**more, "targets": {"mag1c": methane(0)}}, r"but \[\"mag1c\"\] are given"),
        (
            {**more, "targets": {**targets(0), "abundance": abundances(0)[..., :2]}},
            "has 2 channels, but 3 in other cubes",
        ),
    ]:
        with pytest.raises(hsipack.ConflictError, match=message):
            hsipack.pack([(name, array, wrong)], path, append=True)
        assert tree(path) == before


def test_merged_targets_are_nan_where_a_dataset_has_none(packed: Path, tmp_path: Path) -> None:
    plain = [(f"other_{n}", cube(n), {"masks": {"labels": labels(n)}}) for n in range(3)]
    hsipack.pack(plain, tmp_path / "plain.hsipack", chunk=(8, 10))
    hsipack.merge([packed, tmp_path / "plain.hsipack"], tmp_path / "both.hsipack")
    ds = hsipack.open(tmp_path / "both.hsipack", output="numpy")
    assert len(ds) == CUBES + 3
    for number in range(CUBES):
        assert np.array_equal(ds[number]["mag1c"], methane(number), equal_nan=True)
    for number in range(CUBES, CUBES + 3):
        assert np.isnan(ds[number]["mag1c"]).all()
        assert ds[number]["abundance"].shape == (CHANNELS, ROWS, COLUMNS)
        assert np.isnan(ds[number]["abundance"]).all()
    assert hsipack.validate(tmp_path / "both.hsipack").ok
    two = [("x", cube(0), {"targets": {"mag1c": abundances(0)}})]
    hsipack.pack(two, tmp_path / "two.hsipack", chunk=(8, 10))
    with pytest.raises(hsipack.ConflictError, match="has 3 channels here, but 1"):
        hsipack.merge([packed, tmp_path / "two.hsipack"], tmp_path / "never.hsipack")
    assert not (tmp_path / "never.hsipack").exists()


def test_wrong_targets_are_refused_before_anything_is_written(
    cubes: Path, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "never.hsipack"
    broken, small, other = (
        files / f"cube_07_{end}" for end in ("text.tif", "s.npy", "abundance.npy")
    )
    for number in range(CUBES):
        np.save(files / f"cube_{number:02}_s.npy", methane(number))
        np.save(files / f"cube_{number:02}_text.npy", methane(number))
    np.save(small, methane(7)[:-1])
    np.save(files / "cube_07_text.npy", np.full((ROWS, COLUMNS), "much"))
    np.save(other, abundances(7)[..., :2])
    for target, message in [
        ({"t": f"{files}/{{stem}}_none.tif"}, 'target "t" is missing: there is no .*_none.tif'),
        ({"t": f"{files}/{{stem}}_s.npy"}, "has 19x24 pixels, but its cube .* has 20x24"),
        ({"t": f"{files}/{{stem}}_text.npy"}, "U4|text|type"),
        ({"t": f"{files}/{{stem}}_abundance.npy"}, "has 2 channels, but 3 in other cubes"),
        ({"image": f"{files}/{{stem}}_mag1c.tif"}, "cannot be the name of a target"),
    ]:
        with pytest.raises(hsipack.Error, match=message):
            hsipack.convert(cubes, out, target=target)
        assert not out.exists()
        assert not out.with_name("never.hsipack.partial").exists()
    assert not broken.exists()
    both = {"labels": f"{files}/{{stem}}_mag1c.tif"}
    with pytest.raises(hsipack.ConflictError, match="a mask and a target are named labels"):
        hsipack.convert(cubes, out, mask={"labels": "{stem}.png"}, target=both)
    for given, message in [
        ({"t": methane(0).T}, r"target 't' of cube 'a' has the shape \(24, 20\)"),
        ({"t": methane(0).astype(np.complex64)}, "is of complex64"),
        (methane(0), "targets="),
    ]:
        with pytest.raises(hsipack.Error, match=message):
            hsipack.pack([("a", cube(0), {"targets": given})], out)
        assert not out.exists()
    two: list[Any] = [("a", cube(0), {"targets": {"mag1c": methane(0)}}), ("b", cube(1))]
    with pytest.raises(hsipack.ConflictError, match="the first one 'mag1c'"):
        hsipack.pack(two, out)
    assert not out.exists()


def test_a_mask_cannot_take_the_name_of_a_target(packed: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.hsipack"
    shutil.copytree(packed, path)
    with pytest.raises(hsipack.ConflictError, match="has a target mag1c"):
        hsipack.add_mask(path, "mag1c", lambda sample: np.zeros((ROWS, COLUMNS), np.uint8))
    hsipack.add_mask(path, "bright", lambda sample: np.ones((ROWS, COLUMNS), np.uint8))
    names = [f"cube_{number:02}" for number in range(CUBES)]
    hsipack.set_columns(path, {"name": names, "age": list(range(CUBES))})
    ds = hsipack.open(path, output="numpy")
    assert np.array_equal(ds[4]["mag1c"], methane(4), equal_nan=True)
    assert hsipack.validate(path).ok


def test_a_dataset_without_targets_records_nothing_of_them(dataset: str) -> None:
    root = json.loads((Path(dataset) / "zarr.json").read_text())["attributes"]["hsipack"]
    assert "targets" not in root["recipe"]
    assert hsipack.open(dataset).targets == []


# Batches.


def cut(values: np.ndarray, window: np.ndarray) -> np.ndarray:
    """A window of (rows, columns, …), NaN beyond the edge."""
    row, column, rows, columns = window.tolist()
    wide = [(rows, rows), (columns, columns)] + [(0, 0)] * (values.ndim - 2)
    padded = np.pad(values, wide, constant_values=np.nan)
    return padded[row + rows : row + 2 * rows, column + columns : column + 2 * columns]


def check_batch(batch: dict[str, Any]) -> None:
    for place, (number, window) in enumerate(zip(batch["id"], batch["window"], strict=True)):
        want = cut(methane(int(number)), np.asarray(window))
        assert np.array_equal(np.asarray(batch["mag1c"][place]), want, equal_nan=True)
        want = cut(abundances(int(number)), np.asarray(window)).transpose(2, 0, 1)
        assert np.array_equal(np.asarray(batch["abundance"][place]), want, equal_nan=True)


@pytest.mark.parametrize(
    "crop",
    [
        None,
        hsipack.RandomCrop((9, 11), per_cube=2),
        hsipack.GridCrop((8, 9), step=7, pad=0.5),
        hsipack.LabelledPatches((7, 7), mask="labels", pad=0.0),
        hsipack.Regions(9, mask="labels"),
        hsipack.LabelledPatches((1, 1), mask="labels"),
    ],
)
@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_targets_are_cut_with_the_windows_of_images(packed: Path, crop: Any, output: Any) -> None:
    loader = hsipack.Loader(packed, 5, crop=crop, shuffle=True, seed=3, output=output, device="cpu")
    assert loader.report().targets == ["abundance", "mag1c"]
    seen = 0
    for batch in loader:
        check_batch(batch)
        seen += len(batch["id"])
        if seen > 200:
            break
    assert seen >= CUBES


def test_a_loader_reads_the_targets_of_its_dataset(packed: Path) -> None:
    ds = hsipack.open(packed).with_targets("mag1c").with_masks([])
    batch = next(iter(hsipack.Loader(ds, 3, device="cpu")))
    assert "mag1c" in batch
    assert not {"abundance", "labels"} & set(batch)
    assert batch["mag1c"].dtype == torch.float32
    with pytest.raises(hsipack.ConflictError, match="with targets"):
        hsipack.concat([ds, ds.with_targets([])])
    short = next(iter(hsipack.Loader(packed, 3, targets=["abundance"], device="cpu")))
    assert "abundance" in short
    assert "mag1c" not in short


def test_columns_may_not_have_the_keys_of_targets(tmp_path: Path) -> None:
    more = {"targets": {"image_": methane(0), "label": methane(0)}}
    hsipack.pack([("a", cube(0), more)], tmp_path / "d.hsipack")
    batch = next(iter(hsipack.Loader(tmp_path / "d.hsipack", 1, device="cpu")))
    assert batch["mask_label"].shape == (1, ROWS, COLUMNS)
    assert batch["label"].shape == (1,)


# Augmentations.


def between(
    values: np.ndarray, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """The oracle: bilinear means over the pixels of (rows, columns) that are there, missing where
    the nearest pixel is missing. Positions are inside the frame.
    """
    rows, columns = values.shape
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    total, weight = np.zeros(x.shape), np.zeros(x.shape)
    for down in (0, 1):
        for across in (0, 1):
            part = np.abs(1 - across - (x - left)) * np.abs(1 - down - (y - top))
            at = values[np.minimum(top + down, rows - 1), np.minimum(left + across, columns - 1)]
            there = ~np.isnan(at) & (part > 0)
            total += np.where(there, at * part, 0)
            weight += np.where(there, part, 0)
    nearest = values[np.rint(y).astype(int), np.rint(x).astype(int)]
    return np.where(np.isnan(nearest), np.nan, total / np.where(weight > 0, weight, 1))


def positions() -> np.ndarray:
    """An image of two bands, the column and the row of each pixel: (B, 2, rows, columns)."""
    y, x = np.mgrid[:ROWS, :COLUMNS]
    return np.stack([np.stack([x, y]).astype(np.float64)] * 6)


def stack(of: Any) -> np.ndarray:
    return np.stack([of(number) for number in range(6)]).astype(np.float64)


WARPS = [
    augment.RandomAffine(40, (0.1, 0.2), (0.8, 1.2), 10, padding_mode="border", p=1.0),
    augment.RandomRotation(30, padding_mode="border", p=1.0),
    augment.RandomElasticTransform((9, 11), (3.0, 4.0), (0.5, 0.6), padding_mode="border", p=1.0),
    augment.RandomPerspective(0.3, padding_mode="border", p=1.0),
    augment.RandomResizedCrop((12, 14), (0.5, 1.0), (0.9, 1.1)),
    augment.Resize((30, 31)),
]


@pytest.mark.parametrize("through", [None, "torch"])
@pytest.mark.parametrize("op", WARPS, ids=lambda op: type(op).__name__)
def test_interpolated_targets_are_means_of_what_is_there(op: Any, through: str | None) -> None:
    """The image has the positions, so its result says where each pixel of the result comes from."""
    op = augment.AugmentationSequential(op, seed=5)
    op._through = through
    given = positions()
    target = {
        "methane": torch.tensor(stack(methane)),
        "abundance": torch.tensor(stack(abundances)).permute(0, 3, 1, 2),
    }
    image, made = op(torch.tensor(given), target, ids=list(range(6)))
    first, second = made["methane"], made["abundance"]
    x, y = image.numpy()[:, 0], image.numpy()[:, 1]
    # Pixels whose position the image does not say, or whose nearest pixel rounding decides.
    inside = (x >= 0) & (y >= 0) & (x <= COLUMNS - 1) & (y <= ROWS - 1)
    halves = [np.abs(p - np.floor(p) - 0.5) > 1e-4 for p in (x, y)]
    sure = inside & halves[0] & halves[1]
    assert sure.mean() > 0.4
    for number in range(6):
        keep = sure[number]
        at = (np.clip(x[number], 0, COLUMNS - 1), np.clip(y[number], 0, ROWS - 1))
        want = between(methane(number).astype(np.float64), *at)
        got = first.numpy()[number]
        assert np.array_equal(np.isnan(got[keep]), np.isnan(want[keep]))
        assert np.allclose(got[keep], want[keep], rtol=1e-3, atol=1, equal_nan=True)
        for channel in range(CHANNELS):
            want = between(abundances(number)[..., channel].astype(np.float64), *at)
            assert np.allclose(second.numpy()[number, channel][keep], want[keep], atol=1e-4)


@pytest.mark.parametrize("through", [None, "torch"])
def test_pixels_from_outside_are_missing_and_have_no_weight(through: str | None) -> None:
    """A constant stays this constant up to the border: what lies outside is not mixed in."""
    op = augment.AugmentationSequential(augment.RandomRotation(60, p=1.0), seed=1, mask_fill=9)
    op._through = through
    image = torch.rand(4, 3, ROWS, COLUMNS)
    target = torch.full((4, ROWS, COLUMNS), 7.0)
    mask = torch.zeros(4, ROWS, COLUMNS, dtype=torch.uint8)
    _, made, outside = op(image, {"target": target}, mask, ids=list(range(4)))
    moved = made["target"]
    assert torch.equal(moved.isnan(), outside == 9)
    assert moved.isnan().any()
    assert torch.allclose(moved[outside == 0], torch.tensor(7.0))


@pytest.mark.parametrize("through", [None, "torch"])
def test_flips_turns_and_crops_move_targets_unchanged(through: str | None) -> None:
    op = augment.AugmentationSequential(
        augment.RandomHorizontalFlip(),
        augment.RandomVerticalFlip(),
        augment.RandomRotation90((2, 2)),
        augment.RandomCrop((16, 18), padding=2, pad_if_needed=True),
        seed=2,
    )
    op._through = through
    given = torch.tensor(stack(methane))
    filled = given[:, None].nan_to_num(-1e9)
    image, made = op(filled, {"target": given}, ids=list(range(6)))
    moved = made["target"]
    # Padding is 0 in images and missing in targets.
    want = torch.where((image == -1e9) | (image == 0), torch.nan, image)[:, 0]
    assert torch.equal(moved.nan_to_num(-5), want.nan_to_num(-5))


@pytest.mark.parametrize("through", [None, "torch"])
def test_values_change_in_images_only(through: str | None) -> None:
    op = augment.AugmentationSequential(
        augment.Gain((0.5, 0.9)),
        augment.RandomGaussianNoise(0.1, 0.2, p=1.0),
        augment.RandomGaussianBlur(3, (0.5, 2.0), p=1.0),
        augment.RandomChannelDropout(1, p=1.0),
        augment.IlluminationRamp((0.1, 0.2)),
        augment.SNV(),
        seed=2,
    )
    op._through = through
    given = torch.tensor(stack(methane))
    image, made = op(torch.rand(6, BANDS, ROWS, COLUMNS), {"target": given}, ids=list(range(6)))
    kept = made["target"]
    assert image.shape == (6, BANDS, ROWS, COLUMNS)
    assert torch.equal(kept.nan_to_num(-5), given.nan_to_num(-5))


@pytest.mark.parametrize("through", [None, "torch"])
def test_mixing_moves_and_blends_targets(through: str | None) -> None:
    given = torch.tensor(stack(methane))
    numbers = given[:, None].nan_to_num(1e9).expand(-1, 2, -1, -1)
    ids = list(range(6))

    def applied(op: Any, *arrays: Any) -> Any:
        of = augment.AugmentationSequential(op, seed=4, mask_fill=0)
        of._through = through
        return of(*arrays, ids=ids), of.mixed

    for op in (
        augment.RandomCutMixV2(p=1.0),
        augment.RandomJigsaw((2, 2), p=1.0),
        augment.RandomTransplantation(mask="labels", p=1.0),
    ):
        mask = {"target": given, "labels": torch.tensor(np.stack([labels(n) for n in ids]))}
        (image, arrays), _ = applied(op, numbers, mask)
        assert torch.equal(arrays["target"].nan_to_num(1e9), image[:, 0])
        assert not torch.equal(image, numbers)
    target = {"target": given}
    (image, made), _ = applied(augment.RandomErasing(value=1e9, p=1.0), numbers, target)
    erased = made["target"]
    assert torch.equal(erased.nan_to_num(1e9), image[:, 0])
    assert erased.isnan().sum() > given.isnan().sum()
    (image, made), (mixed,) = applied(augment.RandomMixUpV2((0.2, 0.4), p=1.0), numbers, target)
    blended = made["target"]
    for number in ids:
        partner, share = mixed["partners"][number], mixed["shares"][number]
        want = given[number] * (1 - share) + given[partner] * share
        assert torch.allclose(blended[number], want, equal_nan=True, rtol=1e-5)


def test_augmentations_that_need_labels_refuse_targets(packed: Path) -> None:
    image, target = torch.rand(4, 3, 8, 8), torch.rand(4, 8, 8)
    with pytest.raises(hsipack.ConflictError, match="needs a mask, but the batch has none"):
        augment.RandomTransplantation(p=1.0)(image, {"target": target})
    with pytest.raises(hsipack.ConflictError, match="target is a target: floats"):
        augment.RandomTransplantation(mask="target", p=1.0)(image, {"target": target})
    fill = augment.AugmentationSequential(
        augment.RandomRotation(30, p=1.0), mask_fill={"mag1c": 4}, seed=1
    )
    with pytest.raises(hsipack.ConflictError, match="mask_fill names mag1c, which is a target"):
        hsipack.Loader(packed, 3, augment=fill, device="cpu")


def test_a_loader_augments_targets_as_a_call_does(packed: Path) -> None:
    op = augment.AugmentationSequential(
        augment.RandomHorizontalFlip(), augment.RandomRotation(30, p=0.7), seed=8
    )
    plain = hsipack.Loader(packed, 4, seed=1, shuffle=True, device="cpu")
    changed = hsipack.Loader(packed, 4, seed=1, shuffle=True, augment=op, device="cpu")
    different = 0
    for batch, augmented in zip(plain, changed, strict=True):
        keys = ("image", "mag1c", "abundance", "id", "repeat")
        want = op({key: batch[key] for key in keys}, epoch=batch["epoch"])
        for key in ("image", "mag1c", "abundance"):
            assert torch.equal(want[key].nan_to_num(-3), augmented[key].nan_to_num(-3))
        different += not torch.equal(batch["mag1c"].nan_to_num(0), augmented["mag1c"].nan_to_num(0))
    assert different


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
crop = None if sys.argv[3] == "whole" else hsipack.GridCrop((8, 9), step=7, pad=0.0)
options = {"seed": 2, "shuffle": True, "num_threads": 2, "crop": crop}
packed, decode = sys.argv[1:3]
options["output"] = "dlpack"
device = hsipack.Loader(packed, 3, device="cuda:0", decode=decode, **options)
host = hsipack.Loader(packed, 3, **{**options, "output": "numpy"})
for batch, want in zip(device, host, strict=True):
    assert batch["id"].tolist() == want["id"].tolist()
    for name, axes in (("mag1c", (0, 1, 2)), ("abundance", (0, 2, 3, 1))):
        values = np.ascontiguousarray(want[name].transpose(axes))
        capsule = batch[name].__dlpack__(stream=stream)
        address = ctypes.cast(address_of(capsule, b"dltensor"), ctypes.POINTER(ctypes.c_uint64))[0]
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


@pytest.mark.parametrize("crop", ["whole", "grid"])
@pytest.mark.parametrize("decode", ["host", "device"])
def test_targets_are_copied_to_a_device(
    packed: Path, tmp_path: Path, decode: str, crop: str
) -> None:
    if decode == "device" and not has_kernels():
        pytest.skip("the stand-in was built without a C++ compiler")
    done = FakeCuda(tmp_path).run(PROGRAM, packed, decode, crop)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "same\n"
