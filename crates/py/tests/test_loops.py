"""Loops over a loader whose batches fail, and programs that change their directory."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest

COUNT = 8


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A dataset of 8 cubes with a shard each; band 0 holds the number of the cube."""
    cubes = []
    for number in range(COUNT):
        cube = np.random.default_rng(number).random((12, 10, 5), dtype=np.float32)
        cube[..., 0] = number
        mask = np.arange(120, dtype=np.uint8).reshape(12, 10) % 3
        split = "val" if number % 4 == 3 else "train"
        about = {"masks": {"m": mask}, "split": split, "group": f"g{number // 2}"}
        cubes.append((f"c{number}", cube, about))
    hsipack.pack(cubes, tmp_path / "d.hsipack", shard_size=1)
    return tmp_path / "d.hsipack"


def damage(path: Path, *numbers: int, array: str = "image") -> None:
    for number in numbers:
        (shard,) = (file for file in path.glob(f"*/{array}/c/{number}/**/*") if file.is_file())
        shard.write_bytes(b"short")


def make(path: Any, batch_size: int = 1, **options: Any) -> hsipack.Loader:
    shared = {"device": "cpu", "output": "numpy", "num_threads": 1}
    return hsipack.Loader(path, batch_size, **{**shared, **options})


def skipping_errors(loader: Any) -> list[list[int] | None]:
    """The samples of each batch of an epoch, None for one that failed."""
    batches: list[list[int] | None] = []
    iterator = iter(loader)
    while len(batches) < 100:
        try:
            batches.append(next(iterator)["id"].tolist())
        except StopIteration:
            return batches
        except hsipack.Error:
            batches.append(None)
    raise AssertionError(f"the loop does not end: {batches}")


def test_a_loop_that_skips_errors_ends_and_goes_on_behind_each_of_them(packed: Path) -> None:
    damage(packed, 0, 3, 7)
    with make(packed) as loader:
        for epoch in range(2):
            batches = skipping_errors(loader)
            assert batches == [None, [1], [2], None, [4], [5], [6], None]
            assert len(batches) == len(loader)
            assert loader.epoch == epoch + 1


def test_every_rank_has_as_many_batches_whichever_fail(packed: Path) -> None:
    damage(packed, 0, 2)
    ranks = [skipping_errors(make(packed, rank=rank, world_size=2)) for rank in range(2)]
    assert ranks == [[None, None, [4], [6]], [[1], [3], [5], [7]]]


def test_a_batch_of_nothing_but_damage_is_replaced_by_padding(packed: Path) -> None:
    damage(packed, 0, 1, 4)
    with make(packed, 2, on_damage="skip") as loader:
        for _ in range(2):
            batches = list(loader)
            assert len(batches) == len(loader) == 4
            assert [batch["id"].tolist() for batch in batches] == [[2], [2, 3], [5], [6, 7]]
            assert [batch["padding"].tolist() for batch in batches[:3]] == [
                [True],
                [False, False],
                [False],
            ]
            assert [float(batch["image"][0, 0, 0, 0]) for batch in batches] == [2, 2, 5, 6]
        assert loader.stats().loader.skipped == 6


@pytest.mark.parametrize("crop", ["crop", "patches", "windows", "grid"])
def test_a_replacement_has_the_window_s_shape(packed: Path, crop: str) -> None:
    damage(packed, 5)
    crops: dict[str, Callable[[], Any]] = {
        "crop": lambda: hsipack.RandomCrop((4, 6)),
        "patches": lambda: hsipack.LabelledPatches((3, 3), mask="m"),
        "windows": lambda: hsipack.Windows([(5, 0, 0), (5, 2, 2), (1, 3, 3)], (4, 4)),
        "grid": lambda: hsipack.GridCrop((6, 5), step=(6, 5)),
    }
    with make(packed, crop=crops[crop](), on_damage="skip") as loader:
        batches = list(loader)
        assert len(batches) == len(loader)
    replaced = [batch for batch in batches if batch["padding"].any()]
    assert replaced
    for batch in replaced:
        assert batch["image"].shape == batches[0]["image"].shape
        number = int(batch["id"][0])
        assert number != 5
        assert (batch["image"][:, 0] == number).all()


