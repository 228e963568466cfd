"""The loader, which streams batches."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import pathlib
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hsipack import (
    _boxes,
    _hsipack,
    _lightning,
    _members,
    _options,
    _ranks,
    _seeds,
    _torch,
    _torch_data,
    augment,
    loader_reports,
)
from hsipack._arrays import Output, chosen_output, given
from hsipack._concat import Concat, Mix
from hsipack._errors import (
    ArgumentTypeError,
    ConflictError,
    DeviceMemoryError,
    UnsupportedError,
)
from hsipack._extras import Extras
from hsipack._members import Member
from hsipack._options import Indices
from hsipack._torch_data import DataLoaderAttributes, DataLoaderOptions, Readable
from hsipack.crops import Crop, Regions, Size
from hsipack.dataset import Dataset, mask_key
from hsipack.loader_reports import LoaderReport, LoaderStats
from hsipack.stats import Stats

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Sampler
    from typing_extensions import Unpack

    from hsipack import _accelerate


Batch = dict[str, Any]


class Loader(DataLoaderAttributes):
    """Streams batches of a dataset, epoch after epoch.

    Threads decompress chunks directly into a ring of batches, which is allocated once, when the
    first batch is asked for. On the CPU nothing is copied. For a GPU, batches are copied in advance
    from page-locked memory. Each iteration over the loader is one epoch; the next iteration is the
    next epoch, in a new order if it is shuffled. A batch is a dictionary:

    ======= ===================================================================================
    image   (B, bands, rows, columns), channels_last: memory is (B, rows, columns, bands). For
            :class:`LabelledPatches` and :class:`Windows` of one pixel: spectra, (B, bands) (except
            with ``output="dlpack"``)
    MASK    one key for each mask: class ids (B, rows, columns), or boolean layers (B, layers, rows,
            columns)
    TARGET  one key for each target: float32 (B, rows, columns), or (B, channels, rows, columns),
            channels_last; NaN where a value is missing, and outside the cube if ``pad`` is a number
    IMAGE   one key for each further image: (B, bands, rows, columns), as stored, channels_last. An
            image of another resolution shows the same ground with more or fewer rows and columns
    label   (B,) int64: class numbers of the samples, see ``ds.label_names``; -1 without a label. If
            all labels are numbers and some are not whole: the labels, float64; NaN without a label.
            For :class:`LabelledPatches`, the class ids at the centres of the patches; for
            :class:`Regions`, the labels of the regions
    id      (B,) int64: ids of the samples, their numbers in the whole dataset
    name    list of the samples' names
    window  (B, 4) int64: first row, first column, number of rows and of columns that were read; the
            first row or column is negative if the window begins outside its cube
    region  with :class:`Regions`: (B, rows, columns) bool, on the images' device: whether a pixel
            belongs to the region; ``region_id`` (B,) int64 is the region's id in the mask
    inside  with :class:`WholeCubes`: (B, rows, columns) bool, on the images' device: whether a
            pixel belongs to the cube, not to the padding
    repeat  (B,) int64: the number of the crop among the crops of its sample in this epoch
    epoch   the epoch, counted from 0
    boxes   if the dataset has boxes: for each image (n, 4) float32, in a list: left, top, right and
            bottom in pixels of this image, as it was cut and augmented; ``box_labels``, a list of
            (n,) int64, are their classes, see ``ds.box_names``
    bands   with :class:`hsipack.augment.RandomBands`: (B, count) int64, which of the bands that are
            read each image has
    dataset with :func:`hsipack.concat` and :func:`hsipack.mix`: the number of the dataset that all
            samples are from; with the latter also ``source``, a list with its name for each sample
    padding (B,) bool: the sample is also in another batch of the epoch, and only fills up this one
            (see **Last batches**); leave it out when you compute validation metrics
    EXTRA   one key for each of ``extras``, see there
    COLUMN  one key for each column of ``ds.select(columns=…)``: (B,) int64, float64 or bool, or a
            list
    mixed   if augmentations mix samples: for each of them {"partners": [...], "shares": [...]}, the
            shares of the partners; :func:`hsipack.augment.mix_labels` mixes labels in the same way
    ======= ===================================================================================

    If the name of a mask or target is one of these keys, its key is ``mask_NAME``. Labels, ids and
    everything else that is not an image, a mask or a target are on the CPU, except where the table
    says otherwise.

    **Kept batches are never overwritten.** As long as you keep a tensor of a batch, its memory is
    not reused. On the CPU, batches are views of the ring. While you keep half of the ring's
    slots, further batches are copied. With ``copy=False`` batches are never copied; if you
    keep all slots, the next batch raises a ``ConflictError``.

    **Masks, boxes, columns and values** are chosen at the dataset, for ``ds[i]`` and batches alike:
    :meth:`Dataset.with_masks` says which masks are read, their new class ids and their type,
    :meth:`Dataset.with_boxes` which boxes are read, and :meth:`Dataset.select` which columns are
    added, whether values are physical, and what replaces NaN. ``split`` and ``bands`` can be given
    here, too. Images are converted, normalised and augmented in this order: physical values,
    ``normalize``, NaN, ``augment``.

    **Last batches.** All ranks get the same number of batches; otherwise training would hang. The
    samples that do not fill a batch on every rank (counted for each cube shape, if there are
    several) are treated as follows:

    ========= =================================================================================
    "short"   They are divided evenly over the ranks. The last batches are smaller, and their sizes
              differ by at most one sample. If there are fewer samples than ranks, each rank
              without a sample gets one ``padding`` sample
    "drop"    They are left out of this epoch, on all ranks. There is no padding
    "pad"     The last batch of every rank is filled up to ``batch_size`` with ``padding`` samples
    ========= =================================================================================

    **Errors.** A batch that cannot be read or augmented raises an error once, and counts: the next
    ``next()`` gives the next batch, and :meth:`state_dict` is the position after the failed one.

    **Several processes.** Rank, world size and device are looked up when the length or the first
    batch is asked for, so a loader can be made before the process group, and be pickled to the
    processes of a group. An epoch that one rank leaves before its end, for example because it looks
    at one batch alone, counts only if all ranks leave or finish it; otherwise this rank begins it
    again. Ranks compare their epochs through the store of the process group. If ``rank`` is given
    and there is no process group, only loaders of the same process are compared.

    **Threads and signal handlers.** Only one thread may iterate. State, statistics, reports and
    lengths can be read in other threads and in signal handlers at any time.

    Arguments of torch's ``DataLoader`` that a loader does not need (``num_workers``,
    ``pin_memory``, ``collate_fn``, …) raise an error that says what to do instead.

    Args:
        dataset: a dataset, the path of one, the result of :func:`hsipack.concat`, or a torch
            ``Subset`` (``random_split``) or ``ConcatDataset`` of parts of one dataset. The loader
            reads its samples, masks, bands and columns, in its order. The dataset's ``dtype`` and
            ``output`` are ignored: give them to the loader. A dataset with a ``transform`` is
            refused.
        batch_size: samples in a batch of this rank (crops, if cubes are cropped).
        shuffle: read the samples in a new order every epoch, over all ranks.
        seed: seed for order, crops and augmentations. If ``None``, it is drawn once, from torch's
            global generator if torch is imported, otherwise from NumPy's: ``torch.manual_seed`` and
            ``seed_everything`` decide it. All ranks use the seed that rank 0 drew; if there is no
            process group to agree through, the seed is 0. :meth:`report` and :meth:`state_dict`
            have it, and a state brings its seed along.
        device: where to put batches: ``"cpu"``, ``"cuda"`` or ``"cuda:0"``. If ``None``, the
            CUDA device that is current when the first batch is asked for, if there is one (never
            for NumPy arrays), otherwise the CPU.
        dtype: element type of images: float16, bfloat16 (not for NumPy arrays), float32 or
            float64. Images that are stored as integers and read with ``physical=False`` come as
            these integers with float16, and as numbers of the other types.
        crop: (rows, columns) of random windows, or a :class:`RandomCrop`, :class:`CenterCrop`,
            :class:`GridCrop`, :class:`LabelledPatches`, :class:`Regions` or :class:`Windows`; or
            :class:`WholeCubes`. With :class:`LabelledPatches` and :class:`Regions`, batches have
            masks only if the dataset names them.
        augment: augmentations (see :mod:`hsipack.augment`), as a list or an
            ``AugmentationSequential``. They run on the device of the batch; on a GPU they need
            torch.
        sampler: ``"class_balanced"`` (classes take turns), ``"groups_spread"`` (samples of one
            group lie far apart), ``"groups_together"`` (samples of one group come together), a
            weight for every sample, or one of torch's Random-, Sequential-, SubsetRandom- and
            WeightedRandomSampler (the last with replacement). Weights and the indices of a torch
            sampler refer to the samples that are read: those of ``dataset`` or, with ``split``, of
            this split. The order is drawn from ``seed``; samplers with a ``generator`` are refused.
        last: what to do with samples that do not fill a last batch; see above.
        epoch_length: samples in an epoch over all ranks. If ``None``, every sample once.
        rank: number of this process among those that train together, from 0. If ``None``, taken
            from ``torch.distributed`` if it is initialised, or else from the environment variables
            ``RANK`` and ``WORLD_SIZE`` (as torchrun sets them), otherwise 0.
        world_size: how many processes train together. If ``None``, like ``rank``; otherwise 1.
        split: read only samples of this split, or of these splits.
        bands: bands to read, numbered from 0, in this order; or a slice, or a boolean for every
            band. If ``None``, those of the dataset.
        normalize: ``"standardize"`` uses the statistics of the dataset: those of its split
            ``train`` if it has one, otherwise those of all samples, of cubes of every size with the
            same bands; see :meth:`report`.
            ``(mean, std)`` standardises with your own numbers, one for each band that is read; NaN
            leaves a band unchanged. An :class:`hsipack.Stats`, such as
            ``dataset.compute_stats()``, stands for its mean and std. ``"l1"``, ``"l2"`` and
            ``"snv"`` normalise each spectrum: they ignore NaN and infinite values, which become
            NaN. If the divisor is 0, the values become 0.
        num_threads: number of decoding threads; one per core if ``None``.
        slots: number of batches in the ring (in use, ready, or being filled); at least 2.
        copy: whether to copy batches while many are kept; see above.
        cache: keep chunks in memory from the first epoch on. ``"compressed"`` saves reading,
            ``"decoded"`` saves reading and decoding. ``"auto"`` keeps all chunks decoded if they
            fit into half of the free memory (container limits count; processes that torchrun
            started on this machine share it); otherwise those of a ``shuffle_window``, if there is
            one; otherwise all chunks as stored, if these fit; otherwise none. :meth:`report` says
            which, and why. ``None`` keeps none.
        cache_size: maximum bytes of the cache; required for ``"compressed"`` and ``"decoded"``.
        shuffle_window: how many windows of ``crop`` to shuffle together. ``"all"`` shuffles all
            windows of the epoch. A number of bytes is for data that do not fit into memory: only
            the windows of as many cubes, or parts of cubes, as take this many bytes decoded are
            shuffled together, and each chunk is decoded about once per epoch. ``"auto"`` shuffles
            the whole epoch if it fits into the cache. Otherwise it uses ``cache_size`` or, if that
            is 0, a quarter of the machine's memory, rounded down to a power of two. With several
            processes, ``"auto"`` shuffles the whole epoch, because all of them must use the same
            size. The order depends on the size: give a number to get the same order on other
            machines.
        on_damage: ``"error"``, or ``"skip"`` to leave out samples with damaged chunks and count
            them. A batch without a readable sample becomes one ``padding`` sample, so that all
            ranks get as many batches as planned.
        output: ``"torch"``, ``"numpy"`` (CPU only), or ``"dlpack"`` for :class:`hsipack.Array`,
            which other libraries can import. If ``None``, torch tensors if torch is installed,
            otherwise NumPy arrays.

    Keyword Args:
        decode: which processor decodes chunks if batches are on a GPU: ``"host"`` or ``"device"``.
            With ``"device"``, chunks are copied as they are stored and the GPU decodes them: LZ4
            with elements of 1, 2 or 4 bytes, in batches for which that takes fewer bytes; the CPU
            decodes the rest. Then ``cache="auto"`` keeps nothing of whole cubes in memory. This was
            not run on a GPU yet, so ``"auto"`` is ``"host"``.
        device_cache: samples to keep in the memory of a GPU, so that batches are gathered there and
            nothing of them is copied again: ``"decoded"``, or ``"compressed"`` (needs
            ``decode="device"``). If not all samples fit, a fixed part of them is kept. ``"auto"``
            keeps them decoded if all fit, otherwise compressed if all fit, otherwise a part;
            nothing if the CPU decodes, because this was not run on a GPU yet. ``None`` keeps none.
            Loaders of a process share what they keep of a dataset. If the GPU runs out of memory
            while the loader makes a batch, what is kept is released, and :meth:`report` says so.
        device_cache_size: the most bytes that these samples take; if 0, a quarter of the GPU's
            memory that is free when the first batch is asked for.
        extras: more keys of batches, as a list of names:

            ========== ========================================================================
            wavelength (bands,) float32, nm, of the bands of the images; (B, bands) if the
                       images of a batch differ or are filled up (:class:`Pad`);
                       ``fwhm`` likewise
            band_valid (B, bands) bool: whether a band has values and is not marked as bad
            valid      (B, rows, columns) bool, on the images' device: whether a pixel has
                       finite values in all valid bands, before NaN is replaced; after
                       ``Resample``, in all bands that the new ones are made of. Augmentations
                       move it like a mask, and places outside the image are False
            gsd        (B,) float32: ground sampling distance in metres, of the column ``gsd``
                       or the location; NaN if unknown
            time       (B,) float64: seconds since 1970, of the column ``time``; NaN if unknown
            sensor     list of the values of the column ``sensor``; None if unknown
            lonlat     (B, 2) float64: longitude and latitude of the centre of the window that
                       was read; NaN if unknown. Projected positions need pyproj
            ========== ========================================================================
        quality: with ``extras=["valid"]``: a mask that excludes pixels where it is not 0, or
            ``{mask: [...]}`` with the names of layers, or with class ids, that exclude pixels.

    Short-cuts: ``columns``, ``nan`` and ``physical`` are arguments of :meth:`Dataset.select`;
    ``masks``, ``remap_classes``, ``other_class``, ``layers`` and ``mask_dtype`` of
    :meth:`Dataset.with_masks`; ``targets`` of :meth:`Dataset.with_targets`; ``boxes`` and
    ``min_visible`` of :meth:`Dataset.with_boxes`; ``pad=…`` is short for
    ``crop=WholeCubes(pad=…)``.

    Raises:
        ConflictError: if options contradict each other or the dataset.
        DeviceError: if the device cannot be used, or fails.
        FileError: if there is not enough memory for the ring.
        UnsupportedError: if torch is missing, but needed for the output or to compute on a device.

    >>> loader = Loader(dataset_path, 4, shuffle=True, seed=1, device="cpu", split="train")
    >>> len(loader)
    3
    >>> for batch in loader:
    ...     print(tuple(batch["image"].shape), batch["label"].tolist())
    (4, 7, 20, 24) [0, 1, 0, 1]
    (4, 7, 20, 24) [0, 0, 1, 0]
    (1, 7, 20, 24) [0]
    >>> loader.epoch
    1
    >>> loader.close()
    """

    # Whether this rank reads for itself, without comparing epochs with other ranks.
    _is_alone = False
    # The same loader on the other ranks.
    _peers: _ranks.Peers | None = None
    # The result of concat, if the loader reads several datasets.
    _joined: Concat | None = None
    # The mask of regions, if it is read only to find their pixels.
    _hidden: str | None = None
    # Whether batches have boxes.
    _has_boxes = False

    def __init__(
        self,
        dataset: Readable | Concat,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | npt.DTypeLike = "float16",
        crop: Crop | Size | None = None,
        augment: augment.Augmentations | None = None,
        sampler: str | Sequence[float] | torch.Tensor | Sampler[Any] | None = None,
        last: str = "short",
        epoch_length: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        split: str | Sequence[str] | None = None,
        bands: Indices | None = None,
        normalize: str | tuple[npt.ArrayLike, npt.ArrayLike] | Stats | None = None,
        num_threads: int | None = None,
        slots: int = 4,
        copy: bool = True,
        cache: str | None = "auto",
        cache_size: int = 0,
        shuffle_window: int | str = "auto",
        on_damage: str = "error",
        output: Output | None = None,
        **others: Unpack[DataLoaderOptions],
    ) -> None:
        extras, quality = others.pop("extras", None), others.pop("quality", None)
        decode = others.pop("decode", "auto")
        device_cache = others.pop("device_cache", "auto")
        device_cache_size = others.pop("device_cache_size", 0)
        dataset, crop = _torch_data.short_cuts(others, dataset, crop)
        _torch_data.refuse(others)
        output = chosen_output(output, ("torch", "numpy", "dlpack"))
        self._joined = dataset if isinstance(dataset, Concat) else None
        is_mix = isinstance(dataset, Mix)
        if self._joined is not None and normalize == "standardize" and not is_mix:
            raise UnsupportedError(
                'normalize="standardize" is not supported for several datasets',
                remedy="give normalize=joined.stats, where joined is what concat gives",
            )
        reading = _members.of(
            dataset,
            split=split,
            bands=bands,
            crop=crop,
            shuffle=_options.flag("shuffle", shuffle),
            sampler=sampler,
            output=output,
            augments=augment is not None,
        )
        self._members = reading.members
        self._hidden = reading.hidden
        self._augmentations = _pipeline(
            augment, reading, crop.mask if isinstance(crop, Regions) else None
        )
        common = self._joined._common_bands if isinstance(self._joined, Mix) else None
        resample = _resample(self._augmentations)
        self._extras = Extras(extras, quality, reading, output, resample, common)
        self._has_boxes = any(member.boxes is not None for member in reading.members)
        first = reading.members[0]
        given_place = _ranks.checked(rank, world_size)
        length = reading.length if epoch_length is None else epoch_length
        self._seed_is_drawn = seed is None
        self._seed_is_agreed = seed is not None
        if seed is None:
            seed = _seeds.of_loader(given_place)
        seed = _options.natural("seed", seed, least=0, most=(1 << 64) - 1)
        threads = None if num_threads is None else _options.natural("num_threads", num_threads)
        place = given_place or _ranks.present()
        self._device_wanted = _device(device, output)
        self._settings: dict[str, Any] = {
            "batch_size": _options.natural("batch_size", batch_size),
            "order": reading.order,
            "seed": seed,
            "last": _options.choice("last", last, ("short", "drop", "pad")),
            "epoch_length": None if length is None else _options.natural("epoch_length", length),
            "rank": place.rank,
            "world_size": place.world_size,
            "masks": reading.masks,
            "targets": reading.targets,
            "images": reading.images,
            "threads": threads,
            "slots": _options.natural("slots", slots),
            "on_damage": _options.text("on_damage", on_damage),
            "is_mix": is_mix,
            "mixes_items": self._mixes_items,
            "common_bands": None if common is None else common.settings(),
            **_cache(first.dataset, cache, cache_size),
            "shuffle_window": _shuffle_window(shuffle_window),
            "decode": _options.choice("decode", decode, ("auto", "device", "host")),
            "device_cache": _device_cache(device_cache),
            "device_cache_size": _options.natural("device_cache_size", device_cache_size, least=0),
            # Known when the first batch is asked for.
            "device": None,
            "dtype": _image_type(dtype, output, first.dataset),
            "mask_dtype": first.dataset._mask_dtype,
            "layers": first.dataset._layers,
            "physical": any(member.dataset._physical for member in reading.members),
            "nan": first.dataset._nan,
            "valid": self._extras.wants_valid,
            "min_visible": first.dataset._min_visible if self._has_boxes else None,
            "normalize": _normalization(normalize),
            "copy": _options.flag("copy", copy),
            # See `start_trace`.
            "trace": False,
            # For hsipack.diagnose.
            "repeat": False,
            "emulated_bus": None,
            "pipeline": None,
            # Whether torch gets arrays on a device, and the threads that compute on the host.
            "torch": output == "torch",
            "computing_threads": _torch.threads(),
            # Those of the first dataset. The others have settings of their own for these.
            **first.settings,
        }
        _members.check(reading, self._augmentations, normalize)
        self._output: Output = output
        self._given_place = given_place
        self._start(None)
        if self._mixes_items:
            self._extras.use_valid(self._native.bands_in_batches())
        self._extras.use_resampled(self._native.resampled_bands())
        # Loaders of one rank alone are made by that rank only.
        self._number = 0 if given_place else _ranks.number_of(self._identity())
        self._announce_seed()
        if self._native.lacks_train_statistics():
            warnings.warn(
                f"{first.dataset.path} records no statistics of its train split: it is "
                "standardised by those of all samples; pack it again, or give "
                "normalize=part.compute_stats(), where part has the training samples",
                stacklevel=2,
            )

    def _start(self, state: str | None) -> None:
        """Makes the native loader, which has neither memory nor threads before its first batch."""
        self._use_seed(self._settings["seed"])
        self._native = self._make_native(state)
        self._reset_iterations()
        self._show_attributes()
        self._closed = False
        if self._given_place is not None:
            # Without a process group, only the ranks of loaders in this process are known.
            self._meet_peers(self._given_place)
        _LOADERS.add(self)

    def _make_native(self, state: str | None) -> _hsipack.Loader:
        datasets = [
            (member.dataset._native, self._settings | member.settings) for member in self._members
        ]
        weights = None if self._joined is None else self._joined.weights
        return _hsipack.Loader(datasets, weights, state)

    def _meet_peers(self, place: _ranks.Place) -> None:
        if place.world_size > 1 and not self._is_alone:
            self._peers = None
            self._peers = _ranks.Peers(place, self._identity(), self.seed)

    def _reset_iterations(self) -> None:
        # The place among the processes; None until it is needed.
        self._place: _ranks.Place | None = None
        self._settling = threading.RLock()
        self._peers = None
        # The iteration that gave the last batch: its number, and the epoch that it began. It may
        # have been left. An iteration keeps its loader alive, but not the other way round.
        self._iteration: int | None = None
        self._iteration_epoch: int | None = None
        self._iterations = 0
        # The number of batches that it gave.
        self._taken = 0
        self._arrived: list[dict[str, Any] | None] = []
        self._lengths: dict[int, int] = {}
        self._schedule = _lightning.Schedule()
        self._progress: _accelerate.Progress | None = None

    def _use_seed(self, seed: int) -> None:
        self._settings["seed"] = seed
        config = self._augmentations
        if config is not None:
            own = seed if config["seed"] is None else config["seed"]
            self._settings["pipeline"] = json.dumps({**config, "seed": own})

    def _settle(self) -> _ranks.Place:
        """Finds out rank, world size and device, before the length or the first batch is used."""
        with self._settling:
            if self._place is not None:
                _ranks.check_unchanged(self._place)
                return self._place
            place = self._given_place or _ranks.present()
            if place.world_size > 1 and self._given_place is None and not self._seed_is_agreed:
                self._agree_on_seed(place)
            self._move_to(place)
            if self._peers is None or not self._peers.is_current():
                self._meet_peers(place)
            self._place = place
            return place

    def _move_to(self, place: _ranks.Place) -> None:
        """Tells the native loader its place and its device."""
        device = _resolved(self._device_wanted, self._output)
        self._settings |= {"rank": place.rank, "world_size": place.world_size, "device": device}
        self._native.place(place.rank, place.world_size, device)

    def _announce_seed(self) -> None:
        """Tells the other ranks the seed that rank 0 drew, as soon as possible."""
        if self._given_place is None and not self._seed_is_agreed:
            place = _ranks.present()
            if place.source == _ranks.GROUP and place.rank == 0:
                self._agree_on_seed(place)

    def _agree_on_seed(self, place: _ranks.Place) -> None:
        """Takes over the seed that rank 0 drew."""
        drawn = self.seed
        seed = _ranks.seed_of_rank_0(place, self._identity(), self._number, drawn)
        if seed is None:
            # torchrun's processes before they have a process group.
            seed = 0
        if seed != drawn:
            self._renew(seed)
        self._seed_is_agreed = True

    def _renew(self, seed: int) -> None:
        """Begins with another seed."""
        epoch = self._native.epoch
        self._use_seed(seed)
        self._native = self._make_native(None)
        self._native.set_epoch(epoch)

    def _identity(self) -> str:
        """A text that is equal for the same loader on all ranks, whatever its seed is."""
        # Not the plan of the native loader, because patches may be drawn with the seed.
        digest = hashlib.sha256()
        for member in self._members:
            settings = self._settings | member.settings
            digest.update(member.dataset.fingerprint.encode())
            for name in _IDENTITY:
                value = settings[name]
                digest.update(value if isinstance(value, bytes) else f"{name}={value}".encode())
        return digest.hexdigest()[:24]

    # Batches.

    def __iter__(self) -> Iterator[Batch]:
        """Iterates over an epoch, or over the rest of one that was resumed.

        When a new iteration takes its first batch, it ends any older iteration over this loader. If
        the older one was left, before or after its last batch, the new one is the next epoch. With
        several ranks, an epoch that was left before its end counts only if all ranks left or
        finished it.
        """
        return _Epoch(self)

    def __len__(self) -> int:
        """The number of batches of this rank in this epoch, including those already given."""
        self._settle()
        epoch = self._native.epoch
        if epoch not in self._lengths:
            self._lengths = {epoch: self._native.batches_per_epoch()}
        return self._lengths[epoch]

    def __getitem__(self, index: object) -> Batch:
        """Refused: batches come in order."""
        raise UnsupportedError(
            "batches of a loader have no index",
            remedy="iterate over the loader itself; it needs no DataLoader around it. For samples "
            "by index, use the dataset: hsipack.open(path)[index]",
        )

    def _begin(self, iteration: _Epoch) -> None:
        """Moves to the start of the iteration, when its first batch is taken.

        Not earlier, because frameworks make iterators that they do not use. They also stop without
        asking for the end of an epoch.
        """
        _torch_data.refuse_workers()
        self._settle()
        if self._iteration is not None:
            if self.epoch == self._iteration_epoch:
                counts = self._peers is None or self._peers.counts(self.epoch, self._taken)
                self._go_to(self.epoch + counts)
            elif self._arrived != [None]:
                # All its batches were given, but nobody has asked for its end.
                self._arrived = []
                self._native.next(self._arrived)
            self._arrived = []
        self._end_iteration()
        if not self._is_alone:
            # Only loaders need it, and importing hsipack should take few modules.
            from hsipack import _accelerate

            self._progress = _accelerate.Progress()
        epoch, number = self.epoch, self._iterations + 1
        if self._peers is not None:
            self._peers.publish(epoch, _ranks.FIRST)
            self._peers.check(self._iterations)
        self._taken = 0
        # One statement, so that a signal handler that raises cannot come between.
        self._iterations, self._iteration, self._iteration_epoch, iteration.number = (
            number,
            number,
            epoch,
            number,
        )

    def _next(self, iteration: _Epoch) -> Batch:
        if iteration.number is None:
            self._begin(iteration)
        elif self._iteration != iteration.number and not self._closed:
            if iteration.is_complete:
                raise StopIteration
            if iteration.number == self._iterations:
                raise ConflictError(
                    "the loader was moved to another position during this iteration",
                    remedy="call set_epoch or load_state_dict before you begin an iteration",
                )
            raise ConflictError(
                "a newer iteration over this loader has begun",
                remedy="create one loader for each iteration",
            )
        # Signal handlers may raise as the call returns, or while the batch is put together. In both
        # cases the next call returns the batch.
        if not self._arrived:
            try:
                self._native.next(self._arrived)
            except DeviceMemoryError:
                # The same batch comes once more. torch may keep memory that it does not use.
                torch = _torch.imported()
                if torch is None or not torch.cuda.is_initialized():
                    raise
                torch.cuda.empty_cache()
                self._native.next(self._arrived)
        taken = self._arrived[0]
        if taken is None:
            self._finish()
            raise StopIteration
        iteration.is_complete = self.epoch != self._iteration_epoch
        self._taken += 1
        if self._taken == 2 and self._peers is not None and not iteration.is_complete:
            self._peers.publish(self.epoch, _ranks.READING)
        if self._progress is not None:
            self._progress.batch(is_last=iteration.is_complete)
        batch, self._arrived = self._batch(taken), []
        return batch

    def _finish(self) -> None:
        """Notes that the epoch is over."""
        epoch = self._iteration_epoch
        self._end_iteration()
        if epoch is not None:
            self._schedule.finished(epoch)
            if self._peers is not None:
                self._peers.publish(epoch, _ranks.FINISHED)

    def _end_iteration(self) -> None:
        """Ends the iteration that gave the last batch."""
        self._iteration, self._arrived = None, []
        if self._progress is not None:
            self._progress.end()
            self._progress = None

    def _left(self, number: int) -> None:
        """Notes that an iteration is gone, which may be before its end."""
        if self._iteration == number and self._progress is not None:
            self._progress.end()
        if self._iteration == number and self._peers is not None and not self._closed:
            epoch = self._iteration_epoch
            if epoch is not None:
                self._peers.publish(epoch, _ranks.LEFT if self.epoch == epoch else _ranks.FINISHED)

    @property
    def _mixes_items(self) -> bool:
        """Whether batches have samples of several datasets."""
        return isinstance(self._joined, Mix) and self._joined.batches == "any"

    def _batch(self, batch: dict[str, Any]) -> Batch:
        # The numbers of the datasets, and how many samples of each follow one another.
        runs: list[tuple[int, int]] = batch["datasets"]
        members = [self._members[number] for number, _ in runs]
        ids = np.frombuffer(batch["ids"], dtype=np.int64)
        parts = list(zip(members, _members.by_dataset(ids, runs), strict=True))
        image = given(batch["image"], self._output)
        if batch["spectra"] and self._output != "dlpack" and image.shape[2:] == (1, 1):
            image = image.reshape(image.shape[:2])
        made: Batch = {"image": image}
        masks = {name: given(mask, self._output) for name, mask in batch["masks"]}
        made.update({mask_key(name): mask for name, mask in masks.items() if name != self._hidden})
        if batch["regions"] is not None:
            made["region_id"] = self._numbers(batch["regions"])
            mask = masks[self._settings["regions"][0]]
            made["region"] = self._region(mask, made["region_id"])
        classes = _members.by_dataset(np.frombuffer(batch["labels"], dtype=np.int64), runs)
        labels = [
            own if member.labels is None else member.labels[own]
            for member, own in zip(members, classes, strict=True)
        ]
        made["label"] = self._host(_together(labels))
        made["id"] = self._host(ids)
        made["name"] = batch["names"]
        made["window"] = self._numbers(batch["windows"], shape=(-1, 4))
        if members[0].extents is not None:
            inside = [self._inside(member, own) for member, own in parts]
            made["inside"] = self._beside(image, _together(inside))
        made["repeat"] = self._numbers(batch["repeats"])
        made["epoch"] = batch["epoch"]
        made["padding"] = self._numbers(batch["padding"], dtype=np.bool_)
        if self._joined is not None:
            made["dataset"] = runs[0][0]
        if self._mixes_items:
            counts = [count for _, count in runs]
            made["dataset"] = self._host(np.repeat([number for number, _ in runs], counts))
        if isinstance(self._joined, Mix):
            names = self._joined.names
            made["source"] = [names[number] for number, count in runs for _ in range(count)]
        for name in members[0].columns:
            values = [member.columns[name] for member in members]
            if any(isinstance(one, list) for one in values):
                made[name] = [member.columns[name][one] for member, own in parts for one in own]
            else:
                chosen = [member.columns[name][own] for member, own in parts]
                made[name] = self._host(_together(chosen))
        drawn = self._drawn_bands(batch["bands"], len(ids))
        if drawn is not None:
            made["bands"] = self._host(drawn)
        if self._has_boxes:
            classes_of_boxes = [member.boxes for member in members]
            counts = [count for _, count in runs]
            made |= _boxes.of_items(batch["boxes"], classes_of_boxes, counts, self._output)
        self._extras.add(made, runs, ids, masks, drawn)
        if batch["mixed"]:
            made["mixed"] = [{"partners": one, "shares": two} for one, two in batch["mixed"]]
        return made

    def _drawn_bands(self, bands: bytearray | None, items: int) -> npt.NDArray[np.int64] | None:
        """The bands of each image, if augmentations drew them."""
        return None if bands is None else np.frombuffer(bands, dtype=np.int64).reshape(items, -1)

    def _inside(self, member: Member, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which pixels belong to the cubes, not to the padding."""
        assert member.extents is not None
        crop, extents = (self._settings | member.settings)["crop"], member.extents[ids]
        down = np.arange(crop["rows"]) < extents[:, :1]
        across = np.arange(crop["columns"]) < extents[:, 1:]
        inside: npt.NDArray[np.bool_] = down[:, :, None] & across[:, None, :]
        return inside

    def _beside(self, image: Any, values: npt.NDArray[Any]) -> Any:
        """An array on the images' device."""
        array = self._host(values)
        return array.to(image.device) if self._output == "torch" else array

    def _region(self, mask: Any, ids: Any) -> Any:
        """Which pixels of the windows belong to these regions, on the masks' device."""
        if self._output == "torch":
            # torch cannot compare uint16.
            mask, ids = mask.to(ids.dtype), ids.to(mask.device)
        return mask == ids[:, None, None]

    def _numbers(
        self,
        values: bytearray,
        dtype: type = np.int64,
        shape: tuple[int, ...] = (-1,),
    ) -> Any:
        """Numbers as an array that shares the memory of ``values``."""
        return self._host(np.frombuffer(values, dtype=dtype).reshape(shape))

    def _host(self, numbers: npt.NDArray[Any]) -> Any:
        return _torch.load().from_numpy(numbers) if self._output == "torch" else numbers

    # Position.

    @property
    def dataset(self) -> Any:
        """The dataset that the loader reads, or the result of :func:`hsipack.concat`."""
        return self._members[0].dataset if self._joined is None else self._joined

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._native.epoch

    @property
    def seed(self) -> int:
        """The seed of order, crops and augmentations. If it was drawn, the ranks agree on it when
        the first batch is asked for.
        """
        return int(self._settings["seed"])

    def set_epoch(self, epoch: int) -> None:
        """Moves to the start of an epoch: the next iteration is this epoch.

        You do not need this if the epochs follow each other.

        Args:
            epoch: number of the epoch, from 0.
        """
        self._go_to(_options.natural("epoch", epoch, least=0))

    def _go_to(self, epoch: int) -> None:
        self._end_iteration()
        self._native.set_epoch(epoch)
        # An epoch that was resumed may have another number of batches from its start.
        self._lengths = {}

    def _follow(self, epoch: int) -> None:
        """Moves to the epoch that Lightning says."""
        now, is_left = self.epoch, self._iteration is not None
        target = self._schedule.target(epoch, now, is_left and now == self._iteration_epoch)
        if target is not None:
            self.set_epoch(target)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position: after the last batch that you got, however many are ready.

        It is the same on every rank. :meth:`load_state_dict` resumes from it.

        >>> loader = Loader(dataset_path, 4, shuffle=True, device="cpu")
        >>> first = next(iter(loader))
        >>> state = loader.state_dict()
        >>> again = Loader(dataset_path, 4, shuffle=True, device="cpu")
        >>> again.load_state_dict(state)
        >>> len(list(again)), len(again)
        (2, 3)
        """
        state: dict[str, Any] = json.loads(self._state())
        return state

    def _state(self) -> str:
        # If a signal handler raised, a batch may have arrived that was not returned. It is still to
        # come.
        waits = bool(self._arrived) and self._arrived[0] is not None
        return self._native.state(waits)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Moves to the position of a state: the next iteration gives the rest of its epoch.

        Batch size, number of threads and world size may have changed since then: the remaining
        samples are divided again.

        Args:
            state: a dictionary that :meth:`state_dict` returned.

        Raises:
            ConflictError: if the state is from another dataset or, unless the loader drew its seed,
                from another seed; or, in the middle of an epoch, from other samples, order or
                crops. The loader then keeps its position.
                Samples may have been added to the dataset; an epoch that was begun before that
                needs the dataset as it was: ``hsipack.open(path, as_of=state["fingerprint"])``.
        """
        if not isinstance(state, Mapping):
            raise _options.wrong_type("state", state, "give what state_dict() gave")
        if "parts" in state:
            raise ConflictError(
                "the training state is of an earlier version, which read each dataset with a "
                "loader of its own",
                remedy=f"begin the epoch again: loader.set_epoch({state.get('epoch', 0)})",
            )
        text = json.dumps(dict(state))
        seed = state.get("seed")
        if self._seed_is_drawn and isinstance(seed, int) and seed != self._settings["seed"]:
            self._load_with_seed(text, seed)
        else:
            self._native.load_state(text)
        # All ranks go on from the same state, and have its seed.
        self._seed_is_agreed = True
        # Another seed may make other numbers of batches.
        self._lengths = {}
        self._end_iteration()

    def _load_with_seed(self, state: str, seed: int) -> None:
        """Goes on from a state with its seed, which nobody gave to this loader."""
        drawn, native = self._settings["seed"], self._native
        self._use_seed(seed)
        try:
            self._native = self._make_native(state)
        except BaseException:
            self._use_seed(drawn)
            raise
        native.close()
        with self._settling:
            # Rank and device are looked up again; the ranks read with this seed from now on.
            self._place, self._peers = None, None

    # Reports.

    def stats(self) -> LoaderStats:
        """Returns how the time was spent since the loader was made; see the page Statistics of the
        documentation.

        >>> loader = Loader(dataset_path, 4, device="cpu")
        >>> for batch in loader: pass
        >>> stats = loader.stats()
        >>> stats.batches, stats.loader.skipped, stats.waiting_s < 60
        (3, 0, True)
        """
        return loader_reports.made(LoaderStats, json.loads(self._native.stats_json()))

    def start_trace(self) -> None:
        """Records what every thread does, for :meth:`save_trace`; at most a million events (64 MB).

        Raises:
            ConflictError: if a batch was already asked for.
        """
        if self._iterations:
            raise ConflictError(
                "a trace begins with the first batch, which was already asked for",
                remedy="create another loader, and call start_trace() at once",
            )
        self._settings["trace"] = True
        self._native = self._make_native(self._state())
        if self._place is not None:
            self._move_to(self._place)

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of what every thread did since :meth:`start_trace`.

        https://ui.perfetto.dev and chrome://tracing show the file. It has a row for the consumer
        (waiting, step; on a GPU also augmentation), for the thread that copies to the GPU or
        prepares batches on the CPU, for the planner and for every decoder.

        Args:
            path: the file to write; an existing one is replaced.

        Raises:
            ConflictError: if :meth:`start_trace` was not called before the first batch.
        """
        path = pathlib.Path(path)
        part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            part.write_bytes(self._native.trace())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def report(self) -> LoaderReport:
        """Returns how the loader works, and what keeps it from being faster: its memory, transfer,
        cache, threads and seed, and where its rank comes from.

        >>> loader = Loader(dataset_path, 4, seed=3, device="cpu")
        >>> loader.report().seed, loader.report().cache.kind, loader.report().masks
        (3, 'decoded', ['labels', 'layers'])
        """
        values: dict[str, Any] = json.loads(self._native.report_json())
        place = {"seed": self.seed, "place": self._place}
        return loader_reports.made(LoaderReport, place | values)

    def close(self) -> None:
        """Stops the loader's threads and frees its memory. Batches that you keep stay valid, and so
        do state, statistics and report. If another thread waits for a batch, it gets an error.
        """
        self._closed = True
        self._native.close()
        self._end_iteration()
        self._peers = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return f"<hsipack.Loader of {self.dataset!r}, closed>"
        size, epoch = self._settings["batch_size"], self._native.epoch
        return f"<hsipack.Loader of {self.dataset!r}, batches of {size}, epoch {epoch}>"

    # Pickling: another process makes the loader again from its options and its position.

    def __getstate__(self) -> dict[str, Any]:
        own = {name: value for name, value in self.__dict__.items() if name not in _OF_PROCESS}
        return {"own": own, "state": self._state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["own"])
        self._start(state["state"])


def _together(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Arrays one after the other, without a copy if there is only one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


# Fields that stay behind if a loader is pickled or copied.
_OF_PROCESS = frozenset(
    {
        "_native",
        "_place",
        "_settling",
        "_peers",
        "_iteration",
        "_iteration_epoch",
        "_iterations",
        "_taken",
        "_arrived",
        "_lengths",
        "_schedule",
        "_progress",
        "_closed",
        *_torch_data.SHOWN,
    }
)

# Settings that the loaders of all ranks share.
_IDENTITY = (
    *("batch_size", "order", "last", "epoch_length", "is_mix", "mixes_items"),
    *("crop", "patches", "regions", "samples", "weights"),
)


class _Epoch(Iterator[Batch]):
    """One iteration over a loader."""

    def __init__(self, loader: Loader) -> None:
        self._loader: Loader | None = loader
        # None before its first batch.
        self.number: int | None = None
        # Whether it gave its last batch. It may not have been asked for its end.
        self.is_complete = False

    def __next__(self) -> Batch:
        if self._loader is None:
            raise StopIteration
        try:
            return self._loader._next(self)
        except StopIteration:
            self._loader = None
            raise

    def __del__(self) -> None:
        # Other ranks may wait for this.
        if self._loader is not None and self.number is not None:
            with contextlib.suppress(Exception):
                self._loader._left(self.number)


# Threads that use CUDA have to end before the interpreter exits. Other threads of the program must
# not return from calls of the native part while it exits: see src/exit.rs.
_LOADERS: weakref.WeakSet[Loader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    _hsipack.end_calls()
    for loader in list(_LOADERS):
        # Not `close`: another thread may be in a call of the loader. Does nothing to loaders of the
        # parent process (after a fork).
        loader._native.close_at_exit()
        loader._closed = True


def _device(device: torch.device | str | int | None, output: Output) -> str | int:
    """The device that is asked for: ``"any"``, ``"cpu"``, ``"cuda"`` (the current one), or the
    number of a CUDA device.
    """
    if device is None:
        return "cpu" if output == "numpy" else "any"
    place = _options.device("device", device)
    if place.type == "cpu":
        return "cpu"
    if output == "numpy":
        raise ConflictError(
            "NumPy arrays are on the CPU", remedy='choose device="cpu", or output="dlpack"'
        )
    if place.type != "cuda":
        raise UnsupportedError(f"batches cannot be on {place}", remedy='choose "cpu" or "cuda"')
    return "cuda" if place.index is None else int(place.index)


def _resolved(device: str | int, output: Output) -> int | None:
    """The number of a CUDA device, or None for the CPU."""
    if device == "cpu":
        return None
    if isinstance(device, int):
        return device
    current = _current_device(output)
    return current if device == "any" else current or 0


def _current_device(output: Output) -> int | None:
    """The number of torch's current CUDA device or, without torch, of the first device; None
    without a CUDA device.
    """
    torch = _torch.load() if output == "torch" else _torch.imported()
    if torch is None:
        return 0 if _hsipack.cuda_is_available() else None
    return int(torch.cuda.current_device()) if torch.cuda.is_available() else None


def _image_type(dtype: object, output: Output, dataset: Dataset) -> str:
    """The name of images' element type."""
    name = _options.dtype("dtype", dtype)
    if name == "float16" and dataset._raw_type is not None:
        return dataset._raw_type
    if name == "bfloat16" and output == "numpy":
        raise ConflictError(
            "NumPy has no bfloat16", remedy='give dtype="float32", or output="torch" or "dlpack"'
        )
    return name


