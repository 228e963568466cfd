"""The loader in training frameworks besides Lightning's Trainer: every sample once an epoch, or an
error that says what to do.
"""

import copy
import json
import os
import pickle
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hsipack
import pytest
import torch
import two_ranks
from hsipack.diagnosis._own import LoaderLevels
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    Subset,
)

CUBES = 12


def make(dataset: str, batch_size: int = 5, **options: Any) -> hsipack.Loader:
    given = {"shuffle": True, "seed": 2, "dtype": torch.float32, "device": "cpu", **options}
    return hsipack.Loader(dataset, batch_size, **given)


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def epochs(dataset: str, count: int) -> list[list[int]]:
    """The batches of the first epochs in a plain loop."""
    with make(dataset) as loader:
        return [numbers for _ in range(count) for numbers in ids(loader)]


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Conv2d(7, 3, 1)


def loss(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch["image"]), batch["labels"].long())


class Batches(IterableDataset[Any]):
    """The wrapper of the guide, for frameworks that take nothing but a DataLoader."""

    def __init__(self, loader: hsipack.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)


# torch.


@pytest.mark.parametrize(
    "wrap",
    [
        lambda loader: DataLoader(loader, batch_size=None),
        lambda loader: DataLoader(loader, batch_size=2, shuffle=True),
        lambda loader: DataLoader(Subset(loader, [0, 1]), batch_size=None),
    ],
)
def test_a_data_loader_around_a_loader_says_what_to_do(
    dataset: str, wrap: Callable[[hsipack.Loader], Any]
) -> None:
    with pytest.raises(hsipack.UnsupportedError, match="iterate over the loader itself"):
        list(wrap(make(dataset)))


def test_a_data_loader_around_batches_gives_them(dataset: str) -> None:
    wrapped = DataLoader(Batches(make(dataset)), batch_size=None)
    assert len(wrapped) == 3
    assert ids(wrapped) + ids(wrapped) == epochs(dataset, 2)
    with pytest.raises(hsipack.UnsupportedError, match="workers of a DataLoader"):
        list(DataLoader(Batches(make(dataset)), batch_size=None, num_workers=1))


def test_a_sampler_cannot_choose_samples(dataset: str) -> None:
    """A framework that builds a DataLoader from the loader's parts would lose crops and order."""
    loader = make(dataset)
    for parts in ({"batch_sampler": loader.batch_sampler}, {"sampler": loader.sampler}):
        with pytest.raises(hsipack.UnsupportedError, match="iterate over the loader itself"):
            list(DataLoader(loader.dataset, **parts))
    assert list(iter(loader))


def test_a_sampler_tells_that_ranks_are_divided_already(dataset: str) -> None:
    """Frameworks replace samplers of other types, in several processes."""
    loader = make(dataset, rank=1, world_size=2, last="drop")
    sampler: Any = loader.sampler
    assert isinstance(sampler, DistributedSampler)
    assert isinstance(sampler, SequentialSampler)
    assert (sampler.rank, sampler.num_replicas) == (1, 2)
    assert (loader.batch_sampler.batch_size, loader.batch_sampler.drop_last) == (5, True)
    assert len(loader.batch_sampler) == len(loader) == 1
    for name in ("dataset", "data_source"):
        assert getattr(sampler, name) is loader.dataset


def test_a_wrapper_that_copies_fields_has_the_attributes(dataset: str) -> None:
    """Fabric's and Ray's wrappers are made like this one."""
    for read in (dataset, hsipack.concat([dataset, dataset])):
        loader = make(read, last="drop")  # type: ignore[arg-type]
        assert loader.sampler is loader.batch_sampler
        for one in (loader, pickle.loads(pickle.dumps(loader))):
            assert one.sampler is one.sampler
            wrapper = DataLoader.__new__(DataLoader)
            wrapper.__dict__.update(one.__dict__)
            assert wrapper.dataset is one.dataset
            assert (wrapper.batch_size, wrapper.drop_last) == (5, True)
            wrapper.sampler.set_epoch(3)  # type: ignore[attr-defined]
            assert one.epoch == 3


def test_moving_a_loader_ends_its_iteration_with_a_clear_error(dataset: str) -> None:
    loader = make(dataset)
    iteration = iter(loader)
    next(iteration)
    loader.set_epoch(1)
    with pytest.raises(hsipack.ConflictError, match="set_epoch or load_state_dict before"):
        next(iteration)
    assert ids(loader) == epochs(dataset, 2)[3:]


