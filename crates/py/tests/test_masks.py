"""Masks that are added to a packed dataset from Python: splits within scenes, and masks from
functions and arrays."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch
import zarr
from conftest import COLUMNS, CUBES, ROWS, labels

STACK = "20x24x7"
SHARES = {"train": 0.25, "val": 0.25, "test": "rest"}


def stored(path: Path, mask: str) -> np.ndarray:
    """A mask as zarr-python reads it."""
    return np.asarray(zarr.open_group(path, mode="r")[f"{STACK}/{mask}"][...])


def tree(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


def split(path: Path, **options: Any) -> hsipack.SplitReport:
    return hsipack.split(path, "labels", **{"by": "pixels", "shares": SHARES, **options})


# Splits.


def test_a_split_becomes_masks_that_patches_are_read_of(own_dataset: Path) -> None:
    report = split(own_dataset, seed=3)
    assert isinstance(report, hsipack.SplitReport)
    truth = np.stack([labels(number) for number in range(CUBES)])
    masks = [stored(own_dataset, f"labels_{name}") for name in SHARES]
    assert np.array_equal(sum(masks), truth)
    assert report.pixels == (truth != 0).sum()
    assert [part.pixels for part in report.splits] == [(mask != 0).sum() for mask in masks]
    assert [part.mask for part in report.splits] == ["labels_train", "labels_val", "labels_test"]
    assert [one.id for one in report.classes] == [1, 2]
    for one in report.classes:
        assert abs(one.splits[0] - one.pixels / 4) < 1
    assert report.seen[1].split == "test"
    assert report.seen[1].inside_share > 0.9
    ds = hsipack.open(own_dataset)
    assert "labels_train" in ds.masks
    crop = hsipack.LabelledPatches((5, 5), mask="labels_train")
    loader = hsipack.Loader(ds, 64, crop=crop, device="cpu")
    places = set()
    for batch in loader:
        for id_, window, label in zip(batch["id"], batch["window"], batch["label"], strict=True):
            row, column = int(window[0]) + 2, int(window[1]) + 2
            assert masks[0][id_, row, column] == label
            places.add((int(id_), row, column))
    assert len(places) == report.splits[0].pixels
    assert hsipack.validate(own_dataset, source=True).ok


def test_options_mean_what_the_commands_do(own_dataset: Path) -> None:
    one = split(
        own_dataset, by="blocks", block=6, buffer="auto", patch=3, per_class=100, ignore=[2]
    )
    assert (one.by, one.block, one.buffer, one.patch) == ("blocks", 6, [2, 2], [3, 3])
    assert [seen.overlapping for seen in one.seen] == [0, 0]
    assert one.buffered > 0
    assert [kind.id for kind in one.classes] == [1]
    text = "train=0.25,val=0.25,test=rest"
    ds = hsipack.open(own_dataset)
    told = hsipack.split(ds, "labels", by="pixels", shares=text, name="other", dry_run=True)
    assert told.dry_run
    assert told.classes == split(own_dataset, name="other").classes
    assert "other_val" in hsipack.open(own_dataset).masks


def test_the_call_is_recorded(own_dataset: Path) -> None:
    split(own_dataset, seed=7, force=True)
    text = (own_dataset / STACK / "labels_val/zarr.json").read_text()
    made = json.loads(text)["attributes"]["hsipack"]["made"]
    assert made["command"] == (
        f"hsipack.split({str(own_dataset)!r}, 'labels', by='pixels', shares={SHARES!r}, seed=7)"
    )
    assert made["recipe"]["split"]["seed"] == 7


def test_replacing_needs_force(own_dataset: Path) -> None:
    split(own_dataset)
    with pytest.raises(hsipack.ConflictError, match=r"pass force=True to replace it") as caught:
        split(own_dataset)
    assert "--" not in str(caught.value)
    assert split(own_dataset, force=True).replaced == ["labels_train", "labels_val", "labels_test"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "circles"}, "by='circles'.*pixels, blocks, regions"),
        ({"shares": {"train": 0.7, "test": 0.7}}, "more than 1"),
        ({"shares": {"train": "most"}}, "shares='most'"),
        ({"shares": ["train"]}, "shares="),
        ({"shares": "train"}, "not a split with its share"),
        ({"shares": {}}, "0 splits"),
        ({"per_class": 0}, "per_class=0"),
        ({"block": 0}, "block=0"),
        ({"buffer": "wide"}, "buffer='wide'"),
        ({"buffer": -1}, "buffer=-1"),
        ({"buffer": "auto"}, r"split by=\"blocks\", or choose a smaller buffer"),
        ({"patch": 0}, "patch=0"),
        ({"seed": -1}, "seed=-1"),
        ({"ignore": [0.5]}, "ignore"),
        ({"ignore": 70000}, "ignore=70000"),
        ({"ignore": range(1, 9)}, "no pixel of mask labels has a label"),
        ({"name": 7}, "name=7"),
        ({"progress": 7}, "progress=7"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str, dataset: str) -> None:
    with pytest.raises(hsipack.Error, match=message) as caught:
        split(Path(dataset), **options)
    assert caught.value.remedy
    assert "--" not in str(caught.value)


# Masks of functions and arrays.


def bright(sample: dict[str, Any]) -> np.ndarray:
    """1 where the first band is above the median, and the sample's id elsewhere."""
    band = np.asarray(sample["image"])[0]
    return np.where(band > np.median(band), 300, sample["id"]).astype(np.int64)


