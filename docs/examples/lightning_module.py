"""Trains with Lightning: saves a checkpoint in the middle of an epoch, and continues from it.

usage: python docs/examples/lightning_module.py [--work FOLDER] [--epochs 10] [--short]

The scenes are drawn. Lightning stores the loader's state in its checkpoints, so no sample comes
twice in an epoch. With --short it takes seconds, and fails if the loss does not fall.
"""

from pathlib import Path
from typing import Any

import common
import hsipack
import lightning as pl
import torch
from hsipack import augment
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn


class Scenes(pl.LightningDataModule):
    """Packs the cubes once, and creates the loader in every process."""

    def __init__(self, cubes: Path, packed: Path) -> None:
        super().__init__()
        self.cubes, self.packed = cubes, packed

    def prepare_data(self) -> None:
        more: Any = {"exclude": ["*/masks/*"], "table": self.cubes / "table.csv", "resume": True}
        hsipack.convert(self.cubes, self.packed, mask="{dir}/masks/{stem}.png", **more)

    def train_dataloader(self) -> hsipack.Loader:
        # Lightning moves batches to its device, so the loader delivers them on the CPU.
        return hsipack.Loader(
            self.packed,
            8,
            shuffle=True,
            crop=hsipack.RandomCrop(32, per_cube=16),
            augment=[augment.RandomHorizontalFlip(), augment.RandomRotation90((0, 3))],
            normalize="snv",
            dtype=torch.float32,
            device="cpu",
        )


class Segmenter(pl.LightningModule):
    def __init__(self, bands: int, classes: int) -> None:
        super().__init__()
        layers = [nn.Conv2d(bands, 32, 1), nn.ReLU(), nn.Conv2d(32, classes, 3, padding=1)]
        self.network = nn.Sequential(*layers)
        self.losses: list[float] = []

    def training_step(self, batch: dict[str, Any], number: int) -> Tensor:
        loss = nn.functional.cross_entropy(self.network(batch["image"]), batch["mask"].long())
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> None:
    options = common.options(__doc__, epochs=10)
    pl.seed_everything(0)
    data = Scenes(common.draw(options.work / "scenes"), options.work / "scenes.hsipack")
    model = Segmenter(bands=40, classes=6)
    shared: Any = {"logger": False, "enable_progress_bar": False, "accelerator": "cpu"}
    # A checkpoint every four steps. The first training ends after five steps, in the middle of an
    # epoch, like a killed job. The second continues after step four.
    keep = ModelCheckpoint(options.work, "{step}", every_n_train_steps=4)
    pl.Trainer(max_steps=5, callbacks=[keep], **shared).fit(model, data)
    epochs = 3 if options.short else options.epochs
    rest = pl.Trainer(max_epochs=epochs, callbacks=[keep], **shared)
    rest.fit(model, data, ckpt_path=keep.best_model_path)
    print(f"{len(model.losses)} batches, loss {model.losses[0]:.3f} to {model.losses[-1]:.3f}")
    assert model.losses[-1] < 0.8 * model.losses[0], model.losses


if __name__ == "__main__":
    main()
