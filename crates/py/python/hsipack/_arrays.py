"""From what the native part gives to what users asked for."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from hsipack._errors import ConflictError
from hsipack._hsipack import Array

Output = Literal["torch", "numpy", "dlpack"]
"""What arrays are given as: ``torch.Tensor``, ``numpy.ndarray``, or :class:`hsipack.Array` for
any other library.
"""


def check_output(output: object, outputs: tuple[str, ...]) -> None:
    """Refuses what is no output."""
    if output not in outputs:
        raise ConflictError(
            f"there is no output {output!r} here", remedy=f"give one of {', '.join(outputs)}"
        )


def tensor(array: Array) -> torch.Tensor:
    """A tensor over an array's memory."""
    made: torch.Tensor = torch.utils.dlpack.from_dlpack(array.__dlpack__())
    return made


def given(array: Array, output: Output) -> Any:
    """An array as it was asked for, over the same memory."""
    if output == "torch":
        return tensor(array)
    return np.asarray(array) if output == "numpy" else array


def dtype_name(dtype: torch.dtype) -> str:
    """``float16`` for ``torch.float16``."""
    return str(dtype).removeprefix("torch.")
