"""Exceptions: every one names the file, what was wrong with it, and what to do."""

import re

# Names in messages may hold anything. These characters would steer the terminal that shows them.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def _printable(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


class Error(Exception):
    """Whatever hsipack could not do.

    Attributes:
        what: what was wrong.
        path: the file concerned, if one is.
        remedy: what to do about it, if that is known.

    >>> error = Error("interleave is 'bup'", path="a.hdr", remedy="use bsq, bil or bip")
    >>> str(error)
    "a.hdr: interleave is 'bup' (use bsq, bil or bip)"

    Control characters are escaped in its text, and stay what they are in its attributes.
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
        # Exceptions travel from workers to the process that waits for them.
        return _remade, (type(self), self.what, self.path, self.remedy)


def _remade(kind: type[Error], what: str, path: str | None, remedy: str | None) -> Error:
    return kind(what, path=path, remedy=remedy)


class FileError(Error, OSError):
    """The operating system refused: missing, unreadable, no space, no memory, no permission."""


class MalformedError(Error, ValueError):
    """A file is not what it claims to be, is cut short, or contradicts itself."""


class UnsupportedError(Error):
    """What is asked for is sound, but hsipack does not do it."""


class AmbiguousError(Error, ValueError):
    """A file holds several candidates, or axes that cannot be told apart; choose."""


class RangeError(Error, ValueError):
    """A value does not fit what it has to be stored in."""


class ConflictError(Error, ValueError):
    """Options contradict each other, the dataset, or what is already on disk."""


class DamagedError(Error):
    """Stored bytes of a dataset do not match their checksums or records."""


class DeviceError(Error, RuntimeError):
    """A device cannot be used or failed: no GPU, an old driver, its memory is full, it was lost."""


class BugError(Error, RuntimeError):
    """hsipack itself is wrong; please report it."""
