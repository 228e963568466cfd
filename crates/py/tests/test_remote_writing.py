"""Datasets written to an independent S3 server: what another library finds there, and what remains
after a kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import hsipack
import hsipack_command
import numpy as np
import pytest
from s3_server import S3, SECRET

# The number of kills at random instants. HSIPACK_KILLS=100 makes more than CI has time for.
KILLS = int(os.environ.get("HSIPACK_KILLS", "4"))


def keys(s3: S3, prefix: str) -> list[str]:
    pages = s3.client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def get(s3: S3, key: str) -> bytes:
    return s3.client.get_object(Bucket="bucket", Key=key)["Body"].read()


def command(s3: S3, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [hsipack_command.PROGRAM, *words],
        env={**os.environ, **s3.environment, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert SECRET not in done.stdout + done.stderr
    return done


def no_uploads(s3: S3) -> bool:
    return not s3.client.list_multipart_uploads(Bucket="bucket").get("Uploads")


@pytest.fixture
def options(cubes: Path) -> dict[str, Any]:
    """Options that pack the cubes, a few to a shard."""
    masks = {"organs": str(cubes.parent / "masks" / "{stem}.png")}
    return {"mask": masks, "table": cubes.parent / "table.csv", "shard_size": 40_000}


def test_what_is_written_there_is_what_a_folder_would_hold(
    s3: S3, cubes: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    here, url = tmp_path / "scans.hsipack", "s3://bucket/written/scans.hsipack"
    hsipack.convert(cubes, here, **options)
    report = hsipack.convert(cubes, url, storage_options=s3.options, **options)
    assert (report.output, report.cubes) == (url, len(list(cubes.glob("*.hdr"))))
    files = {str(file.relative_to(here)): file for file in here.rglob("*") if file.is_file()}
    there = [key.removeprefix("written/scans.hsipack/") for key in keys(s3, "written/")]
    assert sorted(there) == sorted(files)
    for name, file in files.items():
        if name not in ("zarr.json", "SHA256SUMS"):
            assert get(s3, f"written/scans.hsipack/{name}") == file.read_bytes(), name
    root = get(s3, "written/scans.hsipack/zarr.json").decode()
    assert SECRET not in root
    assert "storage_options" not in root
    assert len(json.loads(root)["attributes"]["hsipack"]["write_id"]) == 32
    assert hsipack.validate(url, source=True).ok
    for one, other in zip(hsipack.open(here), hsipack.open(url), strict=True):
        assert one["image"].equal(other["image"])
    with pytest.raises(hsipack.ConflictError, match="the output exists"):
        hsipack.convert(cubes, url, **options)


def test_parts_are_written_there_by_other_processes(
    s3: S3, cubes: Path, options: dict[str, Any]
) -> None:
    url = "s3://bucket/parts/scans.hsipack"
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as executor:
        report = hsipack.convert(
            cubes, url, executor=executor, storage_options=s3.options, **options
        )
    assert report.cubes == len(list(cubes.glob("*.hdr")))
    assert hsipack.validate(url, source=True).ok
    assert all(key.startswith("parts/scans.hsipack/") for key in keys(s3, "parts/"))
    assert no_uploads(s3)


def test_tensorstore_reads_there_what_was_written(
    s3: S3, cubes: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorstore = pytest.importorskip("tensorstore", reason="needs tensorstore")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    url = "s3://bucket/other/scans.hsipack"
    hsipack.convert(cubes, url, storage_options=s3.options, **options)
    place = {"driver": "s3", "bucket": "bucket", "endpoint": s3.endpoint, "aws_region": "us-east-1"}
    for image in {sample["image"].shape for sample in hsipack.open(url, output="numpy")}:
        stack = f"{image[1]}x{image[2]}x{image[0]}"
        store = {**place, "path": f"other/scans.hsipack/{stack}/image/"}
        found = tensorstore.open({"driver": "zarr3", "kvstore": store}).result().read().result()
        ours = [one["image"] for one in hsipack.open(url, output="numpy")]
        ours = [np.moveaxis(one, 0, -1) for one in ours if one.shape == image]
        assert np.array_equal(found, np.stack(ours), equal_nan=True)


def test_the_command_writes_appends_repairs_and_exports_there(
    s3: S3, cubes: Path, tmp_path: Path
) -> None:
    url = "s3://bucket/command/scans.hsipack"
    files = sorted(str(file) for file in cubes.glob("*.hdr"))
    done = command(s3, "convert", *files[:5], "-o", url)
    assert done.returncode == 0, done.stderr
    assert f"hsipack validate {url}" in done.stdout or url in done.stdout
    begun = hsipack.open(url, storage_options=s3.options)
    done = command(s3, "convert", *files[5:], "-o", url, "--append")
    assert done.returncode == 0, done.stderr
    assert command(s3, "convert", *files[5:], "-o", url, "--resume").returncode == 0
    assert command(s3, "validate", url, "--source").returncode == 0
    assert len(hsipack.open(url)) == len(files)
    assert len(begun) == 5

    key = keys(s3, "command/scans.hsipack/20x24x7/image/c/")[0]
    damaged = bytearray(get(s3, key))
    damaged[100] ^= 1
    s3.client.put_object(Bucket="bucket", Key=key, Body=bytes(damaged))
    assert command(s3, "validate", url).returncode == 1
    done = command(s3, "repair", url)
    assert done.returncode == 0, done.stderr
    assert command(s3, "validate", url).returncode == 0

    for name, words in {
        "cube.npy": ("export", url, "--sample", "0"),
        "cube.hdr": ("export", url, "--sample", "0"),
        "cube.tif": ("export", url, "--sample", "0"),
        "cube.png": ("preview", url, "--sample", "0"),
    }.items():
        local = tmp_path / name
        target = f"s3://bucket/exports/{name}"
        assert command(s3, *words, "-o", str(local)).returncode == 0
        done = command(s3, *words, "-o", target)
        assert done.returncode == 0, done.stderr
        assert get(s3, f"exports/{name}") == local.read_bytes()
        if words[0] == "export":
            again = command(s3, *words, "-o", target)
            assert again.returncode != 0
            assert "the file exists" in again.stderr
    assert get(s3, "exports/cube.img") == (tmp_path / "cube.img").read_bytes()
    assert no_uploads(s3)


def test_cubes_of_a_server_give_what_files_give(
    s3: S3, cubes: Path, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for file in [*cubes.rglob("*"), *(cubes.parent / "masks").rglob("*")]:
        if file.is_file():
            key = f"raw/{file.relative_to(cubes.parent)}"
            s3.client.put_object(Bucket="bucket", Key=key, Body=file.read_bytes())
    here, there = tmp_path / "here.hsipack", tmp_path / "there.hsipack"
    hsipack.convert(cubes, here, **options)
    url = f"s3://bucket/raw/{cubes.name}"
    theirs = {**options, "mask": {"organs": "{dir}/../masks/none.png"}}
    with pytest.raises(hsipack.Error, match=r"no s3://bucket/raw/masks/none\.png"):
        hsipack.convert(url, there, storage_options=s3.options, **theirs)
    theirs["mask"] = {"organs": "{dir}/../masks/{stem}.png"}
    hsipack.convert(url, there, storage_options=s3.options, **theirs)
    theirs["mask"] = {"organs": "s3://bucket/raw/masks/{stem}.png"}
    hsipack.convert(url, tmp_path / "other.hsipack", storage_options=s3.options, **theirs)
    for one, other in zip(hsipack.open(here), hsipack.open(there), strict=True):
        assert one["image"].equal(other["image"])
        assert one["organs"].equal(other["organs"])
        assert one["name"] == other["name"]
    report = hsipack.validate(there, source=True, storage_options=None)
    assert report.ok
    assert not report.unchecked
    lines = (there / "samples.jsonl").read_text().splitlines()
    assert all(json.loads(line)["source"]["path"].startswith(url) for line in lines)
    assert SECRET not in (there / "zarr.json").read_text()
    assert not list(tmp_path.glob("hsipack-inputs-*"))
    # The next process removes the files that a killed process left.
    left = tmp_path / "hsipack-inputs-1-0"
    left.mkdir()
    (left / ".lock").touch()
    done = command(s3, "convert", f"{url}/*.hdr", "-o", str(tmp_path / "glob.hsipack"))
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("hsipack-inputs-*"))
    assert "hsipack-inputs" not in done.stdout + done.stderr
    done = command(s3, "convert", f"{url}/none.hdr", "-o", str(tmp_path / "none.hsipack"))
    assert done.returncode != 0
    assert f"{url}/none.hdr" in done.stderr
    assert "hsipack-inputs" not in done.stderr


def test_large_shards_go_in_parts(s3: S3, tmp_path: Path) -> None:
    cube = np.random.default_rng(7).random((64, 256, 700)).astype(np.float16)
    np.save(tmp_path / "cube.npy", cube)
    url = "s3://bucket/large.hsipack"
    hsipack.convert(
        tmp_path / "cube.npy", url, codec="lz4", level=1, axes="yxb", storage_options=s3.options
    )
    (key,) = keys(s3, "large.hsipack/64x256x700/image/c/")
    head = s3.client.head_object(Bucket="bucket", Key=key)
    # The tag of a multipart upload contains the number of parts.
    assert head["ETag"].strip('"').endswith("-3"), head["ETag"]
    image = hsipack.open(url, output="numpy")[0]["image"]
    assert np.array_equal(np.moveaxis(image, 0, -1), cube)


def test_killed_workers_are_replaced_by_whoever_works_next(s3: S3, cubes: Path) -> None:
    work = ["convert", str(cubes), "--shard-size", "20kB", "-o"]
    env = {**os.environ, **s3.environment}

    def begin(*words: str) -> subprocess.Popen[bytes]:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([hsipack_command.PROGRAM, *words], env=env, **quiet)

    def shards(name: str) -> dict[str, bytes]:
        own = [key for key in keys(s3, f"{name}/") if "/c/" in key]
        return {key.removeprefix(name): get(s3, key) for key in own}

    begun = time.monotonic()
    assert command(s3, *work, "s3://bucket/one-process").returncode == 0
    seconds = time.monotonic() - begun
    whole = shards("one-process")
    draw, killed = random.Random(3), 0
    # A slow machine may start the next process only when workers are done: then once more.
    for round in range(max(20, KILLS // 2)):
        if killed and round >= KILLS // 2:
            break
        name, plan = f"parts-{round}", f"s3://bucket/parts-{round}.json"
        done = command(s3, *work, f"s3://bucket/{name}", "--plan", plan)
        assert done.returncode == 0, done.stderr
        parts = draw.choice([2, 5, 16])
        numbers = list(range(1, parts + 1))
        draw.shuffle(numbers)
        workers = [begin("work", plan, "--part", f"{part}/{parts}") for part in numbers[:4]]
        for worker in workers[:2]:
            time.sleep(draw.uniform(0, seconds))
            worker.kill()
        for worker in workers:
            killed += worker.wait(120) != 0
        for worker in [begin("work", plan) for _ in range(2)]:
            assert worker.wait(120) == 0
        if round % 2:
            commit = begin("commit", plan)
            time.sleep(draw.uniform(0, 0.3))
            commit.kill()
            commit.wait(120)
            # The dataset is complete or missing.
            there = command(s3, "info", f"s3://bucket/{name}").returncode == 0
            assert not there or shards(name) == whole
        done = command(s3, "commit", plan)
        assert done.returncode == 0, done.stderr
        assert shards(name) == whole
        assert command(s3, "validate", f"s3://bucket/{name}").returncode == 0
    assert killed > 0
    assert no_uploads(s3)


@pytest.mark.parametrize("append", [False, True])
def test_killed_conversions_leave_a_dataset_or_none_and_go_on(
    s3: S3, cubes: Path, append: bool
) -> None:
    name = f"killed-{append}"
    url = f"s3://bucket/{name}"
    files = sorted(str(file) for file in cubes.glob("*.hdr"))
    first, rest = (files[:3], files[3:]) if append else ([], files)
    work = ["convert", *rest, "-o", url, "--shard-size", "20kB", *(["--append"] if append else [])]
    env = {**os.environ, **s3.environment}

    def prepare() -> None:
        for key in keys(s3, name):
            s3.client.delete_object(Bucket="bucket", Key=key)
        if first:
            done = command(s3, "convert", *first, "-o", url, "--shard-size", "20kB")
            assert done.returncode == 0, done.stderr

    def samples() -> int:
        done = command(s3, "info", url, "--json")
        if done.returncode != 0:
            assert "not a packed dataset" in done.stderr, done.stderr
            return 0
        assert command(s3, "validate", url).returncode == 0
        return int(json.loads(done.stdout)["samples"])

    prepare()
    begun = time.monotonic()
    assert command(s3, *work).returncode == 0
    seconds = time.monotonic() - begun
    draw, seen = random.Random(9), set()
    for _ in range(KILLS):
        prepare()
        with subprocess.Popen(
            [hsipack_command.PROGRAM, *work],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            time.sleep(draw.uniform(0.02, seconds))
            process.kill()
        there = samples()
        assert there in (len(first), len(files))
        seen.add(there)
        done = command(s3, *work, "--resume")
        assert done.returncode == 0, done.stderr
        assert samples() == len(files)
        assert keys(s3, f"{name}.partial") == []
    assert seen
