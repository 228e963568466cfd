#!/usr/bin/env python3
"""Reads and writes datasets on other servers than those of the tests.

usage: .venv/bin/python scripts/check/servers.py [--folder FOLDER]

  Azurite   Microsoft's emulator of Azure Blob Storage; files are uploaded with azure-storage-blob
  s3rver    an S3 server; files are uploaded with boto3

Draws a few cubes, packs them, uploads the dataset to each server and compares samples, two epochs
of a loader, and an epoch from a local cache. Also checks the errors for wrong credentials and
names. Then packs the cubes directly to the server, with a shard that is uploaded in parts and an
append, and lets two processes write at the same time. Prints one line for each check; the exit
status is 1 if one failed. Needs Node and npm, a network, and the package, as scripts/test installs
it. The servers are installed into FOLDER (200 MB; default: target/servers). They end with the
script.
"""

import argparse
import importlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import spectral.io.envi as envi

AZURITE, S3RVER, AZURE_SDK = "azurite@3.35.0", "s3rver@3.7.1", "azure-storage-blob==12.31.1"
# The account and key of every Azurite.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def install(folder: Path) -> None:
    """Installs both servers and Azure's library, unless they are there."""
    if not (folder / "node_modules/.bin/azurite-blob").exists():
        packages = [AZURITE, S3RVER]
        subprocess.run(
            ["npm", "install", "--silent", "--no-save", *packages], cwd=folder, check=True
        )
    if not (folder / "python/azure").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        target = ["--root-user-action", "ignore", "--target", str(folder / "python")]
        subprocess.run([*pip, *target, AZURE_SDK], check=True)
    # At the end of the path, because it also contains libraries that are installed already.
    sys.path.append(str(folder / "python"))