def test_an_iteration_without_further_batches_ends_after_a_move(dataset: str) -> None:
    """Ignite asks an old iterator for its end after the next epoch was set."""
    joined = hsipack.concat([dataset, dataset])
    for read, count in ((dataset, 3), (joined, 6)):
        loader = make(read)  # type: ignore[arg-type]
        for epoch in (1, 3):
            iteration = iter(loader)
            for _ in range(count):
                next(iteration)
            loader.set_epoch(epoch)
            assert next(iteration, None) is None
            assert loader.epoch == epoch
        old = iter(loader)
        for _ in range(count):
            next(old)
        new = iter(loader)
        assert next(new)["epoch"] == 4
        assert next(old, None) is None
        assert len(list(new)) == count - 1


class Pairs(hsipack.Loader):
    """A subclass with a field of its own, as users write for frameworks."""

    def __init__(self, *args: Any, mark: Any = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.mark = mark

    def __iter__(self) -> Iterator[Any]:
        return ((batch["id"].tolist(), batch["label"]) for batch in super().__iter__())


COPIES = [
    pytest.param(lambda one: pickle.loads(pickle.dumps(one)), id="pickle"),
    pytest.param(copy.copy, id="copy"),
    pytest.param(copy.deepcopy, id="deepcopy"),
]


@pytest.mark.parametrize("duplicate", COPIES)
def test_copies_of_a_subclass_keep_fields_and_position(
    dataset: str, duplicate: Callable[[Any], Any]
) -> None:
    loader = Pairs(dataset, 5, shuffle=True, seed=2, device="cpu", mark=[1])
    loader.added = "by a framework"  # type: ignore[attr-defined]
    iteration = iter(loader)
    next(iteration)
    copied = duplicate(loader)
    assert (type(copied), copied.mark, copied.added) == (Pairs, [1], "by a framework")
    assert [numbers for numbers, _ in copied] == [numbers for numbers, _ in iteration]
    assert [numbers for numbers, _ in copied] == [numbers for numbers, _ in loader]


@pytest.mark.parametrize("duplicate", COPIES)
def test_copies_of_a_loader_of_several_datasets_move_alone(
    dataset: str, duplicate: Callable[[Any], Any]
) -> None:
    loader = make(hsipack.concat([dataset, dataset]))  # type: ignore[arg-type]
    iteration = iter(loader)
    next(iteration)
    copied = duplicate(loader)
    rest = ids(iteration)
    assert ids(copied) == rest
    assert ids(copied) == ids(loader)


def test_a_subclass_reads_several_datasets(dataset: str) -> None:
    joined = hsipack.concat([dataset, dataset])
    with Pairs(joined, 5, device="cpu", seed=3) as loader:
        pairs = list(loader)
    with make(joined, seed=3) as plain:  # type: ignore[arg-type]
        batches = list(plain)
    assert len(pairs) == len(batches) == len({id(pair) for pair in pairs})
    numbers = [number for numbers, _ in pairs for number in numbers]
    assert sorted(numbers) == sorted(2 * list(range(12)))


# Accelerate.


@pytest.fixture
def accelerator() -> Iterator[Any]:
    accelerate = pytest.importorskip("accelerate", reason="SKIPPED: accelerate is not installed")
    yield accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def test_accelerate_makes_a_step_after_the_last_batch(dataset: str, accelerator: Any) -> None:
    model, loader, val = network(), make(dataset), make(dataset)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.1), loader
    )
    seen, steps = [], []
    for _ in range(2):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(loss(model, batch))
                optimizer.step()
                optimizer.zero_grad()
            seen.append(batch["id"].tolist())
            steps.append(accelerator.sync_gradients)
            # Looking at other batches in between, to their end or not, changes nothing.
            next(iter(val))
            assert len(list(val)) == 3
    assert seen == epochs(dataset, 2)
    assert steps == [False, True, True] * 2
    assert not accelerator.gradient_state.in_dataloader


