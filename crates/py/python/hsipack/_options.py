"""Checks of options. If an option is wrong, the error names it."""

from __future__ import annotations

import math
import operator
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from hsipack import _torch
from hsipack._errors import ArgumentTypeError, ConflictError, FileError

if TYPE_CHECKING:
    import torch

Indices: TypeAlias = Union[Sequence[int], Sequence[bool], slice, npt.NDArray[Any], "torch.Tensor"]
"""A choice of things: their numbers, a slice, or a boolean for each thing."""

_SHOWN = 60


def wrong(name: str, value: object, remedy: str) -> ConflictError:
    """The error for an option with a wrong value."""
    return ConflictError(f"{name}={shown(value)}", remedy=remedy)


def wrong_type(name: str, value: object, remedy: str) -> ArgumentTypeError:
    """The error for an option whose value has the wrong type."""
    return ArgumentTypeError(f"{name}={shown(value)}", remedy=remedy)


def shown(value: object) -> str:
    """A value as text for an error: its repr if it is short, otherwise its type."""
    text = repr(value)
    if len(text) <= _SHOWN and "\n" not in text:
        return text
    return f"{type(value).__name__}(…)"


def flag(name: str, value: object) -> bool:
    """True or False."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise wrong_type(name, value, "give True or False")


def natural(name: str, value: object, *, least: int = 1, most: int = (1 << 63) - 1) -> int:
    """A whole number from ``least`` to ``most``."""
    number = whole(name, value)
    if number < least:
        raise wrong(name, value, f"give a number from {least} on")
    if number > most:
        raise wrong(name, value, f"give a number up to {most}")
    return number


def whole(name: str, value: object, remedy: str = "give a whole number") -> int:
    """A whole number, from Python, NumPy or torch."""
    if not _is_bool(value):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, RuntimeError):
            pass
    raise wrong_type(name, value, remedy)


def position(
    value: object, length: int, what: str = "samples", remedy: str = "give a whole number"
) -> int:
    """The position of a sample among ``length``. A negative one counts from the end."""
    place = whole("index", value, remedy)
    if -length <= place < length:
        return place % length
    numbers = f"are numbered 0 to {length - 1}" if length else "do not exist"
    raise IndexError(f"there is no sample {place}: {what} {numbers}")


def number(name: str, value: object) -> float:
    """A number, which may be NaN or infinite."""
    if not isinstance(value, str | bytes) and not _is_bool(value):
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            raise wrong(name, value, "give a number") from None
        except (TypeError, ValueError, RuntimeError):
            pass
    raise wrong_type(name, value, "give a number")


def finite(name: str, value: object) -> float:
    """A finite number."""
    given = number(name, value)
    if math.isfinite(given):
        return given
    raise wrong(name, value, "give a finite number")


def text(name: str, value: object, example: str = "") -> str:
    """Any text."""
    if isinstance(value, str):
        return value
    raise wrong_type(name, value, f"give a text{f', such as {example!r}' if example else ''}")


def choice(name: str, value: object, choices: Sequence[str]) -> str:
    """One of several texts."""
    if isinstance(value, str) and value in choices:
        return value
    remedy = f"give one of {', '.join(choices)}"
    if isinstance(value, str):
        raise ConflictError(f"unknown {name} {value!r}", remedy=remedy)
    raise wrong_type(name, value, remedy)


def names(name: str, value: object) -> list[str]:
    """A list of texts; a single text becomes a list of one."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes):
        given = list(value)
        if all(isinstance(one, str) for one in given):
            return given
    raise wrong_type(name, value, "give a name, or a list of names")


def path(name: str, value: object) -> str:
    """A path as text."""
    if isinstance(value, str | os.PathLike):
        given = os.fspath(value)
        if not isinstance(value, str) and re.match(r"(s3|gs|az|https?):/[^/]", str(given)):
            raise wrong_type(name, value, "give the URL as text: a path drops one of its slashes")
        if isinstance(given, str):
            return given
    if hasattr(value, "to_csv"):
        remedy = f"write it to a file first, with .to_csv('table.csv'), and give {name}='table.csv'"
        raise wrong_type(name, value, remedy)
    raise wrong_type(name, value, "give a path: text or a pathlib.Path")


def absolute_path(name: str, value: object) -> str:
    """A path as text, from the root of the file system, for paths that are kept for later: a
    program may change its working directory in between, as Hydra does. URLs stay as they are.
    """
    given = path(name, value)
    if not given or "://" in given or pathlib.Path(given).is_absolute():
        return given
    try:
        here = pathlib.Path.cwd()
    except FileNotFoundError as error:
        raise FileError(
            "the current directory, where this relative path starts, no longer exists",
            path=given,
            remedy="change to a directory that exists, or give an absolute path",
        ) from error
    # Symbolic links and ".." stay as they are.
    return str(here / given)


def storage(options: object) -> list[tuple[str, str]] | None:
    """Settings of a server as (name, text). Errors never show their values."""
    if options is None:
        return None
    if not isinstance(options, Mapping):
        what = f"storage_options of type {type(options).__name__}"
        raise ArgumentTypeError(what, remedy="give names and values in a dictionary")
    settings = []
    for name, value in options.items():
        if isinstance(value, bool):
            value = str(value).lower()
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            what = f"storage_options[{name!r}] of type {type(value).__name__}"
            raise ArgumentTypeError(what, remedy="give text, a number or a boolean")
        settings.append((name, str(value)))
    return settings


