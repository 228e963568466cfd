"""Arguments that had other names: the error of an old name tells the new one."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from hsipack._errors import ArgumentTypeError

P = ParamSpec("P")
R = TypeVar("R")


def arguments(**new: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes a function refuse arguments by the names that they had, as ``old="new"``."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        refuse = _refuse

        def call(*positional: P.args, **named: P.kwargs) -> R:
            refuse(function, named, new)
            return function(*positional, **named)

        # With the globals of the function, so that doctest finds its examples in its module.
        plain = cast(types.FunctionType, call)
        of_module = cast(types.FunctionType, function).__globals__
        wrapper = types.FunctionType(plain.__code__, of_module, closure=plain.__closure__)
        functools.update_wrapper(wrapper, function)
        # The function itself reads its defaults there.
        wrapper.__kwdefaults__ = cast(types.FunctionType, function).__kwdefaults__
        return cast("Callable[P, R]", wrapper)

    return decorate


def constructor(kind: type, **new: str) -> None:
    """Does the same for the arguments of a class."""
    initialize = arguments(**new)(kind.__init__)  # type: ignore[misc]
    setattr(kind, "__init__", initialize)  # noqa: B010


def _refuse(
    function: Callable[..., Any], named: Mapping[str, object], new: Mapping[str, str]
) -> None:
    """Raises an error if an argument has an old name."""
    for old in named:
        if old in new:
            name = function.__qualname__.removesuffix(".__init__")
            raise ArgumentTypeError(f"{name} has no argument {old}", remedy=f"write {new[old]}=…")