def test_a_function_of_samples_makes_a_mask(own_dataset: Path) -> None:
    seen: list[str] = []

    def ids(sample: dict[str, Any]) -> np.ndarray:
        seen.append(sample["name"])
        return bright(sample)

    report = hsipack.add_mask(own_dataset, "bright", ids, class_names=["dark", "bright"])
    assert (report.mask, report.samples, report.replaced) == ("bright", CUBES, False)
    ds = hsipack.open(own_dataset)
    assert seen == [sample["name"] for sample in ds.samples]
    got = stored(own_dataset, "bright")
    assert got.dtype == np.uint16
    assert np.array_equal(got, [bright(sample) for sample in ds])
    assert hsipack.validate(own_dataset, source=True).ok
    text = (own_dataset / STACK / "bright/zarr.json").read_text()
    attributes = json.loads(text)["attributes"]
    assert attributes["flag_meanings"] == "dark bright"
    assert "hsipack.add_mask" in attributes["hsipack"]["made"]["command"]
    assert np.array_equal(ds[3]["bright"], got[3])


def test_arrays_by_ids_and_names_make_a_mask(own_dataset: Path) -> None:
    names = [sample["name"] for sample in hsipack.open(own_dataset).samples]
    arrays = {number: labels(number) for number in range(CUBES)}
    given: dict[int | str, Any] = {
        names[number] if number % 2 else number: array for number, array in arrays.items()
    }
    given[names[1]] = torch.from_numpy(arrays[1]).long()
    given[names[3]] = arrays[3] > 0
    hsipack.add_mask(own_dataset, "copy", given)
    got = stored(own_dataset, "copy")
    assert got.dtype == np.uint8
    want = np.stack([labels(number) for number in range(CUBES)])
    want[3] = want[3] > 0
    assert np.array_equal(got, want)
    with pytest.raises(hsipack.ConflictError, match="force=True"):
        hsipack.add_mask(own_dataset, "copy", given)
    assert hsipack.add_mask(own_dataset, "copy", bright, force=True).replaced


def class_names(ds: hsipack.Dataset) -> tuple[str, ...]:
    return ds.stacks[STACK].masks["labels"].class_names


