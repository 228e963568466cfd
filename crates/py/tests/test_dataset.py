"""Samples by number: compared with zarr-python and packed values, in DataLoaders, after forks."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pandas
import pytest
import torch
import zarr
from conftest import BANDS, COLUMNS, CUBES, ROWS, cube, labels, layers


def test_samples_are_what_zarr_reads_and_what_was_packed(dataset: str) -> None:
    ds = hsipack.open(dataset)
    stack = zarr.open_group(dataset, mode="r")[f"{ROWS}x{COLUMNS}x{BANDS}"]
    assert len(ds) == CUBES
    for number, sample in enumerate(ds):
        assert sample["image"].shape == (BANDS, ROWS, COLUMNS)
        assert sample["image"].dtype == torch.float16
        image = sample["image"].permute(1, 2, 0)
        assert image.is_contiguous()
        np.testing.assert_array_equal(image.numpy(), stack["image"][number])
        np.testing.assert_array_equal(image.numpy(), cube(number).astype(np.float16))
        np.testing.assert_array_equal(sample["labels"].numpy(), labels(number))
        expected = np.stack(list(layers(number).values()))
        assert sample["layers"].dtype == torch.bool
        np.testing.assert_array_equal(sample["layers"].numpy(), expected)
        assert (sample["id"], sample["name"]) == (number, f"cube_{number:02}")
        assert ds.label_names[sample["label"]] == ("healthy", "tumour")[number // 2 % 2]


def test_what_is_known_of_the_samples_makes_a_table(dataset: str) -> None:
    ds = hsipack.open(dataset)
    table = pandas.DataFrame(ds.samples)
    assert list(table["name"]) == [f"cube_{number:02}" for number in range(CUBES)]
    assert list(table["age"]) == [number * 10 for number in range(CUBES)]
    assert ds.groups == [f"patient {number}" for number in range(4)]
    assert ds.wavelengths is not None
    assert ds.wavelengths.tolist() == [450 + 25 * band for band in range(BANDS)]
    assert ds.masks == ["labels", "layers"]
    stack = ds.stacks[f"{ROWS}x{COLUMNS}x{BANDS}"]
    assert (stack.samples, stack.shape, stack.dtype) == (CUBES, (ROWS, COLUMNS, BANDS), "float16")
    assert stack.masks["layers"].layers == ("valid", "tissue")
    stats = ds.stats
    assert stats is not None
    stored = np.stack([cube(number).astype(np.float16) for number in range(CUBES)]).astype(
        np.float64
    )
    np.testing.assert_allclose(stats.mean, stored.mean((0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(stats.std, stored.std((0, 1, 2)), rtol=1e-3)
    assert stats.nan.tolist() == [0] * BANDS


class OnlyWhatIsNeeded:
    """A native dataset that refuses to list all samples, and counts the listed ones."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.told = 0

    def __len__(self) -> int:
        return len(self._native)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def samples_json(self, ids: list[int]) -> str:
        self.told += len(ids)
        text: str = self._native.samples_json(ids)
        return text


def test_what_is_known_of_samples_is_read_when_it_is_looked_at(dataset: str) -> None:
    ds = hsipack.open(dataset)
    native = OnlyWhatIsNeeded(ds._native)
    ds._native = native  # type: ignore[assignment]
    val = ds.split("val")
    assert val[0]["name"] == "cube_03"
    assert val.read(1)["id"] == 7
    assert (val.masks, val.select([0]).ids, len(val.samples)) == (["labels", "layers"], [3], 3)
    assert val.samples.column("age") == [30, 70, 110]
    assert native.told == 0
    assert val.samples[1]["name"] == "cube_07"
    assert native.told == 1
    assert [sample["id"] for sample in val.samples[1:]] == [7, 11]
    assert native.told == 3
    lines = (Path(dataset) / "samples.jsonl").read_text().splitlines()
    assert ds.samples == [json.loads(line) for line in lines]
    assert ds.samples[-1] == json.loads(lines[-1])
    assert set(ds.samples.columns) == {key for line in lines for key in json.loads(line)}
    for name in ds.samples.columns:
        assert ds.samples.column(name) == [json.loads(line).get(name) for line in lines]
    with pytest.raises(IndexError, match=r"no sample 12: .* numbered 0 to 11"):
        ds.samples[12]


