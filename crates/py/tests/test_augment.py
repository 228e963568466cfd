"""Augmentations with Kornia's names: arguments, configurations, results beside Kornia's own."""

import copy
import inspect
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hsipack
import kornia.augmentation
import kornia.constants
import pytest
import torch
from hsipack import augment
from torch import Tensor

SHAPE = (4, 7, 20, 24)
# Where what is given is wrong, or checked without its type.
ANY: Any = augment

# Everything once, with options of every kind.
ALL: list[Any] = [
    augment.RandomHorizontalFlip(),
    augment.RandomVerticalFlip(0.25),
    augment.RandomRotation90((2, 2)),
    augment.RandomRotation90((-2, 2), kornia_law=True, p=0),
    augment.RandomAffine(45, (0.1, 0.2), (0.9, 1.1), 10, padding_mode="reflection"),
    augment.RandomAffine((10, 20), None, (0.9, 1.1, 0.8, 1.2), (-5, 5, -1, 1), "NEAREST"),
    augment.RandomAffine(5, padding_mode="fill", fill_value=torch.full((3,), 0.5)),
    augment.RandomRotation(30, padding_mode="border"),
    augment.RandomPerspective(0.3, sampling_method="area_preserving"),
    augment.RandomElasticTransform((9, 11), (3.0, 4.0), (0.5, 0.6)),
    augment.RandomCrop((16, 18), padding=(1, 2), padding_mode="reflect"),
    augment.CenterCrop(16),
    augment.RandomResizedCrop((12, 14), (0.5, 1.0), (0.9, 1.1)),
    augment.Resize((30, 31), align_corners=False),
    augment.PadTo((40, 41), "replicate"),
    augment.RandomErasing(value="random_l1"),
    augment.RandomErasing(value=torch.arange(7.0)),
    augment.RandomTransplantation(torch.tensor([0]), mask="labels", valid="valid"),
    augment.RandomTransplantation([0], direction="next", count="fixed"),
    augment.RandomCutMixV2(beta=0.5),
    augment.RandomMixUpV2((0.1, 0.4)),
    augment.RandomJigsaw((2, 2)),
    augment.HideAndSeek([(4, 5)], 0.3, False, 0.1),
    augment.Gain((0.9, 1.1)),
    augment.Offset((-0.1, 0.1)),
    augment.RandomContrast(0.2),
    augment.RandomBrightness((0.9, 1.2)),
    augment.RandomGaussianNoise(0.1, 0.2),
    augment.RandomGaussianBlur(3, (0.1, 2.0)),
    augment.RandomChannelDropout((1, 3), torch.arange(7.0), contiguous=True),
    augment.BandJitter(0.1, 2),
    augment.BandOffset(0.1),
    augment.SpectralShift(0.5),
    augment.SpectralSmooth((0.5, 1.0)),
    augment.Projection(torch.eye(7), torch.zeros(7), [1, 2], "labels"),
    augment.IlluminationRamp((0.1, 0.2)),
    augment.L1Normalize(),
    augment.L2Normalize(0.5),
    augment.SNV(),
    augment.Normalize(torch.zeros(7), [1.0] * 7),
    augment.ValidGuard("valid"),
]


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(SHAPE, generator=torch.Generator().manual_seed(1)).to(dtype)


def labels(dtype: torch.dtype = torch.int64) -> Tensor:
    random = torch.Generator().manual_seed(2)
    return torch.randint(0, 4, (SHAPE[0], *SHAPE[2:]), generator=random).to(dtype)


# ----------------------------------------------------------------------------------- configurations


@pytest.mark.parametrize("one", ALL, ids=repr)
def test_the_library_takes_every_configuration(one: augment.Augmentation) -> None:
    """And understands what was said: nothing is lost on the way."""
    config = one.config()
    (read,) = json.loads(hsipack._hsipack.Pipeline(one.to_json()).to_json())["ops"]
    assert {name: read[name] for name in config} == config
    assert augment.from_config([config])[0] == one
    # An option left alone has the library's default, or Kornia's where that is another.
    assert json.loads(json.dumps(config)) == config


