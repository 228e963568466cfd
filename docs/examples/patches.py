"""Trains a classifier of small patches: which class does the pixel at the centre belong to?

usage: python docs/examples/patches.py [CUBE MASK] [--work FOLDER] [--epochs 20] [--short]

CUBE is one cube, MASK its class ids (0: unknown, 1 to 5) as .png or .npy. Without them, a real cube
of the moon is read from ../shared, with three classes of brightness. If it is not there, a scene is
drawn. With --short it takes seconds, and fails if the loss does not fall.
"""

import argparse
from pathlib import Path

import common
import hsipack
import torch
from hsipack import augment
from torch import Tensor, nn

SIZE = 9


def files(options: argparse.Namespace) -> tuple[Path, str]:
    """The cube, and the pattern for the path of its mask."""
    if options.cube is not None:
        return options.cube, str(options.mask)
    cube = common.moon(options.work / "moon")
    if cube is not None:
        return cube, "{dir}/{stem}_classes.npy"
    folder = common.draw(options.work / "scene", count=1)
    return folder / "scene_00.hdr", "{dir}/masks/{stem}.png"


class Classifier(nn.Module):
    """A patch (B, bands, SIZE, SIZE) becomes scores (B, classes)."""

    def __init__(self, bands: int, classes: int) -> None:
        super().__init__()
        self.spectra = nn.Sequential(nn.BatchNorm2d(bands), nn.Conv2d(bands, 24, 1), nn.ReLU())
        self.space = nn.Sequential(nn.Conv2d(24, 24, 3), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.ReLU())
        self.last = nn.Linear(24 * (SIZE - 4) ** 2, classes)

    def forward(self, patch: Tensor) -> Tensor:
        scores: Tensor = self.last(self.space(self.spectra(patch)).flatten(1))
        return scores


def main() -> None:
    options = common.options(__doc__, "cube", "mask", epochs=20)
    torch.manual_seed(0)

    cube, mask = files(options)
    packed = options.work / f"{cube.stem}.hsipack"
    hsipack.convert(cube, packed, mask=mask, resume=True)
    per_class = 100 if options.short else 1000
    crop = hsipack.LabelledPatches(SIZE, mask="mask", per_class=per_class)
    changes = [augment.RandomRotation90((0, 3)), augment.Gain((0.97, 1.03))]
    loader = hsipack.Loader(
        packed, 64, shuffle=True, crop=crop, augment=changes, dtype=torch.float32, device="cpu"
    )
    bands = next(iter(loader.dataset.stacks.values())).shape[2]
    model = Classifier(bands, classes=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for epoch in range(4 if options.short else options.epochs):
        total = 0.0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(loader)
        losses.append(total)
        print(f"epoch {epoch}: loss {total:.3f}")
    assert losses[-1] < 0.8 * losses[0], losses


if __name__ == "__main__":
    main()
