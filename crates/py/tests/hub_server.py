"""A stand-in for the Hugging Face Hub: the part of its HTTP interface that reading datasets needs.

The Hub answers small files itself and redirects to another server for large ones. Like the stores
behind the Hub, that server refuses requests with a token.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

TOKEN = "hf_planted7f3aToken"
"""The only token that may read private datasets."""
OTHER_TOKEN = "hf_planted7f3aOther"
"""A valid token whose user did not accept the conditions of gated datasets."""
LARGE = 2000
"""Files of at least this many bytes are on the other server."""


@dataclass(frozen=True)
class Request:
    """A request that a server received."""

    server: str
    method: str
    path: str
    authorization: str | None


@dataclass
class Repository:
    """A dataset: where its branches are, its commits, and who may read it."""

    branches: dict[str, str] = field(default_factory=dict)
    commits: set[str] = field(default_factory=set)
    access: str = "public"


class Hub:
    """The Hub and the server of its large files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self._files = self._start(_FilesHandler)
        self._hub = self._start(_HubHandler)
        self.endpoint = _address(self._hub)
        self.files_address = _address(self._files)

    def _start(self, handler: type[_Handler]) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"hub": self}))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def push(self, name: str, dataset: Path, path: str, branch: str = "main") -> str:
        """Makes a commit with one dataset at ``path``, moves the branch to it, and returns it."""
        repository = self.repositories.setdefault(name, Repository())
        number = sum(1 for _ in self.folder.iterdir())
        commit = hashlib.sha1(f"{name} {number}".encode()).hexdigest()
        shutil.copytree(dataset, self.folder / commit / path)
        repository.branches[branch] = commit
        repository.commits.add(commit)
        return commit

    def count(self, server: str, pattern: str = "") -> int:
        """The number of requests that a server received for paths that match."""
        return sum(
            one.server == server and re.search(pattern, one.path) is not None
            for one in self.requests
        )

    def stop(self) -> None:
        """Stops both servers."""
        for server in (self._hub, self._files):
            server.shutdown()
            server.server_close()


def _address(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    server_name: str
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Prints nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        token = self.headers.get("Authorization")
        self.hub.requests.append(Request(self.server_name, self.command, self.path, token))
        self.respond()

    def respond(self) -> None:
        raise NotImplementedError

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def send_file(self, file: Path) -> None:
        """Sends a file, or the range of it that was requested."""
        content = file.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()}"'
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not found or not content:
            self.send(200, content, ETag=tag, Accept_Ranges="bytes")
            return
        first, last = found.groups()
        start = int(first) if first else max(len(content) - int(last), 0)
        end = min(int(last) + 1, len(content)) if first and last else len(content)
        place = f"bytes {start}-{end - 1}/{len(content)}"
        self.send(206, content[start:end], ETag=tag, Content_Range=place)


class _FilesHandler(_Handler):
    """The server of large files: signed addresses, no tokens."""

    server_name = "files"

    def respond(self) -> None:
        path, _, query = self.path.partition("?")
        if self.headers.get("Authorization") or query != "Signature=planted":
            self.send(400, b"<Error><Code>InvalidArgument</Code></Error>")
            return
        self.send_file(self.hub.folder / unquote(path).lstrip("/"))


class _HubHandler(_Handler):
    """The Hub itself."""

    server_name = "hub"

    def respond(self) -> None:
        found = re.fullmatch(
            r"/(api/)?datasets/([^/]+/[^/]+)/(revision|resolve)/([^/]+)(?:/(.*))?", self.path
        )
        repository = self.hub.repositories.get(found[2]) if found else None
        if not found or not repository:
            # As the Hub does, so that nobody learns which private datasets exist.
            self.refuse(404 if self.headers.get("Authorization") else 401, "RepoNotFound")
            return
        if self.is_refused(repository):
            return
        revision = unquote(found[4])
        commit = repository.branches.get(revision)
        if revision in repository.commits:
            commit = revision
        if commit is None:
            self.refuse(404, "RevisionNotFound")
        elif found[1]:
            about = {"id": found[2], "sha": commit, "siblings": []}
            self.send(200, json.dumps(about).encode(), Content_Type="application/json")
        else:
            self.resolve(commit, unquote(found[5] or ""))

    def is_refused(self, repository: Repository) -> bool:
        """Answers whoever may not read a dataset."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if repository.access == "public" or token == TOKEN:
            return False
        if repository.access == "gated" and token == OTHER_TOKEN:
            self.refuse(403, "GatedRepo")
        else:
            self.refuse(401, "RepoNotFound")
        return True

    def resolve(self, commit: str, path: str) -> None:
        file = self.hub.folder / commit / path
        if not file.is_file():
            self.refuse(404, "EntryNotFound")
        elif file.stat().st_size < LARGE:
            self.send_file(file)
        else:
            place = f"{self.hub.files_address}/{commit}/{path}?Signature=planted"
            self.send(302, b"", Location=place)

    def refuse(self, status: int, code: str) -> None:
        self.send(status, b'{"error":"refused"}', X_Error_Code=code)
