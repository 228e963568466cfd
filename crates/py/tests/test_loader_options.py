"""The options of a loader are fields of structs in crates/read. The signature of
``hsipack.Loader``, which is its stub as well, its documentation and its settings follow them.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import hsipack
from hsipack import _hsipack

FIELDS: dict[str, Any] = json.loads(_hsipack.loader_defaults())
"""The fields with their defaults."""

ANOTHER_WAY = {
    "order": {"shuffle", "sampler"},
    "weights": {"sampler"},
    "samples": {"dataset", "split"},
    "patches": {"crop"},
    "regions": {"crop"},
    "is_mix": {"dataset"},
    "mixes_items": {"dataset"},
    "common_bands": {"dataset"},
    "threads": {"num_threads"},
    "pipeline": {"augment"},
    "torch": {"output"},
}
"""Fields that Python's users set by arguments of other names."""

OF_THE_DATASET = {
    *("images", "layers", "mask_dtype", "masks", "min_visible", "nan", "new_ids", "physical"),
    "targets",
}
"""Fields that the dataset says: ``ds.with_masks(…)``, ``ds.with_targets(…)``,
``ds.with_images(…)``, ``ds.with_boxes(…)``, ``ds.select(…)``.
"""

OF_KEYWORDS = {
    "decode": "decode",
    "device_cache": "device_cache",
    "device_cache_size": "device_cache_size",
    "valid": "extras",
}
"""Fields that arguments set which are not in the signature, and these arguments."""

NOT_IN_PYTHON = {
    "computing_threads",
    "emulated_bus",
    "end_epoch",
    "locked",
    "no_huge_pages",
    "repeat",
    "trace",
}
"""Fields for measurements, for the command, or that follow torch's settings; and ``trace``, which
``start_trace`` sets.
"""

PARAMETERS = {
    name: one
    for name, one in inspect.signature(hsipack.Loader).parameters.items()
    if one.kind is not one.VAR_KEYWORD
}


def test_every_field_is_an_argument_and_every_argument_a_field() -> None:
    same = set(FIELDS) & set(PARAMETERS)
    without = set(ANOTHER_WAY) | OF_THE_DATASET | set(OF_KEYWORDS) | NOT_IN_PYTHON
    assert set(FIELDS) == same | without
    assert set(PARAMETERS) == same.union(*ANOTHER_WAY.values())
    assert not set(PARAMETERS) & without
    assert len(PARAMETERS) <= 24


def test_defaults_are_those_of_the_fields() -> None:
    # A batch of one sample is the default of torch's DataLoader.
    assert (PARAMETERS["batch_size"].default, FIELDS["batch_size"]) == (1, 6)
    for name in set(FIELDS) & set(PARAMETERS) - {"batch_size"}:
        default = PARAMETERS[name].default
        # None stands for the library's default, or for what is found out when training begins.
        assert default is None or default == FIELDS[name], name


def test_the_documentation_lists_the_arguments_in_their_order() -> None:
    text = inspect.getdoc(hsipack.Loader)
    assert text is not None
    listed = text.partition("\nArgs:\n")[2].partition("\nRaises:\n")[0]
    arguments, _, keywords = listed.partition("\nKeyword Args:\n")
    assert re.findall(r"^    (\w+): ", arguments, re.MULTILINE) == list(PARAMETERS)
    found = re.findall(r"^    (\w+): ", keywords, re.MULTILINE)
    assert found == [*OF_KEYWORDS.values(), "quality"]


def test_settings_have_every_field_that_python_sets_and_no_other(dataset: str) -> None:
    with hsipack.Loader(dataset, device="cpu") as loader:
        names = set(loader._settings)
    # The samples of a split are chosen in Python.
    assert names == set(FIELDS) - {"end_epoch", "locked", "no_huge_pages", "split"}
