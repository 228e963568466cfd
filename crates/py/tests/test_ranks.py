"""Several processes that train together: who reads what, in which epoch, with which seed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch
import two_ranks

CUBES = 12

# Runs `rank_main(rank, dataset)` in two processes, and prints what each of them returns.
TWO_RANKS = """
import json, os, pickle, sys, time
import torch
import torch.distributed as dist
import hsipack

dataset, folder = sys.argv[2:]
options = {"shuffle": True, "device": "cpu", "num_threads": 1}

def ids(loader):
    return [one for batch in loader for one in batch["id"].tolist()]

def group(rank):
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)

def process(rank, loader):
    torch.set_num_threads(1)
    result = rank_main(rank, loader)
    with open(f"{folder}/rank{rank}.json", "w") as file:
        json.dump(result, file)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()

def both(start_method, loader=None):
    torch.multiprocessing.start_processes(
        process, (loader,), nprocs=2, start_method=start_method
    )
"""


def on_two_ranks(program: str, dataset: str, folder: Path) -> list[Any]:
    """Returns the result of `rank_main` on each rank."""
    return two_ranks.run(TWO_RANKS + textwrap.dedent(program), dataset, folder)


def by_hand(dataset: str, rank: int, world_size: int = 2, **options: Any) -> hsipack.Loader:
    shared: dict[str, Any] = {"shuffle": True, "device": "cpu", "num_threads": 1}
    return hsipack.Loader(
        dataset, 2, **{**shared, "rank": rank, "world_size": world_size, **options}
    )


def samples(*loaders: hsipack.Loader) -> list[int]:
    """The samples of one epoch of all loaders."""
    return sorted(one for loader in loaders for batch in loader for one in batch["id"].tolist())


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_loader_made_before_the_group_reads_its_ranks_part(
    dataset: str, tmp_path: Path, start_method: str
) -> None:
    """It is pickled to spawned ranks, and inherited by forked ones."""
    program = f"""
    def rank_main(rank, loader):
        group(rank)
        length, read = len(loader), [sorted(ids(loader)) for _ in range(2)]
        return [length, read, loader.report().to_dict()["place"]]

    if __name__ == "__main__":
        torch.manual_seed(5)
        both("{start_method}", hsipack.Loader(dataset, 2, **options))
    """
    ranks = on_two_ranks(program, dataset, tmp_path)
    for rank, (length, _, place) in enumerate(ranks):
        assert length == 3
        assert place == {"rank": rank, "world_size": 2, "source": "torch.distributed"}
    for epoch in range(2):
        assert sorted(ranks[0][1][epoch] + ranks[1][1][epoch]) == list(range(CUBES))


def test_ranks_of_a_group_agree_on_seed_and_epoch(dataset: str, tmp_path: Path) -> None:
    """Each rank has another random state, rank 0 peeks, one rank breaks, and both break."""
    program = """
    from hsipack import _ranks

    _ranks.LEAVING_S = 1.0

    def train(loader, steps=None):
        # As gradients are exchanged after each batch, no rank is a batch ahead.
        seen = []
        for number, batch in enumerate(loader, 1):
            seen += batch["id"].tolist()
            dist.all_reduce(torch.zeros(1))
            if number == steps:
                break
        return seen

    def rank_main(rank, _):
        group(rank)
        torch.manual_seed(100 + rank)
        loader = hsipack.Loader(dataset, 2, **options)
        epochs = []
        for epoch in range(3):
            if rank == 0:
                # Rank 1 has begun the epoch by then, and waits for this rank.
                next(iter(loader))
                time.sleep(0.2)
            epochs.append(train(loader))
        dist.barrier()
        for batch in loader:
            # Rank 1 alone reads the epoch to its end.
            if rank == 0:
                break
        dist.barrier()
        epochs.append(train(loader))
        parts = [train(loader, steps=1) for _ in range(3)]
        epochs.append(train(loader))
        dist.destroy_process_group()
        # The loader keeps its part of the samples.
        assert len(loader) == 3
        return [loader.seed, epochs, parts, loader.epoch]

    if __name__ == "__main__":
        both("fork")
    """
    one, other = on_two_ranks(program, dataset, tmp_path)
    assert one[0] == other[0]
    assert one[3] == other[3] == 9
    for mine, others in zip(one[1], other[1], strict=True):
        assert sorted(mine + others) == list(range(CUBES))
    for mine, others in zip(one[2], other[2], strict=True):
        assert len({*mine, *others}) == 4
    orders = [*map(tuple, one[1]), *map(tuple, one[2])]
    assert len(set(orders)) == len(orders)


def test_ranks_stay_in_step_with_a_slow_one(dataset: str, tmp_path: Path) -> None:
    """Rank 0 saves for longer than others wait until it leaves an epoch."""
    program = """
    from hsipack import _ranks

    _ranks.LEAVING_S = 0.3

    def steps(loader, slow):
        iteration = iter(loader)
        for _ in range(2):
            batch = next(iteration)
            dist.barrier()
        if slow:
            time.sleep(1.5)
        return batch["epoch"]

    def rank_main(rank, _):
        group(rank)
        loader = hsipack.Loader(dataset, 2, seed=1, **options)
        parts = [steps(loader, rank == 0) for _ in range(3)]
        dist.barrier()
        whole = ids(loader)
        # A loader that is gone is not known to others.
        dist.barrier()
        return [parts, whole]

    if __name__ == "__main__":
        both("fork")
    """
    one, other = on_two_ranks(program, dataset, tmp_path)
    assert one[0] == other[0] == [0, 1, 2]
    assert sorted(one[1] + other[1]) == list(range(CUBES))


def test_loaders_that_one_rank_makes_do_not_hold_up_others(dataset: str, tmp_path: Path) -> None:
    program = """
    import warnings
    from hsipack import _ranks

    def rank_main(rank, _):
        group(rank)
        torch.manual_seed(100 + rank)
        if rank == 0:
            alone = hsipack.Loader(dataset, 2, rank=0, world_size=1, **options)
            assert len(ids(alone)) == 12
        patches = hsipack.LabelledPatches(3, mask="labels", per_class=3)
        loaders = [
            hsipack.Loader(dataset, 2, **options),
            hsipack.Loader(dataset, 2, crop=patches, **options),
        ]
        found = [[ids(loader), loader.seed] for loader in loaders for _ in range(2)]
        dist.barrier()
        _ranks.LEAVING_S = 0.3
        # Rank 0 makes one more, which others do not have.
        if rank == 0:
            extra = hsipack.Loader(dataset, 3, **options)
            len(extra)
        last = hsipack.Loader(dataset, 3, **options)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                ids(last)
                dist.barrier()
        return [found, [str(one.message) for one in said], [one.filename for one in said]]

    if __name__ == "__main__":
        both("fork")
    """
    one, other = on_two_ranks(program, dataset, tmp_path)
    for (mine, seed), (others, others_seed) in zip(one[0], other[0], strict=True):
        assert seed == others_seed
        assert len(mine) in (len(others), len(others) + 1)
    for number in range(2):
        assert sorted(one[0][number][0] + other[0][number][0]) == list(range(CUBES))
    (text,) = one[1]
    assert "rank 0 reads a loader that rank 1 has not begun" in text
    assert "rank=0, world_size=1" in text
    assert not one[2][0].endswith("_ranks.py")


def test_a_group_made_too_late_is_an_error(dataset: str, tmp_path: Path) -> None:
    program = """
    def rank_main(rank, _):
        loaders = [hsipack.Loader(dataset, 2, **options) for _ in range(3)]
        next(iter(loaders[0]))
        len(loaders[1])
        group(rank)
        errors = []
        peek, whole = (lambda: next(iter(loaders[0]))), (lambda: ids(loaders[1]))
        for use in (peek, whole, lambda: len(loaders[2])):
            try:
                errors.append(str(use()))
            except hsipack.ConflictError as error:
                errors.append(str(error))
        return errors

    if __name__ == "__main__":
        both("fork")
    """
    for rank, errors in enumerate(on_two_ranks(program, dataset, tmp_path)):
        for error in errors[:2]:
            assert f"rank 0 of 1, but this process is rank {rank} of 2" in error
            assert "init_process_group before" in error
        assert errors[2] == "3"


def test_torchruns_environment_counts_without_a_group(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        with hsipack.Loader(dataset, 2, shuffle=True, device="cpu") as loader:
            assert len(loader) == 2
            parts += samples(loader)
            assert loader.report().place.source == "environment"
            assert loader.seed == 0
    assert sorted(parts) == list(range(CUBES))


@pytest.mark.parametrize("who", ["nobody", "rank 0 peeks first", "rank 0 peeks", "one breaks"])
def test_ranks_of_one_process_stay_in_step(dataset: str, who: str) -> None:
    loaders = [by_hand(dataset, rank) for rank in range(2)]
    orders = []
    if who == "rank 0 peeks first":
        next(iter(loaders[0]))
    for epoch in range(4):
        if epoch == 2 and who == "rank 0 peeks":
            next(iter(loaders[0]))
        if epoch == 1 and who == "one breaks":
            for _ in loaders[0]:
                break
            assert len(samples(loaders[1])) == CUBES // 2
            continue
        orders.append([samples(loader) for loader in loaders])
        assert sorted(orders[-1][0] + orders[-1][1]) == list(range(CUBES))
        assert {loader.epoch for loader in loaders} == {epoch + 1}
    assert len({str(order) for order in orders}) == len(orders)


def test_epochs_that_all_ranks_leave_count(dataset: str) -> None:
    loaders = [by_hand(dataset, rank) for rank in range(2)]
    firsts = []
    for _ in range(3):
        for loader in loaders:
            for batch in loader:
                firsts.append((loader is loaders[0], batch["epoch"], batch["id"].tolist()))
                break
    assert [epoch for _, epoch, _ in firsts] == [0, 0, 1, 1, 2, 2]


def test_a_lone_process_begins_the_next_epoch_after_leaving_one(dataset: str) -> None:
    with hsipack.Loader(dataset, 2, shuffle=True, device="cpu", seed=1) as loader:
        assert [next(iter(loader))["epoch"] for _ in range(3)] == [0, 1, 2]


def test_ranks_that_nothing_is_known_of_are_warned_about(dataset: str) -> None:
    program = """
    import sys, warnings, hsipack
    loader = hsipack.Loader(sys.argv[1], 2, rank=0, world_size=2, device="cpu")
    warnings.simplefilter("error")
    next(iter(loader))
    try:
        next(iter(loader))
    except UserWarning as warning:
        assert "set_epoch" in str(warning), warning
        print("warned")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), dataset],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == "warned\n", done.stderr


