#!/usr/bin/env python3
"""Checks the recipe for Kubernetes in docs/parts.md, as far as possible without a cluster.

usage: PYTHON scripts/check/kubernetes.py

PYTHON needs the package hsipack, and:

    pip install kubernetes-validate PyYAML 'moto[server]' boto3

Compares the manifest with the schemas of the Kubernetes API, for all versions from 1.29 on that the
library knows. Then runs the commands of the page on this machine, with an S3 server (moto) in place
of the bucket: the plan, the pods of the job and the commit. The pods run with their indexes in
random order, three at a time; some are killed and started again, as the job would do. The dataset
must be the same as that of one process. Takes half a minute.
"""

import contextlib
import importlib
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/bench"))

from peers.served.servers import BUCKET, environment, free_port, s3, wait_for  # noqa: E402

OLDEST = (1, 29)
CUBES = 40


def block(page: str, language: str) -> str:
    """The first code block of a language below the heading Kubernetes."""
    section = page.split("\n## Kubernetes\n")[1].split("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found, language
    return found[1]


def check_schemas(text: str, manifest: dict[str, Any]) -> None:
    """Checks the manifest against every known version."""
    library = importlib.import_module("kubernetes_validate")
    tried = []
    for version in dict.fromkeys(library.utils.all_versions()):
        if tuple(int(part) for part in version.split(".")[:2]) >= OLDEST:
            library.validate(manifest, version, strict=True)
            tried.append(version)
    assert tried, "no version is known"
    wrong = importlib.import_module("yaml").safe_load(text.replace("completions:", "completion:"))
    try:
        library.validate(wrong, tried[-1], strict=True)
    except library.ValidationError:
        pass
    else:
        raise AssertionError("the schema accepted a field that does not exist")
    print(f"manifest    valid for {', '.join(tried)}")


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Starts an S3 server with the bucket, and yields its address. Ends it after the block."""
    port, log = free_port(), folder / "server.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        try:
            wait_for(port)
            s3(endpoint).create_bucket(Bucket=BUCKET)
        except Exception as error:
            last = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"the S3 server does not answer; its last lines:\n{last}") from error
        yield endpoint
    finally:
        server.kill()
        server.wait()


def run_pod(container: dict[str, Any], index: int, told: dict[str, str], kills: int) -> int:
    """Runs a pod until it succeeds. Returns how often it was killed.

    It may end before it is killed, but it must not fail.
    """
    command = [*container["command"], *container["args"]]
    variables = os.environ | told | {"JOB_COMPLETION_INDEX": str(index)}
    killed = 0
    while True:
        pod = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)
        if killed < kills:
            time.sleep(random.Random(index).uniform(0.01, 0.2))
            pod.kill()
        status = pod.wait()
        if status == 0:
            return killed
        wanted = killed < kills and status == -signal.SIGKILL
        assert wanted, f"pod {index} failed with status {status}"
        killed += 1


def shards(client: Any, name: str) -> dict[str, bytes]:
    """Reads the shards of a dataset."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{name}/")
    keys = [one["Key"] for page in pages for one in page.get("Contents", [])]
    chosen = [key for key in keys if "/image/c/" in key]
    read = {
        key.removeprefix(name): client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        for key in chosen
    }
    assert read, keys
    return read


def check_commands(folder: Path, endpoint: str, manifest: dict[str, Any], shell: str) -> None:
    """Runs the commands of the page."""
    client, told = s3(endpoint), environment(endpoint)
    for number in range(CUBES):
        file = folder / f"scan{number:02}.npy"
        np.save(file, np.random.default_rng(number).random((64, 64, 40), np.float32))
        client.upload_file(str(file), BUCKET, f"scans/{file.name}")

    def hsipack(line: str) -> None:
        subprocess.run(
            shlex.split(line), env=os.environ | told, check=True, stdout=subprocess.DEVNULL
        )

    lines = [line for line in shell.splitlines() if line.startswith("hsipack ")]
    plan, commit = lines
    hsipack(f"{plan} --shard-size 1MB")
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    pods = list(range(manifest["spec"]["completions"]))
    random.Random(1).shuffle(pods)
    with ThreadPoolExecutor(3) as pool:
        killed = list(pool.map(lambda index: run_pod(container, index, told, index % 3), pods))
    assert sum(killed) > 0, "every pod ended before it was killed"
    hsipack(commit)
    print(f"pods        {len(pods)} done, after {sum(killed)} kills")
    hsipack("hsipack convert 's3://bucket/scans/*.npy' -o s3://bucket/one.hsipack --shard-size 1MB")
    one, parts = shards(client, "one.hsipack"), shards(client, "scans.hsipack")
    assert one == parts, "the shards differ"
    hsipack("hsipack validate s3://bucket/scans.hsipack --source")
    print(f"dataset     {len(parts)} shards, the same as those of one process")


def main() -> None:
    assert shutil.which("hsipack"), "the command hsipack is missing: pip install hsipack"
    page = (ROOT / "docs/parts.md").read_text(encoding="utf-8")
    text = block(page, "yaml")
    manifest = importlib.import_module("yaml").safe_load(text)
    check_schemas(text, manifest)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as endpoint:
        check_commands(Path(folder), endpoint, manifest, block(page, "sh"))


if __name__ == "__main__":
    main()
