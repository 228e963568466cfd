"""Labelled pixels divided among splits, checked by zarr-python, NumPy and SciPy; and other commands
on a dataset whose masks were added after packing."""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import (
    Hsipack,
    attributes,
    check_refusal,
    check_sums,
    metadata,
    only_stack,
    partial,
    read_everywhere,
    read_zarr,
    root,
    samples,
    stacks,
    tree,
    write_cubes,
    write_envi,
)
from scipy import ndimage

KILLS = int(os.environ.get("HSIPACK_KILLS", "6"))
ROWS, COLUMNS = 61, 83
SHARES = "train=0.2,val=0.1,test=rest"
SPLITS = ("train", "val", "test")
TOUCH = np.ones((3, 3), int)
CLASSES = ["none", "corn", "soy beans", "woods"]


def ground_truth(seed: int) -> np.ndarray:
    """Fields of classes 1 to 3, with gaps between them."""
    noise = np.random.default_rng(seed).normal(size=(ROWS, COLUMNS))
    field = ndimage.gaussian_filter(noise, 3)
    ids = np.digitize(field, np.quantile(field, [0.3, 0.5, 0.8]))
    ids[np.abs(field - np.quantile(field, 0.5)) < 0.005] = 0
    return np.asarray(ids, np.uint8)


def pack(hsipack: Hsipack, folder: Path, *options: object) -> Path:
    """Packs three cubes with masks `gt` into `folder/d`."""
    write_cubes(folder / "in", 3, (ROWS, COLUMNS, 4))
    for number in range(3):
        np.save(folder / f"gt_cube_{number:03}.npy", ground_truth(number))
    out = folder / "d"
    hsipack.convert(folder / "in", "--mask", f"gt={folder}/gt_{{stem}}.npy", *options, out=out)
    return out


@pytest.fixture
def packed(hsipack: Hsipack, tmp_path: Path) -> Path:
    return pack(hsipack, tmp_path)


def split(hsipack: Hsipack, path: Path, *words: object, mask: str = "gt") -> dict[str, Any]:
    done = hsipack.run("split", path, "--mask", mask, *words, "--json")
    assert done.returncode == 0, done.stderr
    assert not partial(path).exists()
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def refuse(hsipack: Hsipack, path: Path, *words: object) -> str:
    before = tree(path)
    done = hsipack.run("split", path, *words)
    message = check_refusal(done, None)
    assert tree(path) == before
    assert not partial(path).exists()
    return message


def parts(path: Path, *names: str, first: str = "gt", stack: str | None = None) -> np.ndarray:
    """Reads the masks of splits with zarr-python and TensorStore."""
    return np.stack([read_everywhere(path, stack, f"{first}_{name}") for name in names])


def check_parts(path: Path, report: dict[str, Any], names: tuple[str, ...] = SPLITS) -> np.ndarray:
    """Checks that masks are disjoint, contain the class ids, and agree with the report. Returns the
    split of every pixel; -1 is none."""
    ids = read_zarr(path, array="gt")
    masks = parts(path, *names)
    assert masks.dtype == ids.dtype
    assert ((masks != 0).sum(0) <= 1).all(), "a pixel is of two splits"
    assert ((masks == 0) | (masks == ids)).all()
    assert report["pixels"] == (ids != 0).sum()
    labelled = np.unique(ids[ids != 0])
    assert [one["id"] for one in report["classes"]] == labelled.tolist()
    for one in report["classes"]:
        counts = [(mask == one["id"]).sum() for mask in masks]
        assert one["splits"] == counts
        assert one["pixels"] == (ids == one["id"]).sum()
        assert one["unused"] + one["buffered"] + sum(counts) == one["pixels"]
    assert [one["pixels"] for one in report["splits"]] == (masks != 0).sum((1, 2, 3)).tolist()
    return np.where(masks.any(0), (masks != 0).argmax(0), -1)


