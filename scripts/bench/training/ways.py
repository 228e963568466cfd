"""Ways to feed a network: a form of the cubes, and a library that augments them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import hsipack.augment
import kornia.augmentation
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from training.tasks import CPU, FILES, FORMS, Json, Task, Values, Window

Batch = tuple[Tensor, Tensor]
KORNIA, HSIPACK = "kornia", "hsipack"
CONTROL = "float32"
COPIED = "copied"
AUGMENTATIONS = [KORNIA, HSIPACK]
PREFETCH = 2
WHAT = {
    FILES: "float32 `.npy` files, torch's DataLoader",
    COPIED: "the same; batches are augmented on the GPU",
    "float32": "packed as float32, hsipack's Loader",
    "float16": "packed as float16, hsipack's Loader",
    "auto": "packed as float16, `--keep-bits auto`, hsipack's Loader",
}
# One augmentation multiplies values by up to 1.1. The others compute means of values.
GREATEST_GAIN = 1.1


@dataclass(frozen=True)
class Way:
    """Where batches come from, and which library augments them."""

    source: str
    """A form of the cubes, or `copied`: files whose batches are augmented on the GPU."""
    augmentation: str

    @property
    def key(self) -> str:
        return f"{self.source}-{self.augmentation}"

    @property
    def form(self) -> str:
        return FILES if self.source == COPIED else self.source

    @property
    def in_workers(self) -> bool:
        """Whether the workers of torch's DataLoader augment."""
        return self.source == FILES

    def place(self, task: Task) -> str:
        """The device on which batches are augmented. It decides the draws and the roundings."""
        return CPU if self.in_workers else task.device

    @property
    def control(self) -> str:
        """The way that differs only in rounding."""
        return f"{CONTROL}-{self.augmentation}"


WAYS = {way.key: way for source in WHAT for way in (Way(source, one) for one in AUGMENTATIONS)}


def chain(library: Any) -> list[Any]:
    """The augmentations of one of the libraries. Arguments have the same meaning in both."""
    return [
        library.RandomAffine(30, (0.0625, 0.0625), (0.9, 1.1), padding_mode="reflection", p=0.5),
        library.RandomHorizontalFlip(p=0.5),
        library.RandomVerticalFlip(p=0.5),
        library.RandomContrast((2 - GREATEST_GAIN, GREATEST_GAIN), clip_output=False, p=1.0),
        library.RandomGaussianNoise(0.0, 0.005, p=0.5),
    ]


class Augment(Protocol):
    """Augments a batch that consists of these windows."""

    def __call__(self, batch: Batch, windows: list[Window]) -> Batch: ...


class Kornia:
    """Kornia, which draws with torch's seed. Each batch has its own seed."""

    def __init__(self, task: Task, place: str) -> None:
        keys: list[Any] = ["input", "mask"] if task.masked else ["input"]
        self.masked = task.masked
        augmentations = chain(kornia.augmentation)
        for one in augmentations:
            if isinstance(one, kornia.augmentation.RandomGaussianNoise):
                # Otherwise the noise is drawn on the CPU and copied, which takes most of the time.
                one.set_rng_device_and_dtype(torch.device(place), torch.float32)
        self.chain = kornia.augmentation.AugmentationSequential(*augmentations, data_keys=keys)

    def __call__(self, batch: Batch, windows: list[Window]) -> Batch:
        image, target = batch
        first = windows[0]
        torch.manual_seed((first.seed << 40) + (first.epoch << 20) + first.batch)
        if not self.masked:
            return torch.as_tensor(self.chain(image)), target
        image, mask = self.chain(image, target[:, None].float())
        return image, mask[:, 0].long()


class Hsipack:
    """hsipack's augmentations of a batch, with the draws that its loader uses for these windows."""

    def __init__(self, task: Task, seed: int) -> None:
        self.masked = task.masked
        self.chain = sequential(seed)

    def __call__(self, batch: Batch, windows: list[Window]) -> Batch:
        image, target = batch
        sample: Json = {
            "image": image,
            "id": torch.tensor([one.sample for one in windows]),
            "repeat": torch.tensor([one.repeat for one in windows]),
        }
        if self.masked:
            sample["mask"] = target.to(torch.uint8)
        made = self.chain(sample, epoch=windows[0].epoch)
        return made["image"], made["mask"].long() if self.masked else target


def sequential(seed: int) -> hsipack.augment.AugmentationSequential:
    """The augmentations of hsipack."""
    return hsipack.augment.AugmentationSequential(*chain(hsipack.augment), seed=seed)


def augment(task: Task, way: Way, seed: int) -> Augment:
    """The augmentations of a way, for batches that are not augmented yet."""
    return Kornia(task, way.place(task)) if way.augmentation == KORNIA else Hsipack(task, seed)


class Feed(Protocol):
    """Epochs of batches; `close` ends its processes and threads."""

    def __iter__(self) -> Iterator[Batch]: ...

    def close(self) -> None: ...


