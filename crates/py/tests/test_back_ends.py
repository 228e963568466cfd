"""The back ends of augmentations, compared with each other and with Kornia: loops over the host's
memory, and the user's torch called operation by operation as on a device, here on the CPU.

``HSIPACK_KORNIA_CASES=208`` compares as many random cases of every augmentation as the Rust tests.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hsipack import _hsipack
from torch import Tensor

CASES = int(os.environ.get("HSIPACK_KORNIA_CASES", "6"))
REPLAY = Path(__file__).parents[2] / "torch/tests/kornia/replay.py"

EXACT = [
    *("hflip", "vflip", "rot90", "random_crop", "center_crop", "pad_to", "erase", "transplant"),
    *("cutmix_rect", "jigsaw", "band_dropout"),
]
WARPS = ["affine", "rotate", "perspective", "elastic", "resized_crop", "resize", "chain"]
POINTWISE = [
    *("mixup", "gain", "offset", "gaussian_noise", "gaussian_blur", "standardize"),
    *("l1_normalize", "l2_normalize", "snv"),
]
# The back end itself draws numbers for pixels, and each back end draws different ones.
OWN_NOISE = ["gaussian_noise", "elastic"]
CHAIN = [
    {
        "op": "affine",
        "degrees": 45,
        "scale": [0.9, 1.1],
        "translate": [0.0625, 0.0625],
        "padding": "reflection",
    },
    {"op": "hflip"},
    {"op": "vflip"},
]


class Dice(np.random.Generator):
    """Random choices that are the same in every run."""

    def __init__(self, group: str, number: int) -> None:
        super().__init__(np.random.PCG64([number, *group.encode()]))

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self.integers(len(choices)))]

    def yes(self) -> bool:
        return bool(self.integers(2))

    def below(self, bound: int) -> int:
        return int(self.integers(bound))


def options(name: str, dice: Dice, rows: int, columns: int, bands: int) -> dict[str, Any]:
    """The options of one augmentation, as in its JSON."""
    interpolation = dice.one_of("bilinear", "bilinear", "bilinear", "nearest")
    padding = dice.one_of("zeros", "border", "reflection")
    warp = {"interpolation": interpolation, "padding": padding, "align_corners": dice.yes()}
    resampled = {name: warp[name] for name in ("interpolation", "align_corners")}
    fill = dice.below(2) if padding == "zeros" else 0
    made: dict[str, Any] = {}
    match name:
        case "rot90":
            made = {"turns": [-3, 3], "kornia_law": dice.yes()}
        case "affine":
            made = {
                "degrees": dice.uniform(0, 180),
                "translate": [dice.uniform(0, 0.4), dice.uniform(0, 0.4)],
                "scale": [0.6, 1.5],
                "scale_y": [0.7, 1.4] if dice.yes() else None,
                "shear": 20 if dice.yes() else [0.0, 0.0],
                "shear_y": [-15.0, 10.0] if dice.yes() else None,
                **warp,
            }
        case "rotate":
            made = {"degrees": dice.uniform(0, 180), **warp}
        case "perspective":
            made = {
                "distortion": dice.uniform(0, 0.6),
                "area_preserving": dice.yes(),
                **warp,
            }
        case "elastic":
            made = {
                "alpha": [dice.uniform(0.1, 1.5), dice.uniform(0.1, 1.5)],
                "sigma": [dice.uniform(1, 8), dice.uniform(1, 8)],
                "kernel": [dice.one_of(3, 7, 15), dice.one_of(3, 5, 21)],
                **warp,
            }
        case "random_crop":
            pad = [dice.below(4) for _ in range(4)]
            size = [1 + dice.below(rows), 1 + dice.below(columns)]
            made = {"size": size, "pad": pad, "padding": padding, "fill": fill}
        case "center_crop":
            made = {"size": [1 + dice.below(rows), 1 + dice.below(columns)]}
        case "resized_crop":
            made = {
                "size": [2 + dice.below(40), 2 + dice.below(40)],
                "scale": [dice.uniform(0.05, 0.5), 1.0],
                "ratio": [0.5, 2.0],
                **resampled,
            }
        case "resize":
            made = {"size": [2 + dice.below(50), 2 + dice.below(50)], **resampled}
        case "pad_to":
            size = [rows + dice.below(5), columns + dice.below(5)]
            made = {"size": size, "padding": padding, "fill": fill}
        case "erase":
            made = {"scale": [0.02, 0.6], "value": dice.below(65) / 64}
        case "jigsaw":
            made = {"grid": [dice.one_of(1, 2, 4), dice.one_of(1, 2, 3)]}
        case "gain":
            made = {"range": [0.5, 1.5]}
        case "offset":
            made = {"range": [-0.4, 0.4]}
        case "gaussian_noise":
            made = {"mean": dice.uniform(-0.1, 0.1), "std": dice.uniform(0, 0.3)}
        case "band_dropout":
            count = 1 + dice.below(bands)
            made = {"bands": [count] * 2, "contiguous": dice.yes(), "fill": dice.below(65) / 64}
        case "gaussian_blur":
            kernel = [dice.one_of(1, 3, 5), dice.one_of(3, 5)]
            made = {"kernel": kernel, "sigma": [0.2, dice.uniform(0.3, 3)]}
        case "standardize":
            made = {
                "mean": [dice.uniform(-1, 1) for _ in range(bands)],
                "std": [dice.uniform(0.3, 2) for _ in range(bands)],
            }
        case "transplant":
            made = {"excluded_labels": [0, 3] if dice.yes() else []}
    if name not in ("random_crop", "center_crop", "resized_crop", "resize", "pad_to"):
        made["p"] = dice.one_of(0.3, 0.7, 1.0)
    return {"op": name, **{key: value for key, value in made.items() if value is not None}}


class Case:
    """A random pipeline of one augmentation, a batch, and the draws for it."""

    def __init__(self, group: str, number: int) -> None:
        dice = Dice(group, number)
        bands = dice.one_of(1, 2, 3, 4, 7, 8, 9, 16, 31)
        bands = max(bands, 4) if group == "snv" else bands
        rows, columns = 5 + dice.below(30), 5 + dice.below(30)
        if group == "rot90":
            columns = rows
        if group == "jigsaw":
            rows, columns = 4 * (1 + rows // 4), 6 * (1 + columns // 6)
        ops = CHAIN if group == "chain" else [options(group, dice, rows, columns, bands)]
        crops = group in ("random_crop", "pad_to")
        config = {
            "ops": ops,
            "seed": dice.below(1 << 50),
            "mask_fill": ops[0].get("fill", 0) if crops else 0,
        }
        self.group = group
        self.pipeline = _hsipack.Pipeline(json.dumps(config))
        self.config = json.loads(self.pipeline.to_json())
        samples = 1 + dice.below(5)
        generator = torch.Generator().manual_seed(number)
        shape = (samples, bands, rows, columns)
        self.image = torch.rand(shape, generator=generator)
        if number % 2:
            self.image = self.image.contiguous(memory_format=torch.channels_last)
        coarse = torch.from_numpy(dice.integers(0, 6, (samples, 7, 7)))
        y, x = torch.arange(rows) * 7 // rows, torch.arange(columns) * 7 // columns
        labels = coarse[:, y[:, None], x[None, :]]
        second = torch.int32 if group != "transplant" and dice.yes() else torch.bool
        self.masks = [labels.to(torch.uint8), (labels % 2).to(second)]
        keys = [(sample * 7 + number, sample % 2) for sample in range(samples)]
        _, self.drawn = self.pipeline.augment(*self.given(self.image), number, keys, 2)

    def given(self, image: Tensor) -> tuple[Any, list[tuple[str, Any, bool]]]:
        masks = [(f"mask{n}", mask.__dlpack__(), False) for n, mask in enumerate(self.masks)]
        return image.__dlpack__(), masks

    def by(self, through: str | None, image: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Augments an image and the masks with a back end."""
        before = image.clone()
        out, masks, _ = self.pipeline.replay(*self.given(image), self.drawn, 2, through)
        assert torch.equal(image, before)
        made = torch.from_dlpack(out)
        assert made.dtype == image.dtype
        return made, [torch.from_dlpack(mask) for mask in masks]


