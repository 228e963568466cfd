#!/usr/bin/env python3
"""Classifies pixels from hsipack's patches and from arrays in memory, with splits that mix
neighbouring pixels and with splits that separate them.

usage: .venv/bin/python scripts/bench/classification.py [--folder FOLDER] [--epochs N] [--side N]

Draws a scene of fields of six classes. Like fields, organs and minerals in reality, each field has
a spectrum of its own, close to that of its class, and its pixels are noisy. Splits the labelled
pixels at random and by blocks (hsipack split). For each split, trains the same small network on
9 x 9 patches twice: on batches from hsipack.Loader, and on windows cut out of a padded array in
memory, in the same order. Prints the accuracy per pixel on the test pixels; both networks must
agree to the last bit. Needs the package and torch, as scripts/test installs them.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import torch
from torch import Tensor, nn
from training.fields import BANDS, CLASSES, FIELD, draw

SIZE = 9
Batches = Iterator[tuple[Tensor, Tensor]]


def network() -> nn.Module:
    """Patches (B, bands, SIZE, SIZE) become scores (B, classes)."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.BatchNorm2d(BANDS),
        nn.Conv2d(BANDS, 32, 1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, CLASSES),
    )


class Ours:
    """Batches from hsipack."""

    def __init__(self, path: Path, mask: str, batch: int, shuffle: bool) -> None:
        crop = hsipack.LabelledPatches(SIZE, mask=mask)
        self.loader = hsipack.Loader(
            path, batch, shuffle=shuffle, seed=0, crop=crop, dtype=torch.float32, device="cpu"
        )

    def __iter__(self) -> Batches:
        for batch in self.loader:
            yield batch["image"], batch["label"] - 1


class Arrays:
    """The same windows in the same order, cut out of an array in memory."""

    def __init__(self, ours: Ours, cube: Any, classes: Any, epochs: int) -> None:
        half = SIZE // 2
        around = ((half, half), (half, half), (0, 0))
        self.padded = np.pad(cube.astype(np.float16), around, mode="reflect")
        self.classes = classes
        # Rows and columns of the windows of every batch, for each epoch.
        self.epochs = iter([[batch["window"] for batch in ours.loader] for _ in range(epochs)])

    def __iter__(self) -> Batches:
        half = SIZE // 2
        for windows in next(self.epochs):
            rows, columns = (windows[:, :2] + half).numpy().T
            images = [
                self.padded[row : row + SIZE, column : column + SIZE]
                for row, column in zip(rows, columns, strict=True)
            ]
            image = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).to(torch.float32)
            yield image, torch.from_numpy(self.classes[rows, columns].astype(np.int64)) - 1


def train(batches: Ours | Arrays, epochs: int) -> nn.Module:
    """Returns a trained network."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for image, label in batches:
            loss = nn.functional.cross_entropy(model(image.contiguous()), label)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.eval()


def right(model: nn.Module, batches: Ours | Arrays) -> float:
    """Share of the pixels that are classified correctly."""
    hits = pixels = 0
    with torch.no_grad():
        for image, label in batches:
            hits += int((model(image.contiguous()).argmax(1) == label).sum())
            pixels += len(label)
    return hits / pixels


def compare(path: Path, cube: Any, classes: Any, name: str, epochs: int) -> tuple[float, float]:
    """Accuracies on the test pixels of a split: trained from hsipack, and from arrays."""
    parts = (f"{name}_train", 64, True), (f"{name}_test", 512, False)
    trained = train(Ours(path, *parts[0]), epochs)
    ours = right(trained, Ours(path, *parts[1]))
    again = train(Arrays(Ours(path, *parts[0]), cube, classes, epochs), epochs)
    arrays = right(again, Arrays(Ours(path, *parts[1]), cube, classes, 1))
    same = zip(trained.state_dict().values(), again.state_dict().values(), strict=True)
    if not all(torch.equal(one, other) for one, other in same):
        raise SystemExit(f"{name}: the two networks differ")
    return ours, arrays


def main() -> None:
    """Draws, packs, splits, trains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--folder", type=Path, help="folder for the scene (default: a temporary folder)"
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--side", type=int, default=256, help="rows and columns of the scene")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cube, classes = draw(options.side)
        np.save(folder / "scene.npy", cube)
        np.save(folder / "classes.npy", classes)
        path = folder / "scene.hsipack"
        hsipack.convert(folder / "scene.npy", path, mask={"gt": f"{folder}/classes.npy"})
        ways: list[tuple[str, dict[str, Any]]] = [
            ("pixels", {"by": "pixels"}),
            ("blocks", {"by": "blocks", "block": 2 * FIELD, "buffer": "auto"}),
        ]
        for name, words in ways:
            shares = "train=0.3,test=rest"
            report = hsipack.split(path, "gt", shares=shares, name=name, patch=SIZE, **words)
            (seen,) = report.seen
            ours, arrays = compare(path, cube, classes, name, options.epochs)
            pixels = [part.pixels for part in report.splits]
            print(f"by {name}: {pixels[0]} training pixels, {pixels[1]} test pixels")
            print(f"    test pixels inside training patches   {seen.inside_share:8.2%}")
            print(f"    right with batches of hsipack         {ours:8.2%}")
            print(f"    right with arrays in memory           {arrays:8.2%}")


if __name__ == "__main__":
    main()
