"""Datasets on servers: an independent S3 server gives the same as the folder."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hsipack
import hsipack_command
import numpy as np
import pytest
import torch
from s3_server import S3, SECRET, free_port


@pytest.fixture(scope="module")
def url(s3: S3, dataset: str) -> str:
    """The URL of the packed dataset in the bucket."""
    return s3.upload(dataset, "folder/scans.hsipack")


def opened(s3: S3, url: str, **options: Any) -> hsipack.Dataset:
    return hsipack.open(url, storage_options=s3.options, **options)


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, other[key]), key
        else:
            assert value == other[key], key


def test_samples_are_those_of_the_folder(s3: S3, url: str, dataset: str) -> None:
    here, there = hsipack.open(dataset), opened(s3, url)
    assert (there.path, there.fingerprint, len(there)) == (url, here.fingerprint, len(here))
    assert there.wavelengths.tolist() == here.wavelengths.tolist()
    assert there.label_names == here.label_names
    assert np.array_equal(there.stats.mean, here.stats.mean)
    for one, other in zip(here, there, strict=True):
        same(one, other)
    rows = here.read(3, rows=slice(5, 9), columns=slice(2, 20))
    same(rows, there.read(3, rows=slice(5, 9), columns=slice(2, 20)))


@pytest.mark.parametrize(
    "cache", [{"cache": None}, {"cache": "decoded", "cache_size": 40_000}, {"cache": "auto"}]
)
def test_batches_are_those_of_the_folder(
    s3: S3, url: str, dataset: str, cache: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "device": "cpu", **cache}
    patches = {"crop": hsipack.LabelledPatches((3, 3), mask="labels")}
    local, remote = hsipack.open(dataset), opened(s3, url)
    for more, size in (({}, 5), (patches, 64)):
        if more:
            local, remote = local.with_masks("labels"), remote.with_masks("labels")
        with (
            hsipack.Loader(local, size, **options, **more) as here,
            hsipack.Loader(remote, size, **options, **more) as there,
        ):
            for _ in range(2):
                for one, other in zip(here, there, strict=True):
                    same(one, other)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_dataloader_read_there_themselves(s3: S3, url: str, context: str) -> None:
    ds = opened(s3, url)
    first = ds[0]["image"].clone()  # connections are open before the fork
    loader: Any = torch.utils.data.DataLoader(
        ds, batch_size=4, num_workers=2, multiprocessing_context=context
    )
    images = torch.cat([batch["image"] for batch in loader])
    assert torch.equal(images[0], first)
    assert torch.equal(images, torch.stack([sample["image"] for sample in ds]))


def test_the_command_reads_there(s3: S3, url: str, dataset: str, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        command = [hsipack_command.PROGRAM, *words]
        env = {**os.environ, **s3.environment}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout

    options = ("--epochs", "2", "--batch-size", "3", "--order", "shuffled", "--checksum", "--json")
    here, there = (
        [epoch["items"] for epoch in json.loads(run("read", path, *options))["per_epoch"]]
        for path in (dataset, url)
    )
    assert here == there
    assert [len(items) for items in here] == [12, 12]
    report = json.loads(run("info", url, "--json"))
    assert report["samples"] == 12
    run("preview", url, "-o", str(tmp_path / "sheet.png"))
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    run("export", url, "--sample", "2", "-o", str(tmp_path / "cube.npy"))
    exported = np.load(tmp_path / "cube.npy")
    assert np.array_equal(
        exported, hsipack.open(dataset, output="numpy").read(2)["image"].transpose(1, 2, 0)
    )
    trace = tmp_path / "trace.json"
    run("read", url, "--epochs", "1", "--batch-size", "3", "--json", "--trace", str(trace))
    assert SECRET not in trace.read_text()


def test_validate_proves_what_lies_on_a_server(s3: S3, dataset: str, cubes: Path) -> None:
    def validated(url: str, *words: str, **env: str) -> tuple[int, str]:
        done = subprocess.run(
            [hsipack_command.PROGRAM, "validate", url, *words],
            env={**os.environ, **s3.environment, **env},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert SECRET not in done.stdout + done.stderr
        return done.returncode, done.stdout + done.stderr

    url = s3.upload(dataset, "checked.hsipack")
    assert validated(url)[0] == 0
    assert validated(url, "--quick")[0] == 0
    assert validated(url, "--source", "--source-root", str(cubes.parent))[0] == 0
    assert hsipack.open(url, storage_options=s3.options).fingerprint
    assert hsipack.validate(url).ok

    key = "checked.hsipack/20x24x7/image/c/0/0/0/0"
    good = s3.client.get_object(Bucket="bucket", Key=key)["Body"].read()
    damaged = bytearray(good)
    damaged[100] ^= 1
    s3.client.put_object(Bucket="bucket", Key=key, Body=bytes(damaged))
    code, told = validated(url, "--json")
    assert code == 1
    report = json.loads(told)
    assert [problem["kind"] for problem in report["problems"]] == ["chunk"]
    assert report["damaged_samples"] == ["cube_00"]
    s3.client.delete_object(Bucket="bucket", Key=key)
    code, told = validated(url)
    assert code == 1
    assert key in told
    # Data that a server does not deliver are not damaged.
    code, told = validated(url, AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert code == 2
    assert "check the URL, the endpoint" in told
    assert validated(f"{url}-missing")[0] == 2


def test_secrets_are_shown_nowhere(s3: S3, url: str) -> None:
    ds = opened(s3, url)
    with hsipack.Loader(ds, 4, device="cpu") as loader:
        list(loader)
        shown = [repr(ds), str(ds), repr(loader), str(loader.report), str(loader.state_dict())]
    wrong = {**s3.options, "secret_access_key": SECRET, "region": "moon"}
    refused = [
        (f"{url}-missing", s3.options, "check the URL"),
        ("s3://other/x", s3.options, "check the URL|credentials"),
        (url, {**wrong, "secret_acess_key": SECRET}, "no storage option is named"),
        (url, {**wrong, "key": [SECRET]}, "give text"),
        (f"s3://{SECRET}@bucket/x", s3.options, "storage_options"),
        (f"https://host/x?signature={SECRET}", None, "query"),
    ]
    for place, options, words in refused:
        with pytest.raises(hsipack.Error, match=words) as error:
            hsipack.open(place, storage_options=options)
        shown += [str(error.value), repr(error.value)]
    assert not [text for text in shown if SECRET in text]


def test_options_go_with_a_dataset_that_is_sent_elsewhere(s3: S3, url: str) -> None:
    script = (
        "import pickle, sys; ds = pickle.load(sys.stdin.buffer); print(float(ds[1]['image'].sum()))"
    )
    ds = opened(s3, url)
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(ds), capture_output=True, check=True
    )
    assert float(done.stdout) == float(ds[1]["image"].sum())


def test_a_dataset_that_is_replaced_is_an_error(s3: S3, dataset: str, cubes: Path) -> None:
    url = s3.upload(dataset, "replaced.hsipack")
    ds = opened(s3, url, verify="always")
    ds[0]
    other = cubes.parent / "other.hsipack"
    if not other.exists():
        hsipack.convert(cubes, other, chunk=8)
    s3.upload(other, "replaced.hsipack")
    with pytest.raises(hsipack.ConflictError, match="replaced"):
        ds[5]


def test_a_server_that_is_not_there_is_told_soon(s3: S3) -> None:
    begun = time.monotonic()
    gone = {**s3.options, "endpoint": "http://127.0.0.1:9"}
    with pytest.raises(hsipack.FileError, match="endpoint"):
        hsipack.open("s3://elsewhere/x", storage_options=gone)
    assert time.monotonic() - begun < 30


def test_a_url_as_a_path_and_options_of_no_url_are_refused(dataset: str, cubes: Path) -> None:
    with pytest.raises(hsipack.ConflictError, match="URL as text"):
        hsipack.open(Path("s3://bucket/x"))
    with pytest.raises(hsipack.Error, match="not a URL"):
        hsipack.open(dataset, storage_options={"anon": True})
    with pytest.raises(hsipack.Error, match="not a URL"):
        hsipack.convert(dataset, dataset + "-new", storage_options={"anon": True})
    with pytest.raises(hsipack.UnsupportedError, match="plain web servers do not accept files"):
        hsipack.convert(cubes, "http://127.0.0.1:9/x")


NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
  fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


def test_a_web_server_serves_a_dataset(dataset: str, tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        pytest.skip("needs nginx; on Debian: apt-get install nginx-light")
    root, port = tmp_path / "root", free_port()
    shutil.copytree(dataset, root / "my scans.hsipack")
    config = tmp_path / "config"
    # Otherwise, as root it would read files as a user who may not look into folders of tests.
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(user + NGINX.format(folder=tmp_path, port=port, root=root))
    with subprocess.Popen([nginx, "-c", str(config), "-p", str(tmp_path)]) as server:
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.1)
            here = hsipack.open(dataset)
            there = hsipack.open(f"http://127.0.0.1:{port}/my scans.hsipack")
            for one, other in zip(here, there, strict=True):
                same(one, other)
            with hsipack.Loader(there, 5, device="cpu") as loader:
                assert sum(len(batch["id"]) for batch in loader) == len(here)
            with pytest.raises(hsipack.Error, match="check the URL"):
                hsipack.open(f"http://127.0.0.1:{port}/nothing")
        finally:
            server.terminate()


NETWORK = """
import pathlib, sys
import hsipack
def names():
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return [task.joinpath("comm").read_text().strip() for task in tasks]
ds = hsipack.open(sys.argv[1], output="numpy")
ds[0]
with hsipack.Loader(ds, 4, output="numpy") as loader:
    assert len(list(loader)) == 3
assert not [name for name in names() if "network" in name], names()
try:
    hsipack.open("http://127.0.0.1:9/x")
except hsipack.FileError:
    pass
assert [name for name in names() if "network" in name], names()
"""


def test_without_a_url_no_network_is_started(dataset: str) -> None:
    subprocess.run([sys.executable, "-c", NETWORK, dataset], check=True, timeout=100)