def _normalization(
    normalize: str | tuple[npt.ArrayLike, npt.ArrayLike] | Stats | None,
) -> str | tuple[list[float], list[float]] | None:
    if isinstance(normalize, Stats):
        normalize = (normalize.mean, normalize.std)
    if normalize is None or isinstance(normalize, str):
        return normalize
    remedy = 'give "standardize", "l1", "l2", "snv", (mean, std), or an hsipack.Stats'
    if not isinstance(normalize, tuple | list):
        raise _options.wrong_type("normalize", normalize, remedy)
    if len(normalize) != 2:
        raise _options.wrong("normalize", normalize, remedy)
    mean, std = (_floats(figures) for figures in normalize)
    return mean, std


def _floats(figures: Any) -> list[float]:
    """Numbers for the bands, from an array, a list or a tensor on any device; or one for all."""
    values = figures.cpu() if _torch.is_tensor(figures) else figures
    try:
        numbers = np.atleast_1d(np.asarray(values, dtype=np.float64)).ravel()
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"normalize: {_options.shown(figures)} is not a list of numbers",
            remedy="give (mean, std), one number a band each",
        ) from None
    return [float(number) for number in numbers]


def _cache(dataset: Dataset, cache: object, size: int) -> dict[str, Any]:
    """The settings of the cache; ``"compressed"`` and ``"decoded"`` need a size."""
    size = _options.natural("cache_size", size, least=0)
    if cache is not None:
        cache = _options.choice("cache", cache, ("auto", "compressed", "decoded"))
    if cache is None and size:
        raise ConflictError(
            f"cache_size={size} needs a cache",
            remedy='give cache="auto", "compressed" or "decoded", too',
        )
    if cache not in (None, "auto") and not size:
        stored, decoded = dataset._native.sizes()
        most = decoded if cache == "decoded" else stored
        raise ConflictError(
            f"cache={cache!r} needs a size",
            path=dataset.path,
            remedy=f"give cache_size in bytes, too; all of the dataset takes {most}",
        )
    return {"cache": "none" if cache is None else cache, "cache_size": size}