@pytest.mark.parametrize("crop", ["patches", "regions", "labels of regions"])
def test_samples_whose_masks_do_not_say_where_windows_are_are_skipped(
    tmp_path: Path, crop: str
) -> None:
    path = tmp_path / "d.hsipack"
    mask = np.arange(120, dtype=np.uint8).reshape(12, 10) // 40
    cube, about = np.ones((12, 10, 5), np.float32), {"masks": {"m": mask, "n": mask}}
    hsipack.pack([(f"c{number}", cube, about) for number in range(4)], path, shard_size=1)
    crops: dict[str, Callable[[], Any]] = {
        "patches": lambda: hsipack.LabelledPatches((3, 3), mask="m"),
        "regions": lambda: hsipack.Regions(4, mask="m"),
        "labels of regions": lambda: hsipack.Regions(4, mask="n", labels="m"),
    }
    damage(path, 1, 3, array="m")
    with pytest.raises(hsipack.DamagedError, match="sample 1") as failure:
        len(make(path, crop=crops[crop]()))
    assert 'on_damage="skip"' in str(failure.value)
    with make(path, 8, crop=crops[crop](), on_damage="skip") as loader:
        ids = {number for _ in range(2) for batch in loader for number in batch["id"].tolist()}
        assert ids == {0, 2}
        assert loader.stats().loader.skipped == 2
        first, second = loader.report().skipped
        assert "(c1)" in first
        assert "(c3)" in second
        assert "on_damage" not in first + second
    damage(path, 0, 2, array="m")
    with pytest.raises(hsipack.DamagedError, match="sample 0"):
        len(make(path, crop=crops[crop](), on_damage="skip"))


def test_an_epoch_of_nothing_but_damage_is_an_error_for_each_batch(packed: Path) -> None:
    damage(packed, *range(COUNT))
    with make(packed, 4, on_damage="skip") as loader:
        assert skipping_errors(loader) == [None, None]
        with pytest.raises(hsipack.DamagedError, match="no other sample of its shape"):
            next(iter(loader))


