"""`hsipack.diagnose` names planted bottlenecks, in hsipack's loader and in others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch
from hsipack.augment import RandomElasticTransform
from hsipack.diagnosis._levels import Kept, Source
from torch.utils.data import DataLoader, Dataset

pytestmark = pytest.mark.alone

# Long enough to be distinguished on a busy machine.
SHORT, LONG = 0.004, 0.04


def wait(seconds: float) -> Any:
    return lambda batch: time.sleep(seconds)


def diagnose(loader: Any, step: Any, **options: Any) -> hsipack.Diagnosis:
    return hsipack.diagnose(loader, step, rounds=2, seconds=0.05, device="cpu", **options)


class Slow(Dataset[torch.Tensor]):
    """Samples that take some time to load, by waiting or by computing."""

    def __init__(self, seconds: float, compute: bool = False) -> None:
        self.seconds = seconds
        self.compute = compute

    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> torch.Tensor:
        end = time.perf_counter() + self.seconds
        while self.compute and time.perf_counter() < end:
            pass
        time.sleep(max(end - time.perf_counter(), 0))
        return torch.full((3,), float(number))


def test_nobody_is_to_blame_if_the_step_takes_longest(dataset: str) -> None:
    with hsipack.Loader(dataset, 4, shuffle=True, device="cpu") as loader:
        found = diagnose(loader, wait(LONG))
    assert found.culprit is None, str(found)
    assert found.remedy is None
    assert "nobody" in str(found)
    levels = ["step", "prepare", "collate", "decode", "read"]
    assert [row["level"] for row in found.levels] == levels


def packed(folder: Path, shape: tuple[int, int, int], **options: Any) -> hsipack.Dataset:
    """Packs twelve cubes of noise."""
    (folder / "cubes").mkdir()
    random = np.random.default_rng(1)
    for number in range(12):
        np.save(folder / "cubes" / f"{number}.npy", random.random(shape, dtype=np.float32))
    hsipack.convert(folder / "cubes", folder / "packed.hsipack", **options)
    return hsipack.open(folder / "packed.hsipack")


def test_slow_augmentation_is_named_with_its_dearest_part(tmp_path: Path) -> None:
    # Smoothing the elastic fields takes many times as long as loading these cubes.
    elastic = [RandomElasticTransform(kernel_size=(25, 25), p=1.0)]
    cubes = packed(tmp_path, (40, 40, 8))
    with hsipack.Loader(cubes, 4, device="cpu", augment=elastic) as loader:
        found = diagnose(loader, lambda batch: None, verify=True)
        # The user's own loader is not changed.
        assert loader.epoch == 0
        assert len(list(loader)) == len(loader)
    assert found.culprit == "augment", str(found)
    assert found.remedy is not None
    assert found.remedy["name"] == "elastic"
    assert found.verified is not None
    if found.remedy["basis"]:
        assert found.remedy["basis"] == {"measured": "without", "index": 0}
        assert min(found.verified["basis_s"]) > 0
    assert found.verified["gain"] > 1


def test_slow_decoding_is_named_and_what_more_threads_bring_is_measured(tmp_path: Path) -> None:
    cubes = packed(tmp_path, (64, 64, 64), codec="zstd", level=6)
    # By default, a loader keeps so few cubes decoded in memory.
    with hsipack.Loader(cubes, 3, device="cpu", num_threads=1) as loader:
        found = diagnose(loader, lambda batch: None)
        assert found.to_dict()["facts"]["cache"] == "decoded"
    assert found.culprit not in ("decode", "read"), str(found)
    with hsipack.Loader(cubes, 3, device="cpu", num_threads=1, cache=None) as loader:
        found = diagnose(loader, lambda batch: None)
    assert found.culprit == "decode", str(found)
    data = found.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["statistics"]["schema"] == 1
    facts = data["facts"]
    assert facts["threads"] == 1
    assert facts["load_s"] > 0
    if facts["cores"] > 1:
        assert facts["more_threads_s"] > 0


def test_crops_that_are_decoded_one_by_one_are_told_of_the_default(tmp_path: Path) -> None:
    # Every crop decodes a cube, or most of one.
    cubes = packed(tmp_path, (48, 48, 64), codec="zstd")
    crop = hsipack.RandomCrop(3, per_cube=60)
    with hsipack.Loader(cubes, 8, shuffle=True, device="cpu", crop=crop, cache=None) as loader:
        found = diagnose(loader, lambda batch: None, verify=True)
    assert found.culprit in ("decode", "read"), str(found)
    assert found.remedy is not None
    assert found.remedy["action"] == "cache"
    assert found.remedy["cache"] == "auto"
    assert found.remedy["advice"][0].startswith("loaders keep all ")
    assert 'cache="auto"' in str(found)
    assert "a window of 3x3 pixels lies in" in str(found)
    assert "`hsipack tune --patch 3x3`" in str(found)
    assert found.verified is not None
    assert found.verified["gain"] > 1.5, str(found)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_that_waits_is_helped_by_more_workers_than_cores(workers: int) -> None:
    loader = DataLoader(Slow(LONG / 2), batch_size=2, num_workers=workers)
    found = diagnose(loader, wait(SHORT), verify=workers > 0)
    assert found.culprit == "load", str(found)
    assert found.remedy is not None
    assert any("waiting for files or the network" in one for one in found.remedy["advice"])
    facts = found.to_dict()["facts"]
    assert facts["kind"] == "dataloader"
    assert found.remedy["action"] == "threads", str(found)
    assert found.remedy["threads"] == facts["more_threads"] >= max(8, 4 * min(facts["cores"], 8))
    # The prediction is the time that was measured with more threads.
    assert found.remedy["predicted_s"] == facts["more_threads_s"]
    assert found.remedy["basis"] == {"measured": "more_threads"}
    # 8 workers or more instead of none or 2, which only wait.
    assert found.remedy["predicted_gain"] > 2, str(found)
    if workers:
        assert found.verified is not None
        assert found.verified["gain"] > 2, str(found)


def test_a_data_loader_that_computes_is_to_blame_and_workers_help() -> None:
    loader = DataLoader(Slow(LONG / 8, compute=True), batch_size=4)
    found = diagnose(loader, wait(SHORT), verify=True)
    assert found.culprit == "load", str(found)
    assert found.remedy is not None
    assert any("computing" in line for line in found.remedy["advice"]), str(found)
    facts = found.to_dict()["facts"]
    if facts["cores"] > 1:
        assert found.remedy["action"] == "threads"
        assert found.remedy["threads"] == facts["cores"]
        assert found.verified is not None
        assert found.verified["gain"] > 1, str(found)


class Busy:
    """A transform that computes for some time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, sample: torch.Tensor) -> torch.Tensor:
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return sample


