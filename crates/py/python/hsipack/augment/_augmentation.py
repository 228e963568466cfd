"""What all augmentations have in common."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from hsipack.augment._apply import Applicable


class Augmentation(Applicable):
    """One augmentation: its name, its options, and with them the right to be called.

    Called by itself it draws with seed 0; put it into an AugmentationSequential to choose another
    seed, or what masks are filled with.
    """

    op: ClassVar[str] = ""
    """Its name in the configuration."""

    def __init__(self, *, data_keys: Sequence[Any] | None = None, **options: Any) -> None:
        super().__init__(data_keys)
        given = {name: value for name, value in options.items() if value is not None}
        self._config = {"op": self.op, **given}

    def config(self) -> dict[str, Any]:
        """The configuration: ``op`` and the options, plain data as in docs/augmentations.md."""
        return copy.deepcopy(self._config)

    def to_json(self) -> str:
        """The configuration of a list of this one, as JSON."""
        return json.dumps({"ops": [self._config]})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Augmentation) and self._config == other._config

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        options = (f"{name}={value!r}" for name, value in self._config.items() if name != "op")
        return f"{self._config['op']}({', '.join(options)})"
