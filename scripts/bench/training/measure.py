"""Trains a network that is fed in one way. Measures its accuracy and times for each epoch."""

from __future__ import annotations

import copy
import gc
import hashlib
import time
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from training import cache
from training.tasks import CPU, Json, Task, Window
from training.ways import Feed, Way, feed


@dataclass
class Epoch:
    """Measurements of one epoch."""

    train_s: float
    wait_s: float
    """Seconds of starting workers and threads, and of waiting for augmented batches: on a GPU,
    seconds in which it did nothing, or augmented in the stream of the network.
    """
    weights: dict[str, Tensor]
    """The network's weights after the epoch."""
    cached: tuple[float, float] | None
    """The share of the files in the system's cache, before and after the epoch."""


def train(
    task: Task,
    way: Way,
    windows: list[list[list[Window]]],
    validation: list[tuple[Tensor, Tensor]],
    seed: int,
    workers: int,
) -> Json:
    """Trains for all epochs. Returns their times and scores, and a digest of the last weights."""
    torch.manual_seed(seed)
    model = task.network().to(task.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(model.parameters(), lr=task.rate)
    steps = sum(len(batches) for batches in windows)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    # Free the objects of an earlier way now, not while this way is timed.
    gc.collect()
    epochs: list[Epoch] = []
    files = task.path(way.form)
    source: Feed | None = None
    for number in range(len(windows)):
        if task.drop:
            # Files that a loader has mapped stay in the cache, so each epoch has its own loader.
            if source is not None:
                source.close()
                source = None
            cache.drop(files)
        before = cache.cached(files) if task.drop else 0.0
        clock = CLOCKS[task.device]()
        if source is None:
            source = feed(task, way, seed, windows, workers, number)
        one_epoch(source, model, optimizer, schedule, clock)
        took, waited = clock.read()
        cached = (before, cache.cached(files)) if task.drop else None
        epochs.append(Epoch(took, waited, copy.deepcopy(model.state_dict()), cached))
    assert source is not None
    source.close()
    # Validate only now: between epochs, loaders would use this time to load ahead.
    scores = []
    for one in epochs:
        model.load_state_dict(one.weights)
        scores.append(task.validate(model, validation))
    return {
        "seed": seed,
        "train_s": [one.train_s for one in epochs],
        "wait_s": [one.wait_s for one in epochs],
        "cached": [one.cached for one in epochs],
        "scores": {name: [each[name] for each in scores] for name in task.measures},
        "weights": digest(model),
    }


class Clock(Protocol):
    """Measures an epoch, which begins when the clock is created."""

    def begin(self) -> None:
        """A step begins: its batch is there."""

    def end(self) -> None:
        """The step ends."""

    def read(self) -> tuple[float, float]:
        """Ends the epoch. Returns its seconds, and those that were no part of a step."""


class CpuClock:
    """The time of the process that trains."""

    def __init__(self) -> None:
        self.began = self.last = time.perf_counter()
        self.waited = 0.0

    def begin(self) -> None:
        self.waited += time.perf_counter() - self.last

    def end(self) -> None:
        self.last = time.perf_counter()

    def read(self) -> tuple[float, float]:
        self.begin()
        return time.perf_counter() - self.began, self.waited


class GpuClock:
    """The time of the stream in which the network computes. The process that trains is ahead of it,
    so the time that the process waits says little.
    """

    def __init__(self) -> None:
        torch.cuda.synchronize()
        self.began = time.perf_counter()
        self.events: list[torch.cuda.Event] = []
        self.begin()

    def begin(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self.events.append(event)

    end = begin

    def read(self) -> tuple[float, float]:
        self.begin()
        torch.cuda.synchronize()
        # Steps are between the second event and the third, the fourth and the fifth, and so on.
        pairs = zip(self.events[::2], self.events[1::2], strict=True)
        waited = sum(one.elapsed_time(two) for one, two in pairs) / 1000
        return time.perf_counter() - self.began, waited


CLOCKS: dict[str, type[CpuClock] | type[GpuClock]] = {CPU: CpuClock, "cuda": GpuClock}


def one_epoch(source: Feed, model: nn.Module, optimizer: Any, schedule: Any, clock: Clock) -> None:
    """Trains on an epoch."""
    for image, target in source:
        clock.begin()
        image = image.contiguous(memory_format=torch.channels_last)
        loss = nn.functional.cross_entropy(*pixels(model(image), target))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        clock.end()


def pixels(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Each pixel's scores (N, classes) and its class (N,). On a GPU, the loss of images adds in an
    order that changes from run to run.
    """
    return scores.movedim(1, -1).flatten(0, -2), target.flatten()


def digest(model: nn.Module) -> str:
    """A hash of all weights: equal for networks with equal weights."""
    found = hashlib.sha256()
    for values in model.state_dict().values():
        found.update(values.contiguous().cpu().numpy().tobytes())
    return found.hexdigest()
