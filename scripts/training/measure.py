"""Trains a network that is fed in one way: how right it was when, and what took the time."""

from __future__ import annotations

import gc
import hashlib
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from training.tasks import Json, Scores, Task, Window
from training.ways import Feed, Way, drop_cache, feed


@dataclass
class Epoch:
    """Of one epoch, in seconds."""

    train_s: float
    """All of it but validation."""
    wait_s: float
    """Until the batches were there, augmented."""
    scores: Scores


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
    source: Feed | None = None
    for _ in windows:
        if task.drop:
            drop_cache(task.path(way.form))
        began = time.perf_counter()
        if source is None:
            # Workers, threads and buffers are started in the first epoch.
            source = feed(task, way, seed, windows, workers)
        waited = one_epoch(source, model, optimizer, schedule)
        took = time.perf_counter() - began
        epochs.append(Epoch(took, waited, task.validate(model, validation)))
    assert source is not None
    source.close()
    return {
        "seed": seed,
        "train_s": [one.train_s for one in epochs],
        "wait_s": [one.wait_s for one in epochs],
        "scores": {name: [one.scores[name] for one in epochs] for name in task.measures},
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
