"""Augmentations compared with Kornia: names, order and meaning of arguments, and results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import hsipack
import kornia.augmentation
import kornia.constants
import pytest
import torch
from hsipack import augment
from test_augment import ANY, SHAPE, images, labels
from torch import Tensor

# ----------------------------------------------------------------------------- Kornia's signatures

# Defaults that differ from Kornia, as the documentation says.
OTHER_DEFAULTS = {
    ("RandomContrast", "clip_output"): False,
    ("RandomBrightness", "clip_output"): False,
    ("RandomJigsaw", "ensure_perm"): False,
    ("PadTo", "crop_if_exceeds"): False,
}
SHARED = [name for name in augment.__all__ if hasattr(kornia.augmentation, name)]


def test_these_are_kornias() -> None:
    assert len(SHARED) == 24, SHARED


@pytest.mark.parametrize("name", [name for name in SHARED if name != "AugmentationSequential"])
def test_arguments_are_kornias_in_its_order(name: str) -> None:
    theirs = inspect.signature(getattr(kornia.augmentation, name)).parameters
    ours = inspect.signature(getattr(augment, name)).parameters
    positional = [key for key, one in ours.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert positional == list(theirs)
    assert all(one.kind is one.KEYWORD_ONLY for key, one in ours.items() if key not in positional)
    for key, one in theirs.items():
        wanted = OTHER_DEFAULTS.get((name, key), one.default)
        got = ours[key].default
        same = got.lower() == wanted.lower() if isinstance(wanted, str) else got == wanted
        assert same, (key, got, wanted)


def test_the_container_takes_kornias_arguments() -> None:
    theirs = inspect.signature(kornia.augmentation.AugmentationSequential).parameters
    ours = inspect.signature(augment.AugmentationSequential).parameters
    assert set(theirs) - {"args"} <= set(ours)
    built = augment.AugmentationSequential(
        augment.RandomHorizontalFlip(), data_keys=["input", "mask"], same_on_batch=False
    )
    image, mask = built(images(), labels())
    assert image.shape == SHAPE
    assert mask.shape == (4, 20, 24)
    with pytest.raises(hsipack.ConflictError, match="data_keys"):
        built(images())


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: augment.RandomHorizontalFlip(same_on_batch=True), "ids="),
        (lambda: augment.RandomVerticalFlip(p_batch=0.5), "give p"),
        (lambda: augment.RandomContrast((1, 2), clip_output=True), "clamp"),
        (lambda: augment.RandomBrightness((1, 2), True), "clamp"),
        (lambda: augment.RandomCrop((4, 4), p=0.5), "always"),
        (lambda: augment.CenterCrop(4, cropping_mode="resample"), "slice"),
        (lambda: augment.RandomAffine(3, resample="bicubic"), "bilinear"),
        (lambda: augment.RandomAffine(3, padding_mode="fill", fill_value=[1, 2]), "one number"),
        (lambda: augment.RandomAffine(3, fill_value=1.0), "fill"),
        (lambda: augment.RandomPerspective(0.5, sampling_method="other"), "basic"),
        (lambda: augment.RandomCrop((4, 4), padding_mode="circular"), "replicate"),
        (lambda: ANY.Resize(64), "rows"),
        (lambda: augment.Resize((6, 4), antialias=True), "RandomGaussianBlur"),
        (lambda: augment.PadTo((6, 4), crop_if_exceeds=True), "CenterCrop"),
        (lambda: augment.RandomJigsaw(ensure_perm=True), "leave it out"),
        (lambda: augment.RandomCutMixV2(num_mix=2), "several"),
        (lambda: augment.RandomCutMixV2(cut_size=(0, 1)), "beta"),
        (lambda: augment.RandomMixUpV2(data_keys=["input", "class"]), "mix_labels"),
        (lambda: augment.RandomGaussianBlur(3, (1, 2), "circular"), "reflect"),
        (lambda: augment.AugmentationSequential(random_apply=1), "p of every"),
        (lambda: augment.AugmentationSequential(extra_args={}), "mask_fill"),
        (lambda: ANY.AugmentationSequential(ANY.AugmentationSequential()), "unpack"),
        (
            lambda: augment.AugmentationSequential(kornia.augmentation.RandomHorizontalFlip()),
            "hsipack.augment",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused(make: Callable[[], Any], remedy: str) -> None:
    with pytest.raises(hsipack.UnsupportedError, match=remedy) as caught:
        make()
    assert caught.value.remedy


def test_scalars_mean_what_kornia_means() -> None:
    assert augment.RandomAffine(45).config()["degrees"] == [-45, 45]
    assert augment.RandomAffine(torch.tensor(45.0)).config()["degrees"] == [-45, 45]
    assert augment.RandomAffine(0, shear=(3, 4)).config()["shear"] == [3, 4]
    assert augment.RandomRotation([10, 20]).config()["degrees"] == [10, 20]
    assert augment.RandomContrast(1.5).config()["range"] == [0, 2.5]
    assert augment.RandomBrightness(0.25).config()["range"] == [-0.25, 0.25]
    assert augment.RandomGaussianBlur(5, torch.tensor([1.0, 2.0])).config()["kernel"] == [5, 5]
    assert augment.CenterCrop(5).config()["size"] == [5, 5]
    assert augment.RandomCrop((4, 5), 1).config()["pad"] == [1, 1, 1, 1]
    assert augment.RandomCrop((4, 5), (1, 2)).config()["pad"] == [1, 2, 1, 2]
    with pytest.raises(hsipack.ConflictError, match="degrees"):
        augment.RandomAffine(-3)
    with pytest.raises(hsipack.ConflictError, match="2 numbers"):
        augment.RandomRotation((1, 2, 3))


@pytest.mark.parametrize("resample", ["nearest", "NEAREST", 0, kornia.constants.Resample.NEAREST])
@pytest.mark.parametrize("pad", ["Border", "BORDER", 1, kornia.constants.SamplePadding.BORDER])
def test_names_are_taken_as_kornia_takes_them(resample: Any, pad: Any) -> None:
    config = augment.RandomAffine(3, resample=resample, padding_mode=pad).config()
    assert (config["interpolation"], config["padding"]) == ("nearest", "border")


# -------------------------------------------------------------------------------- Kornia's results

# The same code with either module. Nothing here is random.
SWAPPED: dict[str, Callable[[Any], Any]] = {
    "hflip": lambda K: K.RandomHorizontalFlip(p=1.0),
    "vflip": lambda K: K.RandomVerticalFlip(1.0),
    "affine": lambda K: K.RandomAffine((30, 30), None, (1.1, 1.1), p=1.0),
    "affine_shear": lambda K: K.RandomAffine((0, 0), None, None, (7, 7, -4, -4), p=1.0),
    "affine_axes": lambda K: K.RandomAffine((5, 5), None, (1.1, 1.1, 0.8, 0.8), p=1.0),
    "affine_border": lambda K: K.RandomAffine(
        (30, 30), resample="NEAREST", padding_mode="border", p=1.0
    ),
    "affine_reflection": lambda K: K.RandomAffine(
        (30, 30), padding_mode="REFLECTION", align_corners=True, p=1.0
    ),
    "rotation": lambda K: K.RandomRotation((20, 20), p=1.0),
    "elastic": lambda K: K.RandomElasticTransform(alpha=(0.0, 0.0), p=1.0),
    "crop_all": lambda K: K.RandomCrop((24, 26), padding=(1, 2), padding_mode="reflect"),
    "crop_sides": lambda K: K.RandomCrop((26, 28), (1, 2, 3, 4), fill=0.5),
    "center_crop": lambda K: K.CenterCrop((11, 12)),
    "resized_crop": lambda K: K.RandomResizedCrop((15, 18), scale=(1, 1), ratio=(1.2, 1.2)),
    "resize": lambda K: K.Resize((15, 30)),
    "resize_edges": lambda K: K.Resize((15, 30), align_corners=False),
    "pad_to": lambda K: K.PadTo((30, 32), "constant", 0.5),
    "erasing": lambda K: K.RandomErasing((1.0, 1.0), (0.8333, 0.8333), 0.25, p=1.0),
    "contrast": lambda K: K.RandomContrast((1.2, 1.2), clip_output=False),
    "brightness": lambda K: K.RandomBrightness((1.1, 1.1), clip_output=False),
    "noise": lambda K: K.RandomGaussianNoise(0.5, 0.0, p=1.0),
    "blur": lambda K: K.RandomGaussianBlur((5, 3), (1.5, 1.5), p=1.0),
    "dropout": lambda K: K.RandomChannelDropout(7, 0.5, p=1.0),
    "normalize": lambda K: K.Normalize(torch.linspace(0.1, 0.7, 7), torch.full((7,), 0.2)),
}


@pytest.mark.parametrize("name", SWAPPED)
def test_the_import_can_be_changed(name: str) -> None:
    image, mask = images(), labels()
    got: list[tuple[Tensor, Tensor]] = []
    for module in (augment, kornia.augmentation):
        one = SWAPPED[name](module)
        both = module.AugmentationSequential(one, data_keys=["input", "mask"])
        got.append(both(image.clone(), mask[:, None].clone()))
    (ours, our_mask), (theirs, their_mask) = got
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    assert our_mask.dtype == mask.dtype
    assert torch.equal(our_mask, their_mask.to(mask.dtype))


def test_quarter_turns_are_kornias() -> None:
    square = images()[..., :20]
    ours = augment.RandomRotation90((1, 1), p=1.0)(square)
    theirs = kornia.augmentation.RandomRotation90((1, 1), p=1.0)(square)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_what_was_drawn_can_be_done_with_kornia() -> None:
    affine = augment.RandomAffine(45, (0.1, 0.1), (0.8, 1.2), 5, padding_mode="border", p=0.5)
    ours = augment.AugmentationSequential(affine, seed=0)
    image, mask = ours(images(), labels(), ids=range(4))
    assert ours.parameters is not None
    (step,) = ours.parameters["steps"]
    drawn = [
        one or {"angle": 0, "scale": [1, 1], "translation": [0, 0], "shear": [0, 0]}
        for one in step["drawn"]
    ]
    assert 0 < step["drawn"].count(None) < 4
    parameters = {
        "batch_prob": torch.tensor([float(one is not None) for one in step["drawn"]]),
        "angle": torch.tensor([float(one["angle"]) for one in drawn]),
        "scale": torch.tensor([one["scale"] for one in drawn]).float(),
        "translations": torch.tensor([one["translation"] for one in drawn]).float(),
        "center": torch.tensor([[11.5, 9.5]]).expand(4, 2),
        "shear_x": torch.tensor([float(one["shear"][0]) for one in drawn]),
        "shear_y": torch.tensor([float(one["shear"][1]) for one in drawn]),
    }
    theirs = kornia.augmentation.RandomAffine(45, padding_mode="border", p=0.5)
    torch.testing.assert_close(image, theirs(images(), params=parameters), atol=1e-4, rtol=0)
    still = [place for place, one in enumerate(step["drawn"]) if one is None]
    assert torch.equal(image[still], images()[still])
    assert torch.equal(mask[still], labels()[still])


def test_transplants_are_kornias() -> None:
    """If only one label is possible, nothing is drawn."""
    image, mask = images(), torch.where(labels() == 1, 1, 0)
    keys = ["input", "mask"]
    ours = augment.RandomTransplantation([0], p=1.0, data_keys=keys)(image, mask)
    theirs = kornia.augmentation.RandomTransplantation([0], p=1.0, data_keys=keys)(image, mask)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def test_windows_are_where_the_parameters_say() -> None:
    crop = augment.RandomCrop((8, 9))
    image, mask = crop(images(), labels())
    assert crop.parameters is not None
    (step,) = crop.parameters["steps"]
    places = {(one["x"], one["y"]) for one in step["drawn"]}
    assert len(places) > 1
    for place, one in enumerate(step["drawn"]):
        rows, columns = slice(one["y"], one["y"] + 8), slice(one["x"], one["x"] + 9)
        assert torch.equal(image[place], images()[place, :, rows, columns])
        assert torch.equal(mask[place], labels()[place, rows, columns])
