"""The user's torch: which one, whether there is one, and importing it only when it is needed."""

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
"""The oldest torch that is taken."""

_INSTALL = "run: pip install hsipack[torch]"


@functools.cache
def is_installed() -> bool:
    """Whether there is a torch to import, without importing it."""
    if "torch" in sys.modules:
        return sys.modules["torch"] is not None
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


_loaded: Any = None
"""What was found by `load`, which every batch asks several times."""


def load(what: str = "this") -> Any:
    """Torch, imported if need be.

    Args:
        what: what needs it, for the error.

    Raises:
        UnsupportedError: if there is none, or one that is too old; what to install.
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
    """Torch, or a part of it, if somebody has imported it: only then can a value be of it."""
    return sys.modules.get(name)


def is_tensor(value: object) -> TypeIs[torch.Tensor]:
    """Whether a value is a tensor of torch's, which need not be imported for that."""
    # While another thread imports torch, it has no tensors yet.
    tensor = getattr(imported(), "Tensor", None)
    return tensor is not None and isinstance(value, tensor)


def threads() -> int:
    """Threads that compute in this process: as many as torch uses, which the workers of its
    DataLoader set to 1; without torch, one for each core that the process may use.
    """
    torch = imported()
    if torch is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    return len(os.sched_getaffinity(0))