def seen_by_patches(split_of: np.ndarray, other: int, patch: tuple[int, int]) -> tuple[int, int]:
    """The number of pixels of a split that are inside patches around pixels of the first split, and
    the number of pixels whose patches overlap such a patch."""
    inside = overlapping = 0
    for sample in split_of:
        train, theirs = sample == 0, sample == other
        inside += (ndimage.maximum_filter(train, patch, mode="constant") & theirs).sum()
        twice = (2 * patch[0] - 1, 2 * patch[1] - 1)
        overlapping += (ndimage.maximum_filter(train, twice, mode="constant") & theirs).sum()
    return int(inside), int(overlapping)


def check_seen(report: dict[str, Any], split_of: np.ndarray) -> None:
    patch = (report["patch"][0], report["patch"][1])
    for number, seen in enumerate(report["seen"], 1):
        inside, overlapping = seen_by_patches(split_of, number, patch)
        assert (seen["inside"], seen["overlapping"]) == (inside, overlapping)
        assert seen["inside_share"] == inside / seen["pixels"]


# ----------------------------------------------------------------------------------------- deciding


def test_pixels_are_drawn_by_class(hsipack: Hsipack, packed: Path) -> None:
    report = split(hsipack, packed, "--by", "pixels", "--shares", SHARES)
    split_of = check_parts(packed, report)
    for one in report["classes"]:
        wanted = np.array([0.2, 0.1, 0.7]) * one["pixels"]
        assert np.abs(np.array(one["splits"]) - wanted).max() < 1
    check_seen(report, split_of)
    assert report["seen"][1]["inside_share"] > 0.9
    # The split is even over the scenes: each half has its share.
    half = (split_of[:, : ROWS // 2] == 0).sum() / (split_of[:, : ROWS // 2] >= 0).sum()
    assert abs(half - 0.2) < 0.03
    check_sums(packed)
    assert hsipack.run("validate", packed, "--source").returncode == 0


def test_blocks_stay_together_and_meet_the_shares(hsipack: Hsipack, packed: Path) -> None:
    report = split(hsipack, packed, "--by", "blocks", "--block", 10, "--shares", SHARES)
    split_of = check_parts(packed, report)
    blocks = 0
    for sample in split_of:
        for row in range(0, ROWS, 10):
            for column in range(0, COLUMNS, 10):
                there = np.unique(sample[row : row + 10, column : column + 10])
                assert (there >= 0).sum() <= 1
                blocks += int((there >= 0).any())
    assert report["units"] == blocks
    for one in report["classes"]:
        shares = np.array(one["splits"]) / one["pixels"]
        assert np.abs(shares - [0.2, 0.1, 0.7]).max() < 0.02, one
    check_seen(report, split_of)


def test_regions_stay_together(hsipack: Hsipack, packed: Path) -> None:
    report = split(hsipack, packed, "--by", "regions", "--shares", SHARES)
    split_of = check_parts(packed, report)
    ids, regions = read_zarr(packed, array="gt"), 0
    for sample, own in zip(ids, split_of, strict=True):
        for one in np.unique(sample[sample != 0]):
            numbers, count = ndimage.label(sample == one, structure=TOUCH)
            regions += count
            for number in range(1, count + 1):
                assert len(np.unique(own[numbers == number])) == 1
    assert report["units"] == regions
    check_seen(report, split_of)


def test_shares_may_leave_pixels_to_no_split(hsipack: Hsipack, packed: Path) -> None:
    for by in ("pixels", "blocks"):
        words = ["--by", by, "--block", 8] if by == "blocks" else ["--by", by]
        shares = ["--shares", "train=0.25,test=0.25"]
        report = split(hsipack, packed, *words, *shares, "--name", f"gt_{by}")
        masks = parts(packed, "train", "test", first=f"gt_{by}")
        assert report["unused"] == report["pixels"] - (masks != 0).sum()
        assert abs(report["unused"] / report["pixels"] - 0.5) < 0.03


def test_a_number_of_pixels_of_each_class(hsipack: Hsipack, packed: Path) -> None:
    words = ["--shares", SHARES, "--per-class", 40]
    report = split(hsipack, packed, "--by", "pixels", *words)
    check_parts(packed, report)
    assert [one["splits"][0] for one in report["classes"]] == [40, 40, 40]
    for one in report["classes"]:
        assert abs(one["splits"][1] - 0.1 * one["pixels"]) < 1
    report = split(hsipack, packed, "--by", "blocks", "--block", 5, *words, "--name", "b")
    assert all(10 <= one["splits"][0] <= 70 for one in report["classes"]), report["classes"]


def test_the_buffer_keeps_patches_apart(hsipack: Hsipack, packed: Path) -> None:
    words = ["--by", "blocks", "--block", 24, "--shares", SHARES, "--patch", "7x5"]
    plain = split(hsipack, packed, *words, "--dry-run")
    report = split(hsipack, packed, *words, "--buffer", "auto")
    split_of = check_parts(packed, report)
    check_seen(report, split_of)
    assert report["buffer"] == [6, 4]
    assert report["buffered"] > 0
    assert all(seen["inside"] == seen["overlapping"] == 0 for seen in report["seen"])
    assert report["buffered"] + report["splits"][0]["pixels"] == plain["splits"][0]["pixels"]
    # Other splits lose no pixels.
    for before, after in zip(plain["splits"][1:], report["splits"][1:], strict=True):
        assert before["pixels"] == after["pixels"]
    # A number is the distance in rows and columns to the nearest pixel of another split.
    report = split(hsipack, packed, *words, "--buffer", 3, "--name", "near")
    assert report["buffer"] == [3, 3]
    masks = parts(packed, *SPLITS, first="near")
    for train, *others in zip(*masks, strict=True):
        away = ndimage.distance_transform_cdt(~np.any(others, axis=0), metric="chessboard")
        assert away[train != 0].min() == 4
    assert np.array_equal(masks[1:], parts(packed, "val", "test"))


def test_spectra_see_only_themselves(hsipack: Hsipack, packed: Path) -> None:
    words = ["--by", "pixels", "--shares", SHARES, "--patch", 1]
    report = split(hsipack, packed, *words, "--buffer", "auto")
    assert report["buffer"] is None
    assert all(seen["inside"] == 0 for seen in report["seen"])


def test_ignored_classes_are_unlabelled(hsipack: Hsipack, packed: Path) -> None:
    report = split(hsipack, packed, "--by", "pixels", "--shares", SHARES, "--ignore", "2,9")
    assert [one["id"] for one in report["classes"]] == [1, 3]
    assert not (parts(packed, *SPLITS) == 2).any()


def test_the_seed_decides_and_threads_do_not(hsipack: Hsipack, tmp_path: Path) -> None:
    out = pack(hsipack, tmp_path, "--shard-size", 2 * ROWS * COLUMNS * 4 * 2)
    words = ["--shares", SHARES]
    for by in ("pixels", "blocks", "regions"):
        for number, seed in enumerate([5, 5, 6]):
            split(hsipack, out, "--by", by, *words, "--seed", seed, "--name", f"{by}{number}")
        one, two, other = (parts(out, *SPLITS, first=f"{by}{number}") for number in range(3))
        assert np.array_equal(one, two)
        assert not np.array_equal(one, other)


def test_cubes_of_several_shapes_are_one_whole(hsipack: Hsipack, tmp_path: Path) -> None:
    """Shares refer to the pixels of all stacks together. Ids above 255 widen a stack's masks."""
    for number, (rows, columns, top) in enumerate([(30, 20, 3), (40, 25, 400), (30, 20, 3)]):
        chance = np.random.default_rng(number)
        np.save(tmp_path / f"c{number}.npy", chance.random((rows, columns, 3), np.float32))
        ids = chance.integers(0, 4, (rows, columns)).astype(np.uint16)
        ids[ids == 3] = top
        np.save(tmp_path / f"c{number}_gt.npy", ids)
    out = tmp_path / "d"
    inputs = [tmp_path / f"c{number}.npy" for number in range(3)]
    hsipack.convert(*inputs, "--mask", "gt={dir}/{stem}_gt.npy", out=out)
    report = split(hsipack, out, "--by", "pixels", "--shares", SHARES)
    wide = read_everywhere(out, "40x25x3", "gt_test")
    assert wide.dtype == np.uint16
    assert 400 in wide
    assert read_everywhere(out, "30x20x3", "gt_test").dtype == np.uint8
    for one in report["classes"]:
        counts = [
            sum((read_zarr(out, stack, f"gt_{name}") == one["id"]).sum() for stack in stacks(out))
            for name in SPLITS
        ]
        assert counts == one["splits"]
        assert abs(counts[0] - 0.2 * one["pixels"]) < 1


def test_names_of_classes_go_along(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path, 1)
    ids = np.arange(12 * 9).reshape(12, 9) % 4
    write_envi(
        tmp_path / "cube_000_gt.hdr", ids.astype(np.uint8)[:, :, None], "bsq",
        file_type="ENVI Classification", classes=4, class_names=CLASSES,
    )  # fmt: skip
    out = tmp_path / "d"
    hsipack.convert(tmp_path / "cube_000.npy", "--mask", "gt={dir}/{stem}_gt.img", out=out)
    words = ["split", out, "--mask", "gt", "--by", "pixels", "--shares", SHARES]
    done = hsipack.run(*words)
    assert done.returncode == 0, done.stderr
    assert "2 soy beans" in done.stdout
    own = attributes(out, array="gt_val")
    assert own["flag_meanings"] == "none corn soy_beans woods"
    assert own["hsipack"]["class_names"] == CLASSES
    assert own["hsipack"]["made"]["recipe"]["split"]["shares"] == SHARES
    assert own["hsipack"]["made"]["command"].startswith("hsipack split ")
    text = hsipack.run("info", out).stdout
    assert "made by hsipack split" in text
    made_by = {
        mask["name"]: mask["made_by"]
        for mask in json.loads(hsipack.run("info", out, "--json").stdout)["stacks"][0]["masks"]
    }
    assert made_by["gt"] is None
    assert made_by["gt_train"].startswith("hsipack split")


def test_names_of_classes_may_be_in_any_stack(hsipack: Hsipack, tmp_path: Path) -> None:
    for number, rows in enumerate([12, 14]):
        np.save(tmp_path / f"c{number}.npy", np.zeros((rows, 9, 5), np.float32))
        names = CLASSES[: 3 + number]
        ids = np.arange(rows * 9).reshape(rows, 9, 1) % len(names)
        write_envi(
            tmp_path / f"c{number}_gt.hdr", ids.astype(np.uint8), "bsq",
            file_type="ENVI Classification", classes=len(names), class_names=names,
        )  # fmt: skip
    words = ["--mask", "gt={dir}/{stem}_gt.img"]
    hsipack.convert(tmp_path / "c0.npy", *words, out=tmp_path / "d")
    hsipack.convert(tmp_path / "c1.npy", *words, "--append", out=tmp_path / "d")
    report = split(hsipack, tmp_path / "d", "--by", "pixels", "--shares", SHARES)
    assert {one["id"]: one["name"] for one in report["classes"]} == dict(enumerate(CLASSES[1:], 1))


# -------------------------------------------------------------------------------------- the dataset


def test_layout_is_that_of_packed_masks(hsipack: Hsipack, tmp_path: Path) -> None:
    layouts: list[list[object]] = [[], ["--chunk", "16x20"], ["--chunk", 7, "--codec", "zstd"]]
    for number, options in enumerate([*layouts, ["--shard-size", 2 * ROWS * COLUMNS * 4 * 2]]):
        folder = tmp_path / str(number)
        folder.mkdir()
        out = pack(hsipack, folder, *options)
        split(hsipack, out, "--by", "pixels", "--shares", SHARES)
        packed, added = (metadata(out, array=name) for name in ("gt", "gt_train"))
        del packed["attributes"], added["attributes"]
        assert added == packed


def test_files_of_other_arrays_are_the_same_files(hsipack: Hsipack, packed: Path) -> None:
    shards = [file for file in packed.rglob("*") if file.is_file() and "/c/" in str(file)]
    numbers = {file: file.stat().st_ino for file in shards}
    lines = (packed / "samples.jsonl").read_bytes()
    before = root(packed)
    split(hsipack, packed, "--by", "pixels", "--shares", SHARES)
    assert {file: file.stat().st_ino for file in shards} == numbers
    assert (packed / "samples.jsonl").read_bytes() == lines
    after = root(packed)
    entry = after["history"].pop()
    assert after == before
    assert entry["masks"] == ["gt_train", "gt_val", "gt_test"]
    assert entry["samples"] == len(samples(packed))
    assert "appended" not in hsipack.run("info", packed).stdout


def test_masks_are_replaced_only_with_force(hsipack: Hsipack, packed: Path) -> None:
    words = ["--mask", "gt", "--by", "pixels", "--shares", SHARES]
    split(hsipack, packed, *words[2:])
    first = parts(packed, *SPLITS)
    message = refuse(hsipack, packed, *words, "--seed", 1)
    assert "already has a mask gt_train (pass --force" in message
    message = refuse(hsipack, packed, *words, "--dry-run")
    assert "--force" in message
    report = split(hsipack, packed, *words[2:], "--seed", 1, "--force")
    assert report["replaced"] == ["gt_train", "gt_val", "gt_test"]
    assert not np.array_equal(parts(packed, *SPLITS), first)
    check_parts(packed, report)
    split(hsipack, packed, *words[2:], "--force")
    assert np.array_equal(parts(packed, *SPLITS), first)
    assert hsipack.run("validate", packed).returncode == 0
    check_sums(packed)


def test_packed_masks_are_never_replaced(hsipack: Hsipack, tmp_path: Path) -> None:
    again = f"gt_test={tmp_path}/gt_{{stem}}.npy"
    packed = pack(hsipack, tmp_path, "--mask", again)
    words = ["--mask", "gt", "--by", "pixels", "--shares", SHARES]
    message = refuse(hsipack, packed, *words, "--force")
    assert "mask gt_test was packed with the cubes (choose another name" in message
    split(hsipack, packed, *words[2:], "--name", "x")
    assert hsipack.run("validate", packed, "--source").returncode == 0


def test_splits_are_divided_further_but_not_in_their_own_place(
    hsipack: Hsipack, packed: Path
) -> None:
    words = ["--by", "pixels", "--shares", "t=0.5,rest=rest", "--name", "x"]
    split(hsipack, packed, *words)
    message = refuse(hsipack, packed, "--mask", "x_t", *words, "--force")
    assert "mask x_t would be replaced by one of its own splits" in message
    split(hsipack, packed, "--by", "pixels", "--shares", "a=0.5,b=rest", mask="x_t")
    both = read_zarr(packed, array="x_t_a") + read_zarr(packed, array="x_t_b")
    assert np.array_equal(both, read_zarr(packed, array="x_t"))


def test_a_dry_run_writes_nothing(hsipack: Hsipack, packed: Path) -> None:
    before = tree(packed)
    words = ["--by", "blocks", "--shares", SHARES, "--buffer", 2]
    told = split(hsipack, packed, *words, "--dry-run")
    assert tree(packed) == before
    assert told["dry_run"]
    report = split(hsipack, packed, *words)
    for key in ("pixels", "classes", "seen", "buffered", "units", "notes"):
        assert told[key] == report[key]


def test_what_cannot_be_split_is_refused(hsipack: Hsipack, packed: Path, tmp_path: Path) -> None:
    good = ["--by", "pixels", "--shares", SHARES]
    refusals: list[tuple[list[object], str]] = [
        (["--mask", "no", *good], "has no mask no (its masks are: gt)"),
        (["--mask", "gt", *good, "--ignore", "0-9"], "no pixel of mask gt has a label"),
        (["--mask", "gt", *good, "--block", 4], "leave out --block, or pass --by blocks"),
        (["--mask", "gt", "--by", "samples", "--shares", SHARES], "(leave out --mask)"),
        (["--mask", "gt", *good, "--name", "a/b"], "cannot be the name of a mask"),
        (["--mask", "gt", "--by", "pixels", "--shares", "a=0.7,b=0.7"], "more than 1"),
        (["--mask", "gt", "--by", "pixels", "--shares", "a=0.5,b=0.5,c=rest"], "left for c"),
        (["--mask", "gt", "--by", "pixels", "--shares", "a=rest,b=0.5", "--per-class", 2], "rest"),
        (["--mask", "gt", *good, "--buffer", "auto"], "(split --by blocks, or choose a smaller"),
    ]
    for words, what in refusals:
        assert what in refuse(hsipack, packed, *words), words
    for shares in ("train", "train=x", "train=0", "train=1.5", "a=0.1,a=0.1", "a=rest,b=rest"):
        done = hsipack.run("split", packed, "--mask", "gt", "--by", "pixels", "--shares", shares)
        assert done.returncode == 2
        assert "train=0.1,val=0.1,test=rest" in done.stderr
    layers = [f"--mask=t:{name}={{dir}}/../gt_{{stem}}.npy" for name in "ab"]
    hsipack.convert(tmp_path / "in", *layers, out=tmp_path / "layers")
    message = refuse(hsipack, tmp_path / "layers", "--mask", "t", *good)
    assert "boolean layers (a, b)" in message
    done = hsipack.run("split", tmp_path / "nothing", "--mask", "gt", *good)
    check_refusal(done, tmp_path / "nothing")
    assert not partial(tmp_path / "nothing").exists()


def test_missing_classes_are_told(hsipack: Hsipack, tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.zeros((8, 8, 2), np.float32))
    ids = np.ones((8, 8), np.uint8)
    ids[0, 0] = 2
    np.save(tmp_path / "c_gt.npy", ids)
    out = tmp_path / "d"
    hsipack.convert(tmp_path / "c.npy", "--mask", "gt={dir}/{stem}_gt.npy", out=out)
    report = split(hsipack, out, "--by", "pixels", "--shares", SHARES)
    assert report["notes"] == ["train has no pixel of class 2", "val has no pixel of class 2"]


# --------------------------------------------------------------------------------- what comes later


def shard_of(path: Path, mask: str) -> Path:
    return path / only_stack(path) / mask / "c/0/0/0"


def test_damaged_masks_are_found_and_made_again(hsipack: Hsipack, packed: Path) -> None:
    words = ["--by", "pixels", "--shares", SHARES]
    split(hsipack, packed, *words)
    whole = tree(packed)
    for damage in ("flip", "cut", "remove"):
        shard = shard_of(packed, "gt_val")
        content = bytearray(shard.read_bytes())
        content[20] ^= 1
        # Replace the file, because other names of a shard lead to the same bytes.
        shard.unlink()
        if damage != "remove":
            shard.write_bytes(content if damage == "flip" else content[:-5])
        done = hsipack.run("validate", packed, "--source")
        assert done.returncode == 1
        assert "gt_val" in done.stdout
        done = hsipack.run("repair", packed)
        assert done.returncode == 1
        assert f"mask gt_val was made by `hsipack split {packed} --mask gt" in done.stdout
        assert "force" in done.stdout
        split(hsipack, packed, *words, "--force")
        assert hsipack.run("validate", packed, "--source").returncode == 0
        now = tree(packed)
        for file in whole:
            assert now[file] == whole[file] or file in ("zarr.json", "SHA256SUMS"), file


def test_damaged_cubes_beside_added_masks_are_repaired(hsipack: Hsipack, packed: Path) -> None:
    split(hsipack, packed, "--by", "pixels", "--shares", SHARES)
    whole = tree(packed)
    for mask in ("image", "gt"):
        shard = packed / only_stack(packed) / mask / ("c/0/0/0/0" if mask == "image" else "c/0/0/0")
        content = bytearray(shard.read_bytes())
        content[20] ^= 1
        shard.write_bytes(content)
    done = hsipack.run("repair", packed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert tree(packed) == whole


def test_cubes_that_are_appended_have_zeros(hsipack: Hsipack, packed: Path, tmp_path: Path) -> None:
    split(hsipack, packed, "--by", "pixels", "--shares", SHARES)
    before = parts(packed, *SPLITS)
    write_cubes(tmp_path / "more", 2, (ROWS, COLUMNS, 4), first=3)
    np.save(tmp_path / "more/other.npy", np.zeros((5, 6, 4), np.float32))
    for name, shape in [
        ("cube_003", (ROWS, COLUMNS)),
        ("cube_004", (ROWS, COLUMNS)),
        ("other", (5, 6)),
    ]:
        np.save(tmp_path / f"gt_{name}.npy", np.full(shape, 3, np.uint8))
    mask = f"gt={tmp_path}/gt_{{stem}}.npy"
    words = ["convert", tmp_path / "more", "-o", packed, "--append"]
    # Masks from files are required as usual. Masks of splits are not read from files.
    assert "has the masks" in check_refusal(hsipack.run(*words), None)
    done = hsipack.run(*words, "--mask", mask, "--mask", f"gt_val={tmp_path}/gt_{{stem}}.npy")
    assert "mask gt_val was added to the dataset after packing" in check_refusal(done, None)
    done = hsipack.run(*words, "--mask", mask, "--json")
    assert done.returncode == 0, done.stderr
    assert "masks that were added after packing (gt_test, gt_train, gt_val) are 0" in done.stderr
    stack = f"{ROWS}x{COLUMNS}x4"
    after = parts(packed, *SPLITS, stack=stack)
    assert np.array_equal(after[:, :3], before)
    assert not after[:, 3:].any()
    assert not parts(packed, *SPLITS, stack="5x6x4").any()
    assert hsipack.run("validate", packed, "--source").returncode == 0
    assert attributes(packed, stack, "gt_val")["hsipack"]["made"]
    assert attributes(packed, "5x6x4", "gt_val")["hsipack"]["made"]
    # The conversion, with its append, still counts as complete.
    assert hsipack.run(*words[:-1], "--resume", "--mask", mask).returncode == 0
    report = split(hsipack, packed, "--by", "pixels", "--shares", SHARES, "--force")
    assert report["samples"] == 6
    assert parts(packed, *SPLITS, stack="5x6x4").any()
    assert hsipack.run("validate", packed, "--source").returncode == 0


def test_a_finished_conversion_stays_finished(hsipack: Hsipack, tmp_path: Path) -> None:
    out = pack(hsipack, tmp_path)
    split(hsipack, out, "--by", "pixels", "--shares", SHARES)
    before = tree(out)
    mask = f"gt={tmp_path}/gt_{{stem}}.npy"
    done = hsipack.run("convert", tmp_path / "in", "--mask", mask, "-o", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert "nothing left to do" in done.stdout
    assert tree(out) == before


def test_added_masks_are_exported_and_read(hsipack: Hsipack, packed: Path, tmp_path: Path) -> None:
    report = split(hsipack, packed, "--by", "pixels", "--shares", SHARES)
    file = tmp_path / "train.npy"
    done = hsipack.run("export", packed, "--sample", 1, "--mask", "gt_train", "-o", file)
    assert done.returncode == 0, done.stderr
    exported = np.load(file)
    assert np.array_equal(exported.squeeze(), read_zarr(packed, array="gt_train")[1])
    words = ["read", packed, "--patch", "9x9", "--mask", "gt_train", "--batch-size", 32, "--json"]
    done = hsipack.run(*words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == report["splits"][0]["pixels"]


# ------------------------------------------------------------------------------------------- killed


@pytest.fixture(scope="module")
def large(hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset that is large enough that there is time to kill a process."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "in").mkdir()
    for number in range(20):
        np.save(folder / f"in/c{number}.npy", np.zeros((200, 200, 2), np.uint8))
    np.save(folder / "gt.npy", (np.arange(40000).reshape(200, 200) // 7 % 5).astype(np.uint8))
    options = ["--mask", f"gt={folder}/gt.npy", "--shard-size", 4 * 200 * 200 * 2 * 2]
    hsipack.convert(folder / "in", *options, out=folder / "d")
    return folder / "d"


def instants(seconds: float, seed: int) -> Iterator[float]:
    chance = random.Random(seed)
    for number in range(KILLS):
        yield (number + chance.random()) / KILLS * seconds * 1.1


def timeless(path: Path) -> dict[str, str]:
    """All files except those with times, commands and fingerprints in the root."""
    files = tree(path)
    return {name: sum for name, sum in files.items() if name not in ("zarr.json", "SHA256SUMS")}


@pytest.mark.parametrize("force", [False, True])
def test_killed_splits_leave_the_dataset_as_it_was_or_whole(
    force: bool, hsipack: Hsipack, large: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    shutil.copytree(large, base)
    words: list[object] = ["--mask", "gt", "--by", "blocks", "--block", 20, "--shares", SHARES]
    if force:
        split(hsipack, base, *words[2:], "--seed", 1)
        words += ["--force"]
    before = tree(base)
    shutil.copytree(base, tmp_path / "whole")
    start = time.monotonic()
    split(hsipack, tmp_path / "whole", *words[2:])
    seconds = time.monotonic() - start
    whole = timeless(tmp_path / "whole")
    killed = 0
    for instant in instants(seconds, int(force)):
        path = tmp_path / "d"
        shutil.copytree(base, path)
        process = hsipack.start("split", path, *words)
        time.sleep(instant)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode != 0
        # The recorded command names another folder, so the metadata of arrays differ.
        values = {name for name in whole if not name.endswith("zarr.json")}
        now = tree(path)
        if now != before:
            assert {name: now[name] for name in values} == {name: whole[name] for name in values}
        valid = hsipack.run("validate", path)
        assert valid.returncode == 0, valid.stdout + valid.stderr
        check_sums(path)
        again = words if force else [*words, "--force"]
        split(hsipack, path, *again[2:])
        now = tree(path)
        assert {name: now[name] for name in values} == {name: whole[name] for name in values}
        assert hsipack.run("validate", path).returncode == 0
        shutil.rmtree(path)
    assert killed >= KILLS // 3


def test_what_a_killed_split_left_is_in_nobodys_way(
    hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    left = partial(packed) / "dataset/junk/c"
    left.mkdir(parents=True)
    (left / "0").write_bytes(b"junk")
    (partial(packed) / "scratch").mkdir()
    (partial(packed) / "scratch/ids").write_bytes(b"junk")
    (partial(packed) / "lock").touch()
    write_cubes(tmp_path / "more", 1, (ROWS, COLUMNS, 4), first=7)
    np.save(tmp_path / "gt_cube_007.npy", np.ones((ROWS, COLUMNS), np.uint8))
    mask = f"gt={tmp_path}/gt_{{stem}}.npy"
    hsipack.convert(tmp_path / "more", "--append", "--mask", mask, out=packed)
    left.mkdir(parents=True)
    (left / "0").write_bytes(b"junk")
    split(hsipack, packed, "--by", "pixels", "--shares", SHARES)
    assert not (packed / "junk").exists()


def test_a_dataset_that_stepped_aside_is_put_back(hsipack: Hsipack, packed: Path) -> None:
    """On file systems that cannot exchange two names at once, a commit takes two steps."""
    words = ["--by", "pixels", "--shares", SHARES]
    partial(packed).mkdir()
    packed.rename(partial(packed) / "replaced")
    split(hsipack, packed, *words)
    # Killed after the second step.
    shutil.copytree(packed, partial(packed) / "replaced")
    split(hsipack, packed, *words, "--force")
    assert hsipack.run("validate", packed).returncode == 0


def test_an_unfinished_append_comes_first(hsipack: Hsipack, packed: Path) -> None:
    before = tree(packed)
    partial(packed).mkdir()
    (partial(packed) / "plan.json").write_text('{"plan": "x", "append": true}')
    done = hsipack.run("split", packed, "--mask", "gt", "--by", "pixels", "--shares", SHARES)
    assert "there is an unfinished conversion here" in check_refusal(done, partial(packed))
    assert (partial(packed) / "plan.json").exists()
    assert tree(packed) == before
