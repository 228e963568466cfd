"""Conversions that are killed at any instant, or run out of space: no reader ever sees a part of a
dataset, and --resume gives the same result as an undisturbed conversion. HSIPACK_KILLS is how often
each is killed."""

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from helpers import (
    Hsipack,
    assert_same_bits,
    check_sums,
    expected,
    heeding,
    partial,
    read_everywhere,
    samples,
    timeless_tree,
    tree,
    write_cubes,
)

KILLS = int(os.environ.get("HSIPACK_KILLS", "6"))
SHAPE = (60, 64, 50)
STACK = "60x64x50"
# A slow codec, so that there is time to kill the process.
OPTIONS: list[object] = ["--shard-size", 2 * 60 * 64 * 50 * 2, "--chunk", "16x40", "--threads", 2]
OPTIONS += ["--codec", "zstd", "--level", 6]
MASK = "--mask={dir}/../mask.npy"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 cubes to convert, 9 to append."""
    folder = tmp_path_factory.mktemp("inputs")
    write_cubes(folder / "first", 16, SHAPE)
    write_cubes(folder / "second", 9, SHAPE, first=16)
    np.save(folder / "mask.npy", np.arange(60 * 64, dtype=np.uint16).reshape(60, 64))
    return folder


def convert(folder: Path, which: str) -> list[object]:
    """The command. It is the same in every folder."""
    return ["convert", folder / which, "-o", "out", MASK, *OPTIONS]


def undisturbed(hsipack: Hsipack, folder: Path, words: list[object]) -> float:
    """Runs the command in `folder` to its end. Returns its seconds."""
    start = time.monotonic()
    process = hsipack.start(*words, cwd=folder)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return time.monotonic() - start


class Instants:
    """Instants at which to kill: all different, over the time of a run and a little beyond.

    The time of a run is the shortest one seen. On a busy machine, kills that are spread over a slow
    run would come too late.
    """

    def __init__(self, seconds: float, seed: int) -> None:
        self.seconds = seconds
        self.chance = random.Random(seed)

    def __iter__(self) -> Iterator[float]:
        for number in range(KILLS):
            yield (number + self.chance.random()) / KILLS * self.seconds * 1.1

    def too_late(self, instant: float) -> None:
        """Notes that the run had ended before this instant."""
        self.seconds = min(self.seconds, instant)


def kill_at(hsipack: Hsipack, words: list[object], folder: Path, instant: float) -> bool:
    """Starts the command and kills it. Returns whether it was still running."""
    process = hsipack.start(*words, cwd=folder)
    time.sleep(instant)
    process.send_signal(signal.SIGKILL)
    _, error = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), error
    return process.returncode != 0


class Watcher:
    """Opens the dataset repeatedly while others write, as a training run would."""

    def __init__(self, out: Path, lengths: set[int], wanted: np.ndarray) -> None:
        self.out, self.lengths, self.wanted = out, lengths, wanted
        self.seen: set[int] = set()
        self.failure: BaseException | None = None
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> "Watcher":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        self.thread.join()
        if self.failure:
            raise self.failure

    def run(self) -> None:
        try:
            while not self.end.is_set():
                self.look()
                time.sleep(0.002)
        except BaseException as failure:
            self.failure = failure

    def look(self) -> None:
        """All or nothing: if the name exists, it leads to a complete dataset."""
        if not self.out.exists():
            assert 0 in self.lengths, "the dataset went away"
            return
        group = zarr.open_group(self.out / STACK, mode="r")
        image, mask = group["image"], group["mask"]
        assert isinstance(image, zarr.Array)
        assert isinstance(mask, zarr.Array)
        count = image.shape[0]
        assert count in self.lengths
        assert len((self.out / "samples.jsonl").read_text().splitlines()) in self.lengths
        sample = random.randrange(count)
        assert_same_bits(np.asarray(image[sample]), self.wanted[sample])
        assert np.asarray(mask[sample]).ravel()[-1] == 60 * 64 - 1
        self.seen.add(count)


def all_cubes(inputs: Path) -> np.ndarray:
    files = [*sorted((inputs / "first").iterdir()), *sorted((inputs / "second").iterdir())]
    return np.stack([expected(np.load(file)) for file in files])


def test_killed_conversions_go_on_where_they_were(
    hsipack: Hsipack, inputs: Path, tmp_path: Path
) -> None:
    words = convert(inputs, "first")
    times = []
    for name in ("warm", "whole"):
        (tmp_path / name).mkdir()
        times.append(undisturbed(hsipack, tmp_path / name, words))
    kills = Instants(min(times), 1)
    whole = timeless_tree(tmp_path / "whole/out")
    wanted = all_cubes(inputs)[:16]
    killed = resumed = 0
    for number, instant in enumerate(kills):
        folder = tmp_path / str(number)
        folder.mkdir()
        out = folder / "out"
        with Watcher(out, {0, 16}, wanted):
            if kill_at(hsipack, words, folder, instant):
                killed += 1
            else:
                kills.too_late(instant)
            resumed += (partial(out) / "state").is_dir()
            # Every second one is killed again while it resumes.
            if number % 2:
                kill_at(hsipack, [*words, "--resume"], folder, instant / 2)
            if out.exists():
                assert timeless_tree(out) == whole
            undisturbed(hsipack, folder, [*words, "--resume"])
        assert timeless_tree(out) == whole
        assert not partial(out).exists()
        # There is nothing left to do.
        undisturbed(hsipack, folder, [*words, "--resume"])
        assert timeless_tree(out) == whole
        shutil.rmtree(folder)
    assert killed >= KILLS // 2
    assert resumed >= KILLS // 4


def test_killed_appends_leave_the_dataset_readable(
    hsipack: Hsipack, inputs: Path, tmp_path: Path
) -> None:
    """Readers see the old dataset until they see the new one. The last old shard is not full."""
    base = tmp_path / "base"
    base.mkdir()
    one_less = inputs / "first/cube_015.npy"
    first = [*convert(inputs, "first"), "--exclude", one_less.name]
    undisturbed(hsipack, base, first)
    before = tree(base / "out")
    words = convert(inputs, "second")
    times = []
    for name in ("warm", "whole"):
        shutil.copytree(base, tmp_path / name)
        times.append(undisturbed(hsipack, tmp_path / name, [*words, "--append"]))
    kills = Instants(min(times), 2)
    whole = timeless_tree(tmp_path / "whole/out", command=False)
    wanted = np.delete(all_cubes(inputs), 15, axis=0)
    assert_same_bits(read_everywhere(tmp_path / "whole/out"), wanted)
    killed = 0
    for number, instant in enumerate(kills):
        folder = tmp_path / str(number)
        shutil.copytree(base, folder)
        out = folder / "out"
        with Watcher(out, {15, 24}, wanted) as watcher:
            if kill_at(hsipack, [*words, "--append"], folder, instant):
                killed += 1
            else:
                kills.too_late(instant)
            now = tree(out)
            assert now == before or timeless_tree(out, command=False) == whole
            valid = hsipack.run("validate", out)
            assert valid.returncode == 0, valid.stdout + valid.stderr
            done = hsipack.run(*words, "--resume", cwd=folder)
            if done.returncode != 0:
                # If it was killed before it began, the message says what to do.
                assert "--append" in done.stderr
                assert tree(out) == before
                undisturbed(hsipack, folder, [*words, "--append"])
            while watcher.thread.is_alive() and 24 not in watcher.seen:
                time.sleep(0.01)
        assert timeless_tree(out, command=False) == whole
        assert not partial(out).exists()
        check_sums(out)
        shutil.rmtree(folder)
    assert killed >= KILLS // 2


def test_an_unfinished_plan_is_no_hindrance(hsipack: Hsipack, inputs: Path, tmp_path: Path) -> None:
    """A process was killed while it wrote its plan, and another ended with an error."""
    folder = partial(tmp_path / "out")
    folder.mkdir()
    (folder / ".plan.json.0123456789abcdef-7-0.tmp").write_text("{")
    undisturbed(hsipack, tmp_path, convert(inputs, "first"))
    assert not folder.exists()
    folder = partial(tmp_path / "other" / "out")
    folder.mkdir(parents=True)
    (folder / ".notes.tmp").write_text("mine")
    done = hsipack.run(*convert(inputs, "first"), cwd=tmp_path / "other")
    assert "holds files of others" in done.stderr


def begin_and_kill(hsipack: Hsipack, words: list[object], folder: Path) -> None:
    """Kills a conversion when a shard is finished, but not the whole conversion."""
    process = hsipack.start(*words, cwd=folder)
    record = partial(folder / "out") / "state" / STACK / "0.json"
    while not record.exists():
        assert process.poll() is None
        time.sleep(0.0005)
    process.kill()
    process.communicate()
    assert not (folder / "out").exists()


def test_remains_of_a_removed_staging_folder_are_no_beginning(
    hsipack: Hsipack, inputs: Path, tmp_path: Path
) -> None:
    begin_and_kill(hsipack, convert(inputs, "first"), tmp_path)
    (partial(tmp_path / "out") / "plan.json").unlink()
    undisturbed(hsipack, tmp_path, convert(inputs, "second"))
    assert_same_bits(read_everywhere(tmp_path / "out"), all_cubes(inputs)[16:])


def test_an_append_is_resumed_by_the_same_command(
    hsipack: Hsipack, inputs: Path, tmp_path: Path
) -> None:
    undisturbed(hsipack, tmp_path, convert(inputs, "first"))
    words = [*convert(inputs, "second"), "--append"]
    undisturbed(hsipack, tmp_path, words)
    undisturbed(hsipack, tmp_path, [*words, "--resume"])


def test_other_options_do_not_resume(hsipack: Hsipack, inputs: Path, tmp_path: Path) -> None:
    begin_and_kill(hsipack, convert(inputs, "first"), tmp_path)
    for words, change in (
        ([*convert(inputs, "first"), "--scale", "2"], "leave out --scale"),
        ([*convert(inputs, "second")], "give the same inputs"),
    ):
        done = hsipack.run(*words, "--resume", cwd=tmp_path)
        assert done.returncode == 1
        assert (
            f"different inputs or options ({change}, as in the command that began it" in done.stderr
        )
    done = hsipack.run(*convert(inputs, "first"), cwd=tmp_path)
    assert done.returncode == 1
    assert "--resume" in done.stderr
    undisturbed(hsipack, tmp_path, [*convert(inputs, "first"), "--resume"])
    assert_same_bits(read_everywhere(tmp_path / "out"), all_cubes(inputs)[:16])


@pytest.mark.parametrize("what", ["cube", "mask"])
def test_changed_inputs_do_not_resume(what: str, hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in/first", 16, SHAPE)
    np.save(tmp_path / "in/mask.npy", np.zeros((60, 64), np.uint8))
    words = convert(tmp_path / "in", "first")
    begin_and_kill(hsipack, words, tmp_path)
    file = tmp_path / {"cube": "in/first/cube_003.npy", "mask": "in/mask.npy"}[what]
    changed = np.zeros(SHAPE, np.float32) if what == "cube" else np.ones((60, 64), np.uint8)
    before = file.read_bytes()
    np.save(file, changed)
    done = hsipack.run(*words, "--resume", cwd=tmp_path)
    assert done.returncode == 1
    assert "cubes, masks or tables have changed since this conversion was begun" in done.stderr
    file.write_bytes(before)
    undisturbed(hsipack, tmp_path, [*words, "--resume"])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_stops_cleanly(
    hsipack: Hsipack, inputs: Path, tmp_path: Path, how: signal.Signals
) -> None:
    (tmp_path / "whole").mkdir()
    undisturbed(hsipack, tmp_path / "whole", convert(inputs, "first"))
    with heeding(how, signal.SIG_DFL):
        process = hsipack.start(*convert(inputs, "first"), cwd=tmp_path)
    while not (partial(tmp_path / "out") / "state").exists():
        time.sleep(0.0005)
    process.send_signal(how)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    assert "--resume" in error
    assert not (tmp_path / "out").exists()
    undisturbed(hsipack, tmp_path, [*convert(inputs, "first"), "--resume"])
    assert timeless_tree(tmp_path / "out") == timeless_tree(tmp_path / "whole/out")


def test_with_nohup_it_goes_on_when_the_terminal_closes(
    hsipack: Hsipack, inputs: Path, tmp_path: Path
) -> None:
    with heeding(signal.SIGHUP, signal.SIG_IGN):
        process = hsipack.start(*convert(inputs, "first"), cwd=tmp_path)
    while not (partial(tmp_path / "out") / "state").exists():
        time.sleep(0.0005)
    process.send_signal(signal.SIGHUP)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error


def test_two_at_once(hsipack: Hsipack, inputs: Path, tmp_path: Path) -> None:
    """The second process ends, and does not disturb the first one."""
    process = hsipack.start(*convert(inputs, "first"), cwd=tmp_path)
    while not (partial(tmp_path / "out") / "state").exists():
        time.sleep(0.0005)
    process.send_signal(signal.SIGSTOP)
    try:
        done = hsipack.run(*convert(inputs, "first"), "--resume", cwd=tmp_path)
        assert done.returncode == 1
        assert "another hsipack is writing here" in done.stderr
        done = hsipack.run(*convert(inputs, "first"), cwd=tmp_path)
        assert done.returncode == 1
        assert "another hsipack is writing here" in done.stderr
    finally:
        process.send_signal(signal.SIGCONT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert_same_bits(read_everywhere(tmp_path / "out"), all_cubes(inputs)[:16])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1.5 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("SKIPPED: no small disk to fill; mounting a tmpfs is not allowed here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def enlarge(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)


def test_a_full_disk(hsipack: Hsipack, inputs: Path, small_disk: Path, tmp_path: Path) -> None:
    """A full disk is reported. When there is space again, --resume completes the conversion."""
    done = hsipack.run(*convert(inputs, "first"), cwd=small_disk)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "--resume" in done.stderr
    assert "panicked" not in done.stderr
    assert not (small_disk / "out").exists()
    enlarge(small_disk)
    undisturbed(hsipack, small_disk, [*convert(inputs, "first"), "--resume"])
    (tmp_path / "whole").mkdir()
    undisturbed(hsipack, tmp_path / "whole", convert(inputs, "first"))
    assert timeless_tree(small_disk / "out") == timeless_tree(tmp_path / "whole/out")


def test_a_disk_that_fills_while_appending(
    hsipack: Hsipack, inputs: Path, small_disk: Path, tmp_path: Path
) -> None:
    file = inputs / "first/cube_000.npy"
    done = hsipack.run("convert", file, "-o", "out", MASK, *OPTIONS, cwd=small_disk)
    assert done.returncode == 0, done.stderr
    before = tree(small_disk / "out")
    words = [*convert(inputs, "second"), "--append"]
    done = hsipack.run(*words, cwd=small_disk)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert tree(small_disk / "out") == before
    assert hsipack.run("validate", small_disk / "out").returncode == 0
    enlarge(small_disk)
    undisturbed(hsipack, small_disk, [*convert(inputs, "second"), "--resume"])
    assert len(samples(small_disk / "out")) == 10
    check_sums(small_disk / "out")
    wanted = all_cubes(inputs)[[0, *range(16, 25)]]
    assert_same_bits(read_everywhere(small_disk / "out"), wanted)
