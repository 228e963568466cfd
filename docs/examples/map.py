"""From checkpoint to map: trains a small network, and maps whole scenes that it has not seen.

usage: python docs/examples/map.py [CUBES] [--work FOLDER] [--epochs 20] [--short]

CUBES is a folder of cubes with class ids in masks/NAME.png and splits in table.csv. Without it,
six scenes are drawn, with map coordinates near Heidelberg. With --short it takes seconds, and
fails if the loss does not fall or the maps are wrong in too many pixels.
"""

import common
import hsipack
import numpy as np
import torch
from torch import nn

REACH = 2  # the network looks at this many pixels on each side of a pixel
CLASSES = ["cloth", "skin", "fat", "muscle", "vessel", "instrument"]  # of the drawn scenes


def network(bands: int) -> nn.Module:
    """Spectra first (1 x 1), then their surroundings (3 x 3, twice), so that REACH is 2."""
    return nn.Sequential(
        nn.Conv2d(bands, 32, 1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, len(CLASSES), 3, padding=1),
    )


def main() -> None:
    options = common.options(__doc__, "cubes", epochs=20)
    torch.manual_seed(0)

    cubes = options.cubes or common.place(common.draw(options.work / "places"))
    packed = options.work / f"{cubes.name}.hsipack"
    masks, table = "{dir}/masks/{stem}.png", cubes / "table.csv"
    hsipack.convert(cubes, packed, mask=masks, table=table, exclude=["*/masks/*"], resume=True)
    dataset = hsipack.open(packed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shared = {"dtype": torch.float32, "normalize": "snv", "device": device}

    crop = hsipack.RandomCrop(32, per_cube=8 if options.short else 32)
    train = hsipack.Loader(dataset, 8, split="train", shuffle=True, crop=crop, **shared)
    model = network(next(iter(dataset.stacks.values())).shape[2]).to(device)
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
    assert losses[-1] < 0.8 * losses[0], losses
    torch.save(model.state_dict(), options.work / "map.pt")

    # The windows of a grid, in order. They overlap by REACH on both sides, so that each pixel is in
    # a window that has all of its surroundings.
    grid = hsipack.GridCrop(40, overlap=2 * REACH, pad="reflect")
    unseen = hsipack.Loader(dataset.with_masks([]), 8, split="validation", crop=grid, **shared)
    stitcher = hsipack.Stitcher(unseen, merge="center", class_ids=True)
    model.load_state_dict(torch.load(options.work / "map.pt"))
    model.eval()
    with torch.no_grad():
        for batch in unseen:
            stitcher.add(batch, model(batch["image"]))
    for sample, array in stitcher.maps():
        file = options.work / f"{dataset.samples[sample]['name']}.tif"
        hsipack.write_map(file, array, dataset, sample, names=None if options.cubes else CLASSES)
        right = np.mean(array == dataset[sample]["mask"].numpy())
        print(f"{file}: {right:.1%} of the pixels are right")
        assert right > 0.5


if __name__ == "__main__":
    main()
