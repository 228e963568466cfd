#!/usr/bin/env python3
"""Compares augmentations with Kornia's AugmentationSequential, alternating in one run.

usage: scripts/bench/augment.py [--rounds N] [--threads N] [--small] [--cuda] [--only NAME]

Needs the packages that scripts/test installs (torch, kornia). Builds the bench, and prints a table
with the medians of the rounds for chains at p = 0.5 and p = 1 and for single augmentations. Ours
run in float16 and float32, with memory in the order sample, row, column, band. Kornia runs in
planes: in float32 on a CPU, where this is its best case (its float16 is corrupt there), in float16
on a GPU. All use the same number of threads. On a GPU, ours are also measured in float16 with
libtorch's operations only, without kernels. Also prints the limit: the time to read the batch once
and write it once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import kornia
import kornia.augmentation as K
import torch

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]

warnings.filterwarnings("ignore")


def chain(p: float) -> tuple[list[Json], list[Any]]:
    """The published benchmark's augmentations."""
    affine = {"degrees": 45, "translate": [0.0625, 0.0625], "scale": [0.9, 1.1]}
    ours: list[Json] = [
        {"op": "affine", **affine, "padding": "reflection", "p": p},
        {"op": "hflip", "p": p},
        {"op": "vflip", "p": p},
    ]
    theirs: list[Any] = [
        K.RandomAffine(45.0, (0.0625, 0.0625), (0.9, 1.1), padding_mode="reflection", p=p),
        K.RandomHorizontalFlip(p=p),
        K.RandomVerticalFlip(p=p),
    ]
    return ours, theirs