class Windows(Dataset[tuple[Values, Window]]):
    """Windows from float32 files."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __getitem__(self, window: Window) -> tuple[Values, Window]:
        return self.task.cut(window), window


class Order(Sampler[list[Window]]):
    """The batches of an epoch. The number of the epoch is set from outside, as for a
    DistributedSampler, because torch may begin an iteration twice.
    """

    def __init__(self, epochs: list[list[list[Window]]], first: int) -> None:
        self.epochs = epochs
        self.epoch = first - 1

    def __iter__(self) -> Iterator[list[Window]]:
        return iter(self.epochs[self.epoch])


class Collate:
    """Collates a batch in a worker, and may augment it there. On a CPU, that is faster than
    augmenting single windows, or than augmenting the batch in the process that trains.
    """

    def __init__(self, task: Task, augment: Augment | None) -> None:
        self.task = task
        self.augment = augment

    def __call__(self, items: list[tuple[Values, Window]]) -> Batch:
        windows = [window for _, window in items]
        batch = self.task.collate([image for image, _ in items], windows)
        return batch if self.augment is None else self.augment(batch, windows)


class Files:
    """torch's DataLoader over the files, with the settings that its documentation recommends:
    persistent workers that load ahead and, for a GPU, page-locked memory.
    """

    def __init__(
        self,
        task: Task,
        way: Way,
        seed: int,
        epochs: list[list[list[Window]]],
        workers: int,
        first: int,
    ) -> None:
        self.device = task.device
        self.order = Order(epochs, first)
        augments = augment(task, way, seed)
        self.augment = None if way.in_workers else augments
        self.loader: DataLoader[Any] | None = DataLoader(
            Windows(task),
            batch_sampler=self.order,
            collate_fn=Collate(task, augments if way.in_workers else None),
            num_workers=workers,
            persistent_workers=True,
            prefetch_factor=PREFETCH,
            pin_memory=self.device != CPU,
        )

    def __iter__(self) -> Iterator[Batch]:
        assert self.loader is not None
        self.order.epoch += 1
        batches = self.order.epochs[self.order.epoch]
        for batch, windows in zip(self.loader, batches, strict=True):
            image, target = (part.to(self.device, non_blocking=True) for part in batch)
            made = image, target
            yield made if self.augment is None else self.augment(made, windows)

    def close(self) -> None:
        # The workers end when the loader is deleted.
        self.loader = None


class Packed:
    """hsipack's loader, with its defaults except for the options of the task."""

    def __init__(
        self,
        task: Task,
        way: Way,
        seed: int,
        epochs: list[list[list[Window]]],
        threads: int,
        first: int,
    ) -> None:
        self.task = task
        own = way.augmentation == HSIPACK
        self.windows = iter(epochs[first:])
        self.augment = None if own else augment(task, way, seed)
        self.loader = task.loader(
            way.form,
            seed=seed,
            augment=sequential(seed) if own else None,
            num_threads=threads,
        )
        self.loader.set_epoch(first)

    def __iter__(self) -> Iterator[Batch]:
        for batch, windows in zip(self.loader, next(self.windows), strict=True):
            made = batch["image"], self.task.target(batch)
            yield self.augment(made, windows) if self.augment is not None else made

    def close(self) -> None:
        self.loader.close()


def feed(
    task: Task,
    way: Way,
    seed: int,
    epochs: list[list[list[Window]]],
    workers: int,
    first: int = 0,
) -> Feed:
    """Batches of these windows from the epoch `first` on, with `workers` processes or threads."""
    kind = Files if way.form == FILES else Packed
    return kind(task, way, seed, epochs, workers, first)


def check(task: Task, way: Way, epochs: list[list[list[Window]]], workers: int) -> float:
    """Compares the first augmented batch of a way with the same windows, cut out of the original
    cubes and augmented with the same draws. Returns the greatest difference as a share of the
    greatest value. Ends the script if rounding to the bits of the form does not explain it.
    """
    windows = epochs[0][0]
    seed = windows[0].seed
    source = feed(task, way, seed, epochs, workers)
    image, target = next(iter(source))
    cubes, classes = task.collate([task.cut(one) for one in windows], windows)
    plain = cubes.to(way.place(task)), classes.to(way.place(task))
    wanted, wanted_target = augment(task, way, seed)(plain, windows)
    wanted, wanted_target = wanted.to(task.device), wanted_target.to(task.device)
    most = float(cubes.abs().max())
    difference = float((image - wanted).abs().max()) / most
    allowed = GREATEST_GAIN * 2.0 ** -(task.bits[way.form] + 1)
    if not difference <= allowed or not torch.equal(target, wanted_target):
        raise SystemExit(
            f"{task.key}, {way.key}: the first batch differs from the cubes by {difference:.2e} of "
            f"their greatest value, but rounding explains only {allowed:.2e}; or the targets differ"
        )
    source.close()
    return difference


def possible(device: str) -> list[str]:
    """The ways that there are on a device: without a GPU, none copies to it."""
    return [key for key, way in WAYS.items() if device != CPU or way.source != COPIED]


def forms(ways: list[Way]) -> list[str]:
    """The forms that are needed: those of the ways, and one that determines the windows."""
    needed = {way.form for way in ways} | {CONTROL}
    return [form for form in (FILES, *FORMS) if form in needed or form == FILES]
