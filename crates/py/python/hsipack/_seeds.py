"""Seeds that nobody gave: drawn from the global random generators."""

from __future__ import annotations

import numpy as np

from hsipack import _torch
from hsipack._ranks import Place

MOST = (1 << 63) - 1


def drawn() -> int:
    """A seed from torch's global generator if torch is imported, otherwise from NumPy's. So
    ``torch.manual_seed`` and Lightning's ``seed_everything`` decide it.
    """
    torch = _torch.imported()
    if torch is not None and hasattr(torch, "randint"):
        return int(torch.randint(MOST, ()).item())
    return int(np.random.randint(MOST, dtype=np.int64))


def of_loader(place: Place | None) -> int:
    """The seed of a loader that got none. Ranks that the user numbers cannot agree on a seed that
    each of them draws: they use 0.
    """
    return drawn() if place is None or place.world_size == 1 else 0
