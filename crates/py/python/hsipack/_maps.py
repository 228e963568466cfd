"""The maps of a stitcher: their values, and the files that they are written to."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from hsipack import _options
from hsipack._errors import ArgumentTypeError, ConflictError, Error, FileError
from hsipack._merging import Allocate, OpenRows

Map = npt.NDArray[Any]

# How many rows of a map are merged at a time.
_BLOCK = 64


class Kind:
    """The kind of predictions.

    Attributes:
        channels: number of channels.
        flat: whether they came without an axis of channels.
        dtype: their element type.
    """

    def __init__(self, channels: int, flat: bool, dtype: np.dtype[Any]) -> None:
        self.channels, self.flat, self.dtype = channels, flat, dtype


class Classes:
    """The class id of each channel; the numbers of the channels if ``ids`` is None."""

    def __init__(self, ids: list[int] | None) -> None:
        self.ids = None if ids is None else np.array(ids, dtype=np.int64)
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)

    def check(self, channels: int) -> None:
        """Checks that the ids fit this number of channels."""
        if channels == 1 and self.ids is None:
            raise ConflictError(
                "classes of predictions with one channel",
                remedy="predict a channel for every class, also if there are only two",
            )
        if self.ids is not None and len(self.ids) != channels:
            raise ConflictError(
                f"{len(self.ids)} class ids for predictions of {channels} channels",
                remedy="give the class id of every channel",
            )
        most = channels - 1 if self.ids is None else int(self.ids.max())
        # The largest number of the type is reserved for pixels without a prediction.
        self.dtype = np.dtype(np.uint8 if most < 255 else np.uint16 if most < 65535 else np.uint32)

    def of(self, values: Map) -> Map:
        """Class ids of scores (channels, rows, columns)."""
        best: Map = values.argmax(axis=0)
        return best if self.ids is None else self.ids[best]


def checked_class_ids(classes: object) -> Classes | None:
    """The argument ``class_ids`` of a stitcher, checked; None if maps have channels."""
    if isinstance(classes, bool | np.bool_):
        return Classes(None) if classes else None
    remedy = "give True, or the class id of every channel"
    if not isinstance(classes, Sequence | np.ndarray) or isinstance(classes, str):
        raise _options.wrong_type("class_ids", classes, remedy)
    if not len(classes):
        raise _options.wrong("class_ids", classes, remedy)
    most = (1 << 32) - 2
    return Classes([_options.natural("class_ids", one, least=0, most=most) for one in classes])


def result_type(merge: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The element type of a map."""
    if dtype.kind not in "fiub":
        raise ArgumentTypeError(f"predictions of type {dtype}", remedy="give real numbers")
    if dtype == np.float64:
        return dtype
    if dtype.kind == "f" or merge != "center":
        return np.dtype(np.float32)
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype


def fill_value(dtype: np.dtype[Any], fill: float | None) -> Any:
    """The value of pixels without a prediction."""
    if dtype.kind == "f":
        return np.nan if fill is None else fill
    most = np.iinfo(dtype).max
    if fill is None:
        return most
    if fill != int(fill) or not np.iinfo(dtype).min <= fill <= most:
        raise ConflictError(f"fill={fill:g} of {dtype}", remedy=f"give a number that {dtype} has")
    return int(fill)


class OpenMap:
    """A map that is not finished."""

    def __init__(self, rows: OpenRows, sink: Sink, height: int) -> None:
        self.rows, self.sink, self.height = rows, sink, height

    def flush(self, until: int) -> None:
        """Writes the rows before this one."""
        while self.rows.first < until:
            first = self.rows.first
            # Some of these rows may have no window.
            step = min(first + _BLOCK, until)
            self.rows.reach(step)
            values, seen = self.rows.take(step)
            self.sink.write(first, values, seen)