def started(command: list[str], folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Starts a server, and waits until it answers."""
    with (folder / f"log-{port}").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return server
    raise SystemExit(f"{command[0]} does not answer; look into {folder}/log-{port}")


def packed(folder: Path) -> Path:
    """Packs twenty cubes of about 600 kB, several to a shard."""
    (folder / "raw").mkdir()
    for number in range(20):
        noise = np.random.default_rng(number).random((64, 64, 70), np.float32)
        envi.save_image(str(folder / f"raw/cube_{number:02}.hdr"), noise, dtype=np.float32)
    hsipack.convert(folder / "raw", folder / "scenes.hsipack", shard_size=3_000_000)
    return folder / "scenes.hsipack"


def files(dataset: Path) -> list[tuple[str, bytes]]:
    every = (file for file in sorted(dataset.rglob("*")) if file.is_file())
    return [(f"folder/{file.relative_to(dataset.parent)}", file.read_bytes()) for file in every]


class Checks:
    """The checks of each server."""

    def __init__(self) -> None:
        self.failed = 0

    def check(self, what: str, work: Callable[[], str]) -> None:
        begun = time.monotonic()
        try:
            told = work()
        except Exception as error:
            self.failed += 1
            told = f"FAILED: {type(error).__name__}: {error}"
        print(f"  {what:<22}{told}  [{time.monotonic() - begun:.1f} s]", flush=True)

    def server(
        self,
        url: str,
        options: dict[str, Any],
        wrong: dict[str, Any] | None,
        here: Path,
        *,
        conditional: bool,
    ) -> None:
        """Checks a dataset at ``url``. The folder ``here`` has the same dataset.

        ``wrong`` are credentials that the server refuses, if it refuses any. ``conditional`` says
        whether the server supports conditional puts.
        """
        want = hsipack.open(here, output="numpy")

        def samples() -> str:
            ds = hsipack.open(url, storage_options=options, output="numpy")
            for one, other in zip(ds, want, strict=True):
                assert np.array_equal(one["image"], other["image"])
            return f"{len(ds)} equal; {ds.network}"

        def epochs(**more: Any) -> str:
            ds = hsipack.open(url, storage_options=options, output="numpy", **more)
            with hsipack.Loader(ds, 3, shuffle=True, output="numpy", cache=None) as loader:
                for _ in range(2):
                    for batch in loader:
                        for number, image in zip(batch["id"], batch["image"], strict=True):
                            assert np.array_equal(image, want[int(number)]["image"])
            return f"two, equal; {ds.network}"

        def cached() -> str:
            with tempfile.TemporaryDirectory() as folder:
                epochs(local_cache=folder)
                ds = hsipack.open(url, storage_options=options, output="numpy", local_cache=folder)
                assert all(np.array_equal(ds[i]["image"], want[i]["image"]) for i in range(20))
                # If the server does not support ranges from the end, indexes of shards are fetched.
                fetched = int((ds.network or {})["bytes"])
                assert fetched < 1000, ds.network
            return f"everything from the disk; {fetched} bytes of indexes fetched"

        def refused(place: str, given: dict[str, Any]) -> str:
            told = ""
            try:
                hsipack.open(place, storage_options=given)
            except hsipack.Error as error:
                told = str(error)
            assert told, "the dataset was opened without an error"
            assert not any(str(value) in told for value in (wrong or {}).values())
            return told

        cubes = sorted(str(cube) for cube in (here.parent / "raw").glob("*.hdr"))

        def written() -> str:
            target, size = f"{url}-written", 40_000_000
            hsipack.convert(cubes[:18], target, shard_size=size, storage_options=options)
            hsipack.convert(cubes[18:], target, shard_size=size, append=True)
            assert hsipack.validate(target, source=True).ok
            ds = hsipack.open(target, output="numpy")
            for one, other in zip(ds, want, strict=True):
                assert np.array_equal(one["image"], other["image"])
            return f"{len(ds)} in two steps, equal"

        def at_once() -> str:
            target = f"{url}-twice"

            def write(some: list[str]) -> str:
                try:
                    hsipack.convert(some, target, storage_options=options)
                except hsipack.ConflictError:
                    return "refused"
                return "written"

            with ThreadPoolExecutor(2) as pool:
                done = sorted(pool.map(write, [cubes[:10], cubes[10:]]))
            if conditional:
                assert done == ["refused", "written"], done
                assert hsipack.validate(target, source=True).ok
            return f"one {done[0]}, one {done[1]}"

        self.check("samples", samples)
        self.check("epochs", epochs)
        self.check("a local cache", cached)
        self.check("nothing there", lambda: refused(f"{url}-missing", options))
        self.check("written there", written)
        self.check("two writers at once", at_once)
        if wrong is not None:
            self.check("wrong credentials", lambda: refused(url, {**options, **wrong}))


def azure(checks: Checks, folder: Path, here: Path) -> None:
    port = free_port()
    # Azure's library may request a newer version of the protocol than Azurite knows.
    words = ["--silent", "--skipApiVersionCheck", "--inMemoryPersistence", "--blobPort", str(port)]
    server = started(["node_modules/.bin/azurite-blob", *words], folder, port)
    try:
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        service = importlib.import_module("azure.storage.blob").BlobServiceClient(
            endpoint, credential={"account_name": ACCOUNT, "account_key": KEY}
        )
        container = service.create_container("container")
        for name, content in files(here):
            container.upload_blob(name, content)
        options: dict[str, Any] = {"account_name": ACCOUNT, "account_key": KEY}
        options |= {"endpoint": endpoint, "allow_http": True}
        wrong = {"account_key": "cGxhbnRlZC03ZjNhLXNlY3JldA=="}
        url = f"az://container/folder/{here.name}"
        checks.server(url, options, wrong, here, conditional=True)
    finally:
        server.kill()


def s3(checks: Checks, folder: Path, here: Path) -> None:
    port = free_port()
    data = folder / "s3rver"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    words = ["-d", str(data), "-a", "127.0.0.1", "-p", str(port), "--configure-bucket", "bucket"]
    server = started(["node_modules/.bin/s3rver", *words], folder, port)
    try:
        endpoint, key = f"http://127.0.0.1:{port}", "S3RVER"
        client = importlib.import_module("boto3").client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=key,
        )
        for name, content in files(here):
            client.put_object(Bucket="bucket", Key=name, Body=content)
        options = {"endpoint": endpoint, "region": "us-east-1", "key": key, "secret": key}
        url = f"s3://bucket/folder/{here.name}"
        # s3rver accepts any secret, and ignores conditions.
        checks.server(url, options, None, here, conditional=False)
    finally:
        server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("target/servers"))
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    install(folder)
    checks = Checks()
    with tempfile.TemporaryDirectory() as scratch:
        here = packed(Path(scratch))
        print(f"Azurite ({AZURITE})")
        azure(checks, folder, here)
        print(f"s3rver ({S3RVER})")
        s3(checks, folder, here)
    if checks.failed:
        raise SystemExit(f"{checks.failed} failed")
    print("all passed")


if __name__ == "__main__":
    main()
