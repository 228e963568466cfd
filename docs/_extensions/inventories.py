"""Lists of what other projects' pages explain (objects.inv), kept for builds without network."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

TIMEOUT_S = 5


def known(projects: dict[str, str], folder: Path) -> dict[str, tuple[str, str]]:
    """Fetches the lists of `projects` (address by name) into `folder`, where they are missing.

    Returns the value of `intersphinx_mapping`. Projects that cannot be reached are not in it.
    """
    mapping: dict[str, tuple[str, str]] = {}
    offline = False
    for name, address in projects.items():
        kept = folder / f"{name}.inv"
        if not kept.is_file() and not offline:
            offline = not fetched(f"{address}/objects.inv", kept)
        if kept.is_file():
            mapping[name] = (f"{address}/", str(kept))
    return mapping


def fetched(address: str, file: Path) -> bool:
    """Whether what lies at `address` is in `file` now."""
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, TimeoutError, OSError):
        return False
    if not content.startswith(b"# Sphinx inventory version"):
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return True