class Sink:
    """Converts merged rows to rows of the map, and counts pixels without a prediction."""

    def __init__(
        self, writer: Writer, classes: Classes | None, dtype: np.dtype[Any], fill: Any
    ) -> None:
        self.writer, self._classes, self._dtype, self._fill = writer, classes, dtype, fill
        self.missing = 0

    def write(self, first: int, values: Map, seen: npt.NDArray[np.bool_]) -> None:
        self.missing += int(seen.size - np.count_nonzero(seen))
        if self._classes is not None:
            # NaN scores do not predict a class.
            seen = seen & ~np.isnan(values).any(axis=0) if values.dtype.kind == "f" else seen
            values = self._classes.of(values)[None]
        rows = np.full(values.shape, self._fill, self._dtype)
        np.copyto(rows, values, where=seen, casting="unsafe")
        self.writer.write(first, rows)


class Writer:
    """Stores the rows of a map."""

    def write(self, first: int, rows: Map) -> None:
        """Writes rows (channels, rows, columns), beginning with row ``first``."""
        raise NotImplementedError

    def finish(self) -> Map | None:
        """Completes the map, and returns it if it is in memory."""
        raise NotImplementedError

    def discard(self) -> None:
        """Deletes the map."""


class InMemory(Writer):
    def __init__(self, layers: int | None, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self._flat = layers is None
        self._made = np.empty((layers or 1, *shape), dtype)

    def write(self, first: int, rows: Map) -> None:
        self._made[:, first : first + rows.shape[1]] = rows

    def finish(self) -> Map | None:
        return self._made[0] if self._flat else self._made


class NpyFile(Writer):
    """A ``.npy`` file, which appears when it is finished.

    Rows are written to their place in the file, not through a memory map, so they do not count as
    memory of this process.
    """

    def __init__(
        self, path: pathlib.Path, layers: int | None, shape: tuple[int, int], dtype: np.dtype[Any]
    ) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._shape, self._dtype = shape, dtype
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": shape if layers is None else (layers, *shape),
        }
        # Opened with the first rows, because thousands of begun maps may have no rows yet.
        self._header = header
        self._file: BinaryIO | None = None
        self._start = 0

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = self._part.open("wb")
            np.lib.format.write_array_header_1_0(self._file, self._header)
            self._start = self._file.tell()
        return self._file

    def write(self, first: int, rows: Map) -> None:
        height, width = self._shape
        with reporting(self._part):
            file = self._opened()
            for channel, values in enumerate(rows):
                place = (channel * height + first) * width * self._dtype.itemsize
                file.seek(self._start + place)
                file.write(np.ascontiguousarray(values).data)

    def finish(self) -> None:
        with reporting(self._path):
            self._opened().close()
            self._part.replace(self._path)

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._part.unlink(missing_ok=True)


class Folder:
    """The folder of the maps, and a folder inside it for scratch files if they are needed."""

    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)
        with reporting(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._scratch: pathlib.Path | None = None
        self._cleanup: weakref.finalize[Any, Any] | None = None

    def warn(self) -> bool:
        """Whether this is the first map that needs a scratch file."""
        return self._scratch is None

    def allocator(self, sample: int) -> Allocate:
        """Returns a function that makes arrays of zeros in files. The stitcher deletes them when it
        ends."""
        if self._scratch is None:
            with reporting(self.path):
                self._scratch = pathlib.Path(tempfile.mkdtemp(prefix=".stitching-", dir=self.path))
            self._cleanup = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        scratch = self._scratch

        def allocate(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Map:
            path = scratch / f"{sample}-{name}"
            with reporting(path):
                return np.memmap(path, dtype=dtype, mode="w+", shape=shape)

        return allocate

    def drop(self, sample: int) -> None:
        """Removes the scratch files of a sample."""
        if self._scratch is not None:
            for path in self._scratch.glob(f"{sample}-*"):
                path.unlink()

    def clear(self) -> None:
        """Removes all scratch files."""
        if self._cleanup is not None:
            self._cleanup()


@contextlib.contextmanager
def reporting(path: pathlib.Path) -> Iterator[None]:
    """Converts errors of the system to errors of this package."""
    try:
        yield
    except OSError as error:
        if isinstance(error, Error):
            raise
        raise FileError(
            f"cannot write: {error.strerror or error}",
            path=str(path),
            remedy="check the folder and the space on its disk",
        ) from error


def in_memory(_: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Map:
    return np.zeros(shape, dtype)