def test_accelerate_forgets_loaders_that_are_left_moved_or_closed(
    dataset: str, accelerator: Any
) -> None:
    state = accelerator.gradient_state
    ends: list[Callable[[hsipack.Loader], None]] = [
        lambda loader: loader.set_epoch(0),
        lambda loader: loader.load_state_dict(loader.state_dict()),
        lambda loader: loader.close(),
    ]
    for end in ends:
        loader = make(dataset)
        iteration = iter(loader)
        next(iteration)
        assert state.in_dataloader
        end(loader)
        assert not state.in_dataloader
    joined = make(hsipack.concat([dataset, dataset]))  # type: ignore[arg-type]
    last = [state.end_of_dataloader for _ in joined]
    assert last == [False] * 5 + [True]
    assert not state.in_dataloader


def test_accelerate_does_not_see_the_loaders_of_a_diagnosis(dataset: str, accelerator: Any) -> None:
    with make(dataset) as loader:
        levels = LoaderLevels(loader)
        iteration = iter(levels._like())
        next(iteration)
        assert not accelerator.gradient_state.in_dataloader
        levels.close()


def test_accelerates_own_loader_around_batches_knows_the_last_one(
    dataset: str, accelerator: Any
) -> None:
    """It reads one batch ahead."""
    wrapped = accelerator.prepare(DataLoader(Batches(make(dataset)), batch_size=None))
    for _ in range(2):
        ends = [accelerator.gradient_state.end_of_dataloader for _ in wrapped]
        assert ends == [False, False, True]
    assert not accelerator.gradient_state.in_dataloader


@pytest.mark.parametrize("how", ["prepare_data_loader", "register_for_checkpointing"])
def test_accelerate_saves_the_position(
    dataset: str, accelerator: Any, tmp_path: Path, how: str
) -> None:
    loader = make(dataset)
    given = getattr(accelerator, how)(loader)
    assert how != "prepare_data_loader" or given is loader
    iteration = iter(loader)
    next(iteration)
    accelerator.save_state(str(tmp_path))
    rest = [*ids(iteration), *ids(loader)]
    accelerator.load_state(str(tmp_path))
    assert [*ids(loader), *ids(loader)] == rest


def test_accelerate_functions_that_need_samples_say_what_to_do(
    dataset: str, accelerator: Any
) -> None:
    functions = pytest.importorskip("accelerate.data_loader")
    for wrap in (
        functions.prepare_data_loader,
        lambda loader: functions.skip_first_batches(loader, 1),
    ):
        with pytest.raises(hsipack.UnsupportedError, match=r"loader\.load_state_dict"):
            list(wrap(make(dataset)))


ACCELERATE = """
    import json, os, sys
    from pathlib import Path
    import torch

    def work(rank, tests, dataset, folder, port):
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": port}
        sys.path.insert(0, tests)
        torch.set_num_threads(1)
        from accelerate import Accelerator
        from accelerate.utils import gather_object
        from test_frameworks import loss, make, network

        early = make(dataset, seed=None, num_threads=1)
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = network()
        model, optimizer, loader = accelerator.prepare(
            model, torch.optim.SGD(model.parameters(), 0.1), make(dataset, 4, seed=None)
        )
        record = []
        for one in (early, loader):
            for _ in range(2):
                steps, own = [], []
                for batch in one:
                    with accelerator.accumulate(model):
                        accelerator.backward(loss(model, batch))
                        optimizer.step()
                        optimizer.zero_grad()
                    steps.append(accelerator.sync_gradients)
                    own += batch["id"][~batch["padding"]].tolist()
                record.append([steps, gather_object(own)])
        seen = []
        for batch in make(dataset, 5, last="pad"):
            numbers, padding = accelerator.gather((batch["id"], batch["padding"]))
            seen += numbers[~padding].tolist()
        result = [record, seen, [one.tolist() for one in model.state_dict().values()]]
        (Path(folder) / f"rank{rank}.json").write_text(json.dumps(result))
        accelerator.end_training()

    if __name__ == "__main__":
        torch.multiprocessing.start_processes(work, sys.argv[1:], nprocs=2, start_method="fork")
"""


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def test_accelerate_on_two_ranks_gives_every_sample_once(dataset: str, tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="SKIPPED: accelerate is not installed")
    both = two_ranks.run(ACCELERATE, dataset, tmp_path, free_port(), WORLD_SIZE="2")
    # The same number of steps, samples and weights on both ranks.
    assert both[0] == both[1]
    record, seen, _ = both[0]
    # 12 samples on 2 ranks: in batches of 5, two batches; in batches of 4, two as well.
    assert [steps for steps, _ in record] == [[False, True]] * 4
    assert all(sorted(numbers) == list(range(CUBES)) for _, numbers in record)
    assert record[0][1] != record[1][1]
    assert sorted(seen) == list(range(CUBES))


