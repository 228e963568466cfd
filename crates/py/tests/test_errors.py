"""Errors say what to do in terms of Python, and have the documented class."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import hsipack
import numpy as np
import pytest
from hsipack import _hsipack, augment
from hsipack._torch_data import DataLoaderOptions

OPTIONS = _hsipack.spelled_options()
TAKERS = ("convert", "merge", "split", "validate", "Loader", "Dataset", "diagnose")


def takes(name: str) -> set[str]:
    """The arguments of a function or class of the package."""
    names = set(inspect.signature(getattr(hsipack, name)).parameters)
    # Some have no place in the signature.
    return names | set(DataLoaderOptions.__annotations__) if name == "Loader" else names


@pytest.mark.parametrize(("of", "name", "with_value"), OPTIONS, ids=lambda value: str(value))
def test_every_option_is_an_argument_that_python_has(of: str, name: str, with_value: str) -> None:
    if of.startswith("hsipack "):
        assert re.fullmatch(rf"`{of} --[a-z-]+`", name), "only the command has it, and is named"
        function = of.removeprefix("hsipack ")
        option = name.strip("`").rpartition("--")[2].replace("-", "_")
        there = hasattr(hsipack, function) and option in takes(function)
        assert not there, f"Python has {option} of {function}"
        return
    assert "--" not in name + with_value
    text = with_value if of and with_value.startswith(f"{of}(") else f"f({with_value})"
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert len(given) == 1
    alone = name.removesuffix(f" of {of}").split(" or ")
    names = {*given, *(word.partition("=")[0] for word in alone)}
    takers = [of] if of else TAKERS
    assert any(names <= takes(taker) for taker in takers), f"nothing takes {names}"


def test_all_options_are_spelled() -> None:
    assert len(OPTIONS) > 40
    spelled = {with_value for _, _, with_value in OPTIONS}
    assert {
        'scale="auto"',
        "append=True",
        'on_damage="skip"',
        'last="pad"',
        "RandomCrop(per_cube=1)",
        "chunk=(32, 32)",
        "cache_size=51_000_000",
        "num_threads=1",
    } <= spelled


def refusal(*arguments: object, **options: object) -> hsipack.Error:
    """The error of a conversion."""
    with pytest.raises(hsipack.Error) as caught:
        hsipack.convert(*arguments, **options)  # type: ignore[arg-type]
    assert caught.value.remedy
    assert "--" not in str(caught.value)
    assert "-o" not in str(caught.value).split()
    return caught.value


def test_overflow_names_scale(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((5, 4, 6), 7e4, np.float32))
    error = refusal(tmp_path / "a.npy", tmp_path / "out")
    assert isinstance(error, hsipack.RangeError)
    assert error.remedy == 'pass scale="auto", a larger scale, or dtype="float32"'
    report = hsipack.convert(tmp_path / "a.npy", tmp_path / "out", scale="auto")
    assert report.cubes == 1


def test_numbers_that_mark_missing_pixels_name_nodata(tmp_path: Path) -> None:
    values = np.full((5, 4, 6), 0.5, np.float32)
    values[1, 2] = np.finfo(np.float32).min
    np.save(tmp_path / "a.npy", values)
    error = refusal(tmp_path / "a.npy", tmp_path / "out")
    assert error.remedy
    assert error.remedy.startswith("pass nodata=-3.4028234663852886e38; if it is a value, pass")
    report = hsipack.convert(tmp_path / "a.npy", tmp_path / "out", nodata=-3.4028234663852886e38)
    assert report.nan == 6


def test_missing_masks_name_mask_fill(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 4, 6), np.float32))
    error = refusal(tmp_path / "a.npy", tmp_path / "out", mask="{dir}/{stem}_m.png")
    assert error.remedy
    assert error.remedy.endswith("cubes without one with mask_fill")


def test_an_existing_output_names_append(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 4, 6), np.float32))
    hsipack.convert(tmp_path / "a.npy", tmp_path / "out")
    error = refusal(tmp_path / "a.npy", tmp_path / "out")
    assert error.remedy == "choose another output, delete it, or pass append=True"


def test_a_dataset_without_splits_names_the_function_that_packs_them(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 4, 6), np.float32))
    hsipack.convert(tmp_path / "a.npy", tmp_path / "out")
    dataset = hsipack.open(tmp_path / "out")
    with pytest.raises(hsipack.ConflictError) as caught:
        hsipack.Loader(dataset, sampler="class_balanced", device="cpu")
    assert "hsipack.convert(table=…)" in str(caught.value)
    assert "choose another sampler" in str(caught.value)


def test_ambiguous_axes_name_axes(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["cube"] = np.zeros((7, 9, 12), np.float32)
    error = refusal(tmp_path / "a.h5", tmp_path / "out")
    assert isinstance(error, hsipack.AmbiguousError)
    assert error.remedy
    assert error.remedy.startswith("give the order of axes with axes: yxb if")
    hsipack.convert(tmp_path / "a.h5", tmp_path / "out", axes="yxb")


def test_what_can_be_chosen_is_part_of_the_message(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", x=np.zeros((3, 4, 5)), y=np.zeros((4, 4, 5)))
    error = refusal(tmp_path / "two.npz", tmp_path / "out")
    assert isinstance(error, hsipack.AmbiguousError)
    assert error.what.endswith("two.npz::x (3x4x5 float64), two.npz::y (4x4x5 float64)")


def test_notes_speak_python_too(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((16, 16, 8)).astype(np.float32))
    report = hsipack.convert(tmp_path / "a.npy", tmp_path / "out", keep_bits="auto")
    assert any(note.startswith('keep_bits="auto": ') for note in report.notes), report.notes


def test_a_state_of_another_seed_names_the_seed(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 4, 6), np.float32))
    hsipack.convert(tmp_path / "a.npy", tmp_path / "out")
    state = hsipack.Loader(tmp_path / "out", device="cpu", seed=1).state_dict()
    other = hsipack.Loader(tmp_path / "out", device="cpu", seed=2)
    with pytest.raises(hsipack.ConflictError) as caught:
        other.load_state_dict(state)
    assert caught.value.remedy == "pass seed=1"


KINDS: list[tuple[type[hsipack.Error], tuple[type[BaseException], ...]]] = [
    (hsipack.DeviceError, (RuntimeError,)),
    (hsipack.BugError, (RuntimeError,)),
    (hsipack.ArgumentTypeError, (hsipack.ConflictError, ValueError, TypeError)),
    (hsipack.OutOfMemoryError, (hsipack.FileError, OSError, MemoryError)),
    (hsipack.DeviceMemoryError, (hsipack.DeviceError, RuntimeError, MemoryError)),
]


def test_new_kinds_are_exceptions_that_travel() -> None:
    for kind, also in KINDS:
        assert issubclass(kind, hsipack.Error)
        assert all(issubclass(kind, other) for other in also)
        error = pickle.loads(pickle.dumps(kind("no", path="p", remedy="r")))
        assert type(error) is kind
        assert str(error) == "p: no (r)"


@pytest.mark.parametrize("options", [{"slots": 10**9}, {"batch_size": 10**12}], ids=str)
def test_missing_memory_is_a_memory_error(dataset: str, options: dict[str, int]) -> None:
    with pytest.raises(MemoryError) as caught:
        hsipack.Loader(dataset, **{"batch_size": 2, "device": "cpu", **options})  # type: ignore[arg-type]
    assert isinstance(caught.value, hsipack.OutOfMemoryError)
    assert caught.value.remedy


WRONG_TYPES: list[tuple[str, Callable[[str], object]]] = [
    ("batch_size='4'", lambda path: hsipack.Loader(path, "4")),  # type: ignore[arg-type]
    ("batch_size=2.0", lambda path: hsipack.Loader(path, 2.0)),  # type: ignore[arg-type]
    ("shuffle=None", lambda path: hsipack.Loader(path, 2, shuffle=None)),  # type: ignore[arg-type]
    ("seed='a'", lambda path: hsipack.Loader(path, 2, seed="a")),  # type: ignore[arg-type]
    ("crop='a'", lambda path: hsipack.Loader(path, 2, crop="a")),  # type: ignore[arg-type]
    ("crop=.3, 'a'", lambda path: hsipack.Loader(path, 2, crop=(3, "a"))),  # type: ignore[arg-type]
    ("device=1.5", lambda path: hsipack.Loader(path, 2, device=1.5)),  # type: ignore[arg-type]
    ("dtype=3", lambda path: hsipack.Loader(path, 2, dtype=3)),  # type: ignore[arg-type]
    ("no output 3", lambda path: hsipack.Loader(path, 2, output=3)),  # type: ignore[arg-type]
    ("nan='a'", lambda path: hsipack.open(path).select(nan="a")),  # type: ignore[arg-type]
    ("masks=3", lambda path: hsipack.open(path, masks=3)),  # type: ignore[arg-type]
    ("bands='a'", lambda path: hsipack.open(path, bands="a")),  # type: ignore[arg-type]
    ("has 0.5 in it", lambda path: hsipack.open(path, bands=[0.5])),  # type: ignore[list-item]
    ("transform=3", lambda path: hsipack.open(path, transform=3)),  # type: ignore[arg-type]
    ("storage_options of", lambda path: hsipack.open(path, storage_options=3)),  # type: ignore[arg-type]
    ("index='a'", lambda path: hsipack.open(path)["a"]),  # type: ignore[index]
    ("condition=3", lambda path: hsipack.open(path).where(3)),  # type: ignore[arg-type]
    ("path=3", lambda path: hsipack.open(3)),  # type: ignore[arg-type]
    ("quick=1", lambda path: hsipack.validate(path, quick=1)),  # type: ignore[arg-type]
    ("mask=3", lambda path: hsipack.convert(path, "out", mask=3)),  # type: ignore[arg-type]
    ("wavelengths=3", lambda path: hsipack.convert(path, "out", wavelengths=3)),  # type: ignore[arg-type]
    ("cubes=3", lambda path: hsipack.pack(3, "out")),  # type: ignore[arg-type]
    ("counts=3", lambda path: hsipack.class_weights(3)),  # type: ignore[arg-type]
    ("degrees = 'a'", lambda path: augment.RandomAffine("a")),
    ("p = 'a'", lambda path: augment.RandomHorizontalFlip(p="a")),  # type: ignore[arg-type]
    ("3 is not an augmentation", lambda path: augment.AugmentationSequential(3)),  # type: ignore[arg-type]
    ("has the type list", lambda path: augment.RandomHorizontalFlip()([[1.0]])),
    ("type int64", lambda path: augment.SNV()(np.zeros((1, 2, 2), np.int64))),
]


@pytest.mark.parametrize(("what", "call"), WRONG_TYPES, ids=[what for what, _ in WRONG_TYPES])
def test_wrong_types_are_type_errors(
    dataset: str, what: str, call: Callable[[str], object]
) -> None:
    with pytest.raises(TypeError, match=what) as caught:
        call(dataset)
    assert isinstance(caught.value, hsipack.ArgumentTypeError)
    assert caught.value.remedy


def test_wrong_values_are_no_type_errors(dataset: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: hsipack.Loader(dataset, 0),
        lambda: hsipack.Loader(dataset, 2, device="cdua"),
        lambda: hsipack.Loader(dataset, 2, crop=(1, 2, 3)),  # type: ignore[arg-type]
        lambda: hsipack.Loader(dataset, 2, cache="none"),  # type: ignore[arg-type]
        lambda: hsipack.open(dataset, bands=[99]),
        lambda: augment.RandomAffine([1, 2, 3]),
    ]
    for call in calls:
        with pytest.raises(hsipack.ConflictError) as caught:
            call()
        assert not isinstance(caught.value, TypeError)
