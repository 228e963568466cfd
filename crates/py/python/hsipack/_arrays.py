"""Conversion between the arrays of the native part and the arrays of users."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hsipack import _torch
from hsipack._errors import ArgumentTypeError, ConflictError, UnsupportedError
from hsipack._hsipack import Array

if TYPE_CHECKING:
    import torch

Output = Literal["torch", "numpy", "dlpack"]
"""The type of arrays: ``torch.Tensor``, ``numpy.ndarray``, or :class:`hsipack.Array` for any other
library.
"""

CPU = 1
"""DLPack's number for the host's memory; page-locked memory for CUDA is 3."""


def chosen_output(output: object, outputs: tuple[Output, ...]) -> Output:
    """The chosen output. If it is None, torch if torch is installed, otherwise NumPy.

    Raises:
        ConflictError: if it is not one of ``outputs``.
        UnsupportedError: if it is torch, but torch is not installed; says what to install.
    """
    if output is None:
        return "torch" if _torch.is_installed() else "numpy"
    for known in outputs:
        if output == known:
            if known == "torch":
                _torch.load('output="torch"')
            return known
    kind = ConflictError if isinstance(output, str) else ArgumentTypeError
    raise kind(f"there is no output {output!r} here", remedy=f"give one of {', '.join(outputs)}")


def tensor(array: Array) -> torch.Tensor:
    """A tensor that shares the memory of an array."""
    # With a capsule, torch calls no method of the array; but on a device it has to name its stream.
    on_host = array.__dlpack_device__()[0] == CPU
    made: torch.Tensor = _torch.load().from_dlpack(array.__dlpack__() if on_host else array)
    return made


def given(array: Array, output: Output) -> Any:
    """An array as the chosen output, sharing its memory."""
    if output == "torch":
        return tensor(array)
    return np.asarray(array) if output == "numpy" else array


def is_array(value: object) -> bool:
    """Whether a value is an array of any library."""
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")


def on_host(array: Any) -> bool:
    """Whether an array of any library is in the host's memory."""
    if isinstance(array, np.ndarray):
        return True
    return int(array.__dlpack_device__()[0]) in (CPU, 3)


def native(array: Any) -> Any:
    """Converts an array of any library for the native part, sharing its memory if possible. NumPy
    arrays stay, other arrays in the host's memory become DLPack capsules, and arrays on a device
    become torch tensors.
    """
    if isinstance(array, np.ndarray):
        return _plain(array)
    if isinstance(array, Array) and on_host(array):
        return array
    if _torch.is_tensor(array):
        array = array.detach()
        return array.__dlpack__() if array.device.type == "cpu" else array
    if on_host(array):
        return array.__dlpack__()
    return _torch.load("augmenting arrays on a device").from_dlpack(array)


def host(array: Any) -> Any:
    """Converts an array of any library to a NumPy array, sharing its memory if it is in the host's
    memory. bfloat16, which NumPy does not have, becomes float32.
    """
    if isinstance(array, np.ndarray):
        return array
    if not _torch.is_tensor(array):
        if on_host(array) and getattr(array, "dtype", None) != "bfloat16":
            return np.from_dlpack(array)
        array = _torch.load("taking arrays from a device").from_dlpack(array)
    array = array.detach()
    return (array.float() if str(array.dtype) == "torch.bfloat16" else array).cpu().numpy()


def _plain(array: Any) -> Any:
    """A NumPy array with aligned elements in native byte order, whose strides are multiples of the
    element size. Copies the array if it is not like that.
    """
    native = array.dtype.newbyteorder("=")
    odd = any(stride % array.itemsize for stride in array.strides) if array.itemsize else False
    if odd or not array.flags.aligned or array.dtype != native:
        return np.array(array, dtype=native, order="C")
    return array


def like(old: Any, new: Array) -> Any:
    """Converts a result of the native part to the kind of array that ``old`` is, sharing its
    memory.
    """
    if isinstance(old, np.ndarray):
        return np.asarray(new)
    if _torch.is_tensor(old):
        return tensor(new)
    if isinstance(old, Array):
        return new
    for make in _makers(old):
        return make(new)
    raise UnsupportedError(
        f"arrays of {type(old).__module__}, which cannot be created with DLPack",
        remedy="give a NumPy array or a torch tensor",
    )


def _makers(old: Any) -> Any:
    """Functions that make arrays of this kind by DLPack."""
    if hasattr(old, "__array_namespace__"):
        space = old.__array_namespace__()
        if hasattr(space, "from_dlpack"):
            yield space.from_dlpack
    library = importlib.import_module(type(old).__module__.split(".")[0])
    if hasattr(library, "from_dlpack"):
        yield library.from_dlpack