# Lightning Fabric.


FABRIC = """
    import json, sys
    from pathlib import Path
    import lightning.fabric

    sys.path.insert(0, sys.argv[1])
    from test_frameworks import Batches, DataLoader, ids, make

    if __name__ == "__main__":
        fabric = lightning.fabric.Fabric(accelerator="cpu", devices=2, strategy="ddp")
        fabric.launch()
        loader = make(sys.argv[2], seed=None, num_threads=1)
        plain = [ids(fabric.to_device(batch) for batch in loader) for _ in range(2)]
        set_up = fabric.setup_dataloaders(DataLoader(Batches(loader), batch_size=None))
        wrapped = [ids(set_up) for _ in range(2)]
        out = Path(sys.argv[3]) / f"rank{fabric.global_rank}.json"
        out.write_text(json.dumps([plain, wrapped]))
        # The first process ends the second one.
        fabric.barrier()
"""


def test_fabric_on_two_ranks_gives_every_sample_once(dataset: str, tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="SKIPPED: lightning is not installed")
    both = two_ranks.run(FABRIC, dataset, tmp_path, WORLD_SIZE="2")
    orders = []
    for part in range(2):
        for epoch in range(2):
            shares = [rank[part][epoch] for rank in both]
            assert [len(batches) for batches in shares] == [2, 2]
            every = [number for batches in shares for one in batches for number in one]
            assert sorted(every) == list(range(CUBES))
            orders.append(every)
    assert len(set(map(tuple, orders))) == 4


# Transformers.


@pytest.fixture
def trainer(dataset: str, tmp_path: Path) -> Any:
    transformers = pytest.importorskip(
        "transformers", reason="SKIPPED: transformers is not installed"
    )
    pytest.importorskip("accelerate", reason="SKIPPED: accelerate is not installed")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = network()
            self.seen: list[list[int]] = []

        def forward(self, image: Any, labels: Any, id: Any, **others: Any) -> Any:
            if self.training:
                self.seen.append(id.tolist())
            return {"loss": loss(self.layer, {"image": image, "labels": labels})}

    class Trainer(transformers.Trainer):  # type: ignore[misc,name-defined]
        def get_train_dataloader(self) -> hsipack.Loader:
            return make(hsipack.open(dataset).select(columns=["age"]))

        def get_eval_dataloader(self, eval_dataset: Any = None) -> hsipack.Loader:
            return make(dataset, 2, split="val", shuffle=False)

    def run(count: int, resume: str | None = None, kind: Any = Trainer, **options: Any) -> Any:
        arguments = transformers.TrainingArguments(
            os.fspath(tmp_path),
            num_train_epochs=count,
            report_to=[],
            use_cpu=True,
            remove_unused_columns=False,
            disable_tqdm=True,
            logging_strategy="no",
            **{"save_strategy": "no", **options},
        )
        own = {"train_dataset": make(dataset)} if kind is transformers.Trainer else {}
        one = kind(Model(), arguments, **own)
        one.train(resume_from_checkpoint=resume)
        return one

    run.plain = transformers.Trainer  # type: ignore[attr-defined]
    return run


def test_transformers_reads_every_sample_once(trainer: Any, dataset: str) -> None:
    done = trainer(2)
    assert done.model.seen == epochs(dataset, 2)
    assert done.state.global_step == 6
    assert done.evaluate()["eval_loss"] > 0


def test_transformers_goes_on_after_an_epoch(trainer: Any, dataset: str, tmp_path: Path) -> None:
    trainer(1, save_strategy="epoch")
    again = trainer(3, os.fspath(tmp_path / "checkpoint-3"))
    assert again.model.seen == epochs(dataset, 3)[3:]


def test_transformers_says_what_it_cannot_do(trainer: Any, tmp_path: Path) -> None:
    with pytest.raises(hsipack.UnsupportedError, match="iterate over the loader itself"):
        trainer(1, kind=trainer.plain)
    trainer(1, save_strategy="steps", save_steps=2)
    with pytest.raises(hsipack.UnsupportedError, match="in the middle of an epoch"):
        trainer(1, os.fspath(tmp_path / "checkpoint-2"))


# Keras.

