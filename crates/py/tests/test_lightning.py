"""The loader in Lightning and torch.distributed: every sample once, also after a checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch

pl = pytest.importorskip("lightning", reason="SKIPPED: lightning is not installed")

import hsipack  # noqa: E402
import two_ranks  # noqa: E402

QUIET: dict[str, Any] = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "accelerator": "cpu",
}

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


class Data(pl.LightningDataModule):  # type: ignore[misc,name-defined]
    """Random crops of the training split, and whole cubes of the validation split."""

    def __init__(self, dataset: Path, **options: Any) -> None:
        super().__init__()
        self.dataset = dataset
        self.options = options

    def train_dataloader(self) -> hsipack.Loader:
        return hsipack.Loader(
            self.dataset,
            4,
            split="train",
            shuffle=True,
            seed=3,
            crop=hsipack.RandomCrop(8, per_cube=2),
            augment=[hsipack.augment.RandomHorizontalFlip(), hsipack.augment.BandJitter()],
            dtype=torch.float32,
            device="cpu",
            **self.options,
        )

    def val_dataloader(self) -> hsipack.Loader:
        return hsipack.Loader(self.dataset, 2, split="val", dtype=torch.float32, device="cpu")


class Model(pl.LightningModule):  # type: ignore[misc,name-defined]
    """A pixel classifier that records its batches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Conv2d(7, 4, 1)
        self.seen: list[tuple[int, list[int], float]] = []
        self.validated: list[int] = []

    def loss(self, batch: dict[str, Any]) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layer(batch["image"]), batch["labels"].long())

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        self.seen.append((self.current_epoch, batch["id"].tolist(), float(batch["image"].sum())))
        return self.loss(batch)

    def validation_step(self, batch: dict[str, Any], number: int) -> None:
        self.validated.extend(batch["id"].tolist())
        self.log("loss", self.loss(batch), batch_size=len(batch["id"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def uninterrupted(dataset: Path, epochs: int) -> Model:
    model = Model()
    pl.Trainer(max_epochs=epochs, **QUIET).fit(model, Data(dataset))
    return model


@pytest.fixture(scope="module")
def whole(dataset: Path) -> Model:
    """Four epochs with five batches each, without an interruption."""
    return uninterrupted(dataset, 4)


def test_lightning_trains_and_validates(whole: Model, dataset: Path) -> None:
    assert [epoch for epoch, _, _ in whole.seen] == [number // 5 for number in range(20)]
    train = hsipack.open(dataset, split="train").ids
    for epoch in range(4):
        ids = [one for number, ids, _ in whole.seen if number == epoch for one in ids]
        assert sorted(ids) == sorted(train * 2)
    orders = {
        tuple(map(tuple, (ids for number, ids, _ in whole.seen if number == epoch)))
        for epoch in range(4)
    }
    assert len(orders) == 4
    validation = hsipack.open(dataset, split="val").ids
    # Two batches before training, then once in each epoch.
    assert whole.validated == validation * 5


def test_lightning_gives_what_a_plain_loop_gives(whole: Model, dataset: Path) -> None:
    with Data(dataset).train_dataloader() as loader:
        seen = [
            (epoch, batch["id"].tolist(), float(batch["image"].sum()))
            for epoch in range(4)
            for batch in loader
        ]
    assert seen == whole.seen


@pytest.mark.parametrize("epochs", [1, 3])
def test_lightning_goes_on_after_a_whole_epoch(
    whole: Model, dataset: Path, tmp_path: Path, epochs: int
) -> None:
    """Lightning then keeps no state of the loader, but passes the number of the next epoch."""
    trainer = pl.Trainer(max_epochs=epochs, **QUIET)
    trainer.fit(Model(), Data(dataset))
    trainer.save_checkpoint(tmp_path / "checkpoint.ckpt")
    model = Model()
    pl.Trainer(max_epochs=4, **QUIET).fit(
        model, Data(dataset), ckpt_path=tmp_path / "checkpoint.ckpt"
    )
    assert model.seen == whole.seen[5 * epochs :]


def test_lightning_goes_on_in_the_middle_of_an_epoch(
    whole: Model, dataset: Path, tmp_path: Path
) -> None:
    """From a checkpoint after any batch, including the last one of an epoch."""
    keep = pl.pytorch.callbacks.ModelCheckpoint(
        dirpath=tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1
    )
    options = {**QUIET, "enable_checkpointing": True}
    pl.Trainer(max_epochs=2, callbacks=[keep], **options).fit(Model(), Data(dataset))
    for steps in (1, 3, 4, 5, 6, 9):
        model = Model()
        pl.Trainer(max_epochs=4, **QUIET).fit(
            model, Data(dataset), ckpt_path=tmp_path / f"step={steps}.ckpt"
        )
        assert model.seen == whole.seen[steps:], steps
        for one, other in zip(model.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(one, other)


class Killed(Exception):
    """Ends training."""


class Kill(pl.Callback):  # type: ignore[misc,name-defined]
    """Ends training in a batch, after the loader has delivered it."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_batch_start(self, trainer: Any, *_: object) -> None:
        if trainer.global_step == self.steps:
            raise Killed


def test_lightning_goes_on_after_a_crash(whole: Model, dataset: Path, tmp_path: Path) -> None:
    """It continues from the last checkpoint, although the loader had decoded ahead."""
    keep = pl.pytorch.callbacks.ModelCheckpoint(
        dirpath=tmp_path, filename="{step}", every_n_train_steps=3, save_top_k=-1
    )
    options = {**QUIET, "enable_checkpointing": True}
    with pytest.raises(Killed):
        pl.Trainer(max_epochs=4, callbacks=[keep, Kill(8)], **options).fit(Model(), Data(dataset))
    model = Model()
    pl.Trainer(max_epochs=4, **QUIET).fit(model, Data(dataset), ckpt_path=tmp_path / "step=6.ckpt")
    assert model.seen == whole.seen[6:]


def test_parts_of_epochs(whole: Model, dataset: Path) -> None:
    """limit_train_batches abandons epochs. Each time, the next epoch begins."""
    model = Model()
    pl.Trainer(max_epochs=3, limit_train_batches=2, **QUIET).fit(model, Data(dataset))
    assert model.seen == [whole.seen[place] for place in (0, 1, 5, 6, 10, 11)]


RANKS = """
    import json, sys
    from pathlib import Path
    import torch

    sys.path.insert(0, sys.argv[1])
    from test_lightning import QUIET, Data, Model, pl

    if __name__ == "__main__":
        model = Model()
        trainer = pl.Trainer(max_epochs=2, strategy="ddp", devices=2, **QUIET)
        trainer.fit(model, Data(Path(sys.argv[2]), num_threads=1))
        out = Path(sys.argv[3]) / f"rank{trainer.global_rank}.json"
        out.write_text(json.dumps([model.seen, model.validated]))
"""

PLAIN = """
    import json, sys
    from pathlib import Path
    import torch
    import torch.distributed as dist
    import hsipack

    def work(rank, dataset, folder):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
        loader = hsipack.Loader(
            dataset, 2, shuffle=True, seed=5, device="cpu", num_threads=1, last="pad"
        )
        epochs = [
            [batch["id"][~batch["padding"]].tolist() for batch in loader] for _ in range(3)
        ]
        # All ranks take as many steps: this would hang else.
        for batches in epochs:
            for _ in batches:
                dist.all_reduce(torch.zeros(1))
        (Path(folder) / f"rank{rank}.json").write_text(json.dumps(epochs))
        dist.destroy_process_group()

    if __name__ == "__main__":
        # The example of docs/examples spawns.
        torch.multiprocessing.start_processes(work, sys.argv[2:4], nprocs=2, start_method="fork")
"""


def test_lightning_on_two_ranks_gives_every_sample_once(dataset: Path, tmp_path: Path) -> None:
    both = two_ranks.run(RANKS, dataset, tmp_path)
    train = hsipack.open(dataset, split="train").ids
    for epoch in range(2):
        shares = [[ids for number, ids, _ in seen if number == epoch] for seen, _ in both]
        # 18 crops on 2 ranks in batches of 4: equal numbers of steps, with smaller last batches.
        assert len(shares[0]) == len(shares[1]) == 3
        assert sorted(one for batches in shares for ids in batches for one in ids) == sorted(
            train * 2
        )
    # Each sample once before training, when Lightning tries the validation, and once per epoch.
    validated = sorted(both[0][1] + both[1][1])
    assert validated == sorted(hsipack.open(dataset, split="val").ids * 3)


def test_torch_distributed_gives_every_sample_once(dataset: Path, tmp_path: Path) -> None:
    both = two_ranks.run(PLAIN, dataset, tmp_path)
    orders = []
    for epoch in range(3):
        shares = [[one for ids in rank[epoch] for one in ids] for rank in both]
        assert sorted(shares[0] + shares[1]) == list(range(12))
        assert len(both[0][epoch]) == len(both[1][epoch]) == 3
        orders.append(shares)
    assert orders[0] != orders[1]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_without_processes(dataset: Path, world: int) -> None:
    """A checkpoint of two ranks continues with another number of ranks."""
    options: dict[str, Any] = {"shuffle": True, "device": "cpu", "world_size": world}
    loaders = [hsipack.Loader(dataset, 2, rank=rank, **options) for rank in range(world)]
    first = [next(iter(loader))["id"].tolist() for loader in loaders]
    state = loaders[0].state_dict()
    assert all(loader.state_dict() == state for loader in loaders)
    with hsipack.Loader(dataset, 3, shuffle=True, device="cpu") as alone:
        alone.load_state_dict(state)
        rest = [one for batch in alone for one in batch["id"].tolist()]
    assert sorted([*(one for ids in first for one in ids), *rest]) == list(range(12))
    for loader in loaders:
        loader.close()


def test_a_batch_looked_at_before_training_does_not_count(whole: Model, dataset: Path) -> None:
    loader = Data(dataset).train_dataloader()
    next(iter(loader))
    model = Model()
    pl.Trainer(max_epochs=3, **QUIET).fit(model, loader)
    assert model.seen == whole.seen[:15]


@pytest.mark.parametrize("stop", [{"max_steps": 2}, {"max_epochs": 1}])
def test_training_again_reads_new_epochs(dataset: Path, stop: dict[str, int]) -> None:
    loader = Data(dataset).train_dataloader()
    first, second = Model(), Model()
    pl.Trainer(**stop, **QUIET).fit(first, loader)
    pl.Trainer(max_epochs=3, **QUIET).fit(second, loader)
    epochs = [
        tuple(map(tuple, (ids for number, ids, _ in second.seen if number == epoch)))
        for epoch in range(3)
    ]
    begun = tuple(tuple(ids) for _, ids, _ in first.seen)
    assert len({*epochs}) == 3
    assert all(epoch[: len(begun)] != begun for epoch in epochs)


def test_cycles_of_a_combined_loader_have_new_orders(dataset: Path) -> None:
    shared: dict[str, Any] = {"shuffle": True, "seed": 1, "dtype": torch.float32, "device": "cpu"}
    loaders = {
        "long": hsipack.Loader(dataset, 2, **shared),
        "short": hsipack.Loader(dataset, 2, split="val", **shared),
    }
    combined = pl.pytorch.utilities.CombinedLoader(loaders, "max_size_cycle")

    class Pair(Model):
        def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
            self.seen.append((batch["short"]["epoch"], batch["short"]["id"].tolist(), 0.0))
            return self.loss(batch["long"])

    model = Pair()
    pl.Trainer(max_epochs=3, **QUIET).fit(model, combined)
    # 6 batches an epoch of training; 3 samples of the validation split are 2 batches.
    assert [epoch for epoch, _, _ in model.seen] == [number // 2 for number in range(18)]
    assert len(loaders["long"]) == 6
    assert loaders["long"].epoch == 3


def test_overfitting_repeats_the_same_batches(dataset: Path) -> None:
    model = Model()
    pl.Trainer(max_epochs=3, overfit_batches=2, limit_val_batches=0, **QUIET).fit(
        model, Data(dataset)
    )
    epochs = [[ids for number, ids, _ in model.seen if number == epoch] for epoch in range(3)]
    assert len(epochs[0]) == 2
    assert epochs[0] == epochs[1] == epochs[2]
