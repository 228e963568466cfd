"""The local cache: shared by processes that are killed, and on a disk that refuses to write."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import hsipack
import hsipack_command
import numpy as np
import pytest
import spectral.io.envi as envi
import torch
from s3_server import S3, SECRET

# HSIPACK_KILLS=100 is the full test.
ROUNDS = int(os.environ.get("HSIPACK_KILLS", "4"))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twenty cubes of half a megabyte that hardly compress, each in one block of the cache."""
    root = tmp_path_factory.mktemp("scenes")
    (root / "raw").mkdir()
    for number in range(20):
        noise = np.random.default_rng(number).random((64, 64, 70), np.float32)
        envi.save_image(str(root / f"raw/cube_{number:02}.hdr"), noise, dtype=np.float32)
    hsipack.convert(root / "raw", root / "scenes.hsipack")
    return str(root / "scenes.hsipack")


@pytest.fixture(scope="module")
def url(s3: S3, scenes: str) -> str:
    return s3.upload(scenes, "scenes.hsipack")


def opened(s3: S3, url: str, cache: Path, size: int | None = None) -> hsipack.Dataset:
    return hsipack.open(
        url, storage_options=s3.options, local_cache=cache, local_cache_size=size, output="numpy"
    )


def network(ds: hsipack.Dataset) -> dict[str, Any]:
    report = ds.network
    assert report is not None
    return report


def read(s3: S3, path: str, *words: str, shell: str = "") -> subprocess.Popen[str]:
    """Starts a process that reads an epoch and prints what it read."""
    command = [hsipack_command.PROGRAM, "read", path, "--epochs", "1", "--batch-size", "2"]
    command += ["--checksum", "--json", *words]
    if shell:
        command = ["bash", "-c", f'{shell}; exec "$@"', "bash", *command]
    pipe = subprocess.PIPE
    env = {**os.environ, **s3.environment}
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)