def test_parts_of_the_dataset_and_of_samples(dataset: str) -> None:
    ds = hsipack.open(dataset)
    val = ds.split("val")
    assert [sample["id"] for sample in val] == val.ids == [3, 7, 11]
    assert [record["name"] for record in val.samples] == ["cube_03", "cube_07", "cube_11"]
    chosen = ds.select([5, 2])
    assert [chosen[0]["id"], chosen[-1]["id"]] == [5, 2]
    bands = hsipack.open(dataset, bands=[6, 0], masks=["labels"])
    assert set(bands[0]) == {"image", "labels", "label", "id", "name"}
    np.testing.assert_array_equal(
        bands[1]["image"].numpy(), cube(1).astype(np.float16).transpose(2, 0, 1)[[6, 0]]
    )
    assert bands.wavelengths is not None
    assert bands.wavelengths.tolist() == [600, 450]
    part = ds.read(4, slice(7, 19), slice(-4, None))
    np.testing.assert_array_equal(part["image"].numpy(), ds[4]["image"].numpy()[:, 7:19, -4:])
    np.testing.assert_array_equal(part["labels"].numpy(), labels(4)[7:19, -4:])


def test_types_scales_and_numpy(cubes: Path, dataset: str, tmp_path: Path) -> None:
    path = tmp_path / "scaled.hsipack"
    hsipack.convert(cubes, path, scale=4.0)
    assert hsipack.open(path)[3]["image"].float().mean() < 1
    physical = hsipack.open(path, physical=True, dtype=torch.float32)[3]["image"]
    assert physical.dtype == torch.float32
    np.testing.assert_allclose(physical.permute(1, 2, 0).numpy(), cube(3), rtol=1e-3)
    sample = hsipack.open(dataset, output="numpy")[2]
    assert isinstance(sample["image"], np.ndarray)
    assert sample["image"].dtype == np.float16
    assert sample["labels"].dtype == np.uint8
    assert sample["layers"].dtype == np.bool_
    np.testing.assert_array_equal(sample["layers"], np.stack(list(layers(2).values())))
    assert hsipack.open(dataset, transform=lambda sample: sample["name"])[1] == "cube_01"


def test_wide_class_ids_stay_what_they_are(cubes: Path, tmp_path: Path) -> None:
    for number in range(CUBES):
        np.save(tmp_path / f"cube_{number:02}.npy", labels(number).astype(np.uint16) * 30000)
    path = tmp_path / "wide.hsipack"
    hsipack.convert(cubes, path, mask={"label": f"{tmp_path}/{{stem}}.npy"})
    expected = labels(1).astype(np.int64) * 30000
    # Its key is mask_label, because the class label of a sample has the key label.
    sample = hsipack.open(path)[1]
    assert sample["mask_label"].dtype == torch.int32
    np.testing.assert_array_equal(sample["mask_label"].numpy(), expected)
    raw = hsipack.open(path, output="numpy")[1]["mask_label"]
    assert raw.dtype == np.uint16
    np.testing.assert_array_equal(raw, expected)


def identity(samples: list[dict[str, object]]) -> list[dict[str, object]]:
    return samples


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_dataloaders_workers_read_the_same(dataset: str, context: str) -> None:
    ds = hsipack.open(dataset)
    before = ds[0]["image"].clone()  # opened, mapped and read before the fork
    loader: torch.utils.data.DataLoader[dict[str, torch.Tensor]] = torch.utils.data.DataLoader(
        ds, batch_size=4, num_workers=2, multiprocessing_context=context, shuffle=False
    )
    batches = list(loader)
    assert torch.equal(batches[0]["image"][0], before)
    assert torch.cat([batch["id"] for batch in batches]).tolist() == list(range(CUBES))
    images = torch.cat([batch["image"] for batch in batches])
    assert torch.equal(images, torch.stack([sample["image"] for sample in ds]))


def test_a_loader_made_before_a_fork_gives_batches_in_the_child(dataset: str) -> None:
    # In the child, the threads that read ahead in the parent do not exist.
    program = f"""
import faulthandler, os, hsipack
ds = hsipack.open({dataset!r})
loader = hsipack.Loader(ds, 2, device="cpu")
ds[0]
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(60, exit=True)
    os._exit(0 if sum(len(batch["id"]) for batch in loader) == len(ds) else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_child_forked_while_a_thread_computes_a_property_computes_it(dataset: str) -> None:
    # Before Python 3.12, such properties share a lock, which stays locked in the child.
    program = """