class Transformed(Slow):
    """Samples that are loaded and then transformed."""

    def __init__(self, loading: float, transform: Any) -> None:
        super().__init__(loading)
        self.transform = transform

    def __getitem__(self, number: int) -> torch.Tensor:
        changed: torch.Tensor = self.transform(super().__getitem__(number))
        return changed


def test_heavy_augmentation_in_getitem_suggests_hsipack_augment() -> None:
    loader = DataLoader(Transformed(SHORT / 4, Busy(LONG / 2)), batch_size=2)
    found = diagnose(loader, wait(SHORT))
    assert found.culprit == "load", str(found)
    assert found.remedy is not None
    assert any("hsipack.augment" in line for line in found.remedy["advice"]), str(found)
    assert found.to_dict()["facts"]["augmenting"] > 0.5
    # Neither a light transform nor another slow part leads to this advice.
    for dataset in (Transformed(LONG / 2, Busy(SHORT / 4)), Slow(LONG / 4, compute=True)):
        found = diagnose(DataLoader(dataset, batch_size=2), wait(SHORT))
        assert found.remedy is not None
        assert not any("hsipack.augment" in line for line in found.remedy["advice"]), str(found)


def test_augmentations_of_other_libraries_are_known_by_where_they_lie() -> None:
    import kornia.augmentation as kornia

    warp = kornia.RandomAffine(45.0, p=1.0)

    class Warped(Slow):
        def __getitem__(self, number: int) -> torch.Tensor:
            return warp(torch.rand(1, 8, 96, 96))[0]

    found = diagnose(DataLoader(Warped(0), batch_size=2), wait(0))
    assert found.to_dict()["facts"]["augmenting"] > 0.5


def test_slow_collating_is_told_from_slow_loading() -> None:
    def collate(samples: list[torch.Tensor]) -> torch.Tensor:
        time.sleep(LONG)
        return torch.stack(samples)

    found = diagnose(DataLoader(Slow(0), batch_size=2, collate_fn=collate), wait(SHORT))
    assert found.culprit == "collate", str(found)
    assert found.remedy is not None
    assert found.remedy["advice"][0].startswith("collate_fn (collate) alone takes 40"), str(found)


def test_a_quick_data_loader_is_acquitted() -> None:
    found = diagnose(DataLoader(Slow(0), batch_size=2), wait(LONG))
    assert found.culprit is None, str(found)


def test_any_iterable_of_batches_goes() -> None:
    class Batches:
        def __iter__(self) -> Iterator[list[torch.Tensor]]:
            for number in range(5):
                time.sleep(LONG)
                yield [torch.ones(2) * number]

    found = diagnose(Batches(), wait(SHORT))
    assert found.culprit == "load", str(found)
    assert found.to_dict()["facts"]["kind"] == "iterable"


def test_rounds_that_differ_are_followed_by_more_up_to_a_bound() -> None:
    steps = []

    def slower(batch: object) -> None:
        steps.append(batch)
        time.sleep(0.001 * len(steps))

    told: list[str] = []
    batches = [torch.ones(2)] * 4
    found = hsipack.diagnose(
        batches, slower, rounds=2, seconds=0, device="cpu", progress=told.append
    )
    assert not found.settled
    assert "unsure" in str(found)
    assert [row["rounds"] for row in found.levels] == [6, 6]
    assert told[0] == "round 1 of 2: the training step"
    assert told[-1] == "round 6, to be sure: loading samples"