def singles(size: tuple[int, int]) -> dict[str, tuple[list[Json], list[Any]]]:
    """Every augmentation that both libraries have, applied to all samples."""
    rows, columns = size
    half = (rows // 2, columns // 2)
    one: Json = {"p": 1.0}
    return {
        "hflip": ([{"op": "hflip", **one}], [K.RandomHorizontalFlip(p=1.0)]),
        "vflip": ([{"op": "vflip", **one}], [K.RandomVerticalFlip(p=1.0)]),
        "rot90": ([{"op": "rot90", "turns": [2, 2], **one}], [K.RandomRotation90((2, 2), p=1.0)]),
        "affine": (
            [{"op": "affine", "degrees": 45, "scale": [0.9, 1.1], "shear": 5, **one}],
            [K.RandomAffine(45.0, scale=(0.9, 1.1), shear=5.0, p=1.0)],
        ),
        "rotate": ([{"op": "rotate", "degrees": 45, **one}], [K.RandomRotation(45.0, p=1.0)]),
        "perspective": ([{"op": "perspective", **one}], [K.RandomPerspective(0.5, p=1.0)]),
        "elastic": (
            [{"op": "elastic", "alpha": [0.7, 0.7], "sigma": [16, 16], **one}],
            [K.RandomElasticTransform(alpha=(0.7, 0.7), sigma=(16.0, 16.0), p=1.0)],
        ),
        "random_crop": (
            [{"op": "random_crop", "size": half}],
            [K.RandomCrop(half, cropping_mode="slice")],
        ),
        "center_crop": (
            [{"op": "center_crop", "size": half}],
            [K.CenterCrop(half, cropping_mode="slice")],
        ),
        "resized_crop": (
            [{"op": "resized_crop", "size": half}],
            [K.RandomResizedCrop(half, cropping_mode="slice")],
        ),
        "resize": ([{"op": "resize", "size": half}], [K.Resize(half)]),
        "pad_to": (
            [{"op": "pad_to", "size": [rows + 16, columns + 16]}],
            [K.PadTo((rows + 16, columns + 16))],
        ),
        "erase": ([{"op": "erase", **one}], [K.RandomErasing(p=1.0)]),
        "jigsaw": ([{"op": "jigsaw", **one}], [K.RandomJigsaw((4, 4), p=1.0)]),
        "gain": (
            [{"op": "gain", "range": [0.9, 1.1]}],
            [K.RandomContrast((0.9, 1.1), clip_output=False, p=1.0)],
        ),
        "offset": (
            [{"op": "offset", "range": [-0.1, 0.1]}],
            [K.RandomBrightness((0.9, 1.1), clip_output=False, p=1.0)],
        ),
        "gaussian_noise": (
            [{"op": "gaussian_noise", "std": 0.1, **one}],
            [K.RandomGaussianNoise(std=0.1, p=1.0)],
        ),
        "band_dropout": (
            [{"op": "band_dropout", "bands": [3, 3], **one}],
            [K.RandomChannelDropout(3, p=1.0)],
        ),
        "gaussian_blur": (
            [{"op": "gaussian_blur", "kernel": [5, 5], "sigma": [0.5, 2], **one}],
            [K.RandomGaussianBlur((5, 5), (0.5, 2.0), p=1.0)],
        ),
        "standardize": (
            [{"op": "standardize", "mean": 0.5, "std": 0.3}],
            [K.Normalize(torch.tensor([0.5]), torch.tensor([0.3]))],
        ),
        "mixup": ([{"op": "mixup"}], [K.RandomMixUpV2(p=1.0)]),
        "cutmix_rect": ([{"op": "cutmix_rect"}], [K.RandomCutMixV2(p=1.0)]),
        "transplant": ([{"op": "transplant", **one}], [K.RandomTransplantation(p=1.0)]),
    }


# Kornia has no masks for these.
IMAGE_ONLY = {"mixup", "cutmix_rect", "jigsaw"}


class Ours:
    """The running bench, which answers requests."""

    def __init__(self) -> None:
        prebuilt = os.environ.get("HSIPACK_AUGMENT_BENCH")
        self.process = subprocess.Popen(
            [prebuilt or build(), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, request: Json) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("error: the bench ended; see its message above")
        return float(answer)


def build() -> str:
    """Builds the bench and returns its path."""
    environment = os.environ | {"LIBTORCH_USE_PYTORCH": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    command = ["cargo", "bench", "--locked", "-p", "hsipack-torch"]
    command += ["--bench", "augment_speed", "--no-run", "--message-format=json"]
    built = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "augment_speed":
            return str(message["executable"])
    sys.exit("error: cargo built no bench")


class Kornia:
    """Kornia, with its own batch."""

    def __init__(self, size: tuple[int, int, int, int], masks: int, device: str) -> None:
        samples, bands, rows, columns = size
        kind = torch.float16 if device == "cuda" else torch.float32
        self.device = device
        self.image = torch.rand(samples, bands, rows, columns, device=device, dtype=kind)
        shape = (samples, 1, rows, columns)
        self.masks = [torch.randint(20, shape, device=device).float() for _ in range(masks)]

    def seconds(self, augmentation: torch.nn.Module, masks: bool) -> float:
        self.wait()
        start = time.perf_counter()
        with torch.no_grad():
            augmentation(self.image, *self.masks) if masks else augmentation(self.image)
        self.wait()
        return time.perf_counter() - start

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def container(ops: list[Any], masks: int, device: str) -> torch.nn.Module:
    keys = ["input"] + ["mask"] * masks
    return K.AugmentationSequential(*ops, data_keys=keys).to(device)


def copy_seconds(image: torch.Tensor, wait: Any) -> float:
    """Seconds to read the batch once and write it once."""
    into = torch.empty_like(image)
    times = []
    for _ in range(7):
        wait()
        start = time.perf_counter()
        into.copy_(image)
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each case")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--small", action="store_true", help="120 x 160 instead of 480 x 640")
    parser.add_argument("--cuda", action="store_true", help="use the first GPU")
    parser.add_argument("--only", help="only cases whose name contains this")
    args = parser.parse_args()
    rows, columns = (120, 160) if args.small else (480, 640)
    size = (6, 100, rows, columns)
    device = "cuda" if args.cuda else "cpu"
    torch.set_num_threads(args.threads)
    ours, theirs = Ours(), Kornia(size, 2, device)

    cases: dict[str, tuple[list[Json], list[Any]]] = {
        "chain, p = 0.5": chain(0.5),
        "chain, p = 1": chain(1.0),
        **singles((rows, columns)),
    }
    print(f"{size}, two masks, {device}, {args.threads} threads, medians of {args.rounds}")
    print(f"Kornia {kornia.__version__}, torch {torch.__version__}")
    half = theirs.image.to(torch.float16)
    for kind, image in (("float16", half), ("float32", half.float())):
        limit = copy_seconds(image, theirs.wait)
        print(f"limit: copying the batch once in {kind}: {1e3 * limit:.1f} ms")
    kinds = ["float16", "float32", *(["operations"] if args.cuda else [])]
    print(f"{'':16} {'Kornia':>10}", *(f"{kind:>10}" for kind in kinds), "  Kornia/ours")
    for name, (ops, modules) in cases.items():
        if args.only and args.only not in name:
            continue
        masks = 0 if name in IMAGE_ONLY else 2
        augmentation = container(modules, masks, device)
        times: dict[str, list[float]] = {"kornia": [], **{kind: [] for kind in kinds}}
        request: Json = {"ops": ops, "size": size, "masks": masks, "threads": args.threads}
        request["cuda"] = args.cuda
        # Our work depends on the random draws, so it is measured more often. Kornia always does the
        # same work.
        ours_rounds = 2 * args.rounds if "0.5" in name else args.rounds
        for kind in kinds:
            one = {**request, "kind": kind}
            if kind == "operations":
                one |= {"kind": "float16", "tensors": True}
            ours.seconds(one)
            for _ in range(ours_rounds):
                times[kind].append(ours.seconds(one))
                if len(times["kornia"]) < args.rounds:
                    times["kornia"].append(theirs.seconds(augmentation, masks > 0))
        kornia_s = statistics.median(times["kornia"])
        # The mean of ours if draws differ: some rounds do less work than others.
        middle = statistics.mean if "0.5" in name else statistics.median
        of = {kind: middle(times[kind]) for kind in kinds}
        print(
            f"{name:16} {1e3 * kornia_s:7.1f} ms",
            *(f"{1e3 * of[kind]:7.1f} ms" for kind in kinds),
            *(f"{kornia_s / of[kind]:7.1f}x" for kind in kinds),
            flush=True,
        )


if __name__ == "__main__":
    main()
