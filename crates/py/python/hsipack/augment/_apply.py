"""Passes arrays and tensors to the native library and back.

The arguments of a call are split into an image, named masks, a function that puts the results
together again (``Call``), and the ids of the samples. The native library does the rest.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np

from hsipack import _arrays, _boxes, _hsipack, _options, _seeds, _torch
from hsipack._arrays import is_array
from hsipack._errors import ArgumentTypeError, ConflictError, UnsupportedError
from hsipack.augment import _processes
from hsipack.augment._arguments import plain

# A NumPy array, a torch tensor, or any array that supports DLPack.
Array: TypeAlias = Any
AnyArray = TypeVar("AnyArray")
Masks: TypeAlias = Array | Mapping[str, Array]
# Ids of the samples, or (id, number of the crop).
Ids: TypeAlias = int | Array | Sequence[int] | Sequence[tuple[int, int]]

# Wavelengths, widths and validity of bands.
_Spectrum: TypeAlias = tuple[tuple[float, ...], tuple[float, ...] | None, tuple[bool, ...] | None]

_IMAGE_KEYS = ("input", "image")
_IMAGE_TYPES = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
_MASK_TYPES = (*_INTEGERS, "bool")
# Of masks and targets.
_TYPES = (*_MASK_TYPES, *_IMAGE_TYPES)


class Applicable:
    """An object that can be called with images and masks."""

    def __init__(self, data_keys: Sequence[Any] | None = None) -> None:
        self.counter = 0
        """How many samples without ids were augmented so far; restore it, with the same seed, to
        continue with the same draws."""
        self.mixed: list[dict[str, list[Any]]] = []
        """Which samples the last call mixed: for every augmentation that mixes, the position in the
        batch of each sample's partner (``partners``), and the partner's share from 0 to 1
        (``shares``).
        """
        self._drawn: str | None = None
        # The native pipeline and its seed.
        self._pipeline: tuple[int, _hsipack.Pipeline] | None = None
        # The native pipeline for images with bands, and what it was made from.
        self._of_bands: tuple[_hsipack.Pipeline, _Spectrum, _hsipack.Pipeline] | None = None
        # The seed that was drawn, if none was given.
        self._own_seed: int | None = None
        # Distinguishes this augmentation from others; its copies have the same.
        self._lineage = os.urandom(8)
        # Copies in child processes that received them many times count samples together.
        self._shared: list[int] | None = None
        self._keys = None if data_keys is None else _known_keys(data_keys)
        # For tests: "torch" makes torch compute in the host's memory, too.
        self._through: str | None = None

    def to_json(self) -> str:
        """The configuration that the library reads."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """Returns the configuration as plain data."""
        raise NotImplementedError

    @property
    def parameters(self) -> dict[str, Any] | None:
        """The random parameters of the last call, as plain data for JSON and for ``replay``; None
        before the first call.

        ``frame`` has the rows, columns and bands of the images before augmentation. ``steps`` has
        for every augmentation its ``op``, and what was ``drawn`` for each sample of the batch (null
        if it was not applied).
        """
        return None if self._drawn is None else json.loads(self._drawn)

    @overload
    def __call__(
        self,
        batch: Mapping[str, Any],
        /,
        *,
        ids: Ids | None = ...,
        epoch: int | None = ...,
        mask_keys: Sequence[str] | None = ...,
        image_keys: Sequence[str] | None = ...,
    ) -> dict[str, Any]: ...
    @overload
    def __call__(
        self, image: AnyArray, /, *, ids: Ids | None = ..., epoch: int | None = ...
    ) -> AnyArray: ...
    @overload
    def __call__(
        self,
        image: Array,
        /,
        *masks: Masks,
        ids: Ids | None = ...,
        epoch: int | None = ...,
        image_keys: Sequence[str] | None = ...,
    ) -> tuple[Any, ...]: ...
    def __call__(
        self,
        image: Array | Mapping[str, Any],
        /,
        *masks: Masks,
        ids: Ids | None = None,
        epoch: int | None = None,
        mask_keys: Sequence[str] | None = None,
        image_keys: Sequence[str] | None = None,
    ) -> Any:
        """Draws random parameters and augments images and masks. The arguments are not changed.

        The random parameters of a sample depend on the seed, on ``epoch`` and on the sample's id.
        Without ``ids``, a counter numbers the samples, so every call draws new parameters. Workers
        of a DataLoader and other child processes then draw different parameters, too; the page
        Augmentations says which runs are reproducible. In the host's memory, hsipack computes the
        result itself. On a device, it uses the installed torch.

        Args:
            image: (B, C, H, W) or (C, H, W), floating point: a NumPy array, a torch tensor on any
                device, or an array of any library that supports DLPack (JAX, CuPy). Or, instead of
                image and masks, a dictionary as the loader or the dataset gives it. The image, the
                masks and the boxes are then replaced in a copy of the dictionary.
            *masks: integers or booleans, (B, H, W) or (B, layers, H, W); without B if the image has
                no B. The first is called ``mask``, the others ``mask1``, ``mask2`` … To give masks
                other names, for augmentations that use a mask by its name, give a dictionary of
                masks by name. In a dictionary, arrays of floats are targets: geometric
                augmentations interpolate them like the image, and NaN stays where the nearest pixel
                is NaN.
            ids: id of each sample, or (id, number of the crop). With ``epoch``, the ids of a
                dictionary are used if ``ids`` is ``None``.
            epoch: number of the epoch; 0 if ``None``.
            mask_keys: keys of the masks and targets in a dictionary. If ``None``, every integer or
                boolean array with the rows and columns of the image is a mask, and every array of
                floats a target.
            image_keys: keys of further images, in the dictionary of a batch or of masks: (B, bands,
                H, W) floats, also with a whole number of times as many rows and columns as the
                image, or as few. Geometric augmentations move them over the same ground,
                augmentations of values leave them. If ``None``, there are none.

        Returns:
            Images, masks and dictionaries of the same kind as the arguments; after a crop they have
            other rows and columns.

        Raises:
            ConflictError: if shapes, element types or options do not fit.
            UnsupportedError: if the image needs gradients.
        """
        if epoch is not None:
            epoch = _options.natural("epoch", epoch, least=0)
        call = _taken_apart(image, masks, mask_keys, image_keys, self._keys)
        self.check_masks([name for name, _ in call.masks])
        keys = self._given_keys(call, ids, epoch)
        samples = self._next_keys(call) if keys is None else keys
        process = _processes.of_process() if keys is None else ()
        native = self._for_bands(self._native(process), call)
        if call.boxes:
            native.check_boxes()
        made, self._drawn = native.augment(
            *call.native(), epoch or 0, samples, _torch.threads(), self._through
        )
        return self._made(call, native, *made)

    def replay(
        self,
        image: Array | Mapping[str, Any],
        /,
        *masks: Masks,
        parameters: Mapping[str, Any] | None = None,
        mask_keys: Sequence[str] | None = None,
        image_keys: Sequence[str] | None = None,
    ) -> Any:
        """Augments again with known parameters: ``parameters``, or those of the last call if
        ``None``.

        The other arguments and the result are the same as for a call.

        Raises:
            ConflictError: if there are no parameters, or if they were drawn for other
                augmentations, another image size or another number of samples.
        """
        drawn = self._drawn if parameters is None else json.dumps(parameters)
        if drawn is None:
            raise ConflictError("nothing was drawn yet", remedy="call first, or give parameters")
        call = _taken_apart(image, masks, mask_keys, image_keys, self._keys)
        # Known parameters need no seed.
        native = _hsipack.Pipeline(self.to_json()) if self._pipeline is None else self._pipeline[1]
        native = self._for_bands(native, call)
        made = native.replay(*call.native(), drawn, _torch.threads(), self._through)
        self._drawn = drawn
        return self._made(call, native, *made)

    def check_masks(self, names: Sequence[str], *, all_read: bool = False) -> None:
        """Refuses options for masks that are not in ``names``."""

    def _made(
        self,
        call: Call,
        native: _hsipack.Pipeline,
        image: _hsipack.Array,
        masks: list[_hsipack.Array],
        mixed: list[tuple[list[int], list[float]]],
    ) -> Any:
        self.mixed = [{"partners": partners, "shares": shares} for partners, shares in mixed]
        made = call.put_together(image, masks, self.mixed)
        assert self._drawn is not None
        if call.boxes:
            made |= _boxes.moved(call.boxes, native, self._drawn, call.batched)
        if isinstance(made, dict) and (resampled := native.resampled_bands()) is not None:
            made |= _resampled(made, resampled)
        if isinstance(made, dict) and (bands := native.bands(self._drawn)) is not None:
            made |= _bands_of(made, bands, call.batched)
        return made

    def _native(self, process: _processes.Key = ()) -> _hsipack.Pipeline:
        """The native pipeline, with the seed for a process with this key."""
        seed = _processes.mixed(self._seed(), process)
        if self._pipeline is None or self._pipeline[0] != seed:
            config = json.loads(self.to_json())
            self._pipeline = seed, _hsipack.Pipeline(json.dumps({**config, "seed": seed}))
        return self._pipeline[1]

    def _for_bands(self, native: _hsipack.Pipeline, call: Call) -> _hsipack.Pipeline:
        """The native pipeline for images with the bands of a dictionary, if it resamples them."""
        if call.spectrum is None or not native.resamples_bands():
            return native
        spectrum = _spectrum_of(call.spectrum)
        if self._of_bands is None or self._of_bands[:2] != (native, spectrum):
            self._of_bands = native, spectrum, native.with_bands(*spectrum)
        return self._of_bands[2]

    def _seed(self) -> int:
        """The seed that was given, or one that is drawn at the first use."""
        if self._own_seed is None:
            self._own_seed = _seeds.drawn()
        return self._own_seed

    def _given_keys(
        self, call: Call, ids: Ids | None, epoch: int | None
    ) -> list[tuple[int, int]] | None:
        count = int(call.image.shape[0])
        if ids is not None:
            return _keys_of(ids, count)
        if epoch is not None and call.ids is not None:
            return _keys_of(call.ids, count)
        return None

    def _next_keys(self, call: Call) -> list[tuple[int, int]]:
        with _processes.COUNTING.lock:
            first = self.counter
            if self._shared is not None:
                # Another copy may have used these numbers.
                first = max(first, self._shared[0])
            last = self.counter = first + int(call.image.shape[0])
            if self._shared is not None:
                self._shared[0] = last
        return [(number, 0) for number in range(first, last)]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pipeline": None, "_of_bands": None, "_shared": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A pool sends the same object with every task. Its copies must not draw the same numbers.
        if key := _processes.of_process():
            self._shared = _shared_count(key, self._lineage)


@functools.lru_cache(maxsize=4096)
def _shared_count(process: _processes.Key, lineage: bytes) -> list[int]:
    """How many samples the copies of one augmentation have numbered in a child process."""
    return [0]


@dataclass(frozen=True)
class Call:
    """The arguments of a call, as batches."""

    # (B, C, H, W)
    image: Array
    # Names, and (B, H, W) or (B, layers, H, W).
    masks: list[tuple[str, Array]]
    # Makes the result from the new image, the new masks, and which samples were mixed.
    assemble: Callable[[Array, list[Array], list[dict[str, list[Any]]]], Any]
    # Whether there was an axis of samples.
    batched: bool
    # The ids of the samples, from a dict.
    ids: Ids | None = None
    # The boxes of a dict, and their labels.
    boxes: Mapping[str, Any] = field(default_factory=dict)
    # Names of the further images among the masks.
    further: Sequence[str] = ()
    # The dict, if it has the wavelengths of its images.
    spectrum: Mapping[str, Any] | None = None

    def native(self) -> tuple[Any, list[tuple[str, Any, bool]]]:
        image = _arrays.native(self.image)
        return image, [
            (name, _arrays.native(mask), name in self.further) for name, mask in self.masks
        ]

    def put_together(
        self,
        image: _hsipack.Array,
        masks: list[_hsipack.Array],
        mixed: list[dict[str, list[Any]]],
    ) -> Any:
        given = [self.image, *(mask for _, mask in self.masks)]
        made = [_arrays.like(old, new) for old, new in zip(given, (image, *masks), strict=True)]
        if not self.batched:
            made = [array[0] for array in made]
        return self.assemble(made[0], made[1:], mixed)


def _taken_apart(
    image: Array | Mapping[str, Any],
    masks: Sequence[Masks],
    mask_keys: Sequence[str] | None,
    image_keys: Sequence[str] | None,
    data_keys: Sequence[str] | None,
) -> Call:
    further = () if image_keys is None else _options.names("image_keys", image_keys)
    if isinstance(image, Mapping):
        if masks:
            raise ConflictError(
                "masks are given both in a dict and beside it", remedy="put the masks into the dict"
            )
        return _of_dict(image, mask_keys, further)
    if mask_keys is not None:
        remedy = "give masks as {name: mask}"
        raise ConflictError("mask_keys needs a dict of image and masks", remedy=remedy)
    if data_keys is not None and len(data_keys) != 1 + len(masks):
        raise ConflictError(
            f"{1 + len(masks)} arguments for data_keys = {list(data_keys)}",
            remedy="give one argument for every key, or leave data_keys out",
        )
    return _of_arguments(image, masks, further)


def _of_arguments(image: Array, masks: Sequence[Masks], further: Sequence[str]) -> Call:
    batched = _batched(image)
    named: list[tuple[str, Array]] = []
    for place, mask in enumerate(masks):
        plain = {f"mask{place or ''}": mask} if is_array(mask) else mask
        if not isinstance(plain, Mapping):
            raise ArgumentTypeError(
                f"a mask has the type {type(mask).__name__}", remedy="give arrays, or {name: array}"
            )
        # Class ids as floats are a common mistake, so targets need a name.
        types = _MASK_TYPES if is_array(mask) else _TYPES
        named.extend(
            (name, _named(name, labels, image, further, types)) for name, labels in plain.items()
        )
    if lacking := sorted({*further} - {name for name, _ in named}):
        raise ConflictError(
            f"there are no arrays {lacking}, which image_keys names",
            remedy="give them by their names: {name: array}",
        )
    twice = {name for name, _ in named if sum(name == other for other, _ in named) > 1}
    if twice:
        raise ConflictError(
            f"several masks have the name {sorted(twice)}", remedy="name every mask once"
        )

    def assemble(new: Array, labels: list[Array], _: Any) -> Any:
        rest = iter(labels)
        back = [
            next(rest) if is_array(mask) else {name: next(rest) for name in mask} for mask in masks
        ]
        return (new, *back) if back else new

    return Call(
        _batch(image, batched), _batches(named, batched), assemble, batched, further=further
    )


def _of_dict(
    batch: Mapping[str, Any], mask_keys: Sequence[str] | None, further: Sequence[str]
) -> Call:
    image = batch.get("image")
    if not is_array(image):
        remedy = "give a dict with the images as `image`, or arrays"
        raise ConflictError(f"the dict has no image, only {sorted(batch)}", remedy=remedy)
    batched = _batched(image)
    missing = [key for key in (*(mask_keys or ()), *further) if not is_array(batch.get(key))]
    if missing:
        raise ConflictError(
            f"the dict lacks the arrays {missing}", remedy=f"name some of {sorted(batch)}"
        )
    found = [key for key in batch if key != "image" and _is_mask(batch[key], image)]
    masks = found if mask_keys is None else mask_keys
    keys = [*(key for key in masks if key not in further), *further]
    named = [(key, _named(key, batch[key], image, further)) for key in keys]

    def assemble(new: Array, labels: list[Array], mixed: list[dict[str, list[Any]]]) -> Any:
        out = {**batch, "image": new, **dict(zip(keys, labels, strict=True))}
        return {**out, "mixed": mixed} if mixed else out

    ids = _ids_of(batch, batched)
    boxes = {key: batch[key] for key in _boxes.KEYS if key in batch and _boxes.BOXES in batch}
    arrays = _batches(named, batched)
    spectrum = batch if is_array(batch.get("wavelength")) else None
    return Call(_batch(image, batched), arrays, assemble, batched, ids, boxes, further, spectrum)


def _spectrum_of(batch: Mapping[str, Any]) -> _Spectrum:
    """What a batch says about its bands: the same for all its images."""
    lists: list[Any] = []
    for key in ("wavelength", "fwhm", "band_valid"):
        given = batch.get(key)
        if not is_array(given):
            lists.append(None)
            continue
        values = np.nan_to_num(np.asarray(given.cpu() if _torch.is_tensor(given) else given))
        if values.ndim == 2 and (values == values[:1]).all():
            values = values[0]
        if values.ndim != 1:
            raise ConflictError(
                f"{key} has shape {values.shape} and differs between the images of a batch",
                remedy="resample images with the same bands in one call",
            )
        lists.append(tuple(values.tolist()))
    wavelengths, fwhm, valid = lists
    return wavelengths, fwhm, valid


def _resampled(batch: Mapping[str, Any], bands: _hsipack._Bands) -> dict[str, Any]:
    """What a batch says about the bands that its images have once they are resampled."""
    wavelengths, fwhm, valid = bands
    made: dict[str, Any] = {"wavelength": np.array(wavelengths, dtype=np.float32)}
    if "fwhm" in batch or fwhm is not None:
        widths = np.array([math.nan] * len(wavelengths) if fwhm is None else fwhm, np.float32)
        made["fwhm"] = np.where(widths > 0, widths, np.float32("nan"))
    made["band_valid"] = np.array(valid, dtype=np.bool_)
    given = batch.get("band_valid")
    if given is not None and is_array(given) and len(given.shape) == 2:
        made["band_valid"] = np.repeat(made["band_valid"][None], len(batch["image"]), axis=0)
    if _torch.is_tensor(batch["image"]):
        return {key: _torch.load().from_numpy(values) for key, values in made.items()}
    return made


def _bands_of(batch: Mapping[str, Any], bands: list[list[int]], batched: bool) -> dict[str, Any]:
    """The bands of each image that were drawn, and what a batch says about these bands."""
    chosen = np.array(bands, dtype=np.int64)
    made: dict[str, Any] = {"bands": chosen if batched else chosen[0]}
    for key in ("wavelength", "fwhm", "band_valid"):
        values = batch.get(key)
        if is_array(values):
            host = np.asarray(values)
            every = host if host.ndim == 2 else np.broadcast_to(host, (len(chosen), *host.shape))
            gathered = np.take_along_axis(every, chosen, axis=1)
            is_same = host.ndim == 1 and bool((chosen == chosen[0]).all())
            made[key] = gathered[0].copy() if is_same or not batched else gathered
    if _torch.is_tensor(batch["image"]):
        return {key: _torch.load().from_numpy(values) for key, values in made.items()}
    return made


def _ids_of(batch: Mapping[str, Any], batched: bool) -> Ids | None:
    """(id, crop) of the samples. Without numbers of crops, their positions distinguish them."""
    if "id" not in batch:
        return None
    if not batched:
        return [(int(batch["id"]), 0)]
    ids = [int(number) for number in batch["id"]]
    crops = batch.get("repeat")
    if crops is not None:
        return [(sample, int(crop)) for sample, crop in zip(ids, crops, strict=True)]
    if "window" not in batch:
        return ids
    places = [(int(window[0]), int(window[1])) for window in batch["window"]]
    return [(sample, row << 32 | column) for sample, (row, column) in zip(ids, places, strict=True)]


def _batched(image: Any) -> bool:
    if not is_array(image):
        raise ArgumentTypeError(
            f"the image has the type {type(image).__name__}",
            remedy="give a NumPy array, a tensor, or any array that supports DLPack",
        )
    is_float = _type(image) in _IMAGE_TYPES
    if len(image.shape) not in (3, 4) or not is_float:
        raise (ConflictError if is_float else ArgumentTypeError)(
            f"the image has shape {tuple(image.shape)} and type {image.dtype}",
            remedy="give (B, C, H, W) or (C, H, W), float16, bfloat16, float32 or float64",
        )
    if _torch.is_tensor(image):
        _check_tensor(image)
    return len(image.shape) == 4


def _check_tensor(image: Any) -> None:
    """Refuses torch tensors that cannot be augmented."""
    torch = _torch.load()
    if image.layout != torch.strided or image.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"the image is on {image.device} with layout {image.layout}",
            remedy="give a dense tensor on the CPU or a CUDA device",
        )
    if image.requires_grad and torch.is_grad_enabled():
        raise UnsupportedError(
            "the image needs gradients, which augmentations do not support",
            remedy="give image.detach(), or call under torch.no_grad()",
        )


def _type(array: Any) -> str:
    """The name of an array's element type."""
    return str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch.")