def pixels(name: str, value: object, *, least: int = 1) -> tuple[int, int]:
    """(rows, columns), each at least ``least``; one number stands for both."""
    remedy = f"give {name}=(rows, columns) in pixels, or one number for a square"
    several = isinstance(value, Sequence | np.ndarray) or _torch.is_tensor(value)
    if several and not isinstance(value, str):
        if len(value) != 2:  # type: ignore[arg-type]
            raise wrong(name, value, remedy)
        rows, columns = value  # type: ignore[misc]
    else:
        rows = columns = value
    most = (1 << 32) - 1
    try:
        return (
            natural(name, rows, least=least, most=most),
            natural(name, columns, least=least, most=most),
        )
    except ArgumentTypeError:
        raise wrong_type(name, value, remedy) from None
    except ConflictError:
        raise wrong(name, value, remedy) from None


def dtype(name: str, value: object) -> str:
    """``float32`` for ``torch.float32``, ``numpy.float32`` and ``"float32"``."""
    torch = _torch.imported()
    if torch is not None and isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, str):
        return value.removeprefix("torch.")
    try:
        if value is not None:
            return np.dtype(value).name  # type: ignore[call-overload, no-any-return]
    except TypeError:
        pass
    raise wrong_type(name, value, "give an element type, such as float32")


@dataclass(frozen=True)
class Device:
    """A device: its type, as torch names it, and its number, or None if none was given."""

    type: str
    index: int | None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


_OTHER_DEVICES = ("hpu", "meta", "mps", "mtia", "xla", "xpu")


def device(name: str, value: object) -> Device:
    """A device, from a text, a number or a torch device."""
    if hasattr(value, "type") and hasattr(value, "index"):
        value = str(value)
    if isinstance(value, int) and not _is_bool(value) and value >= 0:
        return Device("cuda", value)
    if isinstance(value, str):
        found = re.fullmatch(r"([a-z]+)(?::(\d+))?", value)
        if found is not None and found[1] in ("cpu", "cuda", *_OTHER_DEVICES):
            return Device(found[1], None if found[2] is None else int(found[2]))
    remedy = 'give "cpu", "cuda" or "cuda:0"'
    if isinstance(value, str) or (isinstance(value, int) and not _is_bool(value)):
        raise wrong(name, value, remedy)
    raise wrong_type(name, value, remedy)


def indices(
    name: str,
    value: object,
    length: int,
    things: str,
    *,
    negative: bool = False,
    where: str = "",
    at: str | None = None,
) -> list[int]:
    """Positions in a list of ``length`` things, from numbers from 0, a slice, or a mask with one
    boolean for every thing. Accepts lists, NumPy arrays and torch tensors.

    Args:
        name: name of the option.
        value: value of the option.
        length: number of things.
        things: name of the things, such as ``bands``.
        negative: whether numbers below 0 count from the end.
        where: where the things are, for errors, such as ``" in stack 20x24x7"``.
        at: the file concerned, for errors.
    """
    if isinstance(value, slice):
        try:
            return list(range(*value.indices(length)))
        except TypeError:
            raise wrong_type(name, value, "give a slice of whole numbers") from None
    given = elements(name, value, things, masks=True)
    if given and all(_is_bool(one) for one in given):
        return _of_mask(name, given, length, things, where, at)
    places = [_place(name, one, things) for one in given]
    for place in places:
        if not (-length if negative else 0) <= place < length:
            raise ConflictError(
                f"there is no {things.removesuffix('s')} {place}{where}",
                path=at,
                remedy=f"{things} are numbered from 0 to {length - 1}"
                if length
                else f"there are no {things}",
            )
    return [place + length if place < 0 else place for place in places]


def depends_on_length(value: object) -> bool:
    """Whether indices depend on the length of the list: a slice, or a mask."""
    if isinstance(value, slice):
        return True
    if hasattr(value, "dtype"):
        return str(value.dtype).removeprefix("torch.") in ("bool", "boolean")
    return isinstance(value, Sequence) and any(_is_bool(one) for one in value)


def elements(name: str, value: object, things: str, masks: bool = False) -> list[Any]:
    """The numbers or, if masks may be given, booleans of a list, or of an array or tensor with one
    axis.
    """
    booleans = ", or of booleans, one for each" if masks else ""
    remedy = f"give a list of numbers of {things}{booleans}"
    if _torch.is_tensor(value):
        value = value.detach().cpu().numpy()
    if hasattr(value, "dtype") and hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.size and array.dtype.kind not in "biuO":
            raise wrong_type(name, value, remedy)
        if array.ndim != 1:
            raise wrong(name, value, remedy)
        listed: list[Any] = array.tolist()
        return listed
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise wrong_type(name, value, remedy)
    given = list(value)
    if any(_is_bool(one) for one in given) and not all(_is_bool(one) for one in given):
        raise ArgumentTypeError(f"{name} has numbers and booleans", remedy=remedy)
    return given


def _of_mask(
    name: str, mask: list[Any], length: int, things: str, where: str, at: str | None
) -> list[int]:
    if len(mask) != length:
        raise ConflictError(
            f"{name} is a mask of {len(mask)} booleans for {length} {things}{where}",
            path=at,
            remedy=f"give one True or False for each of the {length}, or numbers",
        )
    return [place for place, chosen in enumerate(mask) if chosen]


def _place(name: str, value: Any, things: str) -> int:
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        remedy = f"give whole numbers of {things}, or booleans, one for each"
        raise ArgumentTypeError(f"{name} has {shown(value)} in it", remedy=remedy) from None


def _is_bool(value: object) -> bool:
    return isinstance(value, bool | np.bool_) or (
        _torch.is_tensor(value) and str(value.dtype) == "torch.bool"
    )