class Planted:
    """Fake levels of a loader: one thread decodes slowly, two do not."""

    subject, batch_size, notes = "planted", 1, ()
    names = ("step", "collate", "decode", "read")
    more_threads, augmentations, actions = ("decode", 2), (), ("threads",)

    def __init__(self, told: list[str], long: float = LONG) -> None:
        self.told, self.long = told, long

    def waiting(self, seconds: float) -> Source:
        return Kept(None, wait(seconds))

    def source(self, name: str) -> Source:
        return self.waiting(self.long / 2 if name in {"step", "collate"} else 2 * self.long)

    def with_more_threads(self) -> Source:
        # Slow only while a remedy is tried for the first time.
        tried = self.told[-1].endswith("the remedy")
        again = any(what.endswith("measuring everything again") for what in self.told)
        return self.waiting(2 * self.long if tried and not again else self.long)

    def remedied(self, remedy: dict[str, Any]) -> Source:
        assert remedy == {"action": "threads", "threads": 2}
        return self.waiting(self.long)

    def facts(self) -> dict[str, Any]:
        return {"kind": "hsipack", "threads": 1, "cores": 2}

    def close(self) -> None:
        pass


def test_a_remedy_is_tried_in_more_rounds_while_its_times_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    steps = []

    def slower_at_last(batch: object) -> None:
        if told[-1].endswith("the remedy"):
            steps.append(batch)
            time.sleep(0.0005 * len(steps))
        else:
            steps.clear()

    monkeypatch.setattr(hsipack.diagnosis, "_levels", lambda *_: Planted(told, LONG / 8))
    found = hsipack.diagnose(
        [], slower_at_last, rounds=2, seconds=0, verify=True, progress=told.append
    )
    assert told[-1] == "round 6, to be sure: the remedy"
    # It never is as fast as it was, so all of it was measured three times.
    assert told.count("the speed of the machine changed: measuring everything again") == 2
    assert found.verified is not None
    assert not found.verified["steady"]
    assert found.attempts == 3
    assert "the speed of the machine changed" in str(found)


def test_all_is_measured_again_if_only_what_the_prediction_rests_on_changed_its_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(hsipack.diagnosis, "_levels", lambda loader, device: Planted(told))
    found = hsipack.diagnose(
        [], lambda batch: None, rounds=1, seconds=0, verify=True, progress=told.append
    )
    assert found.culprit == "decode", str(found)
    assert found.remedy is not None
    assert found.remedy["basis"] == {"measured": "more_threads"}
    assert found.attempts >= 2
    assert found.verified is not None
    assert found.verified["steady"], str(found)
    assert all(LONG <= seconds < 2 * LONG for seconds in found.verified["basis_s"])


def test_what_cannot_be_diagnosed_is_told() -> None:
    with pytest.raises(hsipack.ConflictError, match="no batches"):
        diagnose([], wait(0))
    with pytest.raises(hsipack.ConflictError, match="no batches"):
        diagnose(DataLoader([], batch_size=2), wait(0))
    with pytest.raises(hsipack.ConflictError, match="rounds"):
        hsipack.diagnose([torch.ones(1)], wait(0), rounds=0)


def test_a_step_that_fails_is_the_users_error(dataset: str) -> None:
    def step(batch: Any) -> None:
        raise RuntimeError("out of luck")

    with hsipack.Loader(dataset, 4, device="cpu") as loader:
        with pytest.raises(RuntimeError, match="out of luck"):
            diagnose(loader, step)
        assert len(list(loader)) == len(loader)


def test_what_is_told_may_raise(dataset: str) -> None:
    class Enough(Exception):
        pass

    steps: list[object] = []
    done = []

    def progress(what: str) -> None:
        if "decoding" in what:
            done.append(len(steps))
            raise Enough

    with hsipack.Loader(dataset, 4, device="cpu") as loader:
        with pytest.raises(Enough):
            diagnose(loader, steps.append, progress=progress)
        assert len(list(loader)) == len(loader)
    # Nothing was measured afterwards.
    assert done == [len(steps)]
    assert len(steps) >= 2 * 4


def test_a_trace_shows_waiting_steps_and_decoding(dataset: str, tmp_path: Path) -> None:
    flips = [hsipack.augment.RandomHorizontalFlip()]
    path = tmp_path / "trace.json"
    with hsipack.Loader(dataset, 4, device="cpu", augment=flips) as loader:
        loader.start_trace()
        batches = len(list(loader))
        loader.save_trace(path)
    trace = json.loads(path.read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    names = {event["name"] for event in spans}
    assert {"wait for a batch", "step", "augment", "decode", "plan"} <= names
    augmented = {event["args"]["batch"] for event in spans if event["name"] == "augment"}
    assert augmented == set(range(batches))
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
    with (
        hsipack.Loader(dataset, 4, device="cpu") as loader,
        pytest.raises(hsipack.ConflictError, match="start_trace"),
    ):
        loader.save_trace(path)