@pytest.mark.parametrize("one", ALL, ids=repr)
def test_every_augmentation_can_be_called(one: augment.Augmentation) -> None:
    masks = {"labels": labels(), "valid": labels(torch.uint8) > 0}
    image, made = one(images(), masks)
    assert image.dtype == torch.float32
    assert image.shape[:2] == SHAPE[:2]
    assert {name: mask.dtype for name, mask in made.items()} == {
        "labels": torch.int64,
        "valid": torch.bool,
    }
    assert all(mask.shape == (SHAPE[0], *image.shape[2:]) for mask in made.values())
    assert one.parameters is not None
    assert [step["op"] for step in one.parameters["steps"]] == [one.config()["op"]]


def test_everything_is_there() -> None:
    """Every operation of the library has a class, and every class a place in the list above."""
    documented = Path(__file__).resolve().parents[3] / "docs/augmentations.md"
    rows = [line for line in documented.read_text().splitlines() if line.startswith("| `")]
    ops = {name for row in rows[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    ours = {
        kind.op
        for kind in vars(augment).values()
        if isinstance(kind, type) and issubclass(kind, augment.Augmentation) and kind.op
    }
    assert ours == ops
    assert {one.op for one in ALL} == ops


# ----------------------------------------------------------------------------- Kornia's signatures

# What differs from Kornia's default, as the documentation says.
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

# The same code, with the one module and the other. Nothing here is left to chance.
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
    ours = augment.RandomAffine(45, (0.1, 0.1), (0.8, 1.2), 5, padding_mode="border", p=0.5)
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
    """With one label that may be given there is nothing to draw."""
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


# ------------------------------------------------------------------------------ what is promised


def pipeline(**options: Any) -> augment.AugmentationSequential:
    return augment.AugmentationSequential(
        augment.RandomAffine(45, (0.1, 0.1), padding_mode="reflection", p=0.8),
        augment.RandomHorizontalFlip(),
        augment.RandomErasing(),
        augment.Gain((0.8, 1.2)),
        augment.RandomGaussianNoise(std=0.1),
        augment.L1Normalize(),
        **options,
    )


def test_samples_are_drawn_for_by_id() -> None:
    """Whatever batch they are in, and wherever in it; another epoch or seed draws anew."""
    ids = [7, 8, 9, 10]
    image, mask = pipeline(seed=3)(images(), labels(), ids=ids, epoch=2)
    back = [3, 1]
    one, other = pipeline(seed=3)(
        images()[back], labels()[back], ids=torch.tensor(ids)[back], epoch=2
    )
    assert torch.equal(one, image[back])
    assert torch.equal(other, mask[back])
    for changed in (
        pipeline(seed=3)(images(), ids=ids, epoch=1),
        pipeline(seed=4)(images(), ids=ids, epoch=2),
        pipeline(seed=3)(images(), ids=[(number, 1) for number in ids], epoch=2),
    ):
        assert not torch.equal(changed, image)
    # One id for all is Kornia's same_on_batch.
    same = pipeline(seed=3)(images()[:1].expand(4, -1, -1, -1), ids=[5] * 4)
    assert torch.equal(same[0], same[3])


def test_calls_without_ids_differ_and_can_be_repeated() -> None:
    one, other = pipeline(), pipeline()
    first, second = one(images()), one(images())
    assert not torch.equal(first, second)
    assert torch.equal(other(images()), first)
    assert torch.equal(other(images()), second)
    assert one.counter == 8
    later = pipeline()
    later.counter = 4
    assert torch.equal(later(images()), second)
    # A copy, or one that was sent elsewhere, goes on likewise.
    third = one(images())
    for moved in (copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
        assert torch.equal(moved(images()), third)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_and_inputs_stay(dtype: torch.dtype) -> None:
    image = images(dtype)
    masks = {
        "labels": labels(torch.uint8),
        "layers": labels()[:, None] == torch.arange(3)[:, None, None],
    }
    kept = [image.clone(), *(mask.clone() for mask in masks.values())]
    made, made_masks = pipeline()(image, masks, ids=range(4))
    assert [made.dtype, *(mask.dtype for mask in made_masks.values())] == [
        dtype,
        torch.uint8,
        torch.bool,
    ]
    assert made_masks["layers"].shape == (4, 3, 20, 24)
    for before, after in zip(kept, [image, *masks.values()], strict=True):
        assert torch.equal(before, after)
    wanted = pipeline()(images(torch.float64), ids=range(4))
    precision = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-5)
    # Noise is drawn in the image's type: compared without it.
    plain = [one for one in pipeline() if one.op != "gaussian_noise"]
    made = augment.AugmentationSequential(*plain)(image, ids=range(4))
    wanted = augment.AugmentationSequential(*plain)(images(torch.float64), ids=range(4))
    torch.testing.assert_close(made.double(), wanted, atol=precision, rtol=precision)


@pytest.mark.parametrize("one", ALL, ids=repr)
@pytest.mark.parametrize("channels_last", [False, True])
def test_writing_to_the_result_writes_to_nothing_else(
    one: augment.Augmentation, channels_last: bool
) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    image = images().contiguous(memory_format=layout)
    masks = {"labels": labels(), "valid": labels() > 0}
    kept = copy.deepcopy((image, masks))
    for p in ("as it is", 0.0):
        config = (
            one.config() if p == "as it is" or "p" not in one.config() else {**one.config(), "p": p}
        )
        made, made_masks = augment.from_config([config])(image, masks)
        made.zero_()
        for mask in made_masks.values():
            mask.zero_()
        assert torch.equal(image, kept[0])
        assert all(torch.equal(masks[name], kept[1][name]) for name in masks)


def test_structures_come_back() -> None:
    both = pipeline()
    image, mask = images(), labels()
    assert both(image[0]).shape == SHAPE[1:]
    one, two = both(image[0], mask[0])
    assert (one.shape, two.shape) == (SHAPE[1:], SHAPE[2:])
    _, two, three = both(image, mask, mask[:, None])
    assert (two.shape, three.shape) == ((4, 20, 24), (4, 1, 20, 24))
    _, two, three = both(image, mask, {"other": mask > 1})
    assert two.dtype == torch.int64
    assert three["other"].dtype == torch.bool
    # The same alone and in a batch of one.
    assert torch.equal(both(image[0], ids=3), both(image[:1], ids=[3])[0])
    # Layouts in memory do not matter.
    last = image.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(both(image, ids=range(4)), both(last, ids=range(4)))


def test_dicts_are_augmented_where_they_are() -> None:
    batch: dict[str, Any] = {
        "image": images(),
        "labels": labels(torch.uint8),
        "layers": torch.ones(4, 2, 20, 24, dtype=torch.bool),
        "label": torch.arange(4),
        "id": torch.tensor([3, 1, 4, 1]),
        "name": list("abcd"),
        "window": torch.tensor([[0, 0, 20, 24]] * 4),
        "heat": torch.rand(4, 20, 24),
    }
    kept = copy.deepcopy(batch)
    both = pipeline(mask_fill={"labels": 255})
    made = both(batch, epoch=5)
    assert list(made) == list(batch)
    image, masks = pipeline(mask_fill={"labels": 255})(
        batch["image"],
        {"labels": batch["labels"], "layers": batch["layers"]},
        ids=[3, 1, 4, 1],
        epoch=5,
    )
    assert torch.equal(made["image"], image)
    assert torch.equal(made["labels"], masks["labels"])
    assert torch.equal(made["layers"], masks["layers"])
    for key in ("label", "id", "name", "window", "heat"):
        assert made[key] is batch[key]
    for key, value in kept.items():
        assert torch.equal(batch[key], value) if isinstance(value, Tensor) else batch[key] == value
    only = both(batch, epoch=5, mask_keys=["labels"])
    assert only["layers"] is batch["layers"]
    # Without an epoch the counter numbers them, so that epochs differ.
    assert not torch.equal(both(batch)["image"], both(batch)["image"])
    # Crops of one cube are told apart.
    twice = {**batch, "id": torch.ones(4), "image": images()[:1].expand(4, -1, -1, -1)}
    twice["window"] = torch.tensor([[0, 0, 20, 24], [0, 4, 20, 24], [0, 0, 20, 24], [1, 0, 20, 24]])
    crops = both(twice, epoch=0)["image"]
    assert torch.equal(crops[0], crops[2])
    assert not torch.equal(crops[0], crops[1])
    assert not torch.equal(crops[0], crops[3])


def test_samples_and_batches_of_a_dataset(dataset: Path) -> None:
    """The loader's own augmentation is this one, done earlier."""
    both = pipeline(seed=11)
    sample = both(hsipack.open(dataset)[5], epoch=0)
    assert sample["image"].dtype == torch.float16
    options: dict[str, Any] = {"shuffle": True, "seed": 2, "device": "cpu"}
    with (
        hsipack.Loader(dataset, 4, **options) as plain,
        hsipack.Loader(dataset, 4, augment=both, **options) as done,
    ):
        for epoch in range(2):
            for batch, made in zip(plain, done, strict=True):
                wanted = both(batch, epoch=epoch)
                assert torch.equal(wanted["id"], made["id"])
                assert torch.equal(wanted["labels"], made["labels"])
                assert torch.equal(wanted["layers"], made["layers"])
                torch.testing.assert_close(wanted["image"], made["image"], atol=1e-3, rtol=1e-3)
                for place in (wanted["id"] == 5).nonzero().flatten().tolist():
                    if epoch == 0:
                        torch.testing.assert_close(
                            sample["image"], made["image"][place], atol=1e-3, rtol=1e-3
                        )


def test_parameters_are_plain_and_can_be_replayed() -> None:
    both = pipeline()
    assert both.parameters is None
    with pytest.raises(hsipack.ConflictError, match="nothing was drawn"):
        both.replay(images())
    image, mask = both(images(), labels())
    drawn = json.loads(json.dumps(both.parameters))
    assert drawn["frame"] == {"rows": 20, "columns": 24, "bands": 7}
    again, again_mask = pipeline().replay(images(), labels(), parameters=drawn)
    assert torch.equal(again, image)
    assert torch.equal(again_mask, mask)
    assert torch.equal(both.replay(images()), image)
    with pytest.raises(hsipack.ConflictError, match="samples"):
        both.replay(images()[:2])
    with pytest.raises(hsipack.ConflictError):
        augment.RandomHorizontalFlip().replay(images(), parameters=drawn)
    with pytest.raises(hsipack.MalformedError):
        both.replay(images(), parameters={"frame": 1})


def test_who_was_mixed_is_told() -> None:
    mix = augment.AugmentationSequential(
        augment.RandomMixUpV2((0.25, 0.25)), augment.RandomCutMixV2()
    )
    made = mix({"image": images(), "label": torch.arange(4)})
    assert len(made["mixed"]) == 2
    assert made["mixed"] == mix.mixed
    first = made["mixed"][0]
    assert sorted(first["partners"]) == [0, 1, 2, 3]
    assert first["shares"] == [0.25] * 4
    alone = augment.RandomMixUpV2((0.25, 0.25))
    image = alone(images())
    theirs = images()[alone.mixed[0]["partners"]]
    torch.testing.assert_close(image, images() * 0.75 + theirs * 0.25)
    soft = augment.mix_labels(torch.eye(4), alone.mixed)
    torch.testing.assert_close(
        soft, torch.eye(4) * 0.75 + torch.eye(4)[alone.mixed[0]["partners"]] * 0.25
    )
    with pytest.raises(hsipack.ConflictError, match="classes"):
        augment.mix_labels(torch.arange(4), alone.mixed)
    with pytest.raises(hsipack.ConflictError, match="4 samples"):
        augment.mix_labels(torch.eye(3), alone.mixed)


def test_masks_are_filled_as_asked() -> None:
    turn = augment.RandomAffine((45, 45), p=1.0)
    for fill in (255, {"labels": 255}):
        both = augment.AugmentationSequential(turn, mask_fill=fill)
        mask = both(images(), {"labels": labels(torch.uint8)})[1]["labels"]
        assert mask[0, 0, 0] == 255
        assert set(mask.unique().tolist()) == {0, 1, 2, 3, 255}
    assert (
        augment.AugmentationSequential(turn, mask_fill={"x": 9})(images(), labels())[1] < 4
    ).all()


def test_fusing_and_kornia_0_8_are_passed_on() -> None:
    turns = [augment.RandomAffine((20, 20), p=1.0), augment.RandomAffine((-20, -20), p=1.0)]
    fused = augment.AugmentationSequential(*turns)(images())
    apart = augment.AugmentationSequential(*turns, fuse=False)(images())
    inside = (..., slice(8, 12), slice(8, 16))
    torch.testing.assert_close(fused[inside], images()[inside], atol=1e-4, rtol=0)
    assert (apart - fused)[inside].abs().max() > 0.05
    older = augment.AugmentationSequential(turns[0], kornia="0.8")(images())
    newer = augment.AugmentationSequential(turns[0])(images())
    assert not torch.allclose(older, newer, atol=1e-3)


# ---------------------------------------------------------------------------- lists and their files


def test_lists_are_lists(tmp_path: Path) -> None:
    both = pipeline(seed=5, mask_fill={"labels": 1}, fuse=False, kornia="0.8")
    assert len(both) == 6
    assert [one.op for one in both][:2] == ["affine", "hflip"]
    assert both[1] == augment.RandomHorizontalFlip()
    assert len(both[:2]) == 2
    assert both[:2].config()["seed"] == 5
    config = both.config()
    path = tmp_path / "pipeline.json"
    path.write_text(both.to_json())
    for source in (config, both.to_json(), path, str(path), [*both]):
        made = augment.from_config(source)
        assert made.config()["ops"] == config["ops"]
        if not isinstance(source, list):
            assert made == both
            assert augment.to_config(source) == config
    # A configuration that the library wrote, with every option there is.
    whole = hsipack._hsipack.Pipeline(both.to_json()).to_json()
    torch.testing.assert_close(augment.from_config(whole)(images()), both(images()))
    assert augment.to_config(augment.RandomHorizontalFlip())["ops"] == [{"op": "hflip", "p": 0.5}]
    assert augment.sequential([{"op": "hflip"}], seed=3).config()["seed"] == 3
    assert augment.sequential(config, seed=3).config()["seed"] == 5
    assert augment.sequential({"ops": []}, seed=3).config()["seed"] == 3


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[{", "no augmentations"),
        ('[{"op": "flip"}]', "hflip"),
        ('[{"p": 1}]', "op"),
        ('[{"op": "hflip", "q": 1}]', "`q`"),
        ('[{"op": "affine", "degrees": "much"}]', "no augmentations"),
        ('{"seed": 1}', "without ops"),
        ('{"ops": [], "sed": 1}', "sed"),
        ('{"ops": [], "seed": -1}', "-1"),
        ('{"ops": [], "kornia": "0.7"}', "0.7"),
        ("{}", "without ops"),
    ],
)
def test_configurations_that_are_none_are_refused(text: str, names: str, tmp_path: Path) -> None:
    with pytest.raises(hsipack.MalformedError, match=names) as caught:
        augment.from_config(text)
    assert caught.value.remedy
    path = tmp_path / "pipeline.json"
    path.write_text(text)
    with pytest.raises(hsipack.MalformedError, match=names) as caught:
        augment.from_config(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(hsipack.FileError, match=r"none\.json.*No such file"):
        augment.from_config(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda a: a(images().numpy()), "from_numpy"),
        (lambda a: a(images().long()), "float16"),
        (lambda a: a(images(torch.float8_e5m2)), "float16"),
        (lambda a: a(images(), labels(torch.uint16)), "signed integers"),
        (lambda a: a({"image": images(), "labels": labels(torch.uint16)}), "signed integers"),
        (lambda a: a(images(), labels().to("meta")), "on meta"),
        (lambda a: a(images()[0, 0]), "shape"),
        (lambda a: a(images()[None]), "shape"),
        (lambda a: a(images(), labels().float()), "long"),
        (lambda a: a(images(), labels()[:2]), r"beside images"),
        (lambda a: a(images(), labels()[:, :5]), r"beside images"),
        (lambda a: a(images(), labels().numpy()), "give tensors"),
        (lambda a: a(images(), {"mask": labels()}, labels(), labels()), None),
        (lambda a: a(images(), {"mask": labels()}, {"mask": labels()}), "several masks"),
        (lambda a: a(images(), ids=[1, 2]), "2 ids for 4"),
        (lambda a: a(images(), ids=[-1, 2, 3, 4]), "below 0"),
        (lambda a: a({"picture": images()}), "`image`"),
        (lambda a: a({"image": images()}, labels()), "dict"),
        (lambda a: a({"image": images()}, mask_keys=["labels"]), "without the masks"),
        (lambda a: a(images(), mask_keys=["labels"]), "without a dict"),
    ],
)
def test_calls_that_mean_nothing_are_refused(
    call: Callable[[augment.AugmentationSequential], Any], what: str | None
) -> None:
    if what is None:
        call(pipeline())
        return
    with pytest.raises(hsipack.ConflictError, match=what) as caught:
        call(pipeline())
    assert caught.value.remedy


def test_gradients_and_devices_are_not_lost_silently() -> None:
    image = images().requires_grad_()
    with pytest.raises(hsipack.UnsupportedError, match="gradients"):
        pipeline()(image)
    with pytest.raises(hsipack.UnsupportedError, match="dense"):
        pipeline()(images().to("meta"))
    with torch.no_grad():
        assert not pipeline()(image).requires_grad


def test_options_that_do_not_fit_the_images_are_refused() -> None:
    for one, what in (
        (augment.RandomCrop((21, 4)), "pad_if_needed"),
        (augment.RandomJigsaw((3, 3)), "divides"),
        (augment.Normalize([0.0] * 6, 1.0), "6 numbers for 7 bands"),
        (augment.RandomHorizontalFlip(p=1.5), "from 0 to 1"),
        (augment.RandomTransplantation(), "mask"),
        (augment.ValidGuard("valid"), "valid"),
    ):
        with pytest.raises(hsipack.ConflictError, match=what):
            one(images())


def test_empty_lists_change_nothing() -> None:
    nothing = augment.AugmentationSequential()
    assert torch.equal(nothing(images()), images())
    assert repr(nothing) == "AugmentationSequential()"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="SKIPPED: no CUDA device")
def test_on_a_gpu_as_on_the_cpu() -> None:
    plain = [one for one in pipeline() if one.op != "gaussian_noise"]
    both = augment.AugmentationSequential(*plain)
    on_cpu, mask = both(images(), labels(), ids=range(4))
    on_gpu, gpu_mask = both(images().cuda(), labels().cuda(), ids=range(4))
    assert on_gpu.is_cuda
    torch.testing.assert_close(on_gpu.cpu(), on_cpu, atol=1e-4, rtol=1e-4)
    assert (gpu_mask.cpu() != mask).float().mean() < 1e-3