def tolerance(
    case: Case, half: bool, wanted: Tensor, reach: Tensor | None = None
) -> Tensor | float:
    """The accepted difference from results in float64. ``reach`` is the distance of the sources of
    pixels: float32 coordinates are as coarse as the greatest number in their computation.
    """
    if case.group in EXACT:
        return 0.0
    if case.group in WARPS:
        if half:
            # Weights are rounded to float16.
            return 1.2e-3
        if reach is None:
            return 3e-5
        # Values are up to 1, so the image changes by at most 1 from one pixel to the next.
        return (reach[:, None] * (4 * 1.2e-7)).clamp_min(3e-5).expand_as(wanted)
    if half:
        return wanted.abs() * 1e-3 + 1e-6
    if case.group == "snv":
        deviation = case.image.double().std(1, keepdim=True)
        return wanted.abs() * 1e-6 + 4 * 1.2e-7 / deviation + 1e-6
    return wanted.abs().clamp_min(1.0) * 1e-6


def assert_near(
    case: Case,
    half: bool,
    got: Tensor,
    wanted: Tensor,
    exempt: Tensor | None = None,
    reach: Tensor | None = None,
) -> None:
    assert got.shape == wanted.shape, case.config
    if case.group in EXACT:
        wanted = wanted.to(got.dtype)
    difference = (got.double() - wanted.double()).abs()
    if exempt is not None:
        difference = difference.masked_fill(exempt[:, None].expand_as(difference), 0.0)
    over = difference > tolerance(case, half, wanted.double(), reach)
    assert not over.any(), f"{float(difference.max()):.2e} in {case.config}"


