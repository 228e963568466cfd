"""Properties that are computed once."""

from __future__ import annotations

import functools
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


class cached_property(functools.cached_property[_T]):
    """``functools.cached_property`` without its lock, as it is from Python 3.12.

    Before, all objects of a class share one lock for each property. If a thread holds it while
    another thread forks, it is held for ever in the child.
    """

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        name = cast("str", self.attrname)
        values = instance.__dict__
        # Threads that compute at the same time get one value.
        return values[name] if name in values else values.setdefault(name, self.func(instance))
