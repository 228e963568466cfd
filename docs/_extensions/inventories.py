"""Lists of what other projects' pages explain (objects.inv), kept for builds without network."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from pathlib import Path

TIMEOUT_S = 5


def known(projects: dict[str, str], folder: Path) -> dict[str, tuple[str, str]]:
    """Fetches the lists of `projects` (address by name) into `folder`, where they are missing.

    Returns the value of `intersphinx_mapping`. Projects whose list cannot be had are not in it.
    """
    mapping: dict[str, tuple[str, str]] = {}
    offline = False
    for name, address in projects.items():
        kept = folder / f"{name}.inv"
        if not kept.is_file() and not offline:
            try:
                content = downloaded(f"{address}/objects.inv")
            except (urllib.error.HTTPError, http.client.HTTPException):
                # A server that answers badly says nothing about the others.
                continue
            except OSError:
                offline = True
                continue
            if content.startswith(b"# Sphinx inventory version"):
                keep(content, kept)
        if kept.is_file():
            mapping[name] = (f"{address}/", str(kept))
    return mapping


def downloaded(address: str) -> bytes:
    """What lies there."""
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
        content: bytes = answer.read()
    return content


def keep(content: bytes, file: Path) -> None:
    """Writes a file whole or not at all: what is there is never fetched again."""
    file.parent.mkdir(parents=True, exist_ok=True)
    begun = file.with_suffix(".part")
    begun.write_bytes(content)
    begun.replace(file)
