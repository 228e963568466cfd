"""Stitching: predictions for windows become maps of whole cubes."""

from __future__ import annotations

import os
import pathlib
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from hsipack import _arrays, _merging, _options, _renamed, _torch_data, crops
from hsipack._concat import Concat
from hsipack._errors import ConflictError, UnsupportedError
from hsipack._maps import (
    Folder,
    InMemory,
    Kind,
    Map,
    NpyFile,
    OpenMap,
    Sink,
    Writer,
    checked_class_ids,
    fill_value,
    in_memory,
    reporting,
    result_type,
)
from hsipack._merging import OpenRows
from hsipack.loader import Loader
from hsipack.maps import Colors, Names, write_map


class Stitcher:
    """Combines the predictions for windows of cubes into one map for each cube.

    ::

        stitcher = hsipack.Stitcher(loader, merge="center", class_ids=True, output="maps")
        for batch in loader:
            stitcher.add(batch, network(batch["image"]))
        for sample, array in stitcher.maps():
            ...

    A map is (channels, rows, columns). It is (rows, columns) for class ids, and for predictions
    without an axis of channels. Padding samples of batches are ignored, and so are the parts of
    windows outside their cube.

    **Memory.** A loader without ``shuffle`` on one rank gives the windows of a :class:`GridCrop`
    row by row. The stitcher then keeps only the rows for which windows may still come; the other
    rows are merged and written. If windows may come in any order, it keeps the sums and weights of
    every open map until the end: in scratch files in the folder ``output``, with a warning that
    says how large they are, or in memory without ``output``. :meth:`report` says which of the two
    orders is assumed, and why.

    **Several processes.** It is best if each process maps different cubes, with its own stitcher:
    ``Loader(ds.select(slice(rank, None, ranks)), …, rank=0, world_size=1)``. Otherwise gather the
    ``id``, ``window`` and ``padding`` of all batches, and the predictions, in one process, and add
    them in any order.

    Args:
        source: the loader that gives the windows; or a dataset (or its path), if windows may come
            from anywhere, in any order.
        channels: the expected number of channels of predictions; if ``None``, that of the first
            prediction.
        merge: how to merge overlapping windows. ``"mean"`` averages their predictions.
            ``"weighted"`` averages them with weights that decrease towards the edges of a window
            (sin² of the position along each axis: a Hann window that is never 0). ``"center"``
            takes the prediction of the window with the nearest centre (of two equally near, the one
            that begins further up, then further left).
        class_ids: write class ids instead of channels: the class of the channel with the largest
            merged value. Give True if class ids are the numbers of the channels, or a list with the
            class id of each channel.
        fill: value of pixels without a prediction. If ``None``, NaN; for whole numbers, the largest
            of their type (255 for uint8).
        output: a folder for the maps, with one ``.npy`` file for each sample, named after it. The
            folder is made if it does not exist, and files of the same name are replaced. If
            ``None``, maps are kept in memory.
        split: if ``source`` is a dataset, map only samples of this split, or of these splits.
        ordered: whether windows come row by row, cube by cube. If ``None``, the stitcher asks the
            loader; for a dataset, False.
        allow_missing: whether pixels may be without a prediction. If ``None``, only if the windows
            of the loader do not have to cover its cubes, such as those of :class:`LabelledPatches`.

    Raises:
        ConflictError: if options contradict each other.
        UnsupportedError: if the loader reads several datasets, or augments.

    >>> from hsipack import GridCrop, Loader
    >>> loader = Loader(dataset_path, 4, crop=GridCrop(8, overlap=4), dtype="float32", device="cpu")
    >>> stitcher = Stitcher(loader, merge="center")
    >>> for batch in loader:
    ...     stitcher.add(batch, batch["image"] * 2)
    >>> maps = dict(stitcher.maps())
    >>> image = hsipack.open(dataset_path, output="numpy")[5]["image"]
    >>> maps[5].shape, bool((maps[5] == image.astype("float32") * 2).all())
    ((7, 20, 24), True)
    >>> loader.close()
    """

    @_renamed.arguments(classes="class_ids")
    def __init__(
        self,
        source: Loader | _torch_data.Readable,
        channels: int | None = None,
        *,
        merge: str = "mean",
        class_ids: bool | Sequence[int] = False,
        fill: float | None = None,
        output: str | os.PathLike[str] | None = None,
        split: str | Sequence[str] | None = None,
        ordered: bool | None = None,
        allow_missing: bool | None = None,
    ) -> None:
        self._merge = _options.choice("merge", merge, _merging.MERGES)
        self._channels = None if channels is None else _options.natural("channels", channels)
        self._classes = checked_class_ids(class_ids)
        self._fill = None if fill is None else _options.number("fill", fill)
        # What the loader says about its windows.
        windows = _Windows.of(source)
        if split is not None:
            if isinstance(source, Loader):
                raise ConflictError("split= with a loader", remedy="give the loader the split")
            windows.dataset = windows.dataset.split(split)
        self._dataset = windows.dataset
        self._ordered = windows.unordered is None
        self._why = windows.unordered or "the loader gives the windows of every cube row by row"
        if ordered is not None:
            self._ordered = _options.flag("ordered", ordered)
            self._why = f"ordered={self._ordered}"
        self._allow_missing = not windows.cover
        if allow_missing is not None:
            self._allow_missing = _options.flag("allow_missing", allow_missing)
        self._samples = _Samples(self._dataset)
        self._folder = None if output is None else Folder(_options.absolute_path("output", output))
        self._open: dict[int, OpenMap] = {}
        self._finished: dict[int, Map | None] = {}
        self._taken: set[int] = set()
        self._missing: dict[int, int] = {}
        self._kind: Kind | None = None
        self._most_rows = 0
        self._closed = False

    # Predictions.

    def add(self, batch: Mapping[str, Any], predictions: Any) -> None:
        """Adds the predictions for the windows of a batch to the maps.

        Args:
            batch: a batch of the loader, or a dictionary with its ``id``, ``window`` and, if it has
                any, ``padding``.
            predictions: an array of any library, on any device: (B, channels, rows, columns),
                (B, rows, columns), or one prediction for the centre of each window, (B, channels).
                If the number of rows or columns is even, the centre is the first one after the
                middle.

        Raises:
            ConflictError: if the predictions do not fit the batch or earlier predictions, if a
                sample is not in the dataset, if the map of a sample is already finished, or if
                whole numbers of one channel, which are class ids, would be averaged.
        """
        if self._closed:
            raise ConflictError(
                "predictions for maps that are finished", remedy="make a stitcher for every epoch"
            )
        ids, windows, kept = _read(batch)
        values = self._checked(predictions, windows)
        ids, windows, values = ids[kept], windows[kept], values[kept]
        if values.ndim == 2:
            self._add_points(ids, windows, values)
            return
        for sample, window, prediction in zip(ids.tolist(), windows.tolist(), values, strict=True):
            self._add_window(sample, window, prediction)

    def _checked(self, predictions: Any, windows: npt.NDArray[np.int64]) -> Map:
        """Predictions as (B, channels, rows, columns) or, for single pixels, (B, channels)."""
        if not _arrays.is_array(predictions):
            raise _options.wrong_type("predictions", predictions, "give an array or a tensor")
        values: Map = _arrays.host(predictions)
        count = len(windows)
        shapes = {tuple(window) for window in windows[:, 2:].tolist()}
        if values.ndim not in (1, 2, 3, 4) or len(values) != count or len(shapes) > 1:
            raise ConflictError(
                f"predictions of shape {values.shape} for {count} windows",
                remedy="give (B, channels, rows, columns), or (B, channels) for their centres",
            )
        flat = values.ndim in (1, 3)
        if flat:
            values = values[:, None]
        if values.ndim == 4 and count and values.shape[2:] not in shapes:
            (window,) = shapes
            raise ConflictError(
                f"predictions of {values.shape[2]}x{values.shape[3]} pixels for windows of "
                f"{window[0]}x{window[1]}",
                remedy="predict every pixel of a window, or one prediction for its centre",
            )
        self._check_kind(Kind(values.shape[1], flat, values.dtype))
        return values

    def _check_kind(self, kind: Kind) -> None:
        first = self._kind
        if first is None:
            expected = self._channels or kind.channels
            if self._classes is not None:
                self._classes.check(kind.channels)
            self._kind = first = Kind(expected, kind.flat, kind.dtype)
            result_type(self._merge, kind.dtype)
        if (kind.channels, kind.flat) != (first.channels, first.flat):
            raise ConflictError(
                f"predictions of {kind.channels} channels after those of {first.channels}"
                if kind.flat == first.flat
                else "predictions with and without an axis of channels",
                remedy="give predictions of one kind",
            )

    def _add_window(self, sample: int, window: list[int], prediction: Map) -> None:
        row, column, height, width = window
        rows, columns = self._samples.shape(sample)
        top, left = max(row, 0), max(column, 0)
        bottom, right = min(row + height, rows), min(column + width, columns)
        if top >= bottom or left >= right:
            return
        inside = slice(top - row, bottom - row), slice(left - column, right - column)
        weights = _merging.weights(self._merge, height, width)[inside]
        open_rows = self._reach(sample, top, bottom)
        open_rows.add(top, left, prediction[:, inside[0], inside[1]], weights)

    def _add_points(
        self, ids: npt.NDArray[np.int64], windows: npt.NDArray[np.int64], values: Map
    ) -> None:
        if not len(ids):
            return
        centres = windows[:, :2] + windows[:, 2:] // 2
        # Points of the same sample follow each other in a batch.
        starts = np.flatnonzero(np.diff(ids, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            sample = int(ids[start])
            shape = self._samples.shape(sample)
            run = slice(start, end)
            inside = ((centres[run] >= 0) & (centres[run] < shape)).all(axis=1)
            rows, columns = centres[run][inside].T
            if not rows.size:
                continue
            open_rows = self._reach(sample, int(rows.min()), int(rows.max()) + 1)
            open_rows.add_points(rows, columns, values[run][inside].T)

    def _reach(self, sample: int, top: int, bottom: int) -> OpenRows:
        """The open rows of a sample's map, from row ``top`` to ``bottom``."""
        found = self._open.get(sample) or self._begin(sample)
        rows = found.rows
        if self._ordered:
            if top < rows.first:
                raise ConflictError(
                    f"a window of sample {sample} at row {top} comes after one at row {rows.first}",
                    remedy="say ordered=False: all rows are then kept till the end",
                )
            found.flush(top)
        rows.reach(bottom)
        self._most_rows = max(self._most_rows, self.rows_kept)
        return rows

    def _begin(self, sample: int) -> OpenMap:
        if sample in self._finished or sample in self._taken or sample in self._missing:
            raise ConflictError(
                f"a window belongs to sample {sample}, whose map is finished",
                remedy="make a stitcher for every epoch, and say ordered=False if windows of "
                "several cubes take turns",
            )
        shape = self._samples.shape(sample)
        if self._ordered:
            # Cubes of one stack come one after the other, but cubes of other stacks may come
            # between them.
            stack = self._samples.stack(sample)
            for other in [one for one in self._open if self._samples.stack(one) == stack]:
                self._finish(other)
        assert self._kind is not None
        made = OpenMap(self._make_rows(sample, shape), self._sink(sample, shape), shape[0])
        self._open[sample] = made
        return made

    def _make_rows(self, sample: int, shape: tuple[int, int]) -> OpenRows:
        assert self._kind is not None
        scratch = None if self._ordered else self._folder
        if scratch is not None and scratch.warn():
            size = self._kind.channels * 8 + 8
            total = size * sum(rows * columns for rows, columns in self._samples.shapes())
            warnings.warn(
                f"predictions are kept in scratch files in {scratch.path} till all windows came, "
                f"up to {total / 1e6:.0f} MB: {self._why}",
                stacklevel=6,
            )
        allocate = in_memory if scratch is None else scratch.allocator(sample)
        kind = self._kind
        rows = OpenRows(self._merge, kind.channels, shape[1], kind.dtype, allocate)
        if not self._ordered:
            rows.reach(shape[0])
        return rows

    def _sink(self, sample: int, shape: tuple[int, int]) -> Sink:
        """The sink that writes the finished rows of a map."""
        assert self._kind is not None
        kind = self._kind
        if self._classes is None:
            dtype = result_type(self._merge, kind.dtype)
        else:
            dtype = self._classes.dtype
        fill = fill_value(dtype, self._fill)
        layers = None if kind.flat or self._classes is not None else kind.channels
        if self._folder is None:
            writer: Writer = InMemory(layers, shape, dtype)
        else:
            writer = NpyFile(
                self._folder.path / f"{self._samples.file(sample)}.npy", layers, shape, dtype
            )
        return Sink(writer, self._classes, dtype, fill)

    # Maps.

    def finished(self) -> Iterator[tuple[int, Map]]:
        """Yields the maps that are finished so far and were not yielded yet, as (id of the sample,
        array).

        The stitcher then no longer keeps maps in memory. With ``output``, arrays are memory maps of
        the files.
        """
        while self._finished:
            sample = next(iter(self._finished))
            made = self._finished.pop(sample)
            self._taken.add(sample)
            if made is None:
                assert self._folder is not None
                path = self._folder.path / f"{self._samples.file(sample)}.npy"
                made = np.load(path, mmap_mode="r")
            yield sample, made

    def maps(self) -> Iterator[tuple[int, Map]]:
        """Finishes all maps, see :meth:`close`, and yields those that were not yielded yet, as (id
        of the sample, array).
        """
        self.close()
        yield from self.finished()

    def write(
        self,
        folder: str | os.PathLike[str],
        format: str = "tif",
        *,
        names: Names | None = None,
        colors: Colors | None = None,
    ) -> list[pathlib.Path]:
        """Finishes all maps, and writes those that were not yielded yet to files named after the
        samples. The files have the geographic position of their cubes; see
        :func:`hsipack.write_map`.

        Args:
            folder: the folder for the files; it is made if it does not exist.
            format: ``"tif"``, ``"hdr"`` (ENVI), ``"zarr"`` or ``"npy"``.
            names: names of classes or channels.
            colors: colours of classes.

        Returns:
            The paths of the files.
        """
        path = pathlib.Path(_options.path("folder", folder))
        ending = _options.choice("format", format, ("tif", "hdr", "zarr", "npy"))
        with reporting(path):
            path.mkdir(parents=True, exist_ok=True)
        files = []
        for sample, array in self.maps():
            file = path / f"{self._samples.file(sample)}.{ending}"
            nodata = fill_value(array.dtype, self._fill)
            about = {"nodata": nodata, "names": names, "colors": colors}
            files += write_map(file, array, self._dataset, sample, **about)
        return files

    def close(self) -> None:
        """Finishes all maps; no more windows can be added. Calling it again does nothing.

        Raises:
            ConflictError: if pixels are without a prediction and this is not allowed. The maps of
                these samples are not written.
        """
        if self._closed:
            return
        self._closed = True
        for sample in list(self._open):
            self._finish(sample)
        if self._folder is not None:
            self._folder.clear()
        if not self._allow_missing:
            for sample in self._samples.ids:
                if sample not in self._finished and sample not in self._taken:
                    rows, columns = self._samples.shape(sample)
                    self._missing.setdefault(sample, rows * columns)
        if self._missing:
            sample, pixels = next(iter(sorted(self._missing.items())))
            others = len(self._missing) - 1
            more = f", and {others} other samples lack some" if others else ""
            raise ConflictError(
                f"{pixels} pixels of sample {sample} ({self._samples.name(sample)}) have no "
                f"prediction{more}",
                path=self._dataset.path,
                remedy="add the predictions of all batches of an epoch, or say allow_missing=True",
            )

    def _finish(self, sample: int) -> None:
        found = self._open.pop(sample)
        found.rows.reach(found.height)
        found.flush(found.height)
        if found.sink.missing and not self._allow_missing:
            self._missing[sample] = found.sink.missing
            found.sink.writer.discard()
        else:
            self._finished[sample] = found.sink.writer.finish()
        if self._folder is not None:
            self._folder.drop(sample)

    def _discard(self) -> None:
        """Deletes everything that belongs to unfinished maps."""
        self._closed = True
        for found in self._open.values():
            found.sink.writer.discard()
        self._open.clear()
        if self._folder is not None:
            self._folder.clear()

    def __enter__(self) -> Stitcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._discard()

    # Reports.

    @property
    def rows_kept(self) -> int:
        """The number of rows that the stitcher keeps now, for all unfinished maps."""
        return sum(found.rows.end - found.rows.first for found in self._open.values())

    def report(self) -> dict[str, Any]:
        """Returns how the stitcher works: ``ordered``, whether it assumes that windows come row by
        row, and ``why``; ``most_rows``, the largest number of rows that were kept at once;
        ``maps``, the number of finished maps; ``open``, the number of unfinished maps.
        """
        return {
            "ordered": self._ordered,
            "why": self._why,
            "most_rows": self._most_rows,
            "maps": len(self._finished) + len(self._taken),
            "open": len(self._open),
        }

    def __repr__(self) -> str:
        maps = len(self._finished) + len(self._taken)
        return f"<hsipack.Stitcher of {self._dataset!r}, {maps} maps finished>"


# Input.


class _Windows:
    """What is known about the windows that will come.

    Attributes:
        dataset: the dataset of the windows.
        unordered: why they may not come row by row; None if they do.
        cover: whether every pixel of every cube is in a window.
    """

    def __init__(self, dataset: Any, unordered: str | None, cover: bool) -> None:
        self.dataset, self.unordered, self.cover = dataset, unordered, cover

    @classmethod
    def of(cls, source: Any) -> _Windows:
        if isinstance(source, Concat) or getattr(source, "_joined", None) is not None:
            raise UnsupportedError(
                "a stitcher cannot use several datasets",
                remedy="create one stitcher for each dataset",
            )
        if not isinstance(source, Loader):
            dataset = _torch_data.opened(source)
            return cls(dataset, "windows of a dataset may come in any order", cover=True)
        # Whether it is one of several ranks is known only then.
        source._settle()
        settings = source._settings
        if settings["pipeline"] is not None:
            raise UnsupportedError(
                "augmented images cannot be mapped",
                remedy="create a loader without augment; to merge predictions of augmented images, "
                "undo what was done to them and give the dataset instead of the loader",
            )
        kind = crops.kind(settings)
        unordered = None
        if settings["order"] != "sequential":
            unordered = "the loader shuffles"
        elif settings["world_size"] > 1:
            unordered = f"the loader is one of {settings['world_size']} ranks"
        elif settings["epoch_length"] is not None:
            unordered = "an epoch of the loader may lack or repeat windows"
        elif kind in ("random", "windows"):
            unordered = "windows of the loader may be anywhere"
        return cls(source.dataset, unordered, cover=kind in ("whole", "grid"))


class _Samples:
    """Shapes and names of a dataset's samples, by their ids."""

    def __init__(self, dataset: Any) -> None:
        self.ids: list[int] = dataset.ids
        about = dataset._native.about(self.ids)
        self._about = {
            one: (name, stack) for one, (name, _, stack) in zip(self.ids, about, strict=True)
        }
        self._shapes = [stack.shape[:2] for stack in dataset.stacks.values()]
        self._path = dataset.path
        files = [_file_name(name) for name, _, _ in about]
        # Several samples may have the same name, or file names that differ only in case, which some
        # disks ignore.
        counts = Counter(file.lower() for file in files)
        taken, self._files = set(counts), {}
        for one, file in zip(self.ids, files, strict=True):
            chosen = file
            # With its number, a name may be that of another sample.
            while counts[file.lower()] > 1 and chosen.lower() in taken:
                chosen = f"{chosen}-{one}"
            taken.add(chosen.lower())
            self._files[one] = chosen

    def _of(self, sample: int) -> tuple[str, int]:
        found = self._about.get(sample)
        if found is None:
            raise ConflictError(
                f"a window belongs to sample {sample}, which is not to be mapped",
                path=self._path,
                remedy="create the stitcher from the loader that gives the batches",
            )
        return found

    def shape(self, sample: int) -> tuple[int, int]:
        rows, columns = self._shapes[self._of(sample)[1]]
        return rows, columns

    def shapes(self) -> list[tuple[int, int]]:
        return [self.shape(one) for one in self.ids]

    def stack(self, sample: int) -> int:
        return self._of(sample)[1]

    def name(self, sample: int) -> str:
        return self._of(sample)[0]

    def file(self, sample: int) -> str:
        return self._files[sample]


def _file_name(name: str) -> str:
    """A sample's name as a file name, without characters that shells or file systems interpret."""
    return re.sub(r"[^\w.+-]+", "_", name).lstrip(".-")[:200] or "sample"


def _read(
    batch: Mapping[str, Any],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The ids and windows of a batch, and which of them are not padding."""
    remedy = "give a batch of a loader, or a dictionary with its id, window and padding"
    if not isinstance(batch, Mapping):
        raise _options.wrong_type("batch", batch, remedy)
    if not {"id", "window"} <= set(batch):
        raise _options.wrong("batch", batch, remedy)
    given = [batch["id"], batch["window"], batch.get("padding")]
    ids, windows, padding = (_arrays.host(one) if _arrays.is_array(one) else one for one in given)
    try:
        ids = np.asarray(ids, dtype=np.int64).reshape(-1)
        windows = np.asarray(windows, dtype=np.int64).reshape(len(ids), 4)
        kept = ~np.asarray(padding, dtype=np.bool_) if padding is not None else None
        if kept is not None:
            kept = kept.reshape(len(ids))
    except (TypeError, ValueError):
        raise _options.wrong("batch", batch, remedy) from None
    return ids, windows, np.ones(len(ids), np.bool_) if kept is None else kept
