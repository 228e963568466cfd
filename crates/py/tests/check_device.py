"""Checks the promises about batches on a device. A program, for machines without pytest.

usage: python check_device.py [DEVICE]        (default: cuda)

Writes a small dataset, compares batches on DEVICE with those on the CPU, uses them on its own
streams, keeps them, augments them, cuts windows, stitches maps, trains. Prints a line for every
promise. The exit status is 0 if all were kept. Needs hsipack, torch and NumPy. scripts/gpu_check
runs it and, on the CPU, test_device.py.
"""

from __future__ import annotations

import gc
import itertools
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import torch
from hsipack import GridCrop, LabelledPatches, RandomCrop, Regions, Stitcher, augment
from hsipack.loader_reports import AugmentReport

CUBES, ROWS, COLUMNS, BANDS = 24, 48, 64, 20


def packed(folder: Path) -> str:
    """A dataset of random cubes with masks of class ids."""
    rng = np.random.default_rng(0)
    for number in range(CUBES):
        np.save(folder / f"cube_{number:02}.npy", rng.random((ROWS, COLUMNS, BANDS), np.float32))
        np.save(
            folder / f"cube_{number:02}_mask.npy", rng.integers(0, 5, (ROWS, COLUMNS), np.uint8)
        )
    cubes = [folder / f"cube_{number:02}.npy" for number in range(CUBES)]
    output = folder / "cubes.hsipack"
    hsipack.convert(cubes, output, mask="{dir}/{stem}_mask.npy")
    return str(output)


def raised(kind: type[hsipack.Error], what: Callable[[], object]) -> hsipack.Error:
    """Calls `what`, and returns its error, which must be of the given kind."""
    try:
        what()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