def report(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert SECRET not in output + errors
    return dict(json.loads(output))


def items(report: dict[str, Any]) -> list[Any]:
    return [item for epoch in report["per_epoch"] for item in epoch["items"]]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([hsipack_command.PROGRAM, *words], capture_output=True, text=True)


def test_what_was_fetched_is_not_fetched_again(
    s3: S3, url: str, scenes: str, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    ds = opened(s3, url, cache)
    want = hsipack.open(scenes, output="numpy")
    with hsipack.Loader(ds, 3, shuffle=True, output="numpy", cache=None) as loader:
        for _ in range(2):
            assert sorted(id for batch in loader for id in batch["id"]) == list(range(20))
    first = network(ds)
    used = first["local_cache"]
    assert used["kept_bytes"] == first["bytes"] > 20 * 500_000
    assert (used["problem"], used["damaged"], used["folder"]) == (None, 0, str(cache))
    again = pickle.loads(pickle.dumps(ds))
    for one, other in zip(again, want, strict=True):
        assert np.array_equal(one["image"], other["image"])
    assert network(again)["requests"] == 0
    assert want.network is None
    # Workers use the cache, too.
    loaded: Any = torch.utils.data.DataLoader(again, batch_size=4, num_workers=2)
    assert sum(len(batch["id"]) for batch in loaded) == 20
    # No file in the cache contains the secret.
    for file in cache.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()

    shown = json.loads(command("local-cache", str(cache), "--json").stdout)
    assert shown["bytes"] == used["total_bytes"]
    assert [(entry["url"], entry["in_use"]) for entry in shown["datasets"]] == [(url, True)]
    assert "being read now" in command("local-cache", str(cache)).stdout
    assert json.loads(command("local-cache", str(cache), "--clear", "--json").stdout)["bytes"] > 0
    cleared = json.loads(command("local-cache", str(cache), "--clear-all", "--json").stdout)
    assert (cleared["bytes"], cleared["deleted_bytes"]) == (0, used["total_bytes"])
    assert np.array_equal(again[7]["image"], want[7]["image"])


def test_a_slow_link_is_named_and_emulated(s3: S3, url: str, scenes: str) -> None:
    env = {**os.environ, **s3.environment}
    words = ["--batch-size", "2", "--cache", "none", "--latency", "100ms"]
    shown = subprocess.run(
        [hsipack_command.PROGRAM, "read", url, "--epochs", "1", *words],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "the network" in shown
    assert "--local-cache" in shown
    assert re.search(r"server +\d+ requests, 10\.\d MB\n", shown), shown
    assert re.search(r"--cache compressed --cache-size 1\dMB", shown), shown
    slow = ["--batch-size", "2", "--latency", "100ms", "--step-time", "1ms"]
    slow += ["--rounds", "2", "--time", "100ms"]
    diagnosed = subprocess.run(
        [hsipack_command.PROGRAM, "diagnose", url, *slow],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "to blame" in diagnosed
    assert "the network" in diagnosed
    # Reads of files wait, too.
    begun = time.monotonic()
    told = report(read(s3, scenes, "--latency", "20ms", "--threads", "1"))
    assert time.monotonic() - begun > 0.4
    assert (told["latency_s"], told["requests"]) == (0.02, None)


def test_wrong_folders_and_sizes_are_refused(s3: S3, url: str, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years")
    with pytest.raises(hsipack.ConflictError, match="empty folder"):
        opened(s3, url, tmp_path / "thesis")
    with pytest.raises(hsipack.FileError):
        opened(s3, url, tmp_path / "thesis" / "thesis.tex")
    with pytest.raises(hsipack.ConflictError, match="give local_cache"):
        hsipack.open(url, local_cache_size=5)
    with pytest.raises(hsipack.ConflictError, match="local_cache_size"):
        opened(s3, url, tmp_path / "cache", -1)
    refused = command("local-cache", str(tmp_path / "thesis"), "--clear-all")
    assert refused.returncode == 1
    assert "not a local cache" in refused.stderr
    assert (tmp_path / "thesis" / "thesis.tex").exists()


def test_a_disk_that_takes_no_more_holds_nobody_up(
    s3: S3, url: str, scenes: str, tmp_path: Path
) -> None:
    want = items(report(read(s3, scenes)))
    cache = str(tmp_path / "cache")
    # Files of more than 100 KiB are refused, as on a full disk.
    small = "trap '' XFSZ; ulimit -f 100"
    got = report(read(s3, url, "--local-cache", cache, shell=small))
    assert items(got) == want
    used = got["local_cache"]
    assert "cannot write" in used["problem"]
    assert used["kept_bytes"] == 0
    assert used["total_bytes"] < 1_000_000
    left = [file for file in Path(cache).rglob("*") if ".part" in file.name]
    assert not left
    # On a disk without this limit, everything is kept.
    assert report(read(s3, url, "--local-cache", cache))["local_cache"]["problem"] is None


def test_processes_that_are_killed_leave_nothing_that_needs_repair(
    s3: S3, url: str, scenes: str, tmp_path: Path
) -> None:
    want = items(report(read(s3, scenes)))
    cache = tmp_path / "cache"
    # Not everything fits, so blocks are replaced.
    options = ("--local-cache", str(cache), "--local-cache-size", "6MB")
    chance = random.Random(5)
    for number in range(ROUNDS):
        processes = [read(s3, url, *options) for _ in range(8)]
        time.sleep(chance.uniform(0.1, 1.5))
        for victim in chance.sample(processes, 2):
            victim.send_signal(signal.SIGKILL)
        ended = [process for process in processes if process.poll() != -signal.SIGKILL]
        for process in ended:
            output, errors = process.communicate(timeout=120)
            if process.returncode == -signal.SIGKILL:
                continue
            assert process.returncode == 0, errors
            assert items(json.loads(output)) == want
        for process in processes:
            process.communicate(timeout=120)
        blocks = [file for file in cache.rglob("*-*-*") if "." not in file.name]
        assert sum(file.stat().st_size for file in blocks) <= 6_000_000
        checked = command("local-cache", str(cache), "--check", "--json")
        assert checked.returncode == 0, checked.stdout
        # The count agrees with the files after someone opens the cache again and reads to the end.
        # Before that, blocks are still added.
        after = report(read(s3, url, *options))["local_cache"]
        assert after["problem"] is None
        assert after["total_bytes"] == sum(
            file.stat().st_size for file in cache.rglob("*-*-*") if "." not in file.name
        )
        assert not [file for file in cache.rglob("*") if ".part" in file.name]
        if number % 3 == 2:
            shutil.rmtree(cache)
