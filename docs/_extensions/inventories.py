"""Keeps the inventories of other projects' pages (objects.inv), for builds without a network."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from pathlib import Path

TIMEOUT_S = 5


def known(projects: dict[str, str], folder: Path) -> dict[str, tuple[str, str]]:
    """Fetches the inventories of `projects` (address by name) into `folder` if they are missing.

    Returns the value of `intersphinx_mapping`, without projects whose inventory is not available.
    """
    mapping: dict[str, tuple[str, str]] = {}
    offline = False
    for name, address in projects.items():
        kept = folder / f"{name}.inv"
        if not kept.is_file() and not offline:
            try:
                content = downloaded(f"{address}/objects.inv")
            except (urllib.error.HTTPError, http.client.HTTPException):
                # One faulty server says nothing about the others.
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
    """The content at this address."""
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
        content: bytes = answer.read()
    return content


def keep(content: bytes, file: Path) -> None:
    """Writes a complete file or none, because an existing file is never fetched again."""
    file.parent.mkdir(parents=True, exist_ok=True)
    begun = file.with_suffix(".part")
    begun.write_bytes(content)
    begun.replace(file)
