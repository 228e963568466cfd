"""What a packed dataset needs to be published."""

from __future__ import annotations

from typing import Any

from hsipack import _hsipack, _options, reports
from hsipack.dataset import Dataset
from hsipack.packing import Path
from hsipack.reports import CardReport


def card(
    dataset: Path | Dataset,
    output: Path | None = None,
    *,
    about: Path | None = None,
    force: bool = False,
) -> CardReport:
    """Writes the files that others need to find, cite and load a dataset.

    =================== ==========================================================================
    ``README.md``       a dataset card for the Hugging Face Hub: sensors, bands, splits, classes
                        with their pixels, license, authors, three lines that load the dataset
    ``preview.png``     its picture
    ``croissant.json``  Croissant 1.0: files with checksums, the table of samples, bands, classes
    ``stac/``           a STAC collection, with an item for each cube that has a place and a time
    =================== ==========================================================================

    Everything comes from the dataset or from the author's file. A license is never invented.

    Args:
        dataset: path of the dataset, or an opened dataset.
        output: the folder of the files. If ``None``, the folder that holds the dataset.
        about: the author's words: a TOML file with title, description, license, authors, citation
            and more. ``hsipack card --template`` prints one to fill in.
        force: overwrite existing files.

    Returns:
        A report: the files, and notes on what is missing.

    Raises:
        Error: if the dataset or the author's file cannot be read, or a file exists already.

    >>> (folder / "about.toml").write_text('title = "Twelve scans"\\nlicense = "CC-BY-4.0"\\n')
    45
    >>> report = hsipack.card(dataset_path, folder / "card", about=folder / "about.toml")
    >>> [path.rsplit("/", 1)[1] for path in report.files]
    ['preview.png', 'README.md', 'croissant.json']
    """
    settings: dict[str, Any] = {
        "dataset": dataset.path
        if isinstance(dataset, Dataset)
        else _options.path("dataset", dataset),
        "force": _options.flag("force", force),
    }
    for name, value in (("output", output), ("about", about)):
        if value is not None:
            settings[name] = _options.path(name, value)
    return reports.card_report(_hsipack.card(settings))