def _place(array: Any) -> str:
    """Where an array is, as torch names it."""
    if _torch.is_tensor(array):
        return str(array.device)
    return "cpu" if _arrays.on_host(array) else f"cuda:{array.__dlpack_device__()[1]}"


def _named(
    name: str, array: Any, image: Array, further: Sequence[str], types: Sequence[str] = _TYPES
) -> Array:
    """A mask, a target or a further image, checked."""
    if name not in further:
        return _mask(name, array, image, types)
    is_image = is_array(array) and len(array.shape) == len(image.shape)
    if is_image and _type(array) in _IMAGE_TYPES and _place(array) == _place(image):
        return array
    shown = (
        f"shape {tuple(array.shape)} and type {array.dtype}, on {_place(array)}"
        if is_array(array)
        else f"the type {type(array).__name__}"
    )
    raise ConflictError(
        f"the further image {name} has {shown}",
        remedy="give floats (B, bands, H, W) beside a batch of images, on the same device",
    )


def _mask(name: str, mask: Any, image: Array, types: Sequence[str] = _TYPES) -> Array:
    if _is_mask(mask, image) and _type(mask) in types and _place(mask) == _place(image):
        return mask
    what = f"mask {name} has the type {type(mask).__name__}"
    if is_array(mask):
        shape = tuple(mask.shape)
        what = f"mask {name} has shape {shape} and type {mask.dtype}, on {_place(mask)}"
    batched = len(image.shape) == 4
    wanted = "(B, H, W) or (B, layers, H, W)" if batched else "(H, W) or (layers, H, W)"
    raise ConflictError(
        f"{what}, which does not fit images of shape {tuple(image.shape)} on {_place(image)}",
        remedy=f"give {wanted}: integers or booleans (mask.long()), or a target of floats by its "
        "name: {name: target}",
    )