def test_a_packed_mask_is_corrected_under_its_name(own_dataset: Path) -> None:
    before = hsipack.open(own_dataset)
    names = class_names(before)
    corrected = {number: np.where(labels(number) == 1, 2, 0) for number in range(CUBES)}
    with pytest.raises(hsipack.ConflictError, match="force=True"):
        hsipack.add_mask(own_dataset, "labels", corrected)
    assert hsipack.add_mask(own_dataset, "labels", corrected, force=True).replaced
    want = np.stack([corrected[number] for number in range(CUBES)])
    assert np.array_equal(stored(own_dataset, "labels"), want)
    ds = hsipack.open(own_dataset)
    assert class_names(ds) == names
    assert np.array_equal(ds[3]["labels"], corrected[3])
    # Patches, splits and validation follow the new classes.
    crop = hsipack.LabelledPatches((3, 3), mask="labels")
    assert len(hsipack.Loader(ds, 1, crop=crop, device="cpu")) == (want != 0).sum()
    report = split(own_dataset)
    assert [(one.id, one.pixels) for one in report.classes] == [(2, (want == 2).sum())]
    assert hsipack.validate(own_dataset, source=True).ok
    # The dataset that was open does not mix the two.
    with pytest.raises(hsipack.Error, match="was replaced"):
        before[0]


def test_an_open_dataset_is_asked_as_it_was_opened(own_dataset: Path) -> None:
    ds = hsipack.open(own_dataset, bands=[2], output="numpy", masks=[])
    shapes = set()

    def ids(sample: dict[str, Any]) -> np.ndarray:
        assert isinstance(sample["image"], np.ndarray)
        shapes.add(sample["image"].shape)
        return np.zeros((ROWS, COLUMNS), np.uint8)

    hsipack.add_mask(ds, "zeros", ids)
    assert shapes == {(1, ROWS, COLUMNS)}
    # The open dataset continues without the new mask. A new one has it.
    assert ds[5]["image"].shape == (1, ROWS, COLUMNS)
    assert "zeros" in hsipack.open(own_dataset).masks
    with pytest.raises(hsipack.ConflictError, match="only 9 of the 12"):
        hsipack.add_mask(ds.split("train"), "other", ids)


def array(value: float = 0, shape: tuple[int, ...] = (ROWS, COLUMNS), dtype: str = "int64") -> Any:
    return np.full(shape, value, dtype)