def close_calls(case: Case, results: dict[str, Tensor]) -> Any:
    """Pixels whose nearest neighbour depends on rounding."""
    near = results.get("near")
    return None if near is None else near.bool()


@pytest.fixture(scope="session")
def kornias() -> Any:
    """Applies the draws with Kornia 0.9. Older versions of torch do not support it. For them, this
    reads results that an earlier run with another torch wrote into the folder ``HSIPACK_KORNIA``.
    """
    safetensors = pytest.importorskip("safetensors.torch")
    if not REPLAY.exists():
        pytest.skip("not in a clone")
    kept = os.environ.get("HSIPACK_KORNIA")
    replay = None
    if _kornia() >= (0, 9):
        spec = importlib.util.spec_from_file_location("replay", REPLAY)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["replay"] = module
        spec.loader.exec_module(module)
        replay = module.replay
    if kept is None:
        if replay is None:
            pytest.skip("SKIPPED: Kornia 0.9 is not installed")
        return replay

    def results(config: Any, drawn: Any, image: Tensor, masks: Any, noises: Any) -> Any:
        text = json.dumps([config, drawn], sort_keys=True).encode()
        name = hashlib.sha256(text + image.numpy().tobytes()).hexdigest()
        file = Path(kept) / f"{name}.safetensors"
        if replay is None:
            return safetensors.load_file(file)
        made = replay(config, drawn, image, masks, noises)
        safetensors.save_file(made, file)
        return made

    return results


def _kornia() -> tuple[int, ...]:
    """The version of Kornia, major and minor."""
    try:
        version = importlib.metadata.version("kornia")
    except importlib.metadata.PackageNotFoundError:
        return (0,)
    return tuple(int(part) for part in version.split(".")[:2])


def noise(case: Case) -> dict[int, Tensor]:
    """The noise that torch makes for a step, as an argument for Kornia."""
    if case.group == "gaussian_noise":
        return {0: case.by("torch", torch.zeros_like(case.image))[0]}
    if case.group != "elastic":
        return {}
    drawn = json.loads(case.drawn)["steps"][0]["drawn"]
    shape = (2, *case.image.shape[-2:])
    seeds = [None if one is None else one["seed"] for one in drawn]
    return {0: torch.stack([field(shape, seed) for seed in seeds])}