def _device_cache(kind: object) -> str:
    if kind is None:
        return "none"
    return _options.choice("device_cache", kind, ("auto", "decoded", "compressed"))


def _shuffle_window(size: object) -> str:
    if isinstance(size, str):
        return _options.choice("shuffle_window", size, ("auto", "all"))
    return str(_options.natural("shuffle_window", size))


def _pipeline(
    augmentations: augment.Augmentations | None, reading: _members.Reading, regions: str | None
) -> dict[str, Any] | None:
    """The configuration of the augmentations; ``regions`` is the mask of regions. Without a seed,
    the loader's is used.
    """
    if augmentations is None:
        return None
    pipeline = augment.sequential(augmentations)
    pipeline.check_masks([*reading.masks, *reading.targets, *reading.images], all_read=True)
    if regions is not None:
        pipeline = _keeping_regions(pipeline, reading.masks, regions)
    return pipeline.config() if len(pipeline) else None


def _resample(config: dict[str, Any] | None) -> dict[str, Any] | None:
    """The configuration of the last augmentation that resamples spectra."""
    ops = [] if config is None else [one for one in config["ops"] if one["op"] == "resample"]
    return ops[-1] if ops else None


def _keeping_regions(
    pipeline: augment.AugmentationSequential, masks: list[str], regions: str
) -> augment.AugmentationSequential:
    """The same augmentations, so that afterwards only pixels of a region have the region's id."""
    config = pipeline.config()
    # Ids count from 1 in every cube, so another sample's ids look like the window's own.
    foreign = [one["op"] for one in config["ops"] if one["op"] in ("cutmix_rect", "transplant")]
    if foreign:
        raise UnsupportedError(
            f"Regions with {foreign[0]}, which copies pixels and ids of other samples",
            remedy="leave it out; mixup mixes images and leaves regions as they are",
        )
    fill = config["mask_fill"]
    if isinstance(fill, dict):
        if fill.get(regions, 0) != 0:
            raise ConflictError(
                f"mask_fill={fill[regions]} is given for mask {regions!r}, which has the regions",
                remedy="leave it out of mask_fill: pixels around a window belong to no region",
            )
        return pipeline
    # One number for all is meant for masks of classes.
    fills = {name: fill for name in masks if name != regions}
    return augment.from_config({**config, "mask_fill": fills})
