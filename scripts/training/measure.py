"""Trains a network that is fed in one way: how right it was when, and what took the time."""

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
    """Of one epoch, in seconds."""

    train_s: float
    wait_s: float
    """Until workers and threads were started, and the batches were there, augmented."""
    weights: dict[str, Tensor]
    """What the network had come to."""
    cached: tuple[float, float] | None
    """The share of the files that was in the system's cache before it, and after it."""


def train(
    task: Task,
    way: Way,
    windows: list[list[list[Window]]],
    validation: list[tuple[Tensor, Tensor]],
    seed: int,
    workers: int,
) -> Json:
    """Epochs of a training, and what its weights came to."""
    torch.manual_seed(seed)
    model = task.network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(model.parameters(), lr=task.rate)
    steps = sum(len(batches) for batches in windows)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    # What an earlier way left is not to be cleared away while this one is timed.
    gc.collect()
    epochs: list[Epoch] = []
    files = task.path(way.form)
    source: Feed | None = None
    for number in range(len(windows)):
        if task.drop:
            # What a loader has mapped is not forgotten: each epoch has one of its own.
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
    # Not between epochs: who loads ahead would do so meanwhile, and for nothing.
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
    """Trains on an epoch; gives the seconds that it waited for batches."""
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
    """Equal for networks of which every weight is equal."""
    found = hashlib.sha256()
    for values in model.state_dict().values():
        found.update(values.contiguous().numpy().tobytes())
    return found.hexdigest()