def field(shape: tuple[int, ...], seed: int | None) -> Tensor:
    """The random numbers that are smoothed to an elastic field."""
    if seed is None:
        return torch.zeros(shape)
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
@pytest.mark.parametrize("group", [*EXACT, *WARPS, *POINTWISE])
def test_torch_does_what_kornia_does(kornias: Any, group: str, half: bool) -> None:
    for number in range(CASES):
        case = Case(group, number)
        drawn = json.loads(case.drawn)
        masks = [mask[:, None] for mask in case.masks]
        results = kornias(case.config, drawn, case.image, masks, noise(case))
        image = case.image.half() if half else case.image
        got, got_masks = case.by("torch", image)
        wanted = results["rounded" if half else "out"]
        nearest = '"nearest"' in json.dumps(case.config)
        exempt = close_calls(case, results)
        if group == "gaussian_noise" and half:
            wanted = image.double() + noise(case)[0].double()
        exempt_too = exempt if nearest else None
        assert_near(case, half, got, wanted, exempt_too, results.get("reach"))
        for place, mask in enumerate(got_masks):
            other = mask != results[f"mask{place}"][:, 0].to(mask.dtype)
            assert not (other if exempt is None else other & ~exempt).any(), case.config


@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
@pytest.mark.parametrize(
    "group", [one for one in [*EXACT, *WARPS, *POINTWISE] if one not in OWN_NOISE]
)
def test_torch_does_what_the_loops_do(group: str, half: bool) -> None:
    for number in range(1000, 1000 + CASES):
        case = Case(group, number)
        image = case.image.half() if half else case.image
        (ours, our_masks), (theirs, their_masks) = case.by(None, image), case.by("torch", image)
        differ = torch.zeros(1)
        for one, other in zip(our_masks, their_masks, strict=True):
            assert one.dtype == other.dtype
            differ = torch.maximum(differ, (one != other).double().mean())
        if group not in WARPS:
            assert_near(case, half, ours, theirs)
            assert differ == 0
            continue
        # If a source is in the middle between two pixels, either one is right.
        far = (ours.double() - theirs.double()).abs() > tolerance(case, half, ours)
        assert far.double().mean() < 0.02, case.config
        assert differ < 0.02, case.config


@pytest.mark.parametrize("group", OWN_NOISE)
def test_noise_of_torchs_depends_on_the_seed_alone(group: str) -> None:
    case = Case(group, 5)
    state = torch.random.get_rng_state()
    first, again = case.by("torch", case.image)[0], case.by("torch", case.image)[0]
    assert torch.equal(first, again)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_autocast_changes_nothing() -> None:
    case = Case("standardize", 3)
    projection = _hsipack.Pipeline(
        json.dumps([{"op": "projection", "matrix": [[0.3, 0.7], [0.1, 0.2]], "p": 1.0}])
    )
    image = torch.rand(3, 2, 8, 9, generator=torch.Generator().manual_seed(0))
    keys = [(0, 0)] * 3

    def projected() -> Tensor:
        made, _ = projection.augment(image.__dlpack__(), [], 0, keys, 1, "torch")
        return torch.from_dlpack(made[0])

    wanted = projected()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(projected(), wanted)
        assert torch.is_autocast_enabled("cpu")
        assert torch.equal(case.by("torch", case.image)[0], case.by("torch", case.image)[0])


def test_no_gradients_are_recorded() -> None:
    case = Case("gain", 1)
    assert not case.by("torch", case.image)[0].requires_grad


def test_operations_call_few_functions_of_torch() -> None:
    """A call from Rust costs a few µs, more than torch's own work on a small tensor."""
    image = torch.rand(1, 4, 8, 8)
    for op, at_most in [
        ({"op": "snv"}, 40),
        ({"op": "gaussian_blur", "kernel": [3, 3], "p": 1.0}, 80),
    ]:
        pipeline = _hsipack.Pipeline(json.dumps([op]))
        _, drawn = pipeline.augment(image.__dlpack__(), [], 0, [(0, 0)], 1, "torch")
        assert 1 < calls_of(pipeline, image, drawn) <= at_most, op


def calls_of(pipeline: _hsipack.Pipeline, image: Tensor, drawn: str) -> int:
    """How many functions of torch a replay calls."""
    from torch.overrides import TorchFunctionMode

    class Counting(TorchFunctionMode):
        count = 0

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            Counting.count += 1
            return func(*args, **(kwargs or {}))

    with Counting():
        pipeline.replay(image.__dlpack__(), [], drawn, 1, "torch")
    return Counting.count
