"""Applies draws from elsewhere with Kornia, so that the results can be compared.

usage: replay.py FOLDER

FOLDER has cases.json, a list of {"group", "name", "pipeline", "parameters"}: an augmentation
pipeline and the draws for a batch, both as the library writes them. The tensors of a group's cases
are in GROUP.safetensors as NAME.image, NAME.rounded (the image rounded to float16), NAME.mask0, …
and, if an augmentation takes noise, NAME.noise0 (of step 0). Images are (samples, bands, rows,
columns).

Writes for every case into GROUP.out.safetensors: NAME.out, computed in float64; NAME.rounded, from
the rounded image, in float64; NAME.single, in float32; NAME.mask0, …; and, if there is one,
NAME.matrix (samples, 3, 3) from source points to result points. Warps also have NAME.near, which
marks pixels whose source is so close to the middle between two pixels that masks may have either
label, and NAME.reach, the distance of the source in pixels, which measures how coarse float32
coordinates are there.

Python tests import this module and call replay(), which takes and returns the tensors of one batch.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import kornia.augmentation as K  # noqa: E402
import torch  # noqa: E402
from kornia.augmentation.container.params import ParamItem  # noqa: E402
from kornia.constants import DataKey, Resample  # noqa: E402
from kornia.filters import filter2d_separable, get_gaussian_kernel1d  # noqa: E402
from kornia.geometry.transform import warp_perspective  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import Tensor  # noqa: E402

Json = dict[str, Any]
# Kornia 0.9 uses gates only for probabilities below 1.
SOME = 0.5
# Distance in pixels from the middle between two pixels within which rounding decides the nearest
# one.
NEAR = 1e-3
PADDING = {"zeros": "constant", "border": "replicate", "reflection": "reflect"}


@dataclass
class Step:
    """One augmentation of a pipeline with its draws."""

    op: Json
    drawn: list[Json | None]
    rows: int
    columns: int
    bands: int
    noise: Tensor | None
    masks: list[Tensor]

    @property
    def gate(self) -> Tensor:
        return torch.tensor([float(drawn is not None) for drawn in self.drawn])

    def column(self, key: str, default: Any) -> Tensor:
        """The draws with this name, one row for each sample."""
        rows = [default if drawn is None else drawn[key] for drawn in self.drawn]
        return torch.tensor(rows, dtype=torch.float64)


@dataclass
class Replay:
    """How Kornia does a step: a module with parameters, or a function if there is no module."""

    module: Any = None
    parameters: dict[str, Tensor] = field(default_factory=dict)
    function: Callable[[Tensor], Tensor] | None = None
    # The function for masks, if Kornia has none for them: the one for images.
    masks: Callable[[Tensor], Tensor] | None = None
    # Arguments for masks that differ from those of Kornia's container.
    for_masks: Json = field(default_factory=dict)


def window(x: Tensor, y: Tensor, width: Tensor, height: Tensor) -> Tensor:
    """Corners (samples, 4, 2), including the last pixels."""
    right, bottom = x + width - 1, y + height - 1
    corners = [(x, y), (right, y), (right, bottom), (x, bottom)]
    return torch.stack([torch.stack(corner, -1) for corner in corners], 1)


def boxes(step: Step) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, y = step.column("x", 0), step.column("y", 0)
    return x, y, step.column("width", 0), step.column("height", 0)


def flip(step: Step) -> Replay:
    flips = {"hflip": K.RandomHorizontalFlip, "vflip": K.RandomVerticalFlip}
    return Replay(flips[step.op["op"]](p=SOME))


def affine(step: Step) -> Replay:
    op = step.op
    fill = op["padding"] == "zeros" and op["fill"] != 0
    module = K.RandomAffine(
        degrees=180.0,
        resample=op["interpolation"],
        padding_mode="fill" if fill else op["padding"],
        fill_value=torch.full((step.bands,), op["fill"]) if fill else None,
        align_corners=op["align_corners"],
        p=SOME,
    )
    shear = step.column("shear", [0.0, 0.0])
    centre = torch.tensor([(step.columns - 1) / 2, (step.rows - 1) / 2], dtype=torch.float64)
    parameters = {
        "angle": step.column("angle", 0.0),
        "scale": step.column("scale", [1.0, 1.0]),
        "translations": step.column("translation", [0.0, 0.0]),
        "center": centre.expand(len(step.drawn), 2),
        "shear_x": shear[:, 0],
        "shear_y": shear[:, 1],
    }
    # Kornia fills masks with the value of the image if there is one band, otherwise with 0.
    return Replay(module, parameters, for_masks={"fill_value": torch.zeros(())} if fill else {})


def rotate(step: Step) -> Replay:
    op = step.op
    angle = step.column("angle", 0.0)
    if op["padding"] == "zeros":
        options: Json = {"resample": op["interpolation"], "align_corners": op["align_corners"]}
        return Replay(K.RandomRotation(degrees=180.0, p=SOME, **options), {"degrees": angle})
    # RandomRotation pads only with zeros, so RandomAffine is used, which rotates the other way.
    turned = [drawn and {**still(), "angle": -drawn["angle"]} for drawn in step.drawn]
    return affine(replace(step, op={**op, "fill": 0}, drawn=turned))


def still() -> Json:
    return {"angle": 0.0, "scale": [1.0, 1.0], "translation": [0.0, 0.0], "shear": [0.0, 0.0]}


def rot90(step: Step) -> Replay:
    return Replay(K.RandomRotation90(times=(-3, 3), p=SOME), {"times": step.column("turns", 0.0)})


def perspective(step: Step) -> Replay:
    op = step.op
    right, bottom = step.columns - 1.0, step.rows - 1.0
    square = [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]]
    module = K.RandomPerspective(
        0.5, resample=op["interpolation"], align_corners=op["align_corners"], p=SOME
    )
    points = {"start_points": step.column("from", square), "end_points": step.column("to", square)}
    if op["padding"] == "zeros":
        return Replay(module, points)

    # RandomPerspective pads only with zeros, but the function that it calls has other paddings.
    def warped(tensor: Tensor, mode: str) -> Tensor:
        given = {name: value.to(tensor.dtype) for name, value in points.items()}
        matrix = module.compute_transformation(tensor, given, module.flags)
        size = (step.rows, step.columns)
        options: Json = {"align_corners": op["align_corners"], "padding_mode": op["padding"]}
        moved: Tensor = warp_perspective(tensor, matrix, size, mode=mode, **options)
        return gated(step, moved, tensor)

    return Replay(
        module,
        points,
        function=lambda image: warped(image, op["interpolation"]),
        masks=lambda mask: warped(mask.double(), "nearest").to(mask.dtype),
    )


def gated(step: Step, changed: Tensor, before: Tensor) -> Tensor:
    return torch.where(step.gate.view(-1, 1, 1, 1) > 0.5, changed, before)


def elastic(step: Step) -> Replay:
    op = step.op
    assert step.noise is not None
    module = K.RandomElasticTransform(
        kernel_size=tuple(op["kernel"]),
        sigma=tuple(op["sigma"]),
        alpha=tuple(op["alpha"]),
        align_corners=op["align_corners"],
        resample=op["interpolation"],
        padding_mode=op["padding"],
        p=SOME,
    )
    # Kornia's container applies the field to masks without align_corners, so that they do not match
    # their image.
    options: Json = {"align_corners": op["align_corners"]}
    return Replay(module, {"noise": step.noise}, for_masks=options)


def random_crop(step: Step) -> Replay:
    op = step.op
    rows, columns = op["size"]
    module = K.RandomCrop(
        size=(rows, columns),
        padding=tuple(op["pad"]),
        pad_if_needed=op["pad_if_needed"],
        fill=op["fill"],
        padding_mode=PADDING[op["padding"]],
    )
    return cropped(step, module)


def cropped(step: Step, module: Any) -> Replay:
    rows, columns = step.op["size"]
    zeros = torch.zeros(len(step.drawn), dtype=torch.float64)
    target = window(zeros, zeros, zeros + columns, zeros + rows)
    return Replay(module, {"src": window(*boxes(step)).long(), "dst": target.long()})


def resized_crop(step: Step) -> Replay:
    op = step.op
    options: Json = {"resample": op["interpolation"], "align_corners": op["align_corners"]}
    return cropped(step, K.RandomResizedCrop(size=tuple(op["size"]), **options))


def undrawn(step: Step, module: Any) -> Replay:
    """A module without random draws."""
    shape = (len(step.drawn), step.bands, step.rows, step.columns)
    return Replay(module, module.generate_parameters(torch.Size(shape)))


def center_crop(step: Step) -> Replay:
    return undrawn(step, K.CenterCrop(tuple(step.op["size"])))


def resize(step: Step) -> Replay:
    op = step.op
    options: Json = {"resample": op["interpolation"], "align_corners": op["align_corners"]}
    return undrawn(step, K.Resize(tuple(op["size"]), **options))


def pad_to(step: Step) -> Replay:
    op = step.op
    mode = PADDING[op["padding"]]
    return Replay(K.PadTo(tuple(op["size"]), pad_mode=mode, pad_value=op["fill"]))


def erase(step: Step) -> Replay:
    x, y, width, height = boxes(step)
    values = torch.full_like(x, step.op["value"])
    parameters = {"xs": x, "ys": y, "widths": width, "heights": height, "values": values}
    return Replay(K.RandomErasing(p=SOME), parameters)


def transplant(step: Step) -> Replay:
    excluded = step.op["excluded_labels"]
    takes, labels = [], []
    for place, drawn in enumerate(step.drawn):
        if drawn is None:
            continue
        there = sorted(set(step.masks[0][drawn["donor"]].flatten().tolist()))
        there = [label for label in there if label not in excluded]
        if there:
            takes.append((place, drawn["donor"]))
            pick = math.floor(drawn["pick"] * len(there))
            labels.append(there[pick] if drawn["label"] is None else drawn["label"])

    def moved(tensor: Tensor, key: str) -> Tensor:
        places = torch.tensor([place for place, _ in takes], dtype=torch.long)
        donors = torch.tensor([donor for _, donor in takes], dtype=torch.long)
        assert all(donor == (place - 1) % len(step.drawn) for place, donor in takes)
        gate = torch.zeros(len(step.drawn))
        gate[places] = 1
        label = step.masks[0].squeeze(1)
        picked = torch.tensor(labels, dtype=label.dtype)
        given = {"batch_prob": gate, "acceptor_indices": places, "donor_indices": donors}
        module = K.RandomTransplantation(excluded_labels=excluded, p=SOME)
        given = module.params_from_input(
            label,
            data_keys=[DataKey.MASK],
            params={**given, "selected_labels": picked},
        )
        result: Tensor = module(tensor, params=given, data_keys=[key])
        return result

    return Replay(
        function=lambda image: moved(image, "input"), masks=lambda mask: moved(mask, "mask")
    )


def donors(step: Step) -> Tensor:
    own = range(len(step.drawn))
    pairs = zip(own, step.drawn, strict=True)
    return torch.tensor([place if drawn is None else drawn["donor"] for place, drawn in pairs])


def image_only(module: Any, parameters: dict[str, Tensor]) -> Replay:
    """Kornia does not mix masks with these, so masks are moved like an image."""

    def mask(labels: Tensor) -> Tensor:
        moved: Tensor = module(labels.double(), params=dict(parameters))
        return moved.to(labels.dtype)

    return Replay(
        function=lambda image: module(image, params={**of_kind(parameters, image.dtype)}),
        masks=mask,
    )


def of_kind(parameters: dict[str, Tensor], kind: torch.dtype) -> dict[str, Tensor]:
    return {
        name: value.to(kind) if value.is_floating_point() else value
        for name, value in parameters.items()
    }


def cutmix(step: Step) -> Replay:
    parameters = {
        "batch_prob": step.gate,
        "mix_pairs": donors(step).unsqueeze(0),
        "crop_src": window(*boxes(step)).unsqueeze(0),
        "image_shape": torch.tensor([step.rows, step.columns], dtype=torch.float64),
    }
    return image_only(K.RandomCutMixV2(use_correct_lambda=True, data_keys=["input"]), parameters)


def mixup(step: Step) -> Replay:
    lambdas = step.column("lambda", 0.0)
    parameters = {"batch_prob": step.gate, "mixup_pairs": donors(step), "mixup_lambdas": lambdas}
    replay = image_only(K.RandomMixUpV2(data_keys=["input"]), parameters)
    return Replay(function=replay.function, masks=lambda mask: mask)


def jigsaw(step: Step) -> Replay:
    grid = tuple(step.op["grid"])
    order = step.column("order", list(range(grid[0] * grid[1]))).long()
    parameters = {"batch_prob": step.gate, "permutation": order}
    return image_only(K.RandomJigsaw(grid, p=SOME, ensure_perm=False), parameters)


def gain(step: Step) -> Replay:
    module = K.RandomContrast((0.0, 10.0), clip_output=False, p=SOME)
    return Replay(module, {"contrast_factor": step.column("value", 1.0)})


def offset(step: Step) -> Replay:
    module = K.RandomBrightness((0.0, 2.0), clip_output=False, p=SOME)
    return Replay(module, {"brightness_factor": 1 + step.column("value", 0.0)})


def noise(step: Step) -> Replay:
    assert step.noise is not None
    return Replay(K.RandomGaussianNoise(p=SOME), {"gaussian_noise": step.noise})


def dropout(step: Step) -> Replay:
    count = step.op["bands"][0]
    module = K.RandomChannelDropout(count, fill_value=step.op["fill"], p=SOME)
    bands = step.column("bands", list(range(count))).long()
    place = torch.arange(len(step.drawn)).unsqueeze(1)
    return Replay(module, {"channel_idx": bands, "batch_idx": place})


def blur(step: Step) -> Replay:
    module = K.RandomGaussianBlur(tuple(step.op["kernel"]), (0.1, 5.0), p=SOME)
    return Replay(module, {"sigma": step.column("value", 1.0)})


def standardize(step: Step) -> Replay:
    numbers = [
        torch.tensor(step.op[key], dtype=torch.float64).reshape(-1) for key in ("mean", "std")
    ]
    module = K.Normalize(*[value.expand(step.bands).clone() for value in numbers], p=SOME)
    return Replay(module)


def normalize(step: Step) -> Replay:
    """HTC's formulas, because Kornia has no augmentation of spectra."""

    def spectra(image: Tensor) -> Tensor:
        if step.op["op"] == "snv":
            scaled = (image - image.mean(1, keepdim=True)) / image.std(1, keepdim=True)
        else:
            order = {"l1_normalize": 1, "l2_normalize": 2}[step.op["op"]]
            scaled = image / torch.linalg.vector_norm(image, ord=order, dim=1, keepdim=True)
        return gated(step, torch.nan_to_num(scaled, nan=0.0), image)

    return Replay(function=spectra, masks=lambda mask: mask)


