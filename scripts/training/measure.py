"""Trains a network that is fed in one way. Measures its accuracy and times for each epoch."""

from __future__ import annotations

import copy
import gc
import hashlib
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from training import cache
from training.tasks import Json, Task, Window
from training.ways import Feed, Way, feed


@dataclass
class Epoch:
    """Measurements of one epoch."""

    train_s: float
    wait_s: float
    """Seconds of starting workers and threads, and of waiting for augmented batches."""
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
    model = task.network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
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
        began = time.perf_counter()
        if source is None:
            source = feed(task, way, seed, windows, workers, number)
        waited = time.perf_counter() - began
        waited += one_epoch(source, model, optimizer, schedule)
        took = time.perf_counter() - began
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


def one_epoch(source: Feed, model: nn.Module, optimizer: Any, schedule: Any) -> float:
    """Trains on an epoch. Returns the seconds that it waited for batches."""
    waited = 0.0
    began = time.perf_counter()
    for image, target in source:
        waited += time.perf_counter() - began
        image = image.contiguous(memory_format=torch.channels_last)
        loss = nn.functional.cross_entropy(model(image), target)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        began = time.perf_counter()
    return waited + time.perf_counter() - began


def digest(model: nn.Module) -> str:
    """A hash of all weights: equal for networks with equal weights."""
    found = hashlib.sha256()
    for values in model.state_dict().values():
        found.update(values.contiguous().numpy().tobytes())
    return found.hexdigest()