def test_ranks_with_other_seeds_are_refused(dataset: str) -> None:
    one, other = by_hand(dataset, 0, seed=1), by_hand(dataset, 1, seed=2)
    with pytest.raises(hsipack.ConflictError, match=r"seed 1 .* rank 1 has 2 .*same seed"):
        next(iter(one))
    with pytest.raises(hsipack.ConflictError, match=r"seed 2 .* rank 0 has 1 .*same seed"):
        next(iter(other))


def test_seeds_that_nobody_gave_come_from_the_global_generators(dataset: str) -> None:
    def order(seed: int) -> tuple[int, list[int]]:
        torch.manual_seed(seed)
        with hsipack.Loader(dataset, 2, shuffle=True, device="cpu") as loader:
            ids = [one for batch in loader for one in batch["id"].tolist()]
            assert loader.report().seed == loader.state_dict()["seed"] == loader.seed
            return loader.seed, ids

    assert order(1) == order(1)
    assert order(1)[1] != order(2)[1]
    # It is drawn once.
    with hsipack.Loader(dataset, 2, device="cpu") as loader:
        seed = loader.seed
        samples(loader)
        assert pickle.loads(pickle.dumps(loader)).seed == loader.seed == seed
    # As before, the same for ranks that cannot agree.
    assert by_hand(dataset, 0).seed == by_hand(dataset, 1).seed == 0


