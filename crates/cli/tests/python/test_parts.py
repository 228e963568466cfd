"""Conversions in parts: planned, processed by several workers, some of which are killed, and
committed. HSIPACK_KILLS is how many workers are killed."""

import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import Hsipack, partial, timeless_tree, write_cubes

KILLS = int(os.environ.get("HSIPACK_KILLS", "6"))
OPTIONS: list[object] = ["--shard-size", 2 * 40 * 32 * 50 * 2, "--codec", "zstd", "--level", 6]
MASK = "--mask={dir}/../mask.npy"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, hsipack: Hsipack) -> Path:
    """A folder with ``cubes`` and ``whole``, the result of one process in ``out``."""
    folder = tmp_path_factory.mktemp("parts")
    write_cubes(folder / "cubes", 24, (40, 32, 50))
    np.save(folder / "mask.npy", np.arange(40 * 32, dtype=np.uint16).reshape(40, 32))
    (folder / "whole").mkdir()
    done = hsipack.run(*convert(folder), cwd=folder / "whole")
    assert done.returncode == 0, done.stderr
    return folder


def convert(folder: Path) -> list[object]:
    """The command. It is the same in every folder."""
    return ["convert", folder / "cubes", "-o", "out", MASK, *OPTIONS]


def succeed(hsipack: Hsipack, *words: object, cwd: Path) -> str:
    done = hsipack.run(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_killed_workers_are_replaced_by_whoever_works_next(
    hsipack: Hsipack, folder: Path, tmp_path: Path
) -> None:
    whole = timeless_tree(folder / "whole/out")
    chance = random.Random(5)
    killed = 0
    for round in range(max(1, KILLS // 3)):
        here = tmp_path / str(round)
        here.mkdir()
        start = time.monotonic()
        succeed(hsipack, *convert(folder), "--plan", "plan.json", cwd=here)
        seconds = time.monotonic() - start
        parts = chance.choice([2, 3, 5])
        workers = [
            hsipack.start(
                "work", "plan.json", "--part", f"{part}/{parts}", "--threads", 1, cwd=here
            )
            for part in range(1, parts + 1)
        ]
        for worker in workers[:3]:
            time.sleep(chance.random() * seconds * 2)
            worker.send_signal(signal.SIGKILL)
        for worker in workers:
            _, error = worker.communicate(timeout=120)
            assert worker.returncode in (0, -signal.SIGKILL), error
            killed += worker.returncode != 0
        assert not (here / "out").exists()
        # Two workers do the rest at the same time.
        for worker in [hsipack.start("work", "plan.json", cwd=here) for _ in range(2)]:
            _, error = worker.communicate(timeout=120)
            assert worker.returncode == 0, error
        commit = hsipack.start("commit", "plan.json", cwd=here)
        if round % 2:
            time.sleep(chance.random() * 0.05)
            commit.send_signal(signal.SIGKILL)
        commit.communicate(timeout=120)
        if (here / "out").exists():
            assert timeless_tree(here / "out") == whole
        succeed(hsipack, "commit", "plan.json", cwd=here)
        assert timeless_tree(here / "out") == whole
        assert not partial(here / "out").exists()
    assert killed > 0


def test_steps_say_what_is_next_and_what_is_missing(
    hsipack: Hsipack, folder: Path, tmp_path: Path
) -> None:
    planned = succeed(hsipack, *convert(folder), "--plan", "plan.json", cwd=tmp_path)
    assert "plan.json: 24 cubes in 12 shards for out" in planned
    assert "hsipack work plan.json --part" in planned
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # Relative paths start at the folder of the plan, in whatever folder a worker runs.
    worked = succeed(hsipack, "work", "../plan.json", "--part", "1/3", cwd=elsewhere)
    assert "part 1/3, 4 shards written" in worked
    assert "8 shards of other parts left" in worked
    early = hsipack.run("commit", "plan.json", cwd=tmp_path)
    assert early.returncode == 1
    assert "8 of 12 shards have no receipt: 1 of 40x32x50, 2 of 40x32x50, " in early.stderr
    assert "`hsipack work PLAN`" in early.stderr
    assert "4 of 12 shards written" in succeed(hsipack, "status", "plan.json", cwd=tmp_path)
    state = json.loads(succeed(hsipack, "status", "plan.json", "--json", cwd=tmp_path))
    assert state == {"shards": 12, "done": 4, "committed": False}
    watcher = hsipack.start("status", "plan.json", "--watch", cwd=tmp_path)
    assert watcher.stderr is not None
    assert watcher.stderr.readline() == "4 of 12 shards\n"
    again = json.loads(
        succeed(hsipack, "work", "plan.json", "--part", "1/3", "--json", cwd=tmp_path)
    )
    assert (again["shards"], again["written"], again["left"]) == (4, 0, 8)
    succeed(hsipack, "work", "plan.json", cwd=tmp_path)
    watcher.communicate(timeout=60)
    assert watcher.returncode == 0
    watched = json.loads(succeed(hsipack, "status", "plan.json", "--json", cwd=tmp_path))
    assert watched == {"shards": 12, "done": 12, "committed": False}
    report = json.loads(succeed(hsipack, "commit", "plan.json", "--json", cwd=tmp_path))
    assert report["cubes"] == 24
    complete = "out is complete; there was nothing left to do"
    assert complete in succeed(hsipack, "commit", "plan.json", cwd=tmp_path)
    assert complete in succeed(hsipack, "work", "plan.json", cwd=tmp_path)
    valid = hsipack.run("validate", "out", "--source", cwd=tmp_path)
    assert valid.returncode == 0, valid.stdout


@pytest.mark.parametrize("part", ["0/4", "5/4", "4", "a/b", ""])
def test_parts_that_there_are_not_are_refused(hsipack: Hsipack, part: str, tmp_path: Path) -> None:
    done = hsipack.run("work", "plan.json", f"--part={part}", cwd=tmp_path)
    assert done.returncode == 2
    assert "1/16" in done.stderr


def test_what_is_no_plan_is_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    for words in (["work"], ["status"], ["commit"]):
        done = hsipack.run(*words, "plan.json", cwd=tmp_path)
        assert done.returncode == 1
        assert "not a plan, or the plan was changed or cut short" in done.stderr
        assert "`hsipack convert --plan`" in done.stderr


def test_references_that_change_meanwhile_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    names = "abcd"
    for number, name in enumerate(names):
        np.save(tmp_path / f"{name}.npy", np.full((8, 6, 5), number + 1, np.float32))
    np.save(tmp_path / "w.npy", np.ones((3, 6, 5), np.float32))
    files, white = [tmp_path / f"{name}.npy" for name in names], tmp_path / "w.npy"
    words = [*files, "--axes", "yxb", "--white", white, "--shard-size", "1KB"]
    plan, out = tmp_path / "plan.json", tmp_path / "out"
    succeed(hsipack, "convert", *words, "-o", out, "--plan", plan, cwd=tmp_path)
    succeed(hsipack, "work", plan, "--part", "1/2", cwd=tmp_path)
    np.save(white, np.full((3, 6, 5), 2, np.float32))
    done = hsipack.run("work", plan)
    assert done.returncode == 1
    assert f"{white}: the file changed since the conversion was planned" in done.stderr
    done = hsipack.run("convert", *words, "-o", out, "--resume")
    assert done.returncode == 1
    assert "have changed since this conversion was begun" in done.stderr
    np.save(white, np.ones((3, 6, 5), np.float32))
    succeed(hsipack, "work", plan, cwd=tmp_path)
    succeed(hsipack, "commit", plan, cwd=tmp_path)
    assert hsipack.run("validate", out, "--source").returncode == 0
