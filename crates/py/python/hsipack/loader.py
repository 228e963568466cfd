"""Batches, streamed."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import json
import math
import os
import pathlib
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hsipack import _hsipack, _labels, _options, _torch, _torch_data, augment, crops
from hsipack._arrays import Output, chosen_output, given
from hsipack._errors import ConflictError, Error, UnsupportedError
from hsipack._options import Indices
from hsipack._torch_data import DataLoaderOptions, Readable
from hsipack.crops import Crop, LabelledPatches, Regions, Size
from hsipack.dataset import TAKEN, Dataset, mask_key

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Sampler
    from typing_extensions import Unpack

    from hsipack._concat import Concat

Batch = dict[str, Any]


class Loader:
    """Streams batches of a dataset, epoch after epoch.

    Threads decompress chunks straight into a ring of batches, which is allocated once; nothing is
    copied on the CPU, and on a GPU batches are copied ahead from page-locked memory. Iterating
    gives one epoch; the next iteration gives the next one, newly shuffled. A batch is a dictionary:

    ======= ===================================================================================
    image   (B, bands, rows, columns), channels_last: memory is (B, rows, columns, bands). Of
            :class:`LabelledPatches` and :class:`Windows` of one pixel: spectra, (B, bands) (but for
            ``output="dlpack"``)
    MASK    one for every mask: class ids (B, rows, columns), or boolean layers (B, layers, rows,
            columns)
    label   (B,) int64: numbers of the samples' classes, see ``ds.classes``; -1 without a label. Of
            :class:`LabelledPatches` the class ids at their centres, of :class:`Regions` theirs
    id      (B,) int64: ids of the samples, their numbers in the whole dataset
    name    list of their names
    window  (B, 4) int64: first row, first column, rows and columns of what was read; the first ones
            are negative where a window begins before its cube
    region  of :class:`Regions`: (B, rows, columns) bool, on the images' device: pixels of the
            region; ``region_id`` (B,) int64 is what they have in the mask
    inside  with ``pad``: (B, rows, columns) bool, on the images' device: pixels of the cube, and no
            padding
    repeat  (B,) int64: which of the sample's crops in the epoch
    epoch   the epoch, counted from 0
    padding (B,) bool: the sample comes in another batch of the epoch, too, and only fills this one
            up (see **Last batches**); leave it out of a validation's figures
    COLUMN  one for every name in ``columns``: (B,) int64, float64 or bool, or a list
    mixed   if augmentations mix samples: for each a {"partners": [...], "shares": [...]}, for
            mixing labels alike
    ======= ===================================================================================

    A mask whose name is one of these keys is called ``mask_NAME``. Labels, ids and the like are on
    the CPU.

    **Kept batches are never overwritten.** As long as a tensor of a batch lives, nobody writes to
    its memory. On the CPU batches lie over the ring; while more than half of its slots are kept,
    further batches are copied. With ``copy=False`` they never are, and keeping all slots makes the
    next batch a ``ConflictError``.

    **Last batches.** All ranks get equally many batches, or training would hang. What becomes of
    the samples that do not fill a batch on every rank (where cubes have several shapes: of each
    shape):

    ========= =================================================================================
    (default) divided over the ranks as evenly as may be, so that last batches are shorter, by one
              sample at most on some ranks; only if there are fewer samples than ranks, each rank
              without one gets one ``padding`` sample
    drop_last left out of this epoch, on all ranks; there is no padding
    pad_last  every rank's last batch is filled up to ``batch_size`` with ``padding`` samples
    ========= =================================================================================

    Arguments of torch's ``DataLoader`` that a loader has no use for (``num_workers``,
    ``pin_memory``, ``collate_fn``, …) are refused with what to do instead.

    Args:
        dataset: a dataset, the path of one, several that :func:`hsipack.concat` joined, or a
            ``Subset`` (``random_split``) or ``ConcatDataset`` of its parts. Its split, samples,
            masks and bands are what is read, in its order; ``dtype``, ``physical`` and ``output``
            are the loader's own, and a dataset with a ``transform`` is refused.
        batch_size: samples (crops, if cubes are cropped) of a batch of this rank.
        shuffle: in a new order every epoch, over all ranks.
        seed: of order, crops and augmentations.
        device: where batches are to be: ``"cpu"``, ``"cuda"`` or ``"cuda:0"``; the current CUDA
            device if there is one (for NumPy's arrays never), else the CPU.
        dtype: of images: float16, bfloat16 (not of NumPy's arrays), float32 or float64.
        crop: (rows, columns) of random windows, or a :class:`RandomCrop`, :class:`CenterCrop`,
            :class:`GridCrop`, :class:`LabelledPatches`, :class:`Regions` or :class:`Windows`.
        pad: put whole cubes of unequal size into one batch: each is filled up below and on the
            right to the rows and columns of the largest that is read, with ``"reflect"``,
            ``"edge"`` or a number as in :class:`LabelledPatches` (masks have 0 there). Cubes of
            other numbers of bands come in batches of their own. ``inside`` says which pixels are
            the cube's.
        augment: augmentations (see :mod:`hsipack.augment`), a list or an
            ``AugmentationSequential``; done on the device, there by torch.
        sampler: ``"class_balanced"``, ``"groups_spread"``, ``"groups_together"``, a weight for
            every sample, or one of torch's Random-, Sequential-, SubsetRandom- and
            WeightedRandomSampler (the last with replacement). Weights and a sampler's places are
            those of the samples that are read: of ``dataset`` or, with ``split``, of that part of
            it. Order is drawn from ``seed``: samplers with a ``generator`` are refused.
        drop_last: leave out samples that do not fill a last batch; see above.
        pad_last: fill a last batch up instead, with samples marked as ``padding``; see above.
        epoch_length: samples of an epoch over all ranks; every one once if ``None``.
        rank: number of this process among those that train together; torch.distributed's, if it is
            initialised.
        world_size: how many those are; likewise.
        split: only samples of this split, or of several.
        masks: names of masks; the dataset's if ``None`` (of :class:`LabelledPatches` none), none if
            empty.
        mask_dtype: of class ids; the least that holds them if ``None`` (uint8 as uint8, uint16 as
            int32).
        classes: other class ids for those of the mask: ``{3: 1, "tumour": 2}`` by ids, or by names
            where the dataset has them; of several masks ``{"organs": {3: 1}}``. Classes that are
            not named keep their ids, or become ``ignore``. Masks have the new ids, and so have
            labels of :class:`LabelledPatches`; but which windows there are (also for
            ``min_labelled``), and how classes take turns, goes by the dataset's own ids.
        ignore: the id of all pixels whose class ``classes`` does not name, those of class 0
            included; torch's ``CrossEntropyLoss(ignore_index=…)`` leaves them out. With uint8 masks
            at most 255.
        bands: bands to read, numbered from 0, in this order; or a slice, or a boolean for every
            band; the dataset's if ``None``.
        columns: columns of the table, or ``group`` and ``label`` themselves, to be given with every
            batch.
        layers: unpack masks of boolean layers; else their bits are given.
        physical: multiply by ``scale_factor`` and add ``add_offset``.
        nan: replace NaN by this value, after normalising.
        normalize: ``"standardize"`` by the dataset's statistics: of its split ``train`` where it
            has one, else of all samples, see :meth:`report`. ``(mean, std)`` standardises by
            figures of yours, one for each band that is read; NaN leaves a band as it is. ``"l1"``,
            ``"l2"`` and ``"snv"`` normalise every spectrum: NaN and infinities take no part and are
            NaN, and what there is nothing to divide by becomes 0.
        num_threads: decoding threads; one a core if ``None``.
        slots: batches in the ring: in use, ready, and being filled; at least 2.
        copy: see above.
        cache: keep chunks in memory from the first epoch on: ``"compressed"`` saves reading,
            ``"decoded"`` decoding, too. ``"auto"`` keeps all decoded if they fit into half of the
            memory that is free (limits of containers count; processes that torchrun started here
            share it); else those of a ``shuffle_window``, where there is one; else all as stored if
            these fit; else none; :meth:`report` says what, and why. ``None`` keeps none.
        cache_size: bytes that the cache may take; ``"compressed"`` and ``"decoded"`` need it.
        shuffle_window: windows of ``crop`` that are shuffled come from all over the epoch
            (``"all"``), or, for data that do not fit into memory, from some cubes, or parts of
            cubes, at a time, which take so many bytes decoded: then each chunk is decoded about
            once an epoch. ``"auto"`` is all of the epoch where that fits into the cache; else
            ``cache_size``, or a quarter of the machine's memory, rounded down to a power of two;
            with several processes all of the epoch, since each would have to take the same. The
            order depends on the size: give it to have the same order on other machines.
        on_damage: ``"error"``, or ``"skip"`` samples whose chunks are damaged, and count them.
        locked: lock the ring's memory against being swapped out, where that is allowed.
        trace: record what every thread does when, for :meth:`save_trace`; at most a million events
            (64 MB).
        output: ``"torch"``, ``"numpy"`` (CPU), or ``"dlpack"`` for :class:`hsipack.Array`, which
            any library takes; torch's tensors where torch is installed, else NumPy's arrays, if
            ``None``.

    Raises:
        ConflictError: if options contradict each other or the dataset.
        DeviceError: if the device cannot be used, or fails.
        FileError: if there is no memory for the ring.
        UnsupportedError: if torch is asked for, or has to compute on a device, and is missing.

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

    # Rows and columns of every sample, where cubes are padded.
    _extents: npt.NDArray[np.int64] | None = None
    _hidden: str | None = None

    def __new__(cls, dataset: Any = None, *others: Any, **options: Any) -> Loader:
        """A loader of several datasets for what :func:`hsipack.concat` gives."""
        from hsipack._concat import Concat, ConcatLoader

        return super().__new__(ConcatLoader if isinstance(dataset, Concat) else cls)

    def __init__(
        self,
        dataset: Readable | Concat,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        seed: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | npt.DTypeLike = "float16",
        crop: Crop | Size | None = None,
        pad: str | float | None = None,
        augment: augment.Augmentations | None = None,
        sampler: str | Sequence[float] | torch.Tensor | Sampler[Any] | None = None,
        drop_last: bool = False,
        pad_last: bool = False,
        epoch_length: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        split: str | Sequence[str] | None = None,
        masks: str | Sequence[str] | None = None,
        mask_dtype: torch.dtype | npt.DTypeLike | None = None,
        classes: _labels.Classes | None = None,
        ignore: int | None = None,
        bands: Indices | None = None,
        columns: str | Sequence[str] = (),
        layers: bool = True,
        physical: bool = False,
        nan: float | None = None,
        normalize: str | tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        num_threads: int | None = None,
        slots: int = 4,
        copy: bool = True,
        cache: str | None = "auto",
        cache_size: int = 0,
        shuffle_window: int | str = "auto",
        on_damage: str = "error",
        locked: bool = True,
        trace: bool = False,
        output: Output | None = None,
        **others: Unpack[DataLoaderOptions],
    ) -> None:
        _torch_data.refuse(others)
        output = chosen_output(output, ("torch", "numpy", "dlpack"))
        dataset = _torch_data.opened(dataset)
        if split is not None:
            dataset = dataset.split(split)
        if dataset._transform is not None:
            raise UnsupportedError(
                "a loader over a dataset with a transform",
                remedy="open it without, and change the batch in your loop; or use the dataset "
                "with torch's DataLoader",
            )
        order = _torch_data.order(dataset, _options.flag("shuffle", shuffle), sampler)
        if order.ids is not None and len(set(order.ids)) < len(order.ids):
            raise ConflictError(
                "a sample is chosen more than once",
                path=dataset.path,
                remedy="choose each once, and give weights to draw some more often",
            )
        if _options.flag("drop_last", drop_last) & _options.flag("pad_last", pad_last):
            raise ConflictError("both drop_last and pad_last", remedy="choose one of them")
        if pad is not None:
            if crop is not None or augment is not None:
                raise ConflictError(
                    f"both pad and {'augment' if crop is None else 'crop'}",
                    remedy="crops have one size, and need no padding"
                    if crop is not None
                    else "augment in your loop, with inside as one of the masks",
                )
            if "inside" in {*dataset.masks, *_options.names("columns", columns)}:
                raise ConflictError(
                    "pad with a mask or column named 'inside', which batches need themselves",
                    remedy="leave it out with masks or columns",
                )
            self._extents = _extents(dataset)
            read = dataset.ids if order.ids is None else order.ids
            largest = self._extents[read].max(axis=0).tolist() if read else [1, 1]
            crop = crops.of_whole_cubes(read, largest, pad)
        rank, world_size = _share(rank, world_size)
        length = order.length if epoch_length is None else epoch_length
        if masks is None:
            own = isinstance(crop, LabelledPatches | Regions)
            mask_names = [] if own else dataset.masks
        else:
            mask_names = _options.names("masks", masks)
        of_ids = [*mask_names, *([crop.mask] if isinstance(crop, LabelledPatches) else [])]
        if isinstance(crop, Regions):
            if output == "dlpack":
                raise UnsupportedError(
                    'Regions with output="dlpack"',
                    remedy='give output="torch" or "numpy", which tell whose pixels are whose',
                )
            taken = {"region", "region_id"} & {*mask_names, *_options.names("columns", columns)}
            if taken:
                raise ConflictError(
                    f"Regions with a mask or column named {min(taken)!r}, a name that batches use",
                    remedy="leave it out with masks or columns",
                )
            # Read to tell which pixels are the region's; it keeps its ids.
            of_ids = [
                *({*mask_names} - {crop.mask}),
                *([] if crop.labels is None else [crop.labels]),
            ]
            if crop.mask not in mask_names:
                self._hidden = crop.mask
                mask_names = [*mask_names, crop.mask]
        band_numbers = dataset._bands if bands is None else dataset._checked_bands(bands)
        seed = _options.natural("seed", seed, least=0, most=(1 << 64) - 1)
        threads = None if num_threads is None else _options.natural("num_threads", num_threads)
        self._settings: dict[str, Any] = {
            "batch_size": _options.natural("batch_size", batch_size),
            "order": order.name,
            "seed": seed,
            "crop": crops.settings(crop),
            "last": "drop" if drop_last else "pad" if pad_last else "short",
            "epoch_length": None if length is None else _options.natural("epoch_length", length),
            "rank": rank,
            "world_size": world_size,
            "samples": order.ids,
            "weights": order.weights,
            "masks": mask_names,
            "new_ids": _labels.new_ids(dataset, of_ids, classes, ignore),
            "bands": band_numbers,
            "threads": threads,
            "slots": _options.natural("slots", slots),
            "locked": _options.flag("locked", locked),
            "on_damage": _options.text("on_damage", on_damage),
            **_cache(dataset, cache, cache_size),
            "shuffle_window": _shuffle_window(shuffle_window),
            "device": _device(device, output),
            "dtype": _image_type(dtype, output),
            "mask_dtype": None if mask_dtype is None else _options.dtype("mask_dtype", mask_dtype),
            "layers": _options.flag("layers", layers),
            "physical": _options.flag("physical", physical),
            "nan": None if nan is None else _options.number("nan", nan),
            **_normalization(normalize),
            "copy": _options.flag("copy", copy),
            "trace": _options.flag("trace", trace),
            # For hsipack.diagnose.
            "repeat": False,
            "emulated_bus": None,
            "pipeline": _pipeline(
                augment, seed, mask_names, crop.mask if isinstance(crop, Regions) else None
            ),
            # Who gets what is on a device, and threads that compute on the host.
            "torch": output == "torch",
            "computing_threads": _torch.threads(),
        }
        if normalize is not None and nan is None:
            _warn_of_nan(dataset, band_numbers, normalize)
        self._dataset = dataset
        self._output: Output = output
        column_names = _options.names("columns", columns)
        self._columns = {name: _column(dataset, name) for name in column_names}
        self._start(None)
        if self._native.lacks_train_statistics():
            warnings.warn(
                f"{dataset.path} records no statistics of its train split: it is standardised by "
                "those of all samples; pack it again, or give normalize=(mean, std)",
                stacklevel=2,
            )

    def _start(self, state: str | None) -> None:
        self._native = _hsipack.Loader(self._dataset._native, self._settings, state)
        self._iteration: _Epoch | None = None
        self._taken: dict[str, Any] | None = None
        self._lengths: dict[int, int] = {}
        self._closed = False
        _LOADERS.add(self)

    # Batches.

    def __iter__(self) -> Iterator[Batch]:
        """What remains of an epoch that was resumed; else a whole epoch.

        With its first batch a new iteration ends an older one of this loader: after an abandoned
        one, be it before or behind its last batch, it gives the next epoch.
        """
        return _Epoch(self)

    def __len__(self) -> int:
        """Batches of this rank in the present epoch, those given already included."""
        epoch = self._native.epoch
        if epoch not in self._lengths:
            self._lengths = {epoch: self._native.batches_per_epoch()}
        return self._lengths[epoch]

    def _begin(self, iteration: _Epoch) -> None:
        """Goes to where the iteration is to begin.

        Frameworks ask for iterators that they do not use, and for no end.
        """
        if self._iteration is not None:
            if self._native.epoch == self._iteration.epoch:
                self.set_epoch(self._native.epoch + 1)
            else:
                # All its batches were given, but not its end.
                self._taken = None
                self._native.next()
        self._iteration = iteration
        iteration.epoch = self._native.epoch

    def _next(self, iteration: _Epoch) -> Batch:
        if iteration.epoch is None:
            self._begin(iteration)
        elif self._iteration is not iteration:
            raise ConflictError(
                "a newer iteration over this loader has begun",
                remedy="make one loader for each iteration",
            )
        # Should a signal's handler raise while the batch is put together, the next call gives it.
        if self._taken is None:
            self._taken = self._native.next()
        if self._taken is None:
            self._iteration = None
            raise StopIteration
        batch, self._taken = self._batch(self._taken), None
        return batch

    def _batch(self, batch: dict[str, Any]) -> Batch:
        ids = np.frombuffer(batch["ids"], dtype=np.int64)
        image = given(batch["image"], self._output)
        if batch["spectra"] and self._output != "dlpack" and image.shape[2:] == (1, 1):
            image = image.reshape(image.shape[:2])
        made: Batch = {"image": image}
        masks = {name: given(mask, self._output) for name, mask in batch["masks"]}
        made.update({mask_key(name): mask for name, mask in masks.items() if name != self._hidden})
        if batch["regions"] is not None:
            made["region_id"] = self._numbers(batch["regions"])
            mask = masks[self._settings["crop"]["regions"]]
            made["region"] = self._region(mask, made["region_id"])
        made["label"] = self._numbers(batch["labels"])
        made["id"] = self._host(ids)
        made["name"] = batch["names"]
        made["window"] = self._numbers(batch["windows"], shape=(-1, 4))
        if self._extents is not None:
            made["inside"] = self._inside(image, self._extents[ids])
        made["repeat"] = self._numbers(batch["repeats"])
        made["epoch"] = batch["epoch"]
        made["padding"] = self._numbers(batch["padding"], dtype=np.bool_)
        for name, values in self._columns.items():
            if isinstance(values, list):
                made[name] = [values[one] for one in ids.tolist()]
            else:
                made[name] = self._host(values[ids])
        if batch["mixed"]:
            made["mixed"] = [{"partners": one, "shares": two} for one, two in batch["mixed"]]
        return made

    def _inside(self, image: Any, extents: npt.NDArray[np.int64]) -> Any:
        """Which pixels of padded cubes are the cubes', on the images' device."""
        rows, columns = self._settings["crop"]["size"]
        down = np.arange(rows) < extents[:, :1]
        across = np.arange(columns) < extents[:, 1:]
        inside = self._host(down[:, :, None] & across[:, None, :])
        return inside.to(image.device) if self._output == "torch" else inside

    def _region(self, mask: Any, ids: Any) -> Any:
        """Which pixels of windows are of these regions, on the masks' device."""
        if self._output == "torch":
            # torch compares no uint16.
            mask, ids = mask.to(ids.dtype), ids.to(mask.device)
        return mask == ids[:, None, None]

    def _numbers(
        self, values: bytearray, dtype: type = np.int64, shape: tuple[int, ...] = (-1,)
    ) -> Any:
        """Numbers as an array over the memory that they came in."""
        return self._host(np.frombuffer(values, dtype=dtype).reshape(shape))

    def _host(self, numbers: npt.NDArray[Any]) -> Any:
        return _torch.load().from_numpy(numbers) if self._output == "torch" else numbers

    # Where it is.

    @property
    def dataset(self) -> Dataset:
        """What it reads."""
        return self._dataset

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._native.epoch

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of an epoch, which the next iteration gives.

        Not needed if epochs simply follow each other.
        """
        self._iteration = self._taken = None
        self._native.set_epoch(_options.natural("epoch", epoch, least=0))

    @property
    def batch_sampler(self) -> Any:
        """For frameworks: what Lightning tells the number of every epoch, as it does a
        DataLoader's samplers.

        So an epoch after a checkpoint is the one that it would have been.
        """
        return _Epochs(self)

    def state_dict(self) -> dict[str, Any]:
        """How far it is: behind the last batch that was given, however many are ready.

        It is the same on every rank.

        >>> loader = Loader(dataset_path, 4, shuffle=True, device="cpu")
        >>> first = next(iter(loader))
        >>> state = loader.state_dict()
        >>> again = Loader(dataset_path, 4, shuffle=True, device="cpu")
        >>> again.load_state_dict(state)
        >>> len(list(again)), len(again)
        (2, 3)
        """
        state: dict[str, Any] = json.loads(self._native.state())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to where the loader was that gave the state: the next iteration gives what was left
        of its epoch.

        Batch size, threads and world size may have changed since; what is left is divided anew.

        Raises:
            ConflictError: if the state is of another dataset or seed, or, in the midst of an epoch,
                of other samples, order or crops. The loader then stays where it is.
        """
        if not isinstance(state, Mapping):
            raise _options.wrong("state", state, "give what state_dict() gave")
        self._native.load_state(json.dumps(dict(state)))
        self._iteration = self._taken = None

    # What it does.

    def stats(self) -> dict[str, Any]:
        """Where the time went since it was made; times in seconds, see docs/statistics.md.

        ``waiting_s`` is the time that the caller waited for batches; the others are of the threads
        inside (``loader``).
        """
        stats: dict[str, Any] = json.loads(self._native.stats_json())
        return stats

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes what every thread did when since the loader was made, with ``trace=True``.

        https://ui.perfetto.dev and chrome://tracing show the file: a row for the consumer (waiting,
        step, augmentation), for the thread that copies to the GPU, the planner and every decoder.

        Raises:
            ConflictError: if the loader does not record.
        """
        path = pathlib.Path(path)
        part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            part.write_bytes(self._native.trace())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def report(self) -> dict[str, Any]:
        """What it does and why it does no better: memory of the ring, transfer, threads, masks
        and their layers. ``cache`` says what is kept in memory (``kind``), why, and how much of it
        is there by now (``bytes``); its ``shuffle_window``, where there is one, among how many
        ``blocks`` of all (``of_blocks``) windows are shuffled at a time. ``standardized_by`` has,
        for every stack that ``normalize="standardize"`` acts on, the split whose statistics are
        used, or None for those of all its samples. ``regions`` says of :class:`Regions` how many
        there are (``windows``), and how many of these are larger than their window (``cut``).
        ``augment`` says who augments (``by``): loops on the CPU; on a GPU kernels of hsipack's,
        or torch's operations alone, and ``why``.
        """
        report: dict[str, Any] = json.loads(self._native.report_json())
        return report

    def close(self) -> None:
        """Ends its threads and gives its memory back. Batches that are kept stay valid."""
        self._iteration = self._taken = None
        self._closed = True
        self._native.close()

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
            return f"<hsipack.Loader of {self._dataset.path}, closed>"
        size, epoch = self._settings["batch_size"], self._native.epoch
        return f"<hsipack.Loader of {self._dataset!r}, batches of {size}, epoch {epoch}>"

    # To another process it goes as what it was made of, and where it is.

    def __getstate__(self) -> dict[str, Any]:
        own = {
            name: getattr(self, name)
            for name in ("_settings", "_dataset", "_output", "_columns", "_extents", "_hidden")
        }
        return {"own": own, "state": self._native.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["own"])
        self._start(state["state"])


# What is shown of it is what it takes, and not that `__new__` takes anything.
_TAKES = inspect.signature(Loader.__init__)
Loader.__signature__ = _TAKES.replace(  # type: ignore[attr-defined]
    parameters=list(_TAKES.parameters.values())[1:]
)


class _Epoch(Iterator[Batch]):
    """One iteration over a loader."""

    def __init__(self, loader: Loader) -> None:
        self._loader: Loader | None = loader
        # None before its first batch.
        self.epoch: int | None = None

    def __next__(self) -> Batch:
        if self._loader is None:
            raise StopIteration
        try:
            return self._loader._next(self)
        except StopIteration:
            self._loader = None
            raise


class _Epochs:
    """A sampler, as far as frameworks look into one."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    @property
    def sampler(self) -> _Epochs:
        """The sampler of a batch sampler: this one."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of an epoch, unless the loader is in it already, maybe in its midst."""
        if self._loader.epoch != epoch:
            self._loader.set_epoch(epoch)


# Threads that use CUDA have to end before the interpreter does.
_LOADERS: weakref.WeakSet[Loader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for loader in list(_LOADERS):
        # Those of the process that this one was forked from are not ours to close.
        with contextlib.suppress(Error):
            loader.close()


def _share(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if (rank is None) != (world_size is None):
        raise ConflictError("only one of rank and world_size", remedy="give both, or neither")
    if rank is not None and world_size is not None:
        return _options.natural("rank", rank, least=0), _options.natural("world_size", world_size)
    # Whoever trains together has imported it.
    distributed = _torch.imported("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _device(device: torch.device | str | int | None, output: Output) -> int | None:
    """The number of a CUDA device, or None for the CPU."""
    if device is None:
        return None if output == "numpy" else _current_device(output)
    place = _options.device("device", device)
    if place.type == "cpu":
        return None
    if output == "numpy":
        raise ConflictError(
            "NumPy's arrays are on the CPU", remedy='ask for device="cpu", or output="dlpack"'
        )
    if place.type != "cuda":
        raise UnsupportedError(f"batches on {place}", remedy='ask for "cpu" or "cuda"')
    return place.index if place.index is not None else _current_device(output) or 0


def _current_device(output: Output) -> int | None:
    """The number of torch's current CUDA device or, without torch, of the first one; None if there
    is none.
    """
    torch = _torch.load() if output == "torch" else _torch.imported()
    if torch is None:
        return 0 if _hsipack.cuda_is_available() else None
    return int(torch.cuda.current_device()) if torch.cuda.is_available() else None


def _image_type(dtype: object, output: Output) -> str:
    """The name of images' element type."""
    name = _options.dtype("dtype", dtype)
    if name == "bfloat16" and output == "numpy":
        raise ConflictError(
            "NumPy has no bfloat16", remedy='give dtype="float32", or output="torch" or "dlpack"'
        )
    return name


def _normalization(
    normalize: str | tuple[npt.ArrayLike, npt.ArrayLike] | None,
) -> dict[str, Any]:
    if normalize is None or isinstance(normalize, str):
        return {"normalize": normalize, "standardize_by": None}
    if not isinstance(normalize, tuple | list) or len(normalize) != 2:
        raise ConflictError(
            f"normalize={normalize!r}",
            remedy='give "standardize", "l1", "l2", "snv", or (mean, std)',
        )
    mean, std = (_floats(figures) for figures in normalize)
    return {"normalize": None, "standardize_by": (mean, std)}


def _floats(figures: Any) -> list[float]:
    """Numbers of bands: of an array, a list or a tensor on any device, or one for all."""
    values = figures.cpu() if _torch.is_tensor(figures) else figures
    try:
        numbers = np.atleast_1d(np.asarray(values, dtype=np.float64)).ravel()
    except (TypeError, ValueError):
        raise ConflictError(
            f"normalize: {_options.shown(figures)} is no list of numbers",
            remedy="give (mean, std), one number a band each",
        ) from None
    return [float(number) for number in numbers]


def _extents(dataset: Dataset) -> npt.NDArray[np.int64]:
    """Rows and columns of every sample of the whole dataset."""
    shapes = np.array([stack.shape[:2] for stack in dataset.stacks.values()], dtype=np.int64)
    stacks = [stack for _, _, stack in dataset._native.about(list(range(len(dataset._native))))]
    return shapes[stacks] if stacks else np.zeros((0, 2), dtype=np.int64)


def _cache(dataset: Dataset, cache: object, size: int) -> dict[str, Any]:
    """The cache's settings; a kind that is asked for needs a size."""
    size = _options.natural("cache_size", size, least=0)
    if cache is not None:
        cache = _options.choice("cache", cache, ("auto", "compressed", "decoded"))
    if cache is None and size:
        raise ConflictError(
            f"cache_size={size} without a cache",
            remedy='give cache="auto", "compressed" or "decoded", too',
        )
    if cache not in (None, "auto") and not size:
        stored, decoded = dataset._native.sizes()
        most = decoded if cache == "decoded" else stored
        raise ConflictError(
            f"cache={cache!r} without a size",
            path=dataset.path,
            remedy=f"give cache_size in bytes, too; all of the dataset takes {most}",
        )
    return {"cache": cache, "cache_bytes": size}


def _shuffle_window(size: object) -> str:
    if isinstance(size, str):
        return _options.choice("shuffle_window", size, ("auto", "all"))
    return str(_options.natural("shuffle_window", size))


def _pipeline(
    augmentations: augment.Augmentations | None, seed: int, masks: list[str], regions: str | None
) -> str | None:
    """The augmentations as the native part takes them; ``regions`` names the mask of these."""
    if augmentations is None:
        return None
    pipeline = augment.sequential(augmentations, seed=seed)
    pipeline.check_masks(masks, all_read=True)
    if regions is not None:
        pipeline = _keeping_regions(pipeline, masks, regions)
    return pipeline.to_json() if len(pipeline) else None


def _keeping_regions(
    pipeline: augment.AugmentationSequential, masks: list[str], regions: str
) -> augment.AugmentationSequential:
    """The same augmentations, after which the pixels of a region's id are still the region's."""
    config = pipeline.config()
    # Ids count from 1 in every cube: those of another sample cannot be told from the window's own.
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
                f"mask_fill={fill[regions]} for mask {regions!r}, whose regions the windows show",
                remedy="leave it out of mask_fill; what surrounds a window is no region",
            )
        return pipeline
    # A number is meant for masks of classes.
    fills = {name: fill for name in masks if name != regions}
    return augment.from_config({**config, "mask_fill": fills})


def _warn_of_nan(dataset: Dataset, bands: list[int] | None, normalize: object) -> None:
    """Says that NaN values are normalised, in which bands, and what to do."""
    for stack in dataset._used_stacks():
        if stack.stats is None:
            continue
        read = np.arange(stack.shape[2]) if bands is None else np.array(bands)
        missing = read[stack.stats.nan[read] > 0]
        if not missing.size:
            continue
        some = ", ".join(map(str, missing[:5].tolist())) + (", …" if missing.size > 5 else "")
        how = repr(normalize) if isinstance(normalize, str) else "(mean, std)"
        warnings.warn(
            f"normalize={how} over NaN values, which are in {missing.size} of {read.size} bands of "
            f"stack {stack.name} ({some}) and stay NaN; leave bands out with bands= (see "
            "stack.bad_bands), or have NaN replaced with nan=",
            stacklevel=3,
        )
        return


def _column(dataset: Dataset, name: str) -> Any:
    """The column's values for every sample of the whole dataset: an array if all are numbers."""
    values: list[Any] = json.loads(dataset._native.columns_json(None, [name]))[0]
    if (name in TAKEN and name != "label") or all(value is None for value in values):
        raise ConflictError(
            f"there is no column {name!r} to be given",
            path=dataset.path,
            remedy=f"it has {', '.join(dataset._native.columns())}",
        )
    if all(isinstance(value, bool) for value in values):
        return np.array(values, dtype=np.bool_)
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, dtype=np.int64)
    if all(value is None or isinstance(value, int | float) for value in values):
        return np.array(
            [math.nan if value is None else value for value in values], dtype=np.float64
        )
    return values