def test_seeds_come_from_numpy_without_torch(dataset: str) -> None:
    program = """
    import sys, numpy as np, hsipack
    def seed(number):
        np.random.seed(number)
        return hsipack.Loader(sys.argv[1], 2, output="numpy").seed
    assert seed(1) == seed(1) != seed(2)
    assert "torch" not in sys.modules
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), dataset], check=True, timeout=120
    )


@pytest.mark.parametrize("joined", [False, True])
def test_a_state_brings_its_seed(dataset: str, joined: bool) -> None:
    def make(**options: Any) -> hsipack.Loader:
        readable = hsipack.concat([dataset, dataset]) if joined else dataset
        return hsipack.Loader(readable, 5, shuffle=True, device="cpu", **options)

    loader = make()
    first = next(iter(loader))["id"].tolist()
    again = make()
    assert again.seed != loader.seed
    again.load_state_dict(loader.state_dict())
    assert again.seed == loader.seed
    assert again.report().seed == loader.seed
    rest = [batch["id"].tolist() for batch in again]
    loader.set_epoch(0)
    assert [first, *rest] == [batch["id"].tolist() for batch in loader]
    # A later state brings its own, too.
    other = make()
    again.load_state_dict(other.state_dict())
    assert again.seed == other.seed
    with pytest.raises(hsipack.ConflictError, match="seed"):
        make(seed=loader.seed ^ 1).load_state_dict(loader.state_dict())


def test_workers_of_a_data_loader_are_refused(dataset: str) -> None:
    loader = hsipack.Loader(dataset, 2, device="cpu")

    class Inside(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter(loader)

    # Also if the parent process has asked for the length before.
    assert len(loader) == 6
    batches = torch.utils.data.DataLoader(Inside(), batch_size=None, num_workers=2)
    with pytest.raises(hsipack.UnsupportedError, match="each of them would read all"):
        list(batches)
    with pytest.raises(hsipack.UnsupportedError, match="have no index"):
        list(torch.utils.data.DataLoader(loader, batch_size=None))  # type: ignore[arg-type]


def test_construction_starts_no_threads_and_takes_no_memory(dataset: str) -> None:
    program = """
    import os, sys, time, hsipack
    ds = hsipack.open(sys.argv[1])
    def threads():
        # Threads that have ended leave a moment later.
        time.sleep(0.2)
        return len(os.listdir("/proc/self/task"))
    before = threads()
    loaders = [hsipack.Loader(ds, 4, slots=64, output="numpy") for _ in range(50)]
    assert [len(loader) for loader in loaders] == [3] * 50
    assert threads() == before, threads()
    assert loaders[0].report().memory is None
    assert loaders[0].stats().batches == 0
    # A forked process can use them.
    if os.fork() == 0:
        os._exit(len(list(loaders[1])))
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
    assert len(list(loaders[1])) == 3
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), dataset], check=True, timeout=120
    )


