"""Augmentations: configurations, promises about calls, lists and their files."""

import copy
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hsipack
import pytest
import torch
from hsipack import augment
from torch import Tensor

SHAPE = (4, 7, 20, 24)
# For wrong arguments, and for checks without types.
ANY: Any = augment

# Every augmentation once, with every kind of option.
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
    augment.RandomChannelDropout(1, groups=[[0, 1], [5, 6]]),
    augment.RandomBands(7, sorted=False),
    augment.Resample(torch.arange(405.0, 475.0, 10), 12.0),
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

# Those of the images, for augmentations that need them.
WAVELENGTHS = torch.arange(400.0, 470.0, 10)


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(SHAPE, generator=torch.Generator().manual_seed(1)).to(dtype)


def labels(dtype: torch.dtype = torch.int64) -> Tensor:
    random = torch.Generator().manual_seed(2)
    return torch.randint(0, 4, (SHAPE[0], *SHAPE[2:]), generator=random).to(dtype)


# ----------------------------------------------------------------------------------- configurations


@pytest.mark.parametrize("one", ALL, ids=repr)
def test_the_library_takes_every_configuration(one: augment.Augmentation) -> None:
    """And the library understands it: nothing is lost."""
    config = one.config()
    (read,) = json.loads(hsipack._hsipack.Pipeline(one.to_json()).to_json())["ops"]
    assert {name: read[name] for name in config} == config
    assert augment.from_config([config])[0] == one
    # An omitted option has the default of the library, or of Kornia if that differs.
    assert json.loads(json.dumps(config)) == config


@pytest.mark.parametrize("one", ALL, ids=repr)
def test_every_augmentation_can_be_called(one: augment.Augmentation) -> None:
    masks = {"labels": labels(), "valid": labels(torch.uint8) > 0}
    batch = {"image": images(), **masks, "wavelength": WAVELENGTHS}
    made = one(batch, mask_keys=list(masks))
    image, made = made["image"], {name: made[name] for name in masks}
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
    """Every operation of the library has a class, and every class is in the list above."""
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


# ------------------------------------------------------------------------------ what is promised


def pipeline(**options: Any) -> augment.AugmentationSequential:
    return augment.AugmentationSequential(
        augment.RandomAffine(45, (0.1, 0.1), padding_mode="reflection", p=0.8),
        augment.RandomHorizontalFlip(),
        augment.RandomErasing(),
        augment.Gain((0.8, 1.2)),
        augment.RandomGaussianNoise(std=0.1),
        augment.L1Normalize(),
        **{"seed": 0, **options},
    )


def test_samples_are_drawn_for_by_id() -> None:
    """A sample's draws do not depend on its batch and its place there, but on epoch and seed."""
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
    # One id for all samples is Kornia's same_on_batch.
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
    # A copy, or a pickled one, continues in the same way.
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
    # Noise is drawn in the image's type, so compare without noise.
    plain = [one for one in pipeline() if one.op != "gaussian_noise"]
    made = augment.AugmentationSequential(*plain, seed=0)(image, ids=range(4))
    wanted = augment.AugmentationSequential(*plain, seed=0)(images(torch.float64), ids=range(4))
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
        batch = {"image": image, **masks, "wavelength": WAVELENGTHS}
        made = augment.from_config([config])(batch, mask_keys=list(masks))
        for key in ("image", *masks):
            made[key].zero_()
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
    # A single image gives the same as a batch of one.
    assert torch.equal(both(image[0], ids=3), both(image[:1], ids=[3])[0])
    # The layout in memory does not matter.
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
    for key in ("label", "id", "name", "window"):
        assert made[key] is batch[key]
    # An array of floats with the pixels of the image is a target.
    heat = {"heat": batch["heat"]}
    _, targets = pipeline()(batch["image"], heat, ids=[3, 1, 4, 1], epoch=5)
    assert torch.equal(made["heat"].nan_to_num(-1), targets["heat"].nan_to_num(-1))
    for key, value in kept.items():
        assert torch.equal(batch[key], value) if isinstance(value, Tensor) else batch[key] == value
    only = both(batch, epoch=5, mask_keys=["labels"])
    assert only["layers"] is batch["layers"]
    assert only["heat"] is batch["heat"]
    # Without an epoch, a counter is used, so that epochs differ.
    assert not torch.equal(both(batch)["image"], both(batch)["image"])
    # Crops of one cube are distinguished.
    twice = {**batch, "id": torch.ones(4), "image": images()[:1].expand(4, -1, -1, -1)}
    twice["window"] = torch.tensor([[0, 0, 20, 24], [0, 4, 20, 24], [0, 0, 20, 24], [1, 0, 20, 24]])
    crops = both(twice, epoch=0)["image"]
    assert torch.equal(crops[0], crops[2])
    assert not torch.equal(crops[0], crops[1])
    assert not torch.equal(crops[0], crops[3])


