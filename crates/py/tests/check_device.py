"""What the package promises of batches on a device; a program, for machines without pytest.

usage: python check_device.py [DEVICE]        (default: cuda)

Makes a small dataset, compares batches on DEVICE with those on the CPU, uses them on streams of its
own, keeps them, augments them. Prints a line for every promise; the exit status tells whether all
were kept. Needs hsipack, torch and NumPy. scripts/gpu_check runs it; test_device.py, on the CPU.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import torch
from hsipack import augment

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


class Checks:
    """The promises, on one device."""

    def __init__(self, dataset: str, device: torch.device) -> None:
        self.dataset, self.device = dataset, device
        self.images: dict[int, torch.Tensor] = {}
        self.masks: dict[int, torch.Tensor] = {}
        for sample in hsipack.open(dataset):
            self.images[sample["id"]], self.masks[sample["id"]] = sample["image"], sample["mask"]

    def loader(self, **options: Any) -> hsipack.Loader:
        shared: dict[str, Any] = {"shuffle": True, "device": self.device}
        return hsipack.Loader(self.dataset, 4, **{**shared, **options})

    def expected(self, batch: dict[str, Any]) -> torch.Tensor:
        return torch.stack([self.images[one] for one in batch["id"].tolist()])

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
                        # The device is far behind when the next batches are asked for.
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
        assert loader.stats()["given_away"] == 0

    def augmentations_are_those_of_the_cpu(self) -> None:
        exact = [augment.RandomHorizontalFlip(), augment.RandomVerticalFlip()]
        warps = [augment.RandomAffine(30, padding_mode="reflection"), *exact]
        for list_of_them, error in ((exact, 0.0), (warps, 2e-3)):
            options: dict[str, Any] = {"augment": list_of_them, "seed": 3, "shuffle": False}
            for here, there in zip(
                self.loader(**options), self.loader(**options, **{"device": "cpu"}), strict=True
            ):
                image = here["image"].cpu().float()
                assert float((image - there["image"].float()).abs().max()) <= error
                assert torch.equal(here["mask"].cpu(), there["mask"])

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


def main() -> int:
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(packed(Path(folder)), device)
        promises: list[Callable[[], None]] = [
            getattr(checks, name)
            for name in vars(Checks)
            if not name.startswith("_") and name not in ("loader", "expected")
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
