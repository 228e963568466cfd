"""The base class of all augmentations."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from hsipack.augment._apply import Applicable
from hsipack.augment._arguments import number


class Augmentation(Applicable):
    """The base class of all augmentations: a name with options, which can be called.

    ``p`` is the share of samples that are augmented; it is drawn for every sample by itself. An
    augmentation that is called alone draws its seed as an AugmentationSequential without seed. To
    choose a seed, or the fill value of masks, put it into an AugmentationSequential.
    """

    op: ClassVar[str] = ""
    """Name of the augmentation in the configuration."""

    def __init__(self, *, data_keys: Sequence[Any] | None = None, **options: Any) -> None:
        super().__init__(data_keys)
        given = {name: value for name, value in options.items() if value is not None}
        if not isinstance(p := given.get("p", 1.0), int | float):
            given["p"] = number("p", p)
        self._config = {"op": self.op, **given}

    def config(self) -> dict[str, Any]:
        """Returns the configuration: ``op`` and the options, plain data as on
        the page Augmentations of the documentation.
        """
        return copy.deepcopy(self._config)

    def to_json(self) -> str:
        """Returns the configuration of a list of only this augmentation, as JSON."""
        return json.dumps({"ops": [self._config]})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Augmentation) and self._config == other._config

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        options = (f"{name}={value!r}" for name, value in self._config.items() if name != "op")
        return f"{self._config['op']}({', '.join(options)})"
