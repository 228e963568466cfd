"""Arrays of NumPy, torch and other libraries, converted in both directions."""

from __future__ import annotations

from typing import Any

import hsipack
import numpy as np
import pytest
import torch
from hsipack import _arrays, augment

IMAGE_TYPES = ["float16", "float32", "float64"]
MASK_TYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
NOTHING = augment.RandomHorizontalFlip(p=0.0)
FLIP = augment.RandomHorizontalFlip(p=1.0)


def image(dtype: str = "float32") -> Any:
    return np.random.default_rng(0).random((4, 5, 6, 7)).astype(dtype)


def mask(dtype: str = "uint8") -> Any:
    return np.random.default_rng(1).integers(0, 2, (4, 6, 7)).astype(dtype)


def through(array: Any) -> hsipack.Array:
    """The array as one of hsipack."""
    (made, _, _), _ = NOTHING._native().augment(_arrays.native(array), [], 0, [(0, 0)] * 4, 1)
    return made


@pytest.mark.parametrize("dtype", IMAGE_TYPES)
def test_images_of_numpys_come_back_as_such(dtype: str) -> None:
    flipped = FLIP(image(dtype))
    assert isinstance(flipped, np.ndarray)
    assert flipped.dtype == dtype
    np.testing.assert_array_equal(flipped, image(dtype)[..., ::-1])


@pytest.mark.parametrize("dtype", MASK_TYPES)
def test_masks_of_every_integer_type_come_back_as_such(dtype: str) -> None:
    labels = mask(dtype)
    if dtype not in ("bool", "uint8", "int8"):
        labels[0, 0, 0] = 40_000 if dtype == "uint16" else 30_000
    flipped = FLIP(image(), labels)[1]
    assert flipped.dtype == dtype
    np.testing.assert_array_equal(flipped, labels[..., ::-1])


@pytest.mark.parametrize("dtype", [*IMAGE_TYPES, "bfloat16"])
def test_tensors_of_torchs_come_back_as_such(dtype: str) -> None:
    given = torch.from_numpy(image()).to(getattr(torch, dtype))
    labels = torch.from_numpy(mask("uint16"))
    flipped, flipped_labels = FLIP(given, labels)
    assert flipped.dtype == given.dtype
    assert torch.equal(flipped, given.flip(-1))
    assert flipped_labels.dtype == torch.uint16
    np.testing.assert_array_equal(flipped_labels.numpy(), labels.numpy()[..., ::-1])


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[:, :, ::-1, ::2],
        lambda array: array.transpose(0, 1, 3, 2),
        lambda array: np.asfortranarray(array),
        lambda array: array.astype(array.dtype.newbyteorder(">")),
        lambda array: np.broadcast_to(array[:1], array.shape),
        lambda array: odd(array),
        lambda array: readonly(array),
    ],
)
def test_views_of_any_kind_are_taken(view: Any) -> None:
    given = view(image())
    np.testing.assert_array_equal(FLIP(given), np.ascontiguousarray(given)[..., ::-1])


def odd(array: Any) -> Any:
    """An array with unaligned elements."""
    record = np.zeros(array.shape, np.dtype([("tag", "u1"), ("value", array.dtype)]))
    record["value"] = array
    return record["value"]


def readonly(array: Any) -> Any:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("make", [lambda array: array, torch.from_numpy])
def test_what_comes_out_shares_no_memory_with_what_went_in(make: Any) -> None:
    given, labels = make(image()), make(mask())
    kept = image()
    for op in (NOTHING, augment.CenterCrop((3, 4)), augment.AugmentationSequential()):
        for through_torch in (None, "torch"):
            op._through = through_torch
            out, out_labels = op(given, labels)
            op._through = None
            out[...] = 7
            out_labels[...] = 1
            np.testing.assert_array_equal(np.asarray(given), kept)
            np.testing.assert_array_equal(np.asarray(labels), mask())


def test_arrays_of_ours_say_what_they_are() -> None:
    array = through(image("float16"))
    assert (array.shape, array.dtype, array.device) == ((4, 5, 6, 7), "float16", "cpu")
    assert repr(array) == "<hsipack.Array (4, 5, 6, 7) of float16 on cpu>"
    assert array.__dlpack_device__() == (1, 0)


def test_dlpack_shares_memory_and_numbers_it() -> None:
    array = through(image())
    one, two = np.asarray(array), np.from_dlpack(array)
    three = torch.from_dlpack(array)
    assert one.ctypes.data == two.ctypes.data == three.data_ptr()
    np.testing.assert_array_equal(one, image())
    assert torch.equal(three, torch.from_numpy(image()))
    # The memory lives as long as any of them.
    del array, one, two
    assert torch.equal(three, torch.from_numpy(image()))


