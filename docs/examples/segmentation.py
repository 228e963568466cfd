"""Trains a small network to segment hyperspectral cubes.

usage: python docs/examples/segmentation.py [CUBES] [--work FOLDER] [--epochs 20] [--short]

CUBES is a folder of cubes with class ids in masks/NAME.png and splits in table.csv. Without it, six
scenes are drawn. With --short it takes seconds, and fails if the loss does not fall.
"""

import common
import hsipack
import torch
from hsipack import augment
from torch import Tensor, nn


def network(bands: int, classes: int) -> nn.Module:
    """Spectra first (1 x 1), then their surroundings."""
    return nn.Sequential(
        nn.Conv2d(bands, 32, 1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, classes, 1),
    )


def right(model: nn.Module, loader: hsipack.Loader) -> float:
    """Share of the pixels that the network classifies correctly."""
    hits = pixels = 0
    model.eval()
    with torch.no_grad():
        for batch in loader:
            found: Tensor = model(batch["image"]).argmax(1)
            hits += int((found == batch["mask"]).sum())
            pixels += found.numel()
    return hits / pixels


def main() -> None:
    options = common.options(__doc__, "cubes", epochs=20)
    torch.manual_seed(0)

    cubes = options.cubes or common.draw(options.work / "scenes")
    packed = options.work / f"{cubes.name}.hsipack"
    masks, table = "{dir}/masks/{stem}.png", cubes / "table.csv"
    hsipack.convert(cubes, packed, mask=masks, table=table, exclude=["*/masks/*"], resume=True)

    dataset = hsipack.open(packed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # Training reads augmented crops. Each pixel's spectrum has mean 0 and standard deviation 1.
    flips = [augment.RandomHorizontalFlip(), augment.RandomVerticalFlip()]
    turns = augment.RandomAffine(30, padding_mode="reflection", p=0.5)
    crop = hsipack.RandomCrop(48, per_cube=4 if options.short else 16)
    shared = {"dtype": torch.float32, "normalize": "snv", "device": device}
    train = hsipack.Loader(
        dataset, 8, split="train", shuffle=True, crop=crop, augment=[*flips, turns], **shared
    )
    check = hsipack.Loader(dataset, 1, split="validation", **shared)

    bands = next(iter(dataset.stacks.values())).shape[2]
    model = network(bands, classes=6).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for epoch in range(6 if options.short else options.epochs):
        total = 0.0
        for batch in train:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["mask"].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(train)
        losses.append(total)
        print(f"epoch {epoch}: loss {total:.3f}")
    print(f"right in validation: {right(model, check):.1%} of the pixels")
    assert losses[-1] < 0.8 * losses[0], losses


if __name__ == "__main__":
    main()