def _is_mask(value: Any, image: Array) -> bool:
    if not is_array(value) or _type(value) not in _TYPES:
        return False
    shape, frame = tuple(value.shape), tuple(image.shape)
    return (
        len(shape) in (len(frame) - 1, len(frame))
        and shape[-2:] == frame[-2:]
        and (len(frame) == 3 or shape[0] == frame[0])
    )


def _batch(array: Array, batched: bool) -> Array:
    return array if batched else array[None]


def _batches(masks: list[tuple[str, Array]], batched: bool) -> list[tuple[str, Array]]:
    return [(name, _batch(mask, batched)) for name, mask in masks]


def _keys_of(ids: Ids, count: int) -> list[tuple[int, int]]:
    given = plain(ids)
    listed = given if isinstance(given, list) else [given]
    keys = [_key(entry) for entry in listed]
    if len(keys) != count:
        raise ConflictError(f"{len(keys)} ids for {count} samples", remedy="give one for each")
    return keys


def _key(entry: Any) -> tuple[int, int]:
    if not isinstance(entry, list):
        return _options.natural("ids", entry, least=0), 0
    if len(entry) != 2:
        raise _options.wrong_type(
            "ids", entry, "give numbers, or pairs (number, which of its crops)"
        )
    sample, crop = (_options.natural("ids", one, least=0) for one in entry)
    return sample, crop


def _known_keys(data_keys: Sequence[Any]) -> list[str]:
    keys = [str(getattr(key, "name", key)).lower() for key in data_keys]
    if keys and keys[0] in _IMAGE_KEYS and all(key == "mask" for key in keys[1:]):
        return keys
    raise UnsupportedError(
        f"data_keys = {keys} cannot be used",
        remedy='give ["input", "mask", …]: an image, then masks; labels are mixed with mix_labels',
    )