def test_dlpack_copies_where_that_is_asked_for() -> None:
    array = through(image())
    for capsule in (
        array.__dlpack__(copy=True),
        array.__dlpack__(copy=True, max_version=(1, 0), dl_device=(1, 0)),
    ):
        copied = torch.from_dlpack(capsule)
        assert copied.data_ptr() != np.asarray(array).ctypes.data
        assert torch.equal(copied, torch.from_numpy(image()))
        assert copied.stride() == torch.from_dlpack(array).stride()
    with pytest.raises(BufferError, match="the array is on cpu"):
        array.__dlpack__(dl_device=(2, 0))


def test_a_capsule_that_nobody_takes_frees_what_it_holds() -> None:
    import gc
    import weakref

    class Tracked(np.ndarray):
        """An array that can be referred to weakly."""

    given = image().view(Tracked)
    alive = weakref.ref(given)
    array = _arrays.native(given)
    del given
    assert alive() is not None
    del array
    gc.collect()
    assert alive() is None
    capsule = through(image()).__dlpack__()
    del capsule


def test_numpy_has_no_bfloat16_and_says_so(dataset: str) -> None:
    array = through(torch.from_numpy(image()).bfloat16())
    assert array.dtype == "bfloat16"
    with pytest.raises(TypeError, match="NumPy has no bfloat16; choose float16 or float32"):
        np.asarray(array)
    assert torch.from_dlpack(array).dtype == torch.bfloat16
    with pytest.raises(hsipack.ConflictError, match="NumPy has no bfloat16"):
        hsipack.Loader(dataset, dtype="bfloat16", output="numpy")
    with pytest.raises(hsipack.ConflictError, match="NumPy has no bfloat16"):
        hsipack.open(dataset, dtype="bfloat16", output="numpy")


def test_arrays_of_ours_are_taken_and_given() -> None:
    array = through(image())
    flipped = FLIP(array)
    assert isinstance(flipped, hsipack.Array)
    np.testing.assert_array_equal(np.asarray(flipped), image()[..., ::-1])


def test_jaxs_arrays_come_back_as_such() -> None:
    jnp = pytest.importorskip("jax.numpy")
    flipped, labels = FLIP(jnp.asarray(image()), jnp.asarray(mask("uint16")))
    assert type(flipped) is type(labels) is type(jnp.zeros(1))
    np.testing.assert_array_equal(np.asarray(flipped), image()[..., ::-1])
    np.testing.assert_array_equal(np.asarray(labels), mask("uint16")[..., ::-1])


class Speaks:
    """An array of an unknown library, which can only be exported."""

    def __init__(self, array: Any) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self.array = torch.from_numpy(array)

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_what_cannot_be_given_back_is_an_error_that_says_so() -> None:
    with pytest.raises(hsipack.UnsupportedError, match="cannot be created with DLPack"):
        FLIP(Speaks(image()))


def test_kinds_may_be_mixed_and_each_is_given_back() -> None:
    flipped, labels = FLIP(torch.from_numpy(image()), mask())
    assert isinstance(flipped, torch.Tensor)
    assert isinstance(labels, np.ndarray)
    batch = FLIP({"image": image(), "labels": mask(), "id": np.arange(4), "name": ["a"] * 4})
    assert set(batch) == {"image", "labels", "id", "name"}
    np.testing.assert_array_equal(batch["labels"], mask()[..., ::-1])


def test_loaders_give_the_same_values_in_every_form(dataset: str) -> None:
    flips = [augment.RandomHorizontalFlip(), augment.RandomAffine(30)]
    forms: list[list[Any]] = []
    for output in ("torch", "numpy", "dlpack"):
        loader = hsipack.Loader(
            dataset, 5, seed=3, augment=flips, normalize="snv", output=output, device="cpu"
        )
        forms.append(list(loader))
    for one, two, three in zip(*forms, strict=True):
        for name in ("image", "labels", "layers"):
            np.testing.assert_array_equal(one[name].numpy(), two[name])
            np.testing.assert_array_equal(two[name], np.asarray(three[name]))
        assert one["id"].tolist() == two["id"].tolist() == three["id"].tolist()


def test_datasets_give_the_same_values_in_both_forms(dataset: str) -> None:
    for options in ({}, {"dtype": "float32", "physical": True}, {"dtype": "float64"}):
        one = hsipack.open(dataset, output="torch", **options)[2]
        two = hsipack.open(dataset, output="numpy", **options)[2]
        for name in ("image", "labels", "layers"):
            np.testing.assert_array_equal(one[name].numpy(), two[name])
