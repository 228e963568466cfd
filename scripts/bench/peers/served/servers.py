"""The S3 server, the link in front of it, and uploads."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3

BUCKET = "bucket"
KEY, SECRET, REGION = "server-peers", "server-peers-secret", "us-east-1"


class Running:
    """A process that ends together with its `with` block."""

    process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.wait()


# Objects are files of s3s-fs. nginx sends these files itself, and passes on all other requests.
NGINX = """
daemon off;
worker_processes {workers};
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  sendfile on;
  tcp_nodelay on;
  keepalive_requests 1000000;
  default_type binary/octet-stream;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  client_max_body_size 0;
  server {{
    listen 127.0.0.1:{port};
    root {root};
    location / {{ try_files $uri @s3; }}
    location @s3 {{
      proxy_pass http://{server};
      proxy_set_header Host $http_host;
      proxy_http_version 1.1;
      proxy_request_buffering off;
    }}
  }}
}}
"""


class Server(Running):
    """s3s-fs, which stores every object as a file, behind nginx, which sends these files.

    s3s-fs itself sends pieces of 4 KiB and takes some seconds of a core for each GB. It could not
    fill a link of 200 MB/s on a machine with two cores.
    """

    def __init__(self, program: str, nginx: str, folder: Path) -> None:
        (folder / BUCKET).mkdir(parents=True, exist_ok=True)
        self.folder = folder / BUCKET
        behind, port = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        words = ["--host", "127.0.0.1", "--port", str(behind)]
        keys = ["--access-key", KEY, "--secret-key", SECRET]
        with (folder.parent / "server.log").open("w") as log:
            self.s3 = subprocess.Popen(
                [program, *words, *keys, str(folder)],
                stdout=log,
                stderr=log,
                text=True,
                env=os.environ | {"RUST_LOG": "warn"},
            )
            wait_for(behind)
            settings = folder.parent / "nginx.conf"
            text = NGINX.format(
                workers=os.cpu_count(),
                folder=folder.parent,
                port=port,
                root=folder,
                server=f"127.0.0.1:{behind}",
            )
            settings.write_text(text if os.geteuid() else f"user root;{text}")
            self.process = subprocess.Popen(
                [nginx, "-c", str(settings)], stdout=log, stderr=log, text=True
            )
        wait_for(port)

    def end(self) -> None:
        """Ends both processes."""
        # nginx then ends its workers.
        self.process.terminate()
        self.process.wait()
        self.s3.kill()
        self.s3.wait()

    def has(self, data: str) -> bool:
        """Whether all files of a format were uploaded."""
        return (self.folder / data / "complete").exists()

    def put(self, data: str, folder: Path) -> None:
        """Uploads every file of a folder with the S3 protocol."""
        client = s3(f"http://{self.address}")
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    key = f"{data}/{path.relative_to(folder)}"
                    client.put_object(Bucket=BUCKET, Key=key, Body=file)
        client.put_object(Bucket=BUCKET, Key=f"{data}/complete", Body=b"")

    def warm(self, data: str) -> None:
        """Reads all files once, so that they are in memory."""
        for path in (self.folder / data).rglob("*"):
            if path.is_file():
                with path.open("rb", buffering=0) as file:
                    while file.read(1 << 24):
                        pass

    def size(self, data: str) -> int:
        """The bytes of a format."""
        files = (path for path in (self.folder / data).rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files)


class Link(Running):
    """crates/testing/examples/link.rs in front of a server."""

    def __init__(self, program: str, server: str, milliseconds: int, rate: int | None) -> None:
        limit = [] if rate is None else [str(rate)]
        self.process = subprocess.Popen(
            [program, server, str(milliseconds), *limit],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.endpoint = f"http://{self.process.stdout.readline().strip()}"


def environment(endpoint: str) -> dict[str, str]:
    """Environment variables that S3 clients read."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
        # The name that MosaicML Streaming reads.
        "S3_ENDPOINT_URL": endpoint,
    }


def s3(endpoint: str) -> Any:
    """boto3's client."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )


def free_port() -> int:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def wait_for(port: int) -> None:
    """Waits until a server listens on the port."""
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"no server on port {port}")
