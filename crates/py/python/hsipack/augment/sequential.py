"""Lists of augmentations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, overload

from hsipack import _hsipack, _options
from hsipack._errors import (
    ArgumentTypeError,
    ConflictError,
    Error,
    FileError,
    MalformedError,
    UnsupportedError,
)
from hsipack.augment import _arguments as read
from hsipack.augment import geometric, mixing, values
from hsipack.augment._apply import Applicable
from hsipack.augment._augmentation import Augmentation

Config: TypeAlias = Mapping[str, Any]
_DEFAULTS: dict[str, Any] = {
    "seed": None,
    "fuse": True,
    "mask_fill": 0,
    "kornia": "0.9",
    "arrays": None,
}


class AugmentationSequential(Applicable):
    """Applies augmentations one after the other to images and their masks.

    Arguments of Kornia's class that are not listed here are refused.

    Args:
        *augmentations: augmentations of this module, or configurations ({"op": "hflip", …}).
        seed: seed of all random draws. If ``None``, a loader uses its own seed. In calls, the seed
            is then drawn at the first call: from torch's global generator if torch is imported,
            otherwise from NumPy's. So ``torch.manual_seed`` makes calls reproducible.
        fuse: combine consecutive geometric augmentations into one warp. If False, each of them
            resamples, as in Kornia.
        mask_fill: value of masks outside the image, in erased rectangles and in hidden patches; a
            number, or a dictionary of numbers by mask name.
        kornia: "0.8" follows the older arithmetic of warps.
        arrays: names of the images whose values augmentations change, such as ``["image",
            "before"]``; the others are further images of a batch. If ``None``, only ``image``.
            Augmentations that move pixels move all images.
        data_keys: Kornia's names for the arguments of a call: an image, then masks. If ``None``,
            any number of masks may be given.
        keepdim: ignored: images always keep their number of dimensions.

    Raises:
        MalformedError: if a configuration is invalid.
        UnsupportedError: for arguments of Kornia that have no counterpart.

    >>> import torch
    >>> from hsipack.augment import RandomAffine, RandomHorizontalFlip
    >>> augment = AugmentationSequential(RandomHorizontalFlip(), RandomAffine(45), seed=7)
    >>> image, mask = augment(torch.rand(6, 7, 20, 24), torch.zeros(6, 20, 24, dtype=torch.uint8))
    >>> image.shape, mask.shape
    (torch.Size([6, 7, 20, 24]), torch.Size([6, 20, 24]))
    """

    def __init__(
        self,
        *augmentations: Augmentation | Config,
        seed: int | None = None,
        fuse: bool = True,
        mask_fill: int | Mapping[str, int] = 0,
        kornia: str = "0.9",
        arrays: Sequence[str] | None = None,
        data_keys: Sequence[Any] | None = None,
        same_on_batch: bool | None = None,
        keepdim: bool | None = None,
        random_apply: Any = False,
        random_apply_weights: Any = None,
        transformation_matrix_mode: str = "silent",
        extra_args: Any = None,
    ) -> None:
        super().__init__(data_keys)
        read.each_by_itself(same_on_batch)
        if random_apply is not False or random_apply_weights is not None:
            remedy = "leave it out; p of every augmentation says how often it is applied"
            raise UnsupportedError(f"random_apply = {random_apply!r}", remedy=remedy)
        if extra_args is not None:
            remedy = (
                "leave it out; masks take the nearest pixel, mask_fill says what surrounds them"
            )
            raise UnsupportedError("extra_args", remedy=remedy)
        self._augmentations = [_augmentation(entry) for entry in augmentations]
        if seed is not None:
            seed = _options.whole("seed", seed, "give a whole number, or None")
        fill = dict(mask_fill) if isinstance(mask_fill, Mapping) else mask_fill
        self._options: dict[str, Any] = {
            "seed": seed,
            "fuse": fuse,
            "mask_fill": fill,
            "kornia": kornia,
            "arrays": None if arrays is None else _options.names("arrays", arrays),
        }
        # Checks the options.
        _hsipack.Pipeline(self.to_json())

    def _seed(self) -> int:
        given: int | None = self._options["seed"]
        return super()._seed() if given is None else given

    def check_masks(self, names: Sequence[str], *, all_read: bool = False) -> None:
        """Refuses a ``mask_fill`` for a mask that is not in ``names``.

        It is refused if ``names`` are all masks that will be read (``all_read``), or if one of them
        has no ``mask_fill`` and may have been meant.

        Raises:
            ConflictError: names the unknown mask.
        """
        fill = self._options["mask_fill"]
        if not isinstance(fill, dict) or not (names or all_read):
            return
        unknown = [name for name in fill if name not in names]
        if unknown and (all_read or any(name not in fill for name in names)):
            raise ConflictError(
                f"mask_fill names {', '.join(map(repr, unknown))}, which is not a mask here",
                remedy=f"the masks are {', '.join(names)}" if names else "there are no masks",
            )

    def config(self) -> dict[str, Any]:
        """Returns the configuration: ``ops``, ``seed``, ``fuse``, ``mask_fill``, ``kornia``, and
        ``arrays`` if they were given; plain data as on the page Augmentations of the documentation.
        The seed is None if none was given.
        """
        config = {**self._options, "ops": [entry.config() for entry in self._augmentations]}
        if config["arrays"] is None:
            del config["arrays"]
        return config

    def _with_seed(self, seed: int | None) -> AugmentationSequential:
        """The same augmentations with a seed, unless they have one."""
        if seed is None or self._options["seed"] is not None:
            return self
        options = {**self._options, "seed": seed, "data_keys": self._keys}
        return AugmentationSequential(*self._augmentations, **options)

    def to_json(self) -> str:
        """Returns the configuration as JSON. ``hsipack preview --augment`` reads it, too."""
        return json.dumps(self.config(), indent=2)

    def __len__(self) -> int:
        return len(self._augmentations)

    def __iter__(self) -> Iterator[Augmentation]:
        return iter(self._augmentations)

    @overload
    def __getitem__(self, index: int) -> Augmentation: ...
    @overload
    def __getitem__(self, index: slice) -> AugmentationSequential: ...
    def __getitem__(self, index: int | slice) -> Augmentation | AugmentationSequential:
        """Returns one of the augmentations. A slice is an AugmentationSequential with the same
        options.
        """
        if isinstance(index, slice):
            return AugmentationSequential(*self._augmentations[index], **self._options)
        return self._augmentations[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AugmentationSequential) and self.config() == other.config()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        options = (
            f"{name}={value!r}" for name, value in self._options.items() if value != _DEFAULTS[name]
        )
        return f"AugmentationSequential({', '.join([*map(repr, self._augmentations), *options])})"


Augmentations: TypeAlias = (
    AugmentationSequential | Augmentation | Sequence[Augmentation | Config] | Config | str | Path
)
"""A description of augmentations: see ``sequential``."""


def from_config(
    config: Sequence[Augmentation | Config] | Config | str | Path,
) -> AugmentationSequential:
    """Reads a configuration of augmentations.

    Args:
        config: a list of augmentations, or a dictionary with ``ops`` and any of ``seed``, ``fuse``,
            ``mask_fill``, ``kornia`` and ``arrays``, with the defaults of AugmentationSequential;
            or one of these as JSON text; or the path of a JSON file.

    Raises:
        FileError: if the file does not exist.
        MalformedError: if it is not a valid configuration. The error says where.

    >>> from_config('[{"op": "hflip", "p": 1.0}]')
    AugmentationSequential(hflip(p=1.0))
    """
    return sequential(config)


def sequential(augmentations: Augmentations, *, seed: int | None = None) -> AugmentationSequential:
    """Makes an AugmentationSequential from any description of augmentations.

    Args:
        augmentations: an augmentation, a list of augmentations or of configurations, or anything
            that ``from_config`` reads. An AugmentationSequential that has a seed is returned as it
            is.
        seed: the seed, unless ``augmentations`` has its own; None as for AugmentationSequential.

    >>> sequential([{"op": "hflip"}], seed=3)
    AugmentationSequential(hflip(), seed=3)
    """
    if isinstance(augmentations, AugmentationSequential):
        return augmentations._with_seed(seed)
    if isinstance(augmentations, Augmentation):
        return AugmentationSequential(augmentations, seed=seed)
    if isinstance(augmentations, str) and augmentations.lstrip()[:1] in ("[", "{"):
        return _made(_parsed(augmentations), seed)
    if isinstance(augmentations, (str, Path)):
        return _of_file(Path(augmentations), seed)
    return _made(augmentations, seed)


def to_config(augmentations: Augmentations) -> dict[str, Any]:
    """Returns the complete configuration of any description of augmentations, as plain data.

    Args:
        augmentations: as for ``sequential``.

    >>> to_config([{"op": "hflip", "p": 1.0}])["ops"]
    [{'op': 'hflip', 'p': 1.0}]
    """
    return sequential(augmentations).config()


def _of_file(path: Path, seed: int | None) -> AugmentationSequential:
    try:
        return _made(_parsed(path.read_text(encoding="utf-8")), seed)
    except OSError as error:
        remedy = "give the path of a JSON file, a list, or JSON that begins with [ or {"
        raise FileError(error.strerror or str(error), path=str(path), remedy=remedy) from error
    except MalformedError as error:
        raise MalformedError(error.what, path=str(path), remedy=error.remedy) from error


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        remedy = 'give a list such as [{"op": "hflip", "p": 0.5}]'
        raise MalformedError(
            f"this is not a list of augmentations: {error}", remedy=remedy
        ) from error


def _made(
    config: Sequence[Augmentation | Config] | Config, seed: int | None
) -> AugmentationSequential:
    if isinstance(config, Sequence):
        return AugmentationSequential(*config, seed=seed)
    if not isinstance(config, Mapping):
        raise _foreign(config)
    unknown = sorted(set(config) - set(_DEFAULTS) - {"ops"})
    if unknown or "ops" not in config:
        what = f"the configuration has {unknown}" if unknown else "the configuration lacks ops"
        remedy = f"give ops, and optionally {', '.join(_DEFAULTS)}"
        raise MalformedError(what, remedy=remedy)
    options = {name: value for name, value in config.items() if name != "ops"}
    if options.get("seed") is None:
        options["seed"] = seed
    try:
        return AugmentationSequential(*config["ops"], **options)
    except ArgumentTypeError as error:
        raise MalformedError(f"the configuration has {error.what}", remedy=error.remedy) from error


def _augmentation(entry: Augmentation | Config) -> Augmentation:
    if isinstance(entry, Augmentation):
        return entry
    if isinstance(entry, AugmentationSequential):
        raise UnsupportedError(
            "an AugmentationSequential cannot contain another one",
            remedy="unpack it: *augmentations",
        )
    if not isinstance(entry, Mapping):
        raise _foreign(entry)
    # The options stay as they are: the native library checks them and adds the defaults.
    kind = _CLASSES.get(str(entry.get("op")), Augmentation)
    made = kind.__new__(kind)
    Augmentation.__init__(made)
    made._config = json.loads(json.dumps(dict(entry)), parse_constant=_constant)
    return made


def _constant(name: str) -> float | None:
    """Reads NaN as None: JSON has no NaN, so null stands for it in a list of numbers."""
    return None if name == "NaN" else float(name)


def _foreign(thing: object) -> Error:
    """The error for an augmentation of another library, or for any other object."""
    if isinstance(thing, (str, int, float, type(None))):
        return ArgumentTypeError(
            f"{_options.shown(thing)} is not an augmentation",
            remedy='give augmentations of hsipack.augment, or configurations {"op": "hflip"}',
        )
    return UnsupportedError(
        f"{type(thing).__module__}.{type(thing).__name__} is not an augmentation of hsipack",
        remedy="take the class of the same name from hsipack.augment, or call yours in your loop",
    )


def _classes() -> dict[str, type[Augmentation]]:
    found: dict[str, type[Augmentation]] = {}
    for module in (geometric, mixing, values):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Augmentation) and kind.op:
                found.setdefault(kind.op, kind)
    return found


_CLASSES = _classes()
