"""Seeds that nobody gave: drawn from the global random generators."""

from __future__ import annotations

import numpy as np

from hsipack import _torch
from hsipack._ranks import Place

LIMIT = 1 << 62


def drawn() -> int:
    """A seed from torch's global generator if torch is imported, otherwise from NumPy's. So
    ``torch.manual_seed`` and Lightning's ``seed_everything`` decide it.
    """
    torch = _torch.imported()
    if torch is not None and hasattr(torch, "default_generator"):
        # A default device may be another one than that of the generator.
        seed = torch.randint(LIMIT, (), generator=torch.default_generator, device="cpu")
        return int(seed)
    return int(np.random.randint(LIMIT, dtype=np.int64))


def of_loader(place: Place | None) -> int:
    """The seed of a loader that got none. Ranks that the user numbers cannot agree on a seed that
    each of them draws: they use 0.
    """
    return drawn() if place is None or place.world_size == 1 else 0
