"""Measures training steps fed in each way, patches as loops get them, and CUDA graphs meanwhile.

usage: python check_steps.py DATASET [DEVICE] [--seconds S]

Needs hsipack and torch, and a dataset of whole cubes of one shape, at least six. DEVICE is `cuda`
(the default) or `cpu`, with fewer ways. Prints the time of a convolution step alone and fed in each
way to the device; 9x9 patches per second, plain and augmented, with the processor time of a batch;
and how many CUDA graphs could be captured while a loader copies ahead. The exit status is 0 if all
of them could. scripts/gpu_check runs it.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

import hsipack
import torch
from hsipack import augment

BATCH, GRAPHS, WARM_UP = 6, 40, 20
KEPT: dict[str, dict[str, Any]] = {
    "decoded on the CPU": {"decode": "host", "cache": None, "device_cache": None},
    "cached on the host": {"decode": "host", "cache": "auto", "device_cache": None},
    "decoded on the device": {"decode": "device", "cache": None, "device_cache": None},
    "resident, compressed": {"decode": "device", "cache": None, "device_cache": "compressed"},
    "resident, decoded": {"decode": "device", "cache": None, "device_cache": "decoded"},
}
ON_CPU: dict[str, dict[str, Any]] = {"decoded": {"cache": None}, "cached": {"cache": "auto"}}
CHAIN = [
    augment.RandomHorizontalFlip(p=0.5),
    augment.RandomAffine(15.0),
    augment.RandomGaussianNoise(0.0, 0.01),
    augment.Gain((0.9, 1.1)),
]


class Steps:
    """A small network whose first layer reads every band."""

    def __init__(self, bands: int, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        self.dtype = torch.float16 if self.on_gpu else torch.float32
        network = torch.nn.Sequential(
            torch.nn.Conv2d(bands, 32, 1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 32, 3, stride=2),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 1, 1),
        ).to(device, self.dtype)
        # The loader's images have the bands last in memory.
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def step(self, image: torch.Tensor) -> None:
        """A step without an update of the weights."""
        self.network(image.to(self.dtype)).float().square().mean().backward()
        self.network.zero_grad(set_to_none=True)

    def finish(self) -> None:
        """Waits for the device."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def ms(self, images: Iterable[torch.Tensor], seconds: float) -> float:
        """Milliseconds of a step, after a warm-up."""
        warm_up = WARM_UP if self.on_gpu else 2
        count, start = 0, 0.0
        for image in images:
            self.step(image)
            count += 1
            if count == warm_up:
                self.finish()
                start = time.perf_counter()
            elif count > warm_up and time.perf_counter() - start > seconds:
                break
        self.finish()
        return (time.perf_counter() - start) / (count - warm_up) * 1e3


def whole_batches(loader: hsipack.Loader) -> Iterator[dict[str, Any]]:
    """Batches of full size, epoch after epoch."""
    for _ in itertools.count():
        yield from (batch for batch in loader if len(batch["id"]) == BATCH)


def measure_steps(dataset: hsipack.Dataset, device: torch.device, seconds: float) -> None:
    """Prints the time of a step alone, and fed in each way."""
    with hsipack.Loader(dataset, BATCH, device="cpu", cache=None) as loader:
        shape = next(whole_batches(loader))["image"].shape
    steps = Steps(shape[1], device)
    image = torch.rand(shape, device=device).to(steps.dtype)
    image = image.contiguous(memory_format=torch.channels_last)
    alone = steps.ms(itertools.repeat(image), seconds)
    print(f"a step alone: {alone:.2f} ms")
    for name, way in (KEPT if steps.on_gpu else ON_CPU).items():
        with hsipack.Loader(dataset, BATCH, device=device, **way) as loader:
            fed = steps.ms((batch["image"] for batch in whole_batches(loader)), seconds)
        print(f"a step fed, {name}: {fed:.2f} ms, {fed / alone:.2f} times")


def measure_patches(dataset: hsipack.Dataset, device: torch.device, seconds: float) -> None:
    """Prints the rate of patches from the device's memory, plain and augmented."""
    on_gpu = device.type == "cuda"
    way = KEPT["resident, decoded"] if on_gpu else {}
    crop = hsipack.RandomCrop(9, per_cube=2000 if on_gpu else 50)
    for size, chain in itertools.product([64, 256, 1024], [None, CHAIN]):
        with hsipack.Loader(
            dataset, size, device=device, crop=crop, augment=chain, **way
        ) as loader:
            # The first epoch fills the cache.
            for _ in loader:
                pass
            count, batches, start, processor = 0, 0, time.perf_counter(), time.process_time()
            while time.perf_counter() - start < seconds:
                for batch in loader:
                    count, batches = count + len(batch["id"]), batches + 1
            if on_gpu:
                torch.cuda.synchronize()
            took, processor = time.perf_counter() - start, time.process_time() - processor
        kind = "augmented" if chain else "plain"
        each, used = (seconds / batches * 1e6 for seconds in (took, processor))
        print(
            f"9x9 in batches of {size}, {kind}: {count / took:,.0f}/s, {each:.0f} us a batch, "
            f"of which {used:.0f} us of a processor"
        )


def capture_graphs(dataset: hsipack.Dataset, device: torch.device) -> bool:
    """Captures CUDA graphs while a loader copies ahead. Returns whether all succeeded."""
    failed: list[str] = []
    values = torch.zeros(1 << 20, device=device)
    with hsipack.Loader(dataset, BATCH, device=device, **KEPT["decoded on the device"]) as loader:
        batches = whole_batches(loader)
        for _ in range(GRAPHS):
            next(batches)
            try:
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    for _ in range(50):
                        values = values * 1.0001
            except RuntimeError as error:
                failed.append(str(error).splitlines()[0])
        next(batches)
    print(f"{GRAPHS - len(failed)} of {GRAPHS} graphs were captured", *failed[-1:])
    return not failed


def main() -> int:
    """Measures everything."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("device", nargs="?", default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    dataset = hsipack.open(arguments.dataset, masks=[])
    device = torch.device(arguments.device)
    measure_steps(dataset, device, arguments.seconds)
    measure_patches(dataset, device, arguments.seconds)
    return 0 if device.type == "cpu" or capture_graphs(dataset, device) else 1


if __name__ == "__main__":
    raise SystemExit(main())