class Checks:
    """The promises, on one device."""

    def __init__(self, dataset: str, device: torch.device) -> None:
        self.dataset, self.device = dataset, device
        self.images: dict[int, torch.Tensor] = {}
        self.masks: dict[int, torch.Tensor] = {}
        for sample in hsipack.open(dataset):
            self.images[sample["id"]], self.masks[sample["id"]] = sample["image"], sample["mask"]

    def loader(self, masks: list[str] | None = None, **options: Any) -> hsipack.Loader:
        ds = hsipack.open(self.dataset, masks=masks)
        shared: dict[str, Any] = {
            "batch_size": 4,
            "shuffle": True,
            "seed": 0,
            "device": self.device,
        }
        return hsipack.Loader(ds, **{**shared, **options})

    def expected(self, batch: dict[str, Any]) -> torch.Tensor:
        return torch.stack([self.images[one] for one in batch["id"].tolist()])

    def damaged(self, name: str) -> Path:
        """A copy of the dataset with a damaged chunk."""
        copy = Path(self.dataset).with_name(name)
        shutil.copytree(self.dataset, copy)
        files = [path for path in copy.rglob("c/**/*") if path.is_file()]
        shard = max(files, key=lambda path: path.stat().st_size)
        stored = bytearray(shard.read_bytes())
        stored[1000] ^= 0xFF
        shard.write_bytes(stored)
        return copy

    def batches_are_the_samples(self) -> None:
        with self.loader() as loader:
            for _ in range(3):
                for batch in loader:
                    image, mask = batch["image"], batch["mask"]
                    assert image.device.type == mask.device.type == self.device.type
                    assert image.is_contiguous(memory_format=torch.channels_last)
                    assert torch.equal(image.cpu(), self.expected(batch))
                    masks = [self.masks[one] for one in batch["id"].tolist()]
                    assert torch.equal(mask.cpu(), torch.stack(masks))

    def values_are_those_of_the_cpu(self) -> None:
        for normalize in ("standardize", "l1", "l2", "snv"):
            options = {"normalize": normalize, "dtype": torch.float32, "shuffle": False}
            here = next(iter(self.loader(**options)))["image"].cpu()
            there = next(iter(self.loader(**options, **{"device": "cpu"})))["image"]
            torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-5)

    def batches_may_be_used_on_the_current_stream_at_once(self) -> None:
        stream = torch.cuda.Stream() if self.device.type == "cuda" else None
        sums = []
        with torch.cuda.stream(stream), self.loader() as loader:
            for _ in range(4):
                for batch in loader:
                    if stream is not None:
                        # The device is far behind when the next batches are requested.
                        torch.cuda._sleep(20_000_000)
                    wanted = self.expected(batch).double().sum()
                    sums.append((batch["image"].double().sum(), wanted))
                    del batch
        for found, wanted in sums:
            assert abs(float(found) - float(wanted)) < 1e-6 * abs(float(wanted))

    def kept_batches_are_never_overwritten(self) -> None:
        loader = self.loader()
        kept = [(batch["image"], self.expected(batch)) for _ in range(4) for batch in loader]
        assert len(kept) == 24
        for _ in range(2):
            assert len(list(loader)) == 6
        assert all(torch.equal(image.cpu(), wanted) for image, wanted in kept)

    def memory_stays_flat(self) -> None:
        loader = self.loader()
        used = []
        for _ in range(6):
            for batch in loader:
                del batch
            used.append(torch.cuda.memory_allocated() if self.device.type == "cuda" else 0)
        assert len(set(used[1:])) == 1, used
        assert loader.stats().given_away == 0

    def augmentations_are_those_of_the_cpu(self) -> None:
        exact = [augment.RandomHorizontalFlip(), augment.RandomVerticalFlip()]
        warps = [augment.RandomAffine(30, padding_mode="reflection"), *exact]
        values = [augment.RandomGaussianBlur((3, 5), (0.5, 2)), augment.Gain((0.5, 2.0))]
        noise = [augment.RandomGaussianNoise(0.0, 0.1, p=0.7)]
        for list_of_them, error in ((exact, 0.0), (warps, 2e-3), (values, 4e-3), (noise, 0.0)):
            options: dict[str, Any] = {"augment": list_of_them, "seed": 3, "shuffle": False}
            for here, there in zip(
                self.loader(**options), self.loader(**options, **{"device": "cpu"}), strict=True
            ):
                image = here["image"].cpu().float()
                assert float((image - there["image"].float()).abs().max()) <= error
                assert torch.equal(here["mask"].cpu(), there["mask"])

    def kernels_do_what_they_can(self) -> None:
        with self.loader(augment=[augment.RandomHorizontalFlip()]) as loader:
            wanted = "kernels" if self.device.type == "cuda" else "loops"
            assert loader.report().augment == AugmentReport(None)
            next(iter(loader))
            assert loader.report().augment == AugmentReport(wanted), loader.report().augment

    def they_can_be_called_with_tensors(self) -> None:
        warp = augment.AugmentationSequential(augment.RandomAffine(30, p=1.0), seed=1)
        image = torch.stack([self.images[0], self.images[1]]).float()
        mask = torch.stack([self.masks[0], self.masks[1]])
        there = warp(image, mask, ids=[0, 1])
        here = warp(image.to(self.device), mask.to(self.device), ids=[0, 1])
        torch.testing.assert_close(here[0].cpu(), there[0], rtol=0, atol=1e-4)
        assert torch.equal(here[1].cpu(), there[1])

    def dlpack_shares_the_devices_memory(self) -> None:
        for batch in self.loader(output="dlpack"):
            tensor = torch.from_dlpack(batch["image"])
            assert tensor.device.type == self.device.type
            ids = torch.from_numpy(batch["id"])
            assert torch.equal(tensor.cpu(), self.expected({"id": ids}))

    def it_resumes_with_the_very_next_batch(self) -> None:
        loader = self.loader()
        iteration = iter(loader)
        next(iteration)
        state = loader.state_dict()
        rest = [batch["id"].tolist() for batch in iteration]
        again = self.loader()
        again.load_state_dict(state)
        assert [batch["id"].tolist() for batch in again] == rest

    def windows_are_those_of_the_cpu(self) -> None:
        crops = [
            LabelledPatches(9, mask="mask", pad="reflect"),
            LabelledPatches(1, mask="mask"),
            RandomCrop(16, per_cube=3),
            GridCrop(20, overlap=4),
            Regions(12, mask="mask"),
        ]
        caches: list[dict[str, Any]] = [
            {"cache": "auto"},
            {"cache": None},
            {"cache": "decoded", "cache_size": 1 << 30},
            {"shuffle_window": 1 << 20},
        ]
        # On the CPU both are the same, so this only tests the check itself.
        many = 40 if self.device.type == "cuda" else 3
        for crop, cache in itertools.product(crops, caches):
            options: dict[str, Any] = {"crop": crop, "seed": 5, "batch_size": 32, **cache}
            options["masks"] = ["mask"]
            cpu = {**options, "device": "cpu"}
            with self.loader(**options) as here, self.loader(**cpu) as there:
                pairs = zip(
                    itertools.islice(here, many), itertools.islice(there, many), strict=True
                )
                for ours, theirs in pairs:
                    assert ours["id"].tolist() == theirs["id"].tolist()
                    assert ours.keys() == theirs.keys()
                    for name in ours.keys() & {"image", "mask", "label", "region", "window"}:
                        assert torch.equal(ours[name].cpu(), theirs[name]), (crop, cache, name)

    def decoding_and_what_stays_on_the_device_change_nothing(self) -> None:
        if self.device.type != "cuda":
            return
        crops: list[Any] = [None, LabelledPatches(9, mask="mask", pad="reflect"), RandomCrop(16)]
        crops += [GridCrop(20, overlap=4)]
        ways = [("host", "decoded"), ("device", None), ("device", "decoded")]
        ways += [("device", "compressed")]
        for crop, (decode, kept) in itertools.product(crops, ways):
            options: dict[str, Any] = {"crop": crop, "masks": ["mask"]}
            options["batch_size"] = 4 if crop is None else 32
            way = {"decode": decode, "device_cache": kept, "device_cache_size": 1 << 28}
            cpu = {**options, "device": "cpu"}
            with self.loader(**options, **way) as here, self.loader(**cpu) as there:
                for _ in range(3):
                    pairs = zip(
                        itertools.islice(here, 30), itertools.islice(there, 30), strict=True
                    )
                    for ours, theirs in pairs:
                        assert ours["id"].tolist() == theirs["id"].tolist()
                        for name in ours.keys() & {"image", "mask"}:
                            same = torch.equal(ours[name].cpu(), theirs[name])
                            assert same, (crop, decode, kept, name)
                stats, report = here.stats(), here.report().transfer
                assert report is not None
                assert (stats.device_cache_hits > 0) == (kept is not None), (crop, way, report)
                assert report.device_cache.kind == (kept or "none"), report

    def maps_are_stitched_from_what_is_on_the_device(self) -> None:
        loader = self.loader(crop=GridCrop(20, overlap=4), batch_size=16, shuffle=False)
        stitcher = Stitcher(loader)
        for batch in loader:
            stitcher.add(batch, batch["image"][:, :3] * 2)
        for sample, found in stitcher.maps():
            wanted = self.images[sample][:3].float() * 2
            torch.testing.assert_close(torch.as_tensor(found).float(), wanted, rtol=0, atol=2e-3)

    def a_network_learns_on_the_device(self) -> None:
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Conv2d(BANDS, 16, 3, padding=1), torch.nn.ReLU())
        network = network.append(torch.nn.Conv2d(16, 1, 1)).to(self.device)
        optimizer = torch.optim.Adam(network.parameters(), 1e-2)
        losses = []
        with self.loader(crop=RandomCrop(24, per_cube=4), dtype=torch.float32) as loader:
            for _ in range(6):
                for batch in loader:
                    wanted = batch["image"].mean(dim=1, keepdim=True)
                    loss = (network(batch["image"]) - wanted).square().mean()
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.detach())
        first, last = (float(torch.stack(some).mean()) for some in (losses[:3], losses[-3:]))
        assert last < first / 10, (first, last)

    def workers_read_while_the_device_is_in_use(self) -> None:
        torch.zeros(1, device=self.device)
        for start in ("fork", "spawn") if self.device.type == "cuda" else ("fork",):
            loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
                hsipack.open(self.dataset),
                batch_size=4,
                num_workers=2,
                pin_memory=self.device.type == "cuda",
                multiprocessing_context=start,
            )
            ids = []
            for batch in loader:
                ids += batch["id"].tolist()
                image = batch["image"].to(self.device, non_blocking=True)
                assert torch.equal(image.cpu(), self.expected(batch))
            assert ids == list(range(CUBES))

    def several_loaders_share_the_device(self) -> None:
        with self.loader(seed=1) as one, self.loader(seed=2, crop=RandomCrop(16)) as other:
            for image, window in zip(one, other, strict=True):
                assert torch.equal(image["image"].cpu(), self.expected(image))
                for crop, whole, where in zip(
                    window["image"].cpu(), self.expected(window), window["window"], strict=True
                ):
                    row, column, rows, columns = where.tolist()
                    assert torch.equal(crop, whole[:, row : row + rows, column : column + columns])

    def memory_is_given_back_by_loaders_that_are_left(self) -> None:
        if self.device.type != "cuda":
            return

        def free() -> int:
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            return torch.cuda.mem_get_info(self.device)[0]

        with self.loader() as loader:
            next(iter(loader))
        before = free()
        for _ in range(5):
            with self.loader(batch_size=12, slots=6) as loader:
                next(iter(loader))
        assert before - free() < 1 << 20, (before, free())

    def the_same_pixels_are_valid(self) -> None:
        options: dict[str, Any] = {"extras": "valid", "crop": (40, 40), "nan": 0}
        options["augment"] = [augment.RandomAffine(45.0, p=0.5)]
        with self.loader(**options) as loader, self.loader(**{**options, "device": "cpu"}) as cpu:
            for here, there in zip(loader, cpu, strict=True):
                assert here["valid"].device.type == self.device.type
                different = here["valid"].cpu() != there["valid"]
                # Nearest pixels of a warp may differ at ties.
                assert float(different.float().mean()) < 1e-3

    def damage_is_an_error_and_can_be_skipped(self) -> None:
        copy = self.damaged("damaged.hsipack")
        error = raised(
            hsipack.DamagedError, lambda: list(hsipack.Loader(str(copy), 4, device=self.device))
        )
        assert str(copy) in str(error), error
        with hsipack.Loader(str(copy), 4, device=self.device, on_damage="skip") as loader:
            ids = [one for batch in loader for one in batch["id"].tolist()]
        assert len(ids) == CUBES - 1

    def what_is_no_device_is_an_error(self) -> None:
        if self.device.type != "cuda":
            return
        number = torch.cuda.device_count()
        loader = hsipack.Loader(self.dataset, 4, device=f"cuda:{number}")
        assert raised(hsipack.DeviceError, lambda: next(iter(loader))).remedy

    def the_device_is_chosen_with_the_first_batch(self) -> None:
        loader = hsipack.Loader(self.dataset, 4)
        assert loader.report().transfer is None
        there = next(iter(loader))["image"].device
        assert there.type == ("cuda" if torch.cuda.is_available() else "cpu")

    def gaps_do_not_grow(self) -> None:
        image = torch.rand(2, 5, 32, 40)
        image[0, 2, 7, 9] = float("nan")
        image[1, :, 20, 11] = float("inf")
        for dtype in (torch.float16, torch.float32):
            for ops in (
                [augment.RandomHorizontalFlip(p=1.0), augment.RandomVerticalFlip(p=1.0)],
                [augment.RandomAffine(45.0, p=1.0)],
            ):
                called = augment.AugmentationSequential(*ops, seed=3)
                here = called(image.to(self.device, dtype), ids=[1, 2]).cpu()
                there = called(image.to(dtype), ids=[1, 2])
                assert torch.equal(here.isnan(), there.isnan()), (dtype, ops)
                assert torch.equal(here.isinf(), there.isinf()), (dtype, ops)
                torch.testing.assert_close(here, there, rtol=2e-2, atol=2e-3, equal_nan=True)
                if not isinstance(ops[0], augment.RandomAffine):
                    assert int(here.isnan().sum()) <= 1, ops

    def finite_values_stay_finite(self) -> None:
        image = torch.full((2, 3, 8, 8), 60000.0, dtype=torch.float16, device=self.device)
        louder = augment.RandomContrast((1.5, 1.5), clip_output=False, p=1.0)
        assert bool((louder(image) == 65504).all())

    def labels_of_any_size_are_transplanted(self) -> None:
        image = torch.arange(2.0, device=self.device).reshape(2, 1, 1, 1).expand(2, 3, 8, 8)
        moved = []
        for label in (7, 70_000, -70_000):
            mask = torch.zeros(2, 8, 8, dtype=torch.int64, device=self.device)
            mask[:, :4] = label
            called = augment.RandomTransplantation(p=1.0, excluded_labels=[0])
            result, _ = called(image.clone(), mask)
            moved.append(int((result[0] != image[0]).sum()))
        assert moved[0] == moved[1] == moved[2] > 0, moved

    def monitors_never_disturb_the_loop(self) -> None:
        errors: list[Exception] = []
        done = threading.Event()

        def monitor(loader: hsipack.Loader) -> None:
            while not done.is_set():
                try:
                    states.append(loader.state_dict()["epoch"])
                    reports.append(loader.report().transfer)
                    assert loader.stats().batches >= 0
                    assert len(loader) == 6
                except Exception as error:
                    errors.append(error)
                time.sleep(0.001)

        states: list[int] = []
        reports: list[Any] = []
        with self.loader(augment=[augment.RandomAffine(45.0, p=1.0)]) as loader:
            thread = threading.Thread(target=monitor, args=(loader,))
            thread.start()
            for _ in range(20):
                for batch in loader:
                    del batch
            done.set()
            thread.join()
        assert not errors, errors[:1]
        assert states == sorted(states)
        assert loader.stats().batches == 120

    def what_cannot_be_augmented_is_refused_at_once(self) -> None:
        crop = augment.RandomCrop((ROWS + 1, COLUMNS))
        assert raised(hsipack.ConflictError, lambda: self.loader(augment=[crop])).remedy

    def damaged_batches_count_and_replacements_come(self) -> None:
        copy = self.damaged("partly.hsipack")
        for on_damage in ("error", "skip"):
            with hsipack.Loader(str(copy), 1, device=self.device, on_damage=on_damage) as loader:
                iteration, batches, failed = iter(loader), 0, 0
                while True:
                    try:
                        batch = next(iteration)
                    except StopIteration:
                        break
                    except hsipack.DamagedError:
                        failed += 1
                    else:
                        batches += 1
                        failed += int(batch["padding"].sum())
                assert (batches, failed) == ((CUBES - 1, 1) if on_damage == "error" else (CUBES, 1))

    def daemon_threads_may_wait_at_the_end(self) -> None:
        program = f"""
import threading, time, hsipack
loader = hsipack.Loader({self.dataset!r}, 4, device={str(self.device)!r}, shuffle=True)
def prefetch():
    while True:
        for batch in loader:
            pass
threading.Thread(target=prefetch, daemon=True).start()
time.sleep(1.0)
"""
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, timeout=100
            )
            assert done.returncode == 0, (done.returncode, done.stderr[-500:])


def main() -> int:
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(packed(Path(folder)), device)
        promises: list[Callable[[], None]] = [
            getattr(checks, name)
            for name in vars(Checks)
            if not name.startswith("_") and name not in ("loader", "expected", "damaged")
        ]
        for promise in promises:
            name = promise.__name__.replace("_", " ")
            try:
                promise()
            except Exception as error:
                failed += 1
                print(f"FAILED: {name}: {type(error).__name__}: {error}", flush=True)
            else:
                print(f"passed: {name}", flush=True)
    print(f"{len(promises) - failed} of {len(promises)} promises kept on {device}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
