"""An independent S3 server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("moto.server", reason="the tests' S3 server: pip install moto flask flask-cors")
import boto3
import botocore.exceptions

# No output may contain it.
SECRET = "planted-7f3a-secret"


class S3:
    """A moto server, a bucket in it, and the options for both."""

    def __init__(self, log: Path) -> None:
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        self.client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="somebody",
            aws_secret_access_key=SECRET,
        )
        for _ in range(300):
            try:
                self.client.create_bucket(Bucket="bucket")
            except botocore.exceptions.ConnectionError:
                assert self.process.poll() is None, log.read_text()
                time.sleep(0.1)
            else:
                break
        self.options = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "somebody",
            "secret_access_key": SECRET,
        }

    def upload(self, folder: str | os.PathLike[str], name: str) -> str:
        """Uploads the files of a folder to the bucket, and returns its URL."""
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                key = f"{name}/{file.relative_to(folder)}"
                self.client.put_object(Bucket="bucket", Key=key, Body=file.read_bytes())
        return f"s3://bucket/{name}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