KERAS = """
    import json, os, sys
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    sys.path.insert(0, sys.argv[1])
    from test_frameworks import make

    seen = []

    def pairs(loader):
        while True:
            for batch in loader:
                seen.append(batch["id"].tolist())
                yield batch["image"], batch["labels"]

    layer = keras.layers.Conv2D(3, 1, data_format="channels_first")
    last = keras.layers.Permute((2, 3, 1))
    model = keras.Sequential([keras.layers.Input((7, 20, 24)), layer, last])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    loader = make(sys.argv[2])
    model.fit(pairs(loader), steps_per_epoch=len(loader), epochs=2, verbose=0)
    val = make(sys.argv[2], split="val", shuffle=False)
    model.evaluate(((batch["image"], batch["labels"]) for batch in val), verbose=0)
    made = model.predict(((batch["image"],) for batch in val), verbose=0)
    print(json.dumps([seen, made.shape]))
"""


def test_keras_reads_every_sample_once(dataset: str) -> None:
    pytest.importorskip("optree", reason="SKIPPED: keras is not installed")
    # Keras's backend is chosen when it is imported.
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KERAS), Path(__file__).parent, dataset],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen, shape = json.loads(done.stdout.splitlines()[-1])
    assert seen == epochs(dataset, 2)
    assert shape == [3, 20, 24, 3]


# Ignite, on which MONAI's engines are built, and torchdata.


def test_ignite_reads_every_sample_once(dataset: str) -> None:
    engine = pytest.importorskip("ignite.engine", reason="SKIPPED: ignite is not installed")
    for options, count in (({}, 3), ({"epoch_length": 2}, 2), ({"epoch_length": 4}, 4)):
        seen: list[list[int]] = []
        one = engine.Engine(lambda _, batch, seen=seen: seen.append(batch["id"].tolist()))
        one.run(make(dataset), max_epochs=2, **options)
        # An epoch of the engine may be a part of an epoch of the loader, or more than one.
        assert seen == epochs(dataset, 3)[: 2 * count]


def test_ignite_may_set_the_epoch(dataset: str) -> None:
    engine = pytest.importorskip("ignite.engine", reason="SKIPPED: ignite is not installed")
    for first in (1, 2):
        seen: list[list[int]] = []
        loader = make(dataset)
        one = engine.Engine(lambda _, batch, seen=seen: seen.append(batch["id"].tolist()))

        def move(one: Any, loader: hsipack.Loader = loader) -> None:
            loader.set_epoch(one.state.epoch - 1)

        one.add_event_handler(engine.Events.EPOCH_STARTED, move)
        one.load_state_dict({"epoch": first - 1, "max_epochs": 3, "epoch_length": 3})
        one.run(loader)
        assert seen == epochs(dataset, 3)[3 * (first - 1) :]


def test_ignite_goes_on_from_a_state(dataset: str) -> None:
    engine = pytest.importorskip("ignite.engine", reason="SKIPPED: ignite is not installed")
    seen: list[list[int]] = []
    states: dict[str, Any] = {}

    def step(_: Any, batch: dict[str, Any]) -> None:
        seen.append(batch["id"].tolist())

    loader, first = make(dataset), engine.Engine(step)

    def save() -> None:
        states.update(loader=loader.state_dict(), engine=first.state_dict())

    first.add_event_handler(engine.Events.ITERATION_COMPLETED(once=4), save)
    first.run(loader, max_epochs=3)
    whole = list(seen)
    seen.clear()
    again, second = make(dataset), engine.Engine(step)
    again.load_state_dict(states["loader"])
    second.load_state_dict(states["engine"])
    second.run(again)
    assert seen == whole[4:]


def test_torchdata_saves_the_position(dataset: str) -> None:
    torchdata = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="SKIPPED: torchdata is not installed"
    )

    class Stateful(Batches):
        def state_dict(self) -> dict[str, Any]:
            return self.loader.state_dict()

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.loader.load_state_dict(state)

    with pytest.raises(hsipack.UnsupportedError, match="iterate over the loader itself"):
        list(torchdata.StatefulDataLoader(make(dataset), batch_size=None))
    first = torchdata.StatefulDataLoader(Stateful(make(dataset)), batch_size=None)
    iteration = iter(first)
    next(iteration)
    state = first.state_dict()
    rest = ids(iteration)
    again = torchdata.StatefulDataLoader(Stateful(make(dataset)), batch_size=None)
    again.load_state_dict(state)
    assert ids(again) == rest
    assert ids(again) == ids(first)
