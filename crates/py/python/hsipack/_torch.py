"""The user's torch: whether it is installed, its version, and importing it only when needed."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from hsipack._errors import UnsupportedError

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeIs

OLDEST = (2, 4)
"""The oldest supported version of torch."""

_INSTALL = "run: pip install hsipack[torch]"


@functools.cache
def is_installed() -> bool:
    """Whether torch can be imported. Does not import it."""
    if "torch" in sys.modules:
        return sys.modules["torch"] is not None
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


_loaded: Any = None
"""The torch that `load` found. Every batch calls `load` several times."""


def load(what: str = "this") -> Any:
    """Returns torch, and imports it if necessary.

    Args:
        what: what needs torch, for the error.

    Raises:
        UnsupportedError: if torch is missing or too old; says what to install.
    """
    global _loaded
    if _loaded is not None and sys.modules.get("torch") is _loaded:
        return _loaded
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise UnsupportedError(
            f"{what} needs torch, which cannot be imported ({error})", remedy=_INSTALL
        ) from error
    version = str(torch.__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UnsupportedError(
            f"{what} needs torch {oldest} or newer, but torch {version} is installed",
            remedy=_INSTALL,
        )
    _loaded = torch
    return torch


def imported(name: str = "torch") -> Any | None:
    """torch, or a module of it, if it is imported. Otherwise no value can be of its types."""
    return sys.modules.get(name)


def is_tensor(value: object) -> TypeIs[torch.Tensor]:
    """Whether a value is a torch tensor. Does not import torch."""
    # While another thread is importing torch, it may not have Tensor yet.
    tensor = getattr(imported(), "Tensor", None)
    return tensor is not None and isinstance(value, tensor)


def threads() -> int:
    """The number of threads that compute in this process: as many as torch uses (1 in workers of
    its DataLoader). Without torch, one for each core that the process may use.
    """
    torch = imported()
    if torch is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    return len(os.sched_getaffinity(0))
