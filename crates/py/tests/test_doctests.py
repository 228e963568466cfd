"""Runs every example in a docstring."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import hsipack
import numpy as np
import pytest
import torch

MODULES = ["hsipack"] + [
    module.name
    for module in pkgutil.walk_packages(hsipack.__path__, "hsipack.")
    if module.name != "hsipack._hsipack"
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(
    name: str, dataset: str, own_dataset: Path, cubes: Path, tmp_path: Path
) -> None:
    module = importlib.import_module(name)
    names = {
        "dataset_path": dataset,
        "own_path": own_dataset,
        "cubes": cubes,
        "folder": tmp_path,
        "hsipack": hsipack,
        "np": np,
        "torch": torch,
    }
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_public_names_have_docstrings_and_the_important_ones_examples() -> None:
    for name in hsipack.__all__:
        thing = getattr(hsipack, name)
        if not isinstance(thing, str):
            assert thing.__doc__, name
    finder = doctest.DocTestFinder()
    with_examples = {
        test.name
        for module in MODULES
        for test in finder.find(importlib.import_module(module))
        if test.examples
    }
    assert hsipack.open is hsipack.Dataset
    important = ("dataset.Dataset", "loader.Loader", "packing.convert", "packing.validate")
    for name in (*important, "masks.split", "masks.add_mask"):
        assert f"hsipack.{name}" in with_examples
