"""Draws parameters with Kornia's generators.

usage: draws.py NUMBER ROWS COLUMNS BANDS OUT.safetensors

Writes NUMBER values of every parameter, named as the library names them (`affine.angle`, …).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import kornia.augmentation as K  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch import Tensor  # noqa: E402

Drawn = dict[str, Tensor]
# Samples in a batch.
BATCH = 100


def corners(key: str) -> Callable[[Drawn], Drawn]:
    """First pixel and size of windows, from their corners."""

    def read(drawn: Drawn) -> Drawn:
        at = drawn[key].reshape(-1, 4, 2).double()
        return {
            "x": at[:, 0, 0],
            "y": at[:, 0, 1],
            "width": at[:, 1, 0] - at[:, 0, 0] + 1,
            "height": at[:, 3, 1] - at[:, 0, 1] + 1,
        }

    return read


def affine(drawn: Drawn) -> Drawn:
    return {
        "angle": drawn["angle"],
        "scale0": drawn["scale"][:, 0],
        "scale1": drawn["scale"][:, 1],
        "translation0": drawn["translations"][:, 0],
        "translation1": drawn["translations"][:, 1],
        "shear0": drawn["shear_x"],
        "shear1": drawn["shear_y"],
    }


def perspective(drawn: Drawn) -> Drawn:
    points = drawn["end_points"].flatten(1)
    return {f"to{number}": points[:, number] for number in range(8)}


def dropout(drawn: Drawn) -> Drawn:
    bands = drawn["channel_idx"].sort(1).values
    return {f"bands{number}": bands[:, number] for number in range(bands.shape[1])}


def jigsaw(drawn: Drawn) -> Drawn:
    order = drawn["permutation"]
    return {f"order{number}": order[:, number] for number in range(order.shape[1])}


def one(key: str, name: str) -> Callable[[Drawn], Drawn]:
    return lambda drawn: {name: drawn[key]}


MODULES: dict[str, tuple[Any, Callable[[Drawn], Drawn]]] = {
    "affine": (
        K.RandomAffine(45, (0.0625, 0.1), (0.9, 1.1), (-10, 10, -5, 5), p=1.0),
        affine,
    ),
    "affine_gate": (K.RandomAffine(45, p=0.3), one("batch_prob", "gate")),
    "affine_axes": (K.RandomAffine(0, None, (0.7, 1.4, 0.8, 1.2), p=1.0), affine),
    "rotate": (K.RandomRotation(60, p=1.0), lambda drawn: {"angle": drawn["degrees"]}),
    "rot90": (
        K.RandomRotation90((-1, 2), p=1.0),
        lambda drawn: {"turns": drawn["times"].round() % 4},
    ),
    "perspective": (K.RandomPerspective(0.4, p=1.0), perspective),
    "perspective_area": (
        K.RandomPerspective(0.4, p=1.0, sampling_method="area_preserving"),
        perspective,
    ),
    "random_crop": (K.RandomCrop((20, 24)), corners("src")),
    "resized_crop": (K.RandomResizedCrop((24, 30), scale=(0.3, 0.9)), corners("src")),
    "resized_crop_narrow": (
        K.RandomResizedCrop((24, 30), scale=(0.9, 1.0), ratio=(0.3, 0.4)),
        corners("src"),
    ),
    "erase": (
        K.RandomErasing(p=1.0),
        lambda drawn: {
            "x": drawn["xs"],
            "y": drawn["ys"],
            "width": drawn["widths"],
            "height": drawn["heights"],
        },
    ),
    "cutmix_rect": (K.RandomCutMixV2(use_correct_lambda=True), corners("crop_src")),
    "cutmix_rect_beta": (K.RandomCutMixV2(beta=0.4, use_correct_lambda=True), corners("crop_src")),
    "mixup": (K.RandomMixUpV2(), one("mixup_lambdas", "lambda")),
    "gaussian_blur": (K.RandomGaussianBlur((5, 5), (0.5, 2.0), p=1.0), one("sigma", "value")),
    "gain": (K.RandomContrast((0.7, 1.3), p=1.0), one("contrast_factor", "value")),
    "band_dropout": (K.RandomChannelDropout(3, p=1.0), dropout),
    "jigsaw": (K.RandomJigsaw((3, 1), p=1.0, ensure_perm=False), jigsaw),
    "transplant": (K.RandomTransplantation(p=0.8), one("batch_prob", "gate")),
}


def main() -> None:
    number, rows, columns, bands = (int(argument) for argument in sys.argv[1:5])
    torch.manual_seed(0)
    out: dict[str, Tensor] = {}
    for name, (module, read) in MODULES.items():
        parts: dict[str, list[Tensor]] = {}
        for _ in range(number // BATCH):
            drawn = module.forward_parameters(torch.Size((BATCH, bands, rows, columns)))
            for key, value in read(drawn).items():
                parts.setdefault(f"{name}.{key}", []).append(value.double().reshape(-1))
        out.update({key: torch.cat(values) for key, values in parts.items()})
    save_file(out, Path(sys.argv[5]))


if __name__ == "__main__":
    main()
