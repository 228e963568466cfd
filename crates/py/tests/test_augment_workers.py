"""Draws of augmentations in workers and other processes, and the seeds that they come from."""

from __future__ import annotations

import copy
import functools
import json
import multiprocessing
import operator
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch
from hsipack import augment
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

SAMPLES = 8


def noise(seed: int | None = None) -> augment.AugmentationSequential:
    return augment.AugmentationSequential(augment.RandomGaussianNoise(p=1.0), seed=seed)


def draw(one: Any) -> float:
    """A number that is the same for the same draws only."""
    return float(one(torch.zeros(1, 2, 2)).sum())


def draw_with(one: Any, _: object = None) -> list[float]:
    return [draw(one), draw(one)]


def distinct(draws: list[float]) -> bool:
    return len(set(draws)) == len(draws)


class Augmented(Dataset[Tensor]):
    """Samples that are augmented where they are read."""

    def __init__(self, one: Any) -> None:
        self.augment = one

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(draw(self.augment), dtype=torch.float64)


class Plain(Augmented):
    """Samples that are augmented when they are collated."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(1, 2, 2)


class Opened(Augmented):
    """Samples that a dataset's transform augments."""

    def __init__(self, one: Any, path: str) -> None:
        self.dataset = hsipack.open(path, masks=[], transform=one)

    def __getitem__(self, index: int) -> Tensor:
        return self.dataset[0]["image"].double().sum()


def collated(one: Any, images: list[Tensor]) -> Tensor:
    made: Tensor = one(default_collate(images)).double().sum(dim=(1, 2, 3))
    return made


def loaded(one: Any, where: str, path: str, **options: Any) -> list[float]:
    """Draws of two epochs of a DataLoader."""
    collate = functools.partial(collated, one) if where == "collate" else None
    source = {
        "dataset": lambda: Augmented(one),
        "collate": lambda: Plain(one),
        "transform": lambda: Opened(one, path),
    }[where]()
    loader: Any = DataLoader(source, 2, collate_fn=collate, **options)
    return [value for _ in range(2) for batch in loader for value in batch.tolist()]


WORKERS: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
    {"num_workers": 2, "multiprocessing_context": "spawn"},
    {"num_workers": 2, "multiprocessing_context": "spawn", "persistent_workers": True},
]


@pytest.mark.parametrize(
    ("where", "options"),
    [
        (where, options)
        for options in WORKERS
        for where in ("dataset", "collate", "transform")
        # Starting these takes seconds.
        if where == "dataset" or "spawn" not in options.values()
    ],
    ids=str,
)
def test_workers_and_epochs_differ_and_are_reproducible(
    dataset: str, where: str, options: dict[str, Any]
) -> None:
    torch.manual_seed(1)
    first = loaded(noise(), where, dataset, **options)
    assert len(first) == 2 * SAMPLES
    assert distinct(first)
    torch.manual_seed(1)
    assert loaded(noise(), where, dataset, **options) == first
    if "spawn" in options.values():
        return
    torch.manual_seed(2)
    assert set(loaded(noise(), where, dataset, **options)).isdisjoint(first)


@pytest.mark.parametrize("one", [noise(3), augment.RandomGaussianNoise(p=1.0)], ids=repr)
def test_used_augmentations_differ_in_workers_too(dataset: str, one: Any) -> None:
    """The workers then have copies of a seed and a counter."""
    before = draw_with(one)
    draws = loaded(one, "dataset", dataset, num_workers=2)
    assert distinct(before + draws)
    other = noise(4)
    torch.manual_seed(1)
    first = loaded(other, "dataset", dataset, num_workers=2)
    torch.manual_seed(1)
    assert loaded(other, "dataset", dataset, num_workers=2) == first


def test_workers_that_set_torchs_seed_themselves_differ_between_epochs(dataset: str) -> None:
    options = {"num_workers": 2, "worker_init_fn": torch.manual_seed}
    assert distinct(loaded(noise(), "dataset", dataset, **options))


def test_nested_workers_differ() -> None:
    """Children of multiprocessing with the same state of torch, each with a DataLoader."""
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        draws = pool.map(functools.partial(loaded_in_child, noise(1)), range(2), chunksize=1)
    assert distinct(draws[0] + draws[1])


def loaded_in_child(one: Any, _: int) -> list[float]:
    # Children of a pool are daemons, which may have no children.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    return loaded(one, "dataset", "", num_workers=1)


@pytest.mark.parametrize(("method", "seed"), [("fork", None), ("fork", 5), ("spawn", 5)])
def test_processes_of_a_pool_differ(method: str, seed: int | None) -> None:
    """The pool sends a copy of the augmentation with every task."""
    one = noise(seed)
    here = draw_with(one)
    with multiprocessing.get_context(method).Pool(2) as pool:
        tasks = pool.map(functools.partial(draw_with, one), range(6), chunksize=1)
    assert distinct(here + functools.reduce(operator.iadd, tasks, []))


CHILDREN = """
import multiprocessing, sys
import hsipack.augment as augment, numpy as np
one = augment.AugmentationSequential(augment.RandomGaussianNoise(p=1.0), seed=7)
def child(queue):
    queue.put(float(one(np.zeros((1, 2, 2), np.float32)).sum()))
for _ in range(3):
    queue = multiprocessing.get_context("fork").SimpleQueue()
    process = multiprocessing.get_context("fork").Process(target=child, args=(queue,))
    process.start(); print(queue.get()); process.join()
assert "torch" not in sys.modules
"""