def test_loaders_that_are_dropped_free_threads_and_memory_at_once(dataset: str) -> None:
    program = """
    import gc, os, sys, time, hsipack
    gc.disable()
    def threads():
        time.sleep(0.2)
        return len(os.listdir("/proc/self/task"))
    before = threads()
    for number in range(20):
        subject = hsipack.concat([sys.argv[1]] * 2) if number % 2 else sys.argv[1]
        loader = hsipack.Loader(subject, 4, shuffle=True, output="numpy", num_threads=2)
        for batch in loader:
            break
        assert loader.batch_sampler.sampler is loader.sampler
    del loader, subject, batch
    assert threads() == before, threads()
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), dataset], check=True, timeout=120
    )


class Named(hsipack.Loader):
    """A loader with a field of its own."""

    def __init__(self, *arguments: Any, name: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.name = name


def test_fields_of_a_subclass_survive_copies(dataset: str) -> None:
    import copy

    loader = Named(dataset, 2, device="cpu", shuffle=True, name="train")
    first = next(iter(loader))["id"].tolist()
    for again in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)):
        assert type(again) is Named
        assert again.name == "train"
        rest = [batch["id"].tolist() for batch in again]
        assert sorted(np.concatenate([first, *rest]).tolist()) == list(range(CUBES))


def test_attributes_of_a_data_loader_are_there(dataset: str) -> None:
    loader = hsipack.Loader(dataset, 5, device="cpu", last="drop")
    missing = [
        name
        for name in vars(torch.utils.data.DataLoader(torch.zeros(3)))  # type: ignore[arg-type]
        if not name.startswith("_") and not hasattr(loader, name)
    ]
    assert missing == []
    assert (loader.batch_size, loader.drop_last, loader.num_workers) == (5, True, 0)
    assert len(loader.dataset) == CUBES
    joined = hsipack.Loader(hsipack.concat([dataset, dataset]), 5, device="cpu")
    assert (joined.batch_size, joined.drop_last) == (5, False)


def test_nothing_warns_in_a_plain_loop(dataset: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hsipack.Loader(dataset, 4, shuffle=True, device="cpu") as loader:
            for _ in range(2):
                samples(loader)