def test_samples_and_batches_of_a_dataset(dataset: Path) -> None:
    """The augmentation in the loader gives the same, only earlier."""
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
    for_two = augment.AugmentationSequential(turn, mask_fill={"labels": 255, "other": 1})
    assert for_two(images(), {"labels": labels(torch.uint8)})[1]["labels"][0, 0, 0] == 255
    misspelt = augment.AugmentationSequential(turn, mask_fill={"x": 9})
    with pytest.raises(hsipack.ConflictError, match=r"mask_fill names 'x'.*the masks are mask"):
        misspelt(images(), labels())


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
    # A configuration written by the library, with all options.
    whole = hsipack._hsipack.Pipeline(both.to_json()).to_json()
    torch.testing.assert_close(augment.from_config(whole)(images()), both(images()))
    assert augment.to_config(augment.RandomHorizontalFlip())["ops"] == [{"op": "hflip", "p": 0.5}]
    assert augment.sequential([{"op": "hflip"}], seed=3).config()["seed"] == 3
    assert augment.sequential(config, seed=3).config()["seed"] == 5
    assert augment.sequential({"ops": []}, seed=3).config()["seed"] == 3


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[{", "not a list of augmentations"),
        ('[{"op": "flip"}]', "hflip"),
        ('[{"p": 1}]', "op"),
        ('[{"op": "hflip", "q": 1}]', "`q`"),
        ('[{"op": "affine", "degrees": "much"}]', "not a list of augmentations"),
        ('{"seed": 1}', "lacks ops"),
        ('{"ops": [], "sed": 1}', "sed"),
        ('{"ops": [], "seed": -1}', "-1"),
        ('{"ops": [], "kornia": "0.7"}', "0.7"),
        ("{}", "lacks ops"),
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
        (lambda a: a(images().tolist()), "the image has the type list"),
        (lambda a: a(images().long()), "float16"),
        (lambda a: a(images(torch.float8_e5m2)), "float16"),
        (lambda a: a(images(), labels().to("meta")), "on meta"),
        (lambda a: a(images()[0, 0]), "shape"),
        (lambda a: a(images()[None]), "shape"),
        (lambda a: a(images(), labels().float()), "long"),
        (lambda a: a(images(), labels()[:2]), r"does not fit images"),
        (lambda a: a(images(), labels()[:, :5]), r"does not fit images"),
        (lambda a: a(images(), labels().tolist()), "give arrays"),
        (lambda a: a(images(), {"mask": labels()}, labels(), labels()), None),
        (lambda a: a(images(), {"mask": labels()}, {"mask": labels()}), "several masks"),
        (lambda a: a(images(), ids=[1, 2]), "2 ids for 4"),
        (lambda a: a(images(), ids=[-1, 2, 3, 4]), r"ids=-1 .*from 0 on"),
        (lambda a: a(images(), ids=[True, False, True, True]), "ids=True"),
        (lambda a: a(images(), ids="1234"), "ids='1234'"),
        (lambda a: a(images(), epoch=-1), r"epoch=-1 .*from 0 on"),
        (lambda a: a(images(), epoch=1.5), r"epoch=1.5 .*whole number"),
        (lambda a: a({"picture": images()}), "`image`"),
        (lambda a: a({"image": images()}, labels()), "dict"),
        (lambda a: a({"image": images()}, mask_keys=["labels"]), "lacks the arrays"),
        (lambda a: a(images(), mask_keys=["labels"]), "needs a dict"),
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
        (augment.Normalize([0.0] * 6, 1.0), "6 numbers, but the images have 7 bands"),
        (augment.RandomHorizontalFlip(p=1.5), "from 0 to 1"),
        (augment.RandomTransplantation(), "mask"),
        (augment.ValidGuard("valid"), "valid"),
    ):
        with pytest.raises(hsipack.ConflictError, match=what):
            one(images())


# -------------------------------------------------------------------- missing and large values

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def gappy(dtype: torch.dtype) -> Tensor:
    image = images(dtype)[:, :, :, :20]
    for number, gap in enumerate((float("nan"), float("inf"), -float("inf"))):
        image[:, number, 3 + 2 * number, 4 + 3 * number] = gap
    return image


def equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.nan_to_num(7.5, 8.5, 9.5), other.nan_to_num(7.5, 8.5, 9.5))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (augment.RandomAffine(0, p=1), lambda image: image),
        (augment.RandomHorizontalFlip(p=1), lambda image: image.flip(-1)),
        (augment.RandomRotation((90, 90), p=1), lambda image: image.rot90(1, (2, 3))),
        (augment.RandomAffine((90, 90), p=1), lambda image: image.rot90(-1, (2, 3))),
        (augment.RandomRotation((180, 180), p=1), lambda image: image.flip(-1).flip(-2)),
        (augment.RandomPerspective(0.0, p=1), lambda image: image),
        (augment.RandomElasticTransform((3, 3), alpha=(0, 0), p=1), lambda image: image),
        (augment.RandomMixUpV2((0.0, 0.0)), lambda image: image),
        (augment.SpectralShift(0.0, p=1), lambda image: image),
    ],
    ids=lambda one: repr(one) if isinstance(one, augment.Augmentation) else "",
)
def test_gaps_do_not_grow_where_pixels_fall_onto_pixels(
    one: augment.Augmentation, wanted: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    assert equal(one(gappy(dtype)), wanted(gappy(dtype)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
def test_gaps_do_not_grow_in_padding(mode: Any, dtype: torch.dtype) -> None:
    image = gappy(dtype)
    whole = torch.nn.functional.pad(image.double(), (0, 5, 0, 7), mode).to(dtype)
    assert equal(augment.PadTo((27, 25), mode)(image), whole)
    crop = augment.RandomCrop((24, 24), padding=(2, 2), padding_mode=mode)
    padded = torch.nn.functional.pad(image.double(), (2, 2, 2, 2), mode).to(dtype)
    assert equal(crop(image), padded)


def test_a_gap_reaches_only_pixels_that_give_it_weight() -> None:
    """Turned by 45 degrees about the gap, which is the centre."""
    image = torch.ones(1, 1, 9, 9)
    image[..., 4, 4] = float("nan")
    turned = augment.RandomRotation((45, 45), p=1)(image)[0, 0]
    # Neighbours on the axes are interpolated from it; diagonal ones come from too far away.
    there = [(3, 4), (4, 3), (4, 4), (4, 5), (5, 4)]
    assert [tuple(place) for place in turned.isnan().nonzero().tolist()] == there


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_finite_values_stay_finite(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    image = torch.full((2, 7, 8, 8), most, dtype=dtype)
    image[1] = -most
    for one in (
        augment.RandomContrast((1.5, 1.5), p=1),
        augment.RandomBrightness((1e6, 1e6), p=1),
        augment.Gain((1e30, 1e30)),
        augment.BandJitter(3.0, p=1),
        augment.BandOffset(1e5, p=1),
        augment.RandomGaussianNoise(0.0, 1e5, p=1),
        augment.IlluminationRamp((2.0, 2.0), p=1),
        augment.RandomMixUpV2((0.3, 0.3)),
        augment.RandomGaussianBlur(3, (1.0, 2.0), p=1),
        augment.RandomAffine(45, (0.1, 0.1), (0.8, 1.2), p=1),
        augment.Projection(torch.full((7, 7), 3.0), p=1),
        augment.Normalize(0.0, 1e-3),
    ):
        made = one(image)
        assert made.isfinite().all(), one
    half = torch.full((1, 1, 2, 2), 60000.0, dtype=torch.float16)
    half[0, 0, 0] = torch.tensor([float("inf"), float("nan")])
    made = augment.RandomContrast((1.5, 1.5), clip_output=False, p=1.0)(half)[0, 0]
    assert made[0, 0].isinf()
    assert made[0, 1].isnan()
    assert made[1].tolist() == [65504.0, 65504.0]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_labels_of_any_size_are_transplanted(dtype: torch.dtype) -> None:
    image = torch.tensor([[[[1.0, 2.0]]], [[[3.0, 4.0]]]])
    for label in (70_000, -5, 2**31 - 1, -(2**31)):
        mask = torch.tensor([[[0, label]], [[0, 0]]], dtype=dtype)
        one = augment.RandomTransplantation(excluded_labels=[0], p=1.0)
        made, made_mask = one(image, mask)
        assert made.flatten().tolist() == [1, 2, 3, 2]
        assert made_mask.flatten().tolist() == [0, label, 0, label]


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
