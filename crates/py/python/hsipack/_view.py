"""Viewing datasets and cubes in a browser or a notebook."""

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
    """A server that shows a dataset or a cube in a browser on this machine. :func:`hsipack.view`
    starts it. As the last line of a notebook cell, it shows the page in the notebook.

    It stops when you call :meth:`close`, at the end of a ``with`` block, or when the program ends.
    """

    def __init__(self, native: _hsipack.Viewer, height: int) -> None:
        self._native = native
        self._height = height

    @property
    def url(self) -> str:
        """The address of the page. It contains a token; requests without the token are refused."""
        return self._native.url

    @property
    def is_running(self) -> bool:
        """Whether the server is running."""
        return self._native.is_running()

    def close(self) -> None:
        """Stops the server. Calling it again does nothing."""
        self._native.close()

    def wait(self) -> None:
        """Waits until the server has stopped, so that a script keeps running. Ctrl-C ends this."""
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
        # The address has no characters that are markup in HTML.
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
    """Shows a dataset, or cubes in files that are not packed, in the browser: thumbnails of the
    samples, cubes in colour, masks, and spectra of pixels, rectangles and classes. The command is
    ``hsipack view``.

    For a :class:`Loader`, the page begins with what training gets: any batch of any epoch, before
    and after augmentation, with the random parameters of each item. The viewer reads the batches
    itself: the loader keeps its position, and may be closed.

    The server runs in threads of this process. It answers only this machine, and writes nothing.

    Args:
        subject: a dataset, or its path or URL; a loader of a dataset; a cube in any input format
            (``file`` or ``file::variable``); or a folder of cubes. For a part of a dataset, the
            whole dataset is shown.
        axes: order of the axes of an array, in the index order of its own tool, such as ``"byx"``.
        port: the port of this machine to listen on; 0 is any free port.
        browser: whether to open a browser. If ``None``, a browser is opened except in a notebook.
        height: height of the page in a notebook, in pixels.

    Returns:
        The running server.

    Raises:
        ConflictError: if the port is in use.
        Error: if there is nothing to show.

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
    if loader._joined is not None:
        raise UnsupportedError(
            "the viewer cannot show a loader of several datasets",
            remedy="give a loader of one of them",
        )
    loader._settle()
    return loader.dataset, loader._settings


def _is_notebook() -> bool:
    shell = sys.modules.get("IPython")
    instance = shell.get_ipython() if shell is not None else None
    return instance is not None and hasattr(instance, "kernel")