STEPS: dict[str, Callable[[Step], Replay]] = {
    "hflip": flip,
    "vflip": flip,
    "rot90": rot90,
    "affine": affine,
    "rotate": rotate,
    "perspective": perspective,
    "elastic": elastic,
    "random_crop": random_crop,
    "center_crop": center_crop,
    "resized_crop": resized_crop,
    "resize": resize,
    "pad_to": pad_to,
    "erase": erase,
    "transplant": transplant,
    "cutmix_rect": cutmix,
    "mixup": mixup,
    "jigsaw": jigsaw,
    "gain": gain,
    "offset": offset,
    "gaussian_noise": noise,
    "band_dropout": dropout,
    "gaussian_blur": blur,
    "standardize": standardize,
    "l1_normalize": normalize,
    "l2_normalize": normalize,
    "snv": normalize,
}


def sequential(
    step: Step, replay: Replay, image: Tensor
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """A module in Kornia's own container, with explicit parameters."""
    if replay.module is None:
        return image, [], None
    kind = image.dtype
    given = {**of_kind(replay.parameters, kind), "batch_prob": step.gate}
    given["forward_input_shape"] = torch.tensor(image.shape)
    masks = [mask.clone() for mask in step.masks]
    options: Json = {"resample": Resample.NEAREST, "align_corners": None, **replay.for_masks}
    container = K.AugmentationSequential(
        replay.module,
        data_keys=["input", *["mask"] * len(masks)],
        extra_args={DataKey.MASK: options},
    )
    name = next(name for name, _ in container.named_children())
    result = container(image.clone(), *masks, params=[ParamItem(name, given)])
    results = [result] if isinstance(result, Tensor) else list(result)
    matrix = getattr(replay.module, "transform_matrix", None)
    return results[0], results[1:], matrix


def apply(step: Step, image: Tensor) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Image, masks and matrix after a step."""
    replay = STEPS[step.op["op"]](step)
    if replay.function is None:
        return sequential(step, replay, image)
    assert replay.masks is not None
    matrix = None
    if replay.module is not None:
        matrix = sequential(replace(step, masks=[]), replay, image)[2]
    return replay.function(image), [replay.masks(mask) for mask in step.masks], matrix


def sources(
    step: Step, matrix: Tensor | None, size: tuple[int, int]
) -> tuple[Tensor, Tensor] | None:
    """The sources of pixels (samples, rows, columns, 2), and how coarse float32 is there."""
    y, x = torch.meshgrid(*[torch.arange(n, dtype=torch.float64) for n in size], indexing="ij")
    points = torch.stack([x, y, torch.ones_like(x)], -1)
    op = step.op
    if op["op"] in ("resize", "resized_crop"):
        first = torch.tensor([[0.0, 0.0]]).expand(len(step.drawn), 2)
        shape = torch.tensor([[step.columns, step.rows]]).expand(len(step.drawn), 2)
        if op["op"] == "resized_crop":
            x0, y0, width, height = boxes(step)
            first, shape = torch.stack([x0, y0], -1), torch.stack([width, height], -1)
        ratio = shape / torch.tensor([size[1], size[0]], dtype=torch.float64)
        there = (points[None, ..., :2] + 0.5) * ratio[:, None, None] - 0.5
        there = there + first[:, None, None]
        return there, there.abs().amax(-1).clamp(min=max(step.rows, step.columns))
    if op["op"] == "elastic":
        assert step.noise is not None
        inner = 1 if op["align_corners"] else 0
        span = torch.tensor([step.columns - inner, step.rows - inner], dtype=torch.float64) / 2
        by = span * torch.tensor(op["alpha"], dtype=torch.float64)
        kernels = [
            get_gaussian_kernel1d(
                n, torch.tensor([[sigma]], dtype=torch.float64), dtype=torch.float64
            )
            for n, sigma in zip(op["kernel"], op["sigma"], strict=True)
        ]
        smooth = filter2d_separable(
            step.noise.double(), kernels[1], kernels[0], border_type="constant"
        )
        there = points[None, ..., :2] + smooth.permute(0, 2, 3, 1) * by
        return there, there.abs().amax(-1).clamp(min=max(step.rows, step.columns))
    if matrix is None or op["op"] in ("random_crop", "center_crop", "pad_to", "hflip", "vflip"):
        return None
    inverse = torch.linalg.inv(matrix.double().expand(len(step.drawn), 3, 3))
    there = torch.einsum("sij,rcj->srci", inverse, points)
    scale = there[..., 2:]
    sizes = torch.einsum("sj,rcj->src", inverse[:, 2].abs(), points)[..., None] / scale.abs()
    there = there[..., :2] / scale
    reach = there.abs().amax(-1).clamp(min=max(step.rows, step.columns))
    return there, reach * sizes.squeeze(-1)


def replayed(case: Json, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """All results of one case."""
    given = {
        key.split(".", 1)[1]: value
        for key, value in tensors.items()
        if key.startswith(case["name"] + ".")
    }
    out: dict[str, Tensor] = {}
    ops = case["pipeline"]["ops"]
    for name, source, kind in (
        ("single", "image", torch.float32),
        ("rounded", "rounded", torch.float64),
        ("out", "image", torch.float64),
    ):
        image = given[source].to(kind)
        masks = [given[f"mask{n}"] for n in range(9) if f"mask{n}" in given]
        near: Tensor | None = None
        total: Tensor | None = None
        for number, (op, drawn) in enumerate(zip(ops, case["parameters"]["steps"], strict=True)):
            rows, columns = image.shape[-2:]
            noise = given.get(f"noise{number}")
            # Masks are needed once, and for images only by augmentations that look up labels.
            if name != "out" and "transplant" not in [op["op"] for op in ops]:
                masks = []
            step = Step(op, drawn["drawn"], rows, columns, image.shape[1], noise, masks)
            image, masks, matrix = apply(step, image)
            if name == "out" and matrix is not None:
                # If only one of several steps interpolates, the product gives the places of pixels.
                total = matrix if total is None else matrix @ total
                out["matrix"] = total.expand(len(step.drawn), 3, 3)
            if name == "out" and number + 1 == len(ops):
                op = op if len(ops) == 1 else {"op": "several"}
                where = sources(replace(step, op=op), total, (image.shape[-2], image.shape[-1]))
                if where is not None:
                    place, out["reach"] = where
                    near = ((place - place.floor() - 0.5).abs() <= NEAR).any(-1)
        out[name] = image
        if name == "out":
            out.update({f"mask{number}": mask for number, mask in enumerate(masks)})
            if near is not None:
                out["near"] = near.to(torch.uint8)
    return {f"{case['name']}.{name}": value.contiguous().clone() for name, value in out.items()}


def replay(
    pipeline: Json,
    parameters: Json,
    image: Tensor,
    masks: list[Tensor],
    noise: dict[int, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Kornia's results for one batch: "out" (float64), "rounded", "single", "mask0", … as above.

    `pipeline` and `parameters` are JSON, as the library writes them. `image` is float32 (samples,
    bands, rows, columns), `masks` are (samples, 1, rows, columns). `noise` has the noise of steps
    that take it, by their numbers.
    """
    tensors = {"case.image": image, "case.rounded": image.half().float()}
    tensors.update({f"case.mask{number}": mask for number, mask in enumerate(masks)})
    tensors.update({f"case.noise{number}": one for number, one in (noise or {}).items()})
    case = {"name": "case", "pipeline": pipeline, "parameters": parameters}
    with torch.no_grad():
        results = replayed(case, tensors)
    return {name.removeprefix("case."): result for name, result in results.items()}


def replay_group(folder: Path, cases: list[Json]) -> None:
    """Writes the results of a group's cases."""
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    group = cases[0]["group"]
    by_case: dict[str, dict[str, Tensor]] = {}
    for key, value in load_file(folder / f"{group}.safetensors").items():
        by_case.setdefault(key.split(".", 1)[0], {})[key] = value
    results: dict[str, Tensor] = {}
    for case in cases:
        try:
            results.update(replayed(case, by_case[case["name"]]))
        except Exception as error:
            error.add_note(f"in case {case['name']} of {group}: {json.dumps(case)[:2000]}")
            raise
    save_file(results, folder / f"{group}.out.safetensors")


def main() -> None:
    folder = Path(sys.argv[1])
    groups: dict[str, list[Json]] = {}
    for case in json.loads((folder / "cases.json").read_text()):
        groups.setdefault(case["group"], []).append(case)
    # Images are too small for threads of libtorch. None has started, so a fork loses no thread.
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        for done in [pool.submit(replay_group, folder, cases) for cases in groups.values()]:
            done.result()


if __name__ == "__main__":
    main()
