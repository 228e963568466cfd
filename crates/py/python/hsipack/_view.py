"""Looking at datasets and cubes in a browser, or in a notebook."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from types import TracebackType
from typing import Any

from hsipack import _hsipack, _options
from hsipack._errors import UnsupportedError
from hsipack.dataset import Dataset
from hsipack.loader import Loader


class Viewer:
    """A server that shows a dataset or a cube to this machine's browser; :func:`hsipack.view`
    starts it. As the last line of a notebook's cell it shows the page there.

    It ends with :meth:`close`, at the end of a ``with`` block, or with the program.
    """

    def __init__(self, native: _hsipack.Viewer, height: int) -> None:
        self._native = native
        self._height = height

    @property
    def url(self) -> str:
        """The address of the page. It has a token: whoever does not know it is refused."""
        return self._native.url

    @property
    def is_running(self) -> bool:
        """Whether the server still answers."""
        return self._native.is_running()

    def close(self) -> None:
        """Ends the server; more than once does no harm."""
        self._native.close()

    def wait(self) -> None:
        """Returns when the server has ended, which keeps a script alive; Ctrl-C ends the wait."""
        while self.is_running:
            time.sleep(0.05)

    def __enter__(self) -> Viewer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hsipack.Viewer {self.url if self.is_running else 'closed'}>"

    def _repr_html_(self) -> str:
        # The address consists of digits and letters that are no markup.
        return (
            f'<iframe src="{self.url}" width="100%" height="{self._height}" '
            'style="border: 0"></iframe>'
        )


def view(
    subject: Dataset | Loader | str | os.PathLike[str],
    *,
    axes: str | None = None,
    port: int = 0,
    browser: bool | None = None,
    height: int = 720,
) -> Viewer:
    """Shows a dataset, or cubes in files that need not be packed, in the browser: thumbnails of the
    samples, cubes in colour, spectra of pixels, rectangles and classes, masks. ``hsipack view`` is
    the command.

    Of a :class:`Loader` the page begins with what training is given: any batch of any epoch, before
    and after its augmentations, with what was drawn for each item. It reads the batches itself: the
    loader stays where it is, and may be closed.

    The server runs in threads of this process; it answers this machine only, and writes nothing.

    Args:
        subject: a dataset or its path or URL; a loader of one; a cube in any input format
            (``file`` or ``file::variable``); a folder of cubes. Of a part of a dataset, all of it
            is shown.
        axes: order of the axes of an array in its own tool's index order, such as ``"byx"``.
        port: the port of this machine to listen on; 0 is any that is free.
        browser: whether to open a browser; if ``None``, only where this is no notebook.
        height: of the page in a notebook, in pixels.

    Raises:
        ConflictError: if the port is taken.
        Error: if there is nothing to look at.

    >>> with hsipack.view(dataset_path, browser=False) as viewer:
    ...     viewer.url.startswith("http://127.0.0.1:")
    True
    """
    settings = None
    if isinstance(subject, Loader):
        subject, settings = _loaded(subject)
    path = subject.path if isinstance(subject, Dataset) else _options.path("subject", subject)
    port = _options.natural("port", port, least=0, most=65535)
    height = _options.natural("height", height)
    viewer = Viewer(_hsipack.Viewer(path, axes, port, settings), height)
    if _is_notebook() if browser is None else not _options.flag("browser", browser):
        return viewer
    webbrowser.open(viewer.url)
    return viewer


def _loaded(loader: Loader) -> tuple[Dataset, dict[str, Any]]:
    from hsipack._concat import ConcatLoader

    if isinstance(loader, ConcatLoader):
        raise UnsupportedError(
            "a viewer of a loader of several datasets",
            remedy="look at a loader of one of them",
        )
    return loader._dataset, loader._settings


def _is_notebook() -> bool:
    shell = sys.modules.get("IPython")
    instance = shell.get_ipython() if shell is not None else None
    return instance is not None and hasattr(instance, "kernel")
