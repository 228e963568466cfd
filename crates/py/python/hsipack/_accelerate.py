"""Reports to Accelerate: whether a batch is the last one of its epoch."""

from __future__ import annotations

import functools
import sys
from typing import Any


class Progress:
    """Tells Accelerate about an iteration, as its own loaders do.

    ``accelerator.accumulate`` then makes an optimizer step after the last batch of an epoch, even
    if fewer batches than ``gradient_accumulation_steps`` were accumulated. Without Accelerate,
    and if one of its own loaders reads this one, nothing happens.
    """

    def __init__(self) -> None:
        kind = None if _is_wrapped() else _kind()
        self._iteration: Any | None = None if kind is None else kind()
        if self._iteration is not None:
            self._iteration.begin()

    def batch(self, *, is_last: bool) -> None:
        """Notes that a batch is about to be given."""
        if self._iteration is not None:
            self._iteration.end_of_dataloader = is_last

    def end(self) -> None:
        """Notes that the iteration is over or was left."""
        if self._iteration is not None:
            self._iteration.end()
            self._iteration = None


MODULE = "accelerate.data_loader"


def _is_wrapped() -> bool:
    """Whether a loader of Accelerate takes this batch. It reads one batch ahead, and knows itself
    which one is the last.
    """
    frame = sys._getframe(1) if MODULE in sys.modules else None
    while frame is not None:
        if frame.f_globals.get("__name__") == MODULE:
            return True
        frame = frame.f_back
    return False


def _kind() -> Any | None:
    """The class of what Accelerate keeps for an iteration; None if it is not imported."""
    module = sys.modules.get(MODULE)
    base = getattr(module, "DataLoaderStateMixin", None)
    state = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    return None if base is None or state is None else _of_accelerate(base, state)


@functools.cache
def _of_accelerate(base: Any, state: Any) -> Any:
    class Iteration(base):  # type: ignore[misc]
        # It has no length: the loader marks repeated samples itself, as padding.
        def __init__(self) -> None:
            self.gradient_state = state()

    return Iteration