import os, signal, sys, threading, hsipack
class Slow:
    def __getattr__(self, name):
        computing.set()
        finished.wait()
        return getattr(native, name)
computing, finished = threading.Event(), threading.Event()
slow, other = (hsipack.open(sys.argv[1], output="numpy").samples for _ in range(2))
native, slow._native = slow._native, Slow()
thread = threading.Thread(target=lambda: slow.columns)
thread.start()
computing.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit("age" not in other.columns)
finished.set()
thread.join()
sys.exit(os.waitpid(child, 0)[1])
"""
    words = [sys.executable, "-c", program, dataset]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_process_reads_while_its_parent_streams(dataset: str) -> None:
    ds = hsipack.open(dataset)
    with hsipack.Loader(ds, 2, device="cpu", shuffle=True) as loader:
        batches = iter(loader)
        kept = next(batches)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert torch.equal(ds[5]["image"], hsipack.open(dataset)[5]["image"])
                with pytest.raises(hsipack.ConflictError, match="process that made it"):
                    next(batches)
                del kept, batches, loader
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(batches)) == CUBES // 2 - 1


def test_it_may_be_pickled_unless_it_was_replaced(own_dataset: Path, dataset: str) -> None:
    ds = hsipack.open(own_dataset, split="val", dtype=torch.float32)
    again = pickle.loads(pickle.dumps(ds))
    assert torch.equal(again[1]["image"], ds[1]["image"])
    assert again.ids == ds.ids
    text = pickle.dumps(ds)
    shutil.rmtree(own_dataset)
    with pytest.raises(hsipack.FileError):
        pickle.loads(text)
    other = hsipack.open(dataset).stacks
    hsipack.convert(
        Path(
            json.loads((Path(dataset) / "samples.jsonl").read_text().splitlines()[0])["source"][
                "path"
            ]
        ),
        own_dataset,
    )
    assert other
    with pytest.raises(hsipack.ConflictError, match="replaced"):
        pickle.loads(text)


def test_errors_name_the_file_and_what_to_do(
    dataset: str, own_dataset: Path, tmp_path: Path
) -> None:
    with pytest.raises(hsipack.FileError) as caught:
        hsipack.open(tmp_path / "nothing.hsipack")
    assert "nothing.hsipack" in str(caught.value)
    assert isinstance(caught.value, OSError)
    ds = hsipack.open(dataset)
    for index in (CUBES, -CUBES - 1):
        with pytest.raises(IndexError, match=f"no sample {index}: .* numbered 0 to {CUBES - 1}"):
            ds[index]
    with pytest.raises(hsipack.ConflictError, match="it has train, val"):
        ds.split("test")
    with pytest.raises(hsipack.ConflictError, match="numbered from 0 to 11"):
        ds.select([12])
    with pytest.raises(hsipack.ConflictError, match="its masks: labels, layers"):
        hsipack.open(dataset, masks=["organs"])
    with pytest.raises(hsipack.ConflictError, match="from 0 to 6"):
        hsipack.open(dataset, bands=[7])
    with pytest.raises(hsipack.ConflictError, match="at least one pixel"):
        ds.read(0, slice(5, 5))
    with pytest.raises(hsipack.ConflictError, match="always, once, never"):
        hsipack.open(dataset, verify="sometimes")
    shard = own_dataset / f"{ROWS}x{COLUMNS}x{BANDS}" / "image/c/0/0/0/0"
    damaged = bytearray(shard.read_bytes())
    damaged[200] ^= 1
    shard.write_bytes(damaged)
    with pytest.raises(hsipack.DamagedError) as damage:
        list(hsipack.open(own_dataset))
    assert damage.value.path is not None
    assert damage.value.path.endswith("image/c/0/0/0/0")
    error = pickle.loads(pickle.dumps(damage.value))
    assert str(error) == str(damage.value)
    assert type(error) is hsipack.DamagedError


def images(ds: hsipack.Dataset) -> torch.Tensor:
    return torch.stack([ds[place]["image"] for place in range(len(ds))])


def test_training_goes_on_with_its_own_samples_while_others_are_appended(
    cubes: Path, masks: dict[str, str | dict[str, str]], tmp_path: Path
) -> None:
    """Open datasets, running loaders, workers and earlier pickles do not change."""
    out = tmp_path / "growing.hsipack"
    files = sorted(cubes.glob("*.hdr"))
    # Three cubes to a shard, so most appends rewrite the last shard.
    options: dict[str, Any] = {"mask": masks, "chunk": 8, "shard_size": 3 * 20 * 24 * 7 * 2}
    hsipack.convert(files[:4], out, **options)
    ds = hsipack.open(out)
    untouched = hsipack.open(out)
    text = pickle.dumps(ds)
    want = torch.stack([torch.from_numpy(cube(number)).half() for number in range(4)])
    want = want.permute(0, 3, 1, 2)
    with hsipack.Loader(ds, 1, device="cpu", shuffle=True, seed=3) as loader:
        for file in files[4:]:
            taken = {int(batch["id"]): batch["image"][0].clone() for batch in loader}
            assert sorted(taken) == list(range(4))
            assert all(torch.equal(image, want[number]) for number, image in taken.items())
            hsipack.convert(file, out, append=True, **options)
            assert len(ds) == 4
            assert torch.equal(images(ds), want)
            moved = pickle.loads(text)
            assert moved.fingerprint == ds.fingerprint
            assert torch.equal(images(moved), want)
    assert torch.equal(images(untouched), want)
    for context in ("fork", "spawn"):
        workers: torch.utils.data.DataLoader[dict[str, torch.Tensor]] = torch.utils.data.DataLoader(
            ds, batch_size=2, num_workers=2, multiprocessing_context=context
        )
        assert torch.equal(torch.cat([batch["image"] for batch in workers]), want)
    with hsipack.Loader(ds, 2, device="cpu") as fresh:
        assert sum(len(batch["id"]) for batch in fresh) == 4
    assert len(hsipack.open(out)) == 12


def test_training_resumes_on_a_dataset_that_has_grown(cubes: Path, tmp_path: Path) -> None:
    out = tmp_path / "growing.hsipack"
    files = sorted(cubes.glob("*.hdr"))
    table = tmp_path / "table.csv"
    rows = [f"{file.stem},{'train' if place < 4 else 'val'}" for place, file in enumerate(files)]
    table.write_text("\n".join(["name,split", *rows]))
    hsipack.convert(files[:4], out, table=table)
    old = hsipack.open(out).fingerprint

    def loader(ds: hsipack.Dataset | Path, **options: Any) -> hsipack.Loader:
        return hsipack.Loader(ds, 1, device="cpu", shuffle=True, seed=3, **options)

    def rest(batches: Iterable[dict[str, Any]]) -> list[int]:
        return [int(batch["id"]) for batch in batches]

    first = loader(out)
    batches = iter(first)
    next(batches)
    begun, want, between = first.state_dict(), rest(batches), first.state_dict()
    hsipack.convert(files[4:], out, table=table, append=True)
    grown = loader(out)
    message = "middle of epoch 0, which began when the dataset had 4 samples; cubes or masks were"
    with pytest.raises(hsipack.ConflictError, match=message) as caught:
        grown.load_state_dict(begun)
    assert f'as_of="{old}"' in str(caught.value)
    # The new samples are in another split.
    train = loader(out, split="train")
    train.load_state_dict(begun)
    assert rest(train) == want
    # The epoch that was begun is finished with the dataset as it was, also elsewhere.
    past = hsipack.open(out, as_of=old)
    assert (len(past), past.fingerprint) == (4, old)
    for ds in (past, pickle.loads(pickle.dumps(past))):
        resumed = loader(ds)
        resumed.load_state_dict(begun)
        assert rest(resumed) == want
    after = resumed.state_dict()
    # The next epoch has all samples.
    for state in (between, after):
        grown.load_state_dict(state)
        assert sorted(rest(grown)) == list(range(12))
    assert grown.state_dict()["fingerprint"] == hsipack.open(out).fingerprint != old
    with pytest.raises(hsipack.ConflictError, match="with the fingerprint abc: it never had it"):
        hsipack.open(out, as_of="abc")
    # The dataset as it was does not know what came later.
    with pytest.raises(hsipack.ConflictError, match="belongs to another dataset"):
        loader(past).load_state_dict(grown.state_dict())
    with pytest.raises(hsipack.ConflictError, match="opened without as_of"):
        hsipack.add_mask(past, "zeros", lambda sample: None)


def test_new_labels_that_renumber_classes_end_a_training(cubes: Path, tmp_path: Path) -> None:
    out, table = tmp_path / "growing.hsipack", tmp_path / "table.csv"
    files = sorted(cubes.glob("*.hdr"))
    labels = ["corn", "rye", "corn", "wheat", "barley"]
    rows = [f"{file.stem},{label}" for file, label in zip(files, labels, strict=False)]
    table.write_text("\n".join(["name,label", *rows]))
    hsipack.convert(files[:2], out, table=table)
    state = hsipack.Loader(out, 1, device="cpu").state_dict()
    for file, fits in ((files[2], True), (files[3], True), (files[4], False)):
        hsipack.convert(file, out, table=table, append=True)
        loader = hsipack.Loader(out, 1, device="cpu")
        if fits:
            loader.load_state_dict(state)
            continue
        message = 'new labels were added, so .* numbers .*: "corn" was 0 and is now 1'
        with pytest.raises(hsipack.ConflictError, match=message) as caught:
            loader.load_state_dict(state)
        assert f'as_of="{state["fingerprint"]}"' in str(caught.value)


def test_a_mask_that_is_added_does_not_end_an_epoch(cubes: Path, tmp_path: Path) -> None:
    out = tmp_path / "labelled.hsipack"
    hsipack.convert(sorted(cubes.glob("*.hdr"))[:4], out)
    loader = hsipack.Loader(out, 1, device="cpu", shuffle=True)
    taken = iter(loader)
    next(taken)
    state = loader.state_dict()
    want = [int(batch["id"]) for batch in taken]
    hsipack.add_mask(out, "zeros", lambda sample: torch.zeros(sample["image"].shape[1:]).byte())
    again = hsipack.Loader(out, 1, device="cpu", shuffle=True)
    again.load_state_dict(state)
    batches = list(again)
    assert [int(batch["id"]) for batch in batches] == want
    assert "zeros" in batches[0]
    # Crops of labelled pixels depend on all masks that are read.
    crop = hsipack.RandomCrop((8, 8), min_labelled=0.1)
    cropping = hsipack.Loader(out, 1, device="cpu", crop=crop)
    next(iter(cropping))
    hsipack.add_mask(out, "ones", lambda sample: torch.ones(sample["image"].shape[1:]).byte())
    with pytest.raises(hsipack.ConflictError, match="which began when the dataset had 4 samples"):
        hsipack.Loader(out, 1, device="cpu", crop=crop).load_state_dict(cropping.state_dict())


def test_a_ring_that_does_not_fit_is_an_error_with_the_numbers(dataset: str) -> None:
    with pytest.raises(hsipack.Error, match=r"1000000000 slots of .* take .* MiB, but only"):
        hsipack.Loader(hsipack.open(dataset), 2, device="cpu", slots=10**9)
    with pytest.raises(hsipack.Error, match=r"fit|take"):
        hsipack.Loader(hsipack.open(dataset), 10**9, device="cpu", last="short")


def test_messages_do_not_steer_the_terminal(tmp_path: Path) -> None:
    nasty = tmp_path / "a\x1b[2J\x9b\u202eb"
    with pytest.raises(hsipack.FileError) as caught:
        hsipack.open(nasty)
    assert "a\\u{1b}[2J\\u{9b}\\u{202e}b" in str(caught.value)
    assert caught.value.path == str(nasty)


def test_ids_are_chosen_among_the_samples_that_were_chosen(dataset: str) -> None:
    part = hsipack.open(dataset).select([0, 2, 4])
    assert part.select(ids=[4, 0]).ids == [4, 0]
    with pytest.raises(hsipack.ConflictError, match=r"\[3\]"):
        part.select(ids=[0, 3])


def test_classes_of_one_name_are_counted_together(tmp_path: Path) -> None:
    ids = np.repeat(np.arange(3, dtype=np.uint8), 4).reshape(3, 4)
    cube = np.zeros((3, 4, 2), np.float32)
    names = {"m": ["none", "tree", "tree"]}
    hsipack.pack([("a", cube, {"masks": {"m": ids}})], tmp_path / "d", class_names=names)
    counts = hsipack.open(tmp_path / "d").class_counts("m", names=True)
    assert counts == {"none": 4, "tree": 8}