WRONG: list[tuple[Any, str]] = [
    (
        array(shape=(COLUMNS, ROWS)),
        r"has the shape \(24, 20\) \(give \(rows, columns\), here \(20, 24\)",
    ),
    (array(shape=(ROWS, COLUMNS, 1)), "has the shape"),
    (array(-1), "has the id -1"),
    (array(65536), "has the id 65536"),
    (array(dtype="float32"), "is of float32"),
    (None, "has the shape"),
    ("text", "has the shape"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=lambda value: str(type(value)))
def test_wrong_ids_name_the_sample_and_nothing_is_written(
    wrong: Any, message: str, own_dataset: Path
) -> None:
    before = tree(own_dataset)

    def ids(sample: dict[str, Any]) -> Any:
        return wrong if sample["id"] == CUBES - 1 else array(1)

    for mask in (ids, {number: array() for number in range(CUBES - 1)} | {CUBES - 1: wrong}):
        with pytest.raises(hsipack.ConflictError, match=message) as caught:
            hsipack.add_mask(own_dataset, "m", mask)
        assert "sample 11 (cube_11)" in str(caught.value)
        assert caught.value.remedy
        assert tree(own_dataset) == before
        assert not own_dataset.with_name("own.hsipack.partial").exists()


def test_what_is_missing_or_unknown_is_refused(own_dataset: Path) -> None:
    before = tree(own_dataset)
    some = {number: array() for number in range(CUBES) if number != 4}
    for mask, message in [
        (some, r"sample 4 \(cube_04\) has no mask"),
        (some | {"cube_4": array()}, "no sample has the id or name 'cube_4'"),
        (some | {12: array()}, "no sample has the id or name 12"),
        ([array()] * CUBES, "mask="),
        (None, "mask=None"),
    ]:
        with pytest.raises(hsipack.ConflictError, match=message):
            hsipack.add_mask(own_dataset, "m", mask)  # type: ignore[arg-type]
    for name in ("image", "", "a/b", "wavelength"):
        with pytest.raises(hsipack.ConflictError, match="name"):
            hsipack.add_mask(own_dataset, name, bright, force=True)
    with pytest.raises(hsipack.ConflictError, match="name=7"):
        hsipack.add_mask(own_dataset, 7, bright)  # type: ignore[arg-type]
    with pytest.raises(hsipack.Error, match="nothing here"):
        hsipack.add_mask(own_dataset.with_name("nothing here"), "m", bright)
    assert tree(own_dataset) == before


class Stop(Exception):
    pass


def test_what_a_function_raises_comes_out_and_leaves_nothing(own_dataset: Path) -> None:
    before = tree(own_dataset)

    def ids(sample: dict[str, Any]) -> Any:
        if sample["id"] == 7:
            raise Stop
        return array()

    with pytest.raises(Stop):
        hsipack.add_mask(own_dataset, "m", ids)
    assert tree(own_dataset) == before
    assert not own_dataset.with_name("own.hsipack.partial").exists()


def test_one_writes_at_a_time(own_dataset: Path) -> None:
    """A slow function keeps others from writing, and their errors say so."""
    begun, go_on = threading.Event(), threading.Event()

    def ids(sample: dict[str, Any]) -> Any:
        begun.set()
        assert go_on.wait(30)
        return array(3)

    thread = threading.Thread(target=lambda: hsipack.add_mask(own_dataset, "slow", ids))
    thread.start()
    assert begun.wait(30)
    with pytest.raises(hsipack.ConflictError, match="another hsipack is writing here"):
        hsipack.add_mask(own_dataset, "quick", bright)
    go_on.set()
    thread.join()
    assert (stored(own_dataset, "slow") == 3).all()


def test_superpixels_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skimage.segmentation")
    guide = (Path(__file__).resolve().parents[3] / "docs/splits.md").read_text()
    (recipe,) = (part for part in guide.split("```") if "skimage" in part and "slic" in part)
    # Otherwise, slic takes three components for red, green and blue.
    assert "convert2lab=False" in recipe.partition("slic(")[2]
    monkeypatch.chdir(tmp_path)
    y, x = np.mgrid[:40, :50][..., None]
    for number in range(2):
        bands = np.arange(5)
        image = np.sin(0.2 * y + 0.1 * bands + number) + np.cos(0.15 * x * (1 + 0.1 * bands))
        np.save(f"cube_{number}.npy", image.astype(np.float32))
    hsipack.convert(["cube_0.npy", "cube_1.npy"], "scans.hsipack")
    names: dict[str, Any] = {}
    exec(recipe.removeprefix("python"), names)
    got = np.asarray(zarr.open_group("scans.hsipack", mode="r")["40x50x5/superpixels"][...])
    assert got.min() == 1
    assert all(5 < len(np.unique(one)) < 40 for one in got)
    for one, sample in zip(got, hsipack.open("scans.hsipack"), strict=True):
        assert np.array_equal(one, names["superpixels"](sample))


@pytest.mark.parametrize("by", ["pixels", "blocks", "regions"])
def test_cubes_of_the_same_ground_are_noted(tmp_path: Path, by: Any) -> None:
    rng = np.random.default_rng(0)
    # The third one lies beside them, the fourth in another zone.
    corners = {"may": (0, 32632), "june": (60, 32632), "beside": (480, 32632), "far": (0, 32633)}

    def cubes() -> Any:
        for name, (x, zone) in corners.items():
            geo = {"crs": f"EPSG:{zone}", "transform": (5e5 + x, 30, 0, 5e6, 0, -30)}
            mask = rng.integers(1, 3, (16, 14)).astype(np.uint8)
            yield name, np.ones((16, 14, 2)), {"geo": geo, "masks": {"labels": mask}}

    hsipack.pack(cubes(), tmp_path / "d")
    (note,) = split(tmp_path / "d", by=by, block=4).notes
    assert note.startswith("2 cubes show ground that another cube shows, too, such as may and june")
    assert 'by="groups"' in note
