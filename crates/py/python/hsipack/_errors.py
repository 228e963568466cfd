"""Exceptions. Each one says which file is concerned, what is wrong, and what to do."""

import re

# Names in messages may have any characters. These would control the terminal that shows them.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def _printable(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


class Error(Exception):
    """The base class of all errors of hsipack.

    Attributes:
        what: what is wrong.
        path: the file concerned, or ``None``.
        remedy: what to do about it, or ``None`` if that is unknown.

    >>> error = Error("interleave is 'bup'", path="a.hdr", remedy="use bsq, bil or bip")
    >>> str(error)
    "a.hdr: interleave is 'bup' (use bsq, bil or bip)"

    Control characters are escaped in the text of the error, but not in its attributes.
    """

    def __init__(self, what: str, *, path: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.path = path
        self.remedy = remedy

    def __str__(self) -> str:
        path = f"{_printable(self.path)}: " if self.path else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        lines = f"{self.what}{remedy}".split("\n")
        return path + "\n".join(map(_printable, lines))

    def __reduce__(self) -> tuple[object, ...]:
        # Workers send their exceptions to the process that waits for them.
        return _remade, (type(self), self.what, self.path, self.remedy)


def _remade(kind: type[Error], what: str, path: str | None, remedy: str | None) -> Error:
    return kind(what, path=path, remedy=remedy)


class FileError(Error, OSError):
    """The operating system reports an error: a file is missing or unreadable, or there is no space,
    memory or permission.
    """


class OutOfMemoryError(FileError, MemoryError):
    """There is not enough memory. It is a ``MemoryError`` and a :class:`FileError`."""


class MalformedError(Error, ValueError):
    """A file is not what it claims to be, is cut short, or contradicts itself."""


class UnsupportedError(Error):
    """The request is valid, but hsipack does not support it."""


class AmbiguousError(Error, ValueError):
    """A file has several candidates, or axes that cannot be distinguished: choose one."""


class RangeError(Error, ValueError):
    """A value does not fit the type that it has to be stored as."""


class ConflictError(Error, ValueError):
    """Options contradict each other, the dataset, or what is already on disk."""


class ArgumentTypeError(ConflictError, TypeError):
    """An argument has the wrong type: text where a number is needed, ``None`` where it has no
    meaning. It is a ``TypeError`` and a :class:`ConflictError`.
    """


class DamagedError(Error):
    """Stored bytes of a dataset do not match their checksums or records."""


class DeviceError(Error, RuntimeError):
    """A device cannot be used, or failed: there is no GPU, the driver is too old, the memory of the
    device is full (:class:`DeviceMemoryError`), or the device was lost.
    """


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has not enough memory. It is a ``MemoryError`` and a :class:`DeviceError`."""


class BugError(Error, RuntimeError):
    """A bug in hsipack; please report it."""