def test_children_of_multiprocessing_are_reproducible() -> None:
    def run() -> list[str]:
        words = [sys.executable, "-c", CHILDREN]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    first = run()
    assert len(set(first)) == 3
    assert run() == first


def forked(work: Callable[[], float]) -> float:
    """The result of work in a process that only the system knows."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writer, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return float(text)


def test_processes_that_were_only_forked_differ() -> None:
    for one in (noise(7), noise()):
        here = draw(one)
        draws = [forked(lambda one=one: draw(one)) for _ in range(3)]  # type: ignore[misc]
        assert distinct([here, *draws])


def test_threads_differ() -> None:
    one = noise(7)
    with ThreadPoolExecutor(8) as pool:
        draws = list(pool.map(lambda _: draw(one), range(64)))
    assert distinct(draws)
    assert one.counter == 64


def test_draws_for_ids_are_the_same_in_every_process() -> None:
    one = noise(7)
    image = torch.zeros(1, 2, 2)
    here = float(one(image, ids=3, epoch=1).sum())
    assert forked(lambda: float(one(image, ids=3, epoch=1).sum())) == here
    assert forked(lambda: float(one({"image": image, "id": 3}, epoch=1)["image"].sum())) == here


# Seeds.


def test_without_a_seed_torchs_decides() -> None:
    torch.manual_seed(5)
    one, other = noise(), augment.RandomGaussianNoise(p=1.0)
    first = draw_with(one) + draw_with(other)
    assert distinct(first)
    torch.manual_seed(5)
    assert draw_with(noise()) + draw_with(augment.RandomGaussianNoise(p=1.0)) == first
    torch.manual_seed(6)
    assert draw_with(noise())[0] not in first
    # Copies go on as the original.
    for moved in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert draw(moved) == draw(copy.deepcopy(one))
    with torch.device("meta"):
        noise()(images := torch.zeros(1, 2, 2, device="cpu"))
    assert images.device.type == "cpu"


def test_without_torch_numpys_decides() -> None:
    program = (
        "import sys, numpy as np, hsipack.augment as augment\n"
        "def draw():\n"
        "    one = augment.AugmentationSequential(augment.RandomGaussianNoise(p=1.0))\n"
        "    return float(one(np.zeros((1, 2, 2), np.float32)).sum())\n"
        "np.random.seed(3); first = draw(), draw()\n"
        "np.random.seed(3); assert (draw(), draw()) == first\n"
        "assert first[0] != first[1]\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_seed_stands() -> None:
    torch.manual_seed(1)
    first = draw_with(noise(7))
    torch.manual_seed(2)
    assert draw_with(noise(7)) == first
    assert draw_with(noise(np.int64(7))) == first  # type: ignore[arg-type]
    assert draw_with(noise(0)) != first
    with pytest.raises(TypeError, match=r"seed='a' \(give a whole number, or None"):
        noise("a")  # type: ignore[arg-type]


FORMS: list[Any] = [
    [augment.RandomGaussianNoise(p=1.0)],
    augment.RandomGaussianNoise(p=1.0),
    noise(),
    noise().config(),
    {"ops": noise().config()["ops"]},
    noise().to_json(),
    augment.from_config(noise().to_json()),
    augment.from_config({"ops": noise().config()["ops"]}),
    augment.sequential(noise()),
    noise()[:],
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_a_list_without_a_seed_gets_the_one_of_its_user(form: Any, dataset: str) -> None:
    assert augment.to_config(form)["seed"] is None
    made = augment.sequential(form, seed=9)
    assert made.config()["seed"] == 9
    assert draw_with(made) == draw_with(noise(9))
    # A loader gives its own.
    batches = []
    for seed in (1, 1, 2):
        options: dict[str, Any] = {"seed": seed, "output": "numpy"}
        with hsipack.Loader(dataset, 4, augment=form, **options) as loader:
            batches.append(next(iter(loader))["image"])
    assert np.array_equal(batches[0], batches[1])
    assert not np.array_equal(batches[0], batches[2])


@pytest.mark.parametrize("seed", [0, 4])
def test_a_list_with_a_seed_keeps_it(seed: int, tmp_path: Path) -> None:
    one = noise(seed)
    path = tmp_path / "pipeline.json"
    path.write_text(one.to_json())
    # Earlier versions always wrote a seed.
    assert json.loads(path.read_text())["seed"] == seed
    for form in (one, one.config(), one.to_json(), path, augment.from_config(path), one[:]):
        made = augment.sequential(form, seed=9)
        assert made.config()["seed"] == seed
        assert draw_with(made) == draw_with(noise(seed))


def test_no_seed_and_seed_0_are_distinguished() -> None:
    assert json.loads(noise().to_json())["seed"] is None
    assert noise().config()["seed"] is None
    assert augment.from_config(noise().to_json()) == noise() != noise(0)
    assert "seed" not in repr(noise())
    assert "seed=0" in repr(noise(0))
    # A draw does not change the configuration.
    one = noise()
    draw(one)
    assert one.config()["seed"] is None
    keyed = augment.AugmentationSequential(
        augment.RandomHorizontalFlip(), mask_fill=3, fuse=False, data_keys=["input", "mask"]
    )
    made = augment.sequential(keyed, seed=2)
    assert made.config() == {**keyed.config(), "seed": 2}
    with pytest.raises(hsipack.ConflictError, match="data_keys"):
        made(torch.zeros(1, 2, 2))
