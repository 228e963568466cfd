"""The page docs/reference/options.md, and the names of options."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXTENSIONS = Path(__file__).parents[3] / "docs/_extensions"


@pytest.fixture(scope="module")
def table() -> ModuleType:
    """The script that makes the page."""
    spec = importlib.util.spec_from_file_location("option_table", EXTENSIONS / "option_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(table: ModuleType) -> dict[str, dict[str, str]]:
    """Every option of every command."""
    options: dict[str, dict[str, str]] = table.options(program())
    assert len(options) > 100
    return options


def program() -> str:
    """The command."""
    named = os.environ.get("HSIPACK") or shutil.which("hsipack")
    assert named is not None
    return named


def test_the_page_of_options_is_up_to_date(table: ModuleType) -> None:
    script = "HSIPACK=… python docs/_extensions/option_table.py"
    assert table.PAGE.read_text(encoding="utf-8") == table.page(program()), f"run {script}"


def test_an_option_has_one_meaning(table: ModuleType, found: dict[str, dict[str, str]]) -> None:
    double = table.with_two_meanings(found)
    new = {name: found[name] for name in double - set(table.TWO_MEANINGS)}
    assert not new, "describe these alike in all commands, or give them different names"
    settled = set(table.TWO_MEANINGS) - double
    assert not settled, f"remove these from the list: {settled}"
    assert len(table.TWO_MEANINGS) <= 9, "the list may only become shorter"


def test_descriptions_that_begin_alike_mean_the_same(table: ModuleType) -> None:
    for text, other in (
        ("Number of threads", "Number of threads for the validation"),
        ("Number of threads, for decoding", "Number of threads [default: one per core]"),
        ("Write an HTML page with charts", "Write an HTML page that plays the run"),
    ):
        assert table.agree(text, other)
        assert table.agree(other, text)
    for text, other in (
        ("Draw this sample", "Uncompressed size of the cubes"),
        ("Class id, for pixels", "Class names, such as 1=tumour"),
        ("Read only cubes of these splits", "Read only cubes that meet a condition"),
    ):
        assert not table.agree(text, other), text


def test_names_in_python_are_those_of_its_arguments(
    table: ModuleType, found: dict[str, dict[str, str]]
) -> None:
    spelled = {row.name: table.in_python(row) for row in table.rows(found)}
    assert "convert(table)" in spelled["table"]
    assert "diagnose(seconds)" in spelled["time"]
    assert {"Loader(num_threads)", "validate(num_threads)"} <= set(spelled["threads"])
    assert "LabelledPatches(per_class)" in str(spelled)
    # The list names no option that is gone, and none whose name Python has.
    assert all(spelled[name] for name in table.OTHER_NAMES)