def test_joined_datasets_keep_their_batches_if_some_are_damaged(
    packed: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.hsipack"
    cubes = [(f"o{number}", np.full((6, 4, 5), number, np.float32), {}) for number in range(4)]
    hsipack.pack(cubes, other, shard_size=1)
    damage(packed, 2, 3)
    damage(other, 0)
    joined = hsipack.concat([hsipack.open(packed, masks=[]), hsipack.open(other)])
    with make(joined, 2, on_damage="skip") as loader:
        for _ in range(2):
            batches = [(batch["dataset"], batch["id"].tolist()) for batch in loader]
            assert batches == [
                (0, [0, 1]),
                (0, [0]),
                (0, [4, 5]),
                (0, [6, 7]),
                (1, [1]),
                (1, [2, 3]),
            ]


def reads(dataset: Any) -> list[int]:
    return [int(batch["image"][0, 0, 0, 0]) for batch in make(dataset)]


def test_a_program_may_change_its_directory(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    ds, loader = hsipack.open("d.hsipack", output="numpy"), make("link/d.hsipack")
    assert (ds.path, loader.dataset.path) == (
        str(tmp_path / "d.hsipack"),
        # Symbolic links stay as they were written.
        str(tmp_path / "link" / "d.hsipack"),
    )
    monkeypatch.chdir("run")
    everything = list(range(COUNT))
    for _ in range(2):
        assert [int(batch["image"][0, 0, 0, 0]) for batch in loader] == everything
    loader.load_state_dict(loader.state_dict())
    assert reads(ds) == everything
    assert reads(copy.deepcopy(loader).dataset) == everything
    assert reads(pickle.loads(pickle.dumps(ds))) == everything
    assert reads(ds.split("val")) == [3, 7]
    assert ds[2]["image"][0, 0, 0] == 2
    assert ds.samples.column("group")[-1] == "g3"
    assert len(ds.where("id < 3")) == 3
    assert ds.compute_stats().mean[0] == 3.5
    assert len(ds.class_counts("m")) == 3
    assert len(hsipack.spectra(ds, "m")["spectrum"]) > 0


def test_workers_read_after_the_directory_was_changed(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    monkeypatch.chdir(tmp_path)
    ds = hsipack.open("d.hsipack")
    monkeypatch.chdir("/")
    for method in ("fork", "spawn"):
        workers = torch_data.DataLoader(ds, 4, num_workers=1, multiprocessing_context=method)
        assert [batch["id"].tolist() for batch in workers] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_arrays_are_packed_where_the_program_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def cubes() -> Any:
        for number in range(3):
            os.chdir(tmp_path / "elsewhere")
            yield f"c{number}", np.zeros((4, 5, 3), np.float32), {}

    hsipack.pack(cubes(), "out.hsipack")
    assert len(hsipack.open(tmp_path / "out.hsipack")) == 3
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_directory_that_is_gone_is_named_as_the_reason(packed: Path, tmp_path: Path) -> None:
    code = (
        "import os, sys, hsipack\n"
        "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        "try: hsipack.open('d.hsipack')\n"
        "except hsipack.FileError as error: print(error)\n"
        f"print(len(hsipack.open({str(packed)!r})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert "the current directory" in first
    assert "no longer exists" in first
    assert second == str(COUNT)


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        found: bytes = answer.read()
        return found


def test_a_viewer_shows_what_it_was_given_after_the_directory_was_changed(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cubes").mkdir()
    for number in range(2):
        np.save(tmp_path / "cubes" / f"{number}.npy", np.full((6, 7, 5), number, np.float32))
    for subject, number, size in (("d.hsipack", 3, 120), ("cubes", 1, 42)):
        monkeypatch.chdir(tmp_path)
        with hsipack.view(subject, browser=False) as viewer:
            monkeypatch.chdir("/")
            plane = np.frombuffer(fetched(viewer.url + f"api/cube/{number}/planes?bands=0"), "<f4")
            assert plane.tolist() == [number] * size


def test_maps_are_written_where_the_program_began(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = make(packed, crop=hsipack.GridCrop((6, 5), step=(6, 5)))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with hsipack.Stitcher(loader, output="maps") as stitcher:
        monkeypatch.chdir("elsewhere")
        for batch in loader:
            stitcher.add(batch, batch["image"][:, :1])
    assert len(list((tmp_path / "maps").glob("*.npy"))) == COUNT
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_workers_with_other_directories_find_datasets(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cubes").mkdir()
    for number in range(2):
        np.save(tmp_path / "cubes" / f"{number}.npy", np.full((6, 7, 5), number, np.float32))
    monkeypatch.chdir(tmp_path)
    workers = ProcessPoolExecutor(
        2, mp_context=get_context("spawn"), initializer=os.chdir, initargs=("/",)
    )
    with workers:
        hsipack.convert(tmp_path / "cubes", "out.hsipack", axes="yxb", executor=workers)
        assert hsipack.validate("out.hsipack", executor=workers).ok
        assert hsipack.validate("out.hsipack", source=True, executor=workers).ok
        assert len(hsipack.spectra("d.hsipack", "m", executor=workers)["spectrum"]) > 0
    assert len(hsipack.open("out.hsipack")) == 2


def test_cubes_padded_to_one_size_are_replaced_in_that_size(tmp_path: Path) -> None:
    cubes = [
        (f"c{number}", np.full((6 + number, 9 - number, 5), number, np.float32), {})
        for number in range(3)
    ]
    hsipack.pack(cubes, tmp_path / "d.hsipack", shard_size=1)
    (shard,) = tmp_path.glob("d.hsipack/7x8x5/image/c/0/0/0/0")
    shard.write_bytes(b"short")
    with make(tmp_path / "d.hsipack", crop=hsipack.WholeCubes("edge"), on_damage="skip") as loader:
        batches = list(loader)
    assert [batch["image"].shape for batch in batches] == [(1, 5, 8, 9)] * 3
    assert [batch["id"].tolist() for batch in batches] == [[0], [0], [2]]
    assert [batch["padding"].tolist() for batch in batches] == [[False], [True], [False]]
    assert [int(batch["inside"].sum()) for batch in batches] == [54, 54, 56]


def test_a_state_of_another_seed_brings_its_number_of_batches(dataset: str) -> None:
    def make(**options: Any) -> hsipack.Loader:
        weights = [1.0] * len(hsipack.open(dataset))
        return hsipack.Loader(dataset, 3, sampler=weights, device="cpu", **options)

    for seed in range(8):
        state = make(seed=seed).state_dict()
        loader = make()
        len(loader)
        loader.load_state_dict(state)
        assert len(loader) == len([*loader])
