"""The two tasks: their cubes, their networks and their scores."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import numpy.typing as npt
import torch
from peers.compare import size, warm
from peers.cubes import read_source
from PIL import Image
from torch import Tensor, nn

from training import fields

Json = dict[str, Any]
Values = npt.NDArray[np.float32]
Ids = npt.NDArray[np.uint8]
Scores = dict[str, float]

CPU = "cpu"
FILES = "files"
# The packed forms of the files, with their options of `hsipack.convert`.
FORMS: dict[str, Json] = {
    "float32": {"dtype": "float32"},
    "float16": {},
    "auto": {"keep_bits": "auto"},
}
# Mantissa bits of float32 and of float16.
BITS = {"float32": 23, "float16": 10}


@dataclass(frozen=True)
class Sizes:
    """How large the cubes are, and how they are trained on."""

    count: int = 12
    rows: int = 240
    columns: int = 320
    bands: int = 100
    crop: int = 64
    crops: int = 16
    """Crops of each scene in an epoch."""
    batch: int = 8
    side: int = 256
    patch_batch: int = 64
    per_class: int = 1000
    """Patches of each class, for training and for validation."""


@dataclass(frozen=True)
class Window:
    """A window of a batch, at the place where hsipack's loader reads it."""

    seed: int
    epoch: int
    batch: int
    sample: int
    repeat: int
    row: int
    column: int
    rows: int
    columns: int
    label: int


class Task(ABC):
    """Float32 files, their packed forms, and a network."""

    key: str
    title: str
    measures: dict[str, str]
    """Names of the scores. Ways are compared by the first one."""
    masked: bool
    """Whether the target is a mask, which is augmented together with its image."""
    rate: float
    """The learning rate at the beginning."""
    batch: int
    margin: int
    """Pixels of padding around the cubes of the files."""

    def __init__(self, folder: Path, sizes: Sizes, drop: bool, device: str) -> None:
        self.folder = folder / self.key
        self.sizes = sizes
        self.drop = drop
        self.device = device
        self.bits: dict[str, int] = {}
        self.cubes: list[Values] = []
        self.masks: list[Ids] = []
        self._refuse_others()

    @property
    def measure(self) -> str:
        """The score by which ways are compared."""
        return next(iter(self.measures))

    @abstractmethod
    def draw(self) -> None:
        """Writes `files/NAME.npy`, (rows, columns, bands) float32, and `masks/NAME.npy`."""

    @abstractmethod
    def convert_options(self) -> Json:
        """Options of `hsipack.convert`, in addition to files, masks and the form."""

    @abstractmethod
    def finish(self, packed: Path) -> None:
        """Completes a dataset after it is packed."""

    @abstractmethod
    def loader_options(self, training: bool) -> Json:
        """Options of `hsipack.Loader`: batches, split and crops."""

    @abstractmethod
    def network(self) -> nn.Module:
        """A new network, initialised with torch's seed."""

    @abstractmethod
    def target(self, batch: Json) -> Tensor:
        """The target of a batch from hsipack, int64."""

    @abstractmethod
    def target_of_files(self, windows: list[Window]) -> Tensor:
        """The target of windows from the files."""

    @abstractmethod
    def scores(self, confusion: Tensor) -> Scores:
        """Computes the scores from the pixels of each class (row) by predicted class (column)."""

    # ------------------------------------------------------------------------------------- files

    def path(self, form: str) -> Path:
        """The folder of a form of the cubes."""
        return self.folder / (form if form == FILES else f"{form}.hsipack")

    def bytes_of(self, form: str) -> int:
        """The size of a form on the disk, masks included."""
        if form == FILES:
            return size(self.path(FILES)) + size(self.folder / "masks")
        return size(self.path(form))

    @property
    def settings(self) -> Path:
        """The file with the sizes that were drawn. It marks the folder as the script's own."""
        return self.folder / "sizes.json"

    def _refuse_others(self) -> None:
        """Ends the script if the folder has other files, because drawing would delete them."""
        if not self.folder.exists() or self.settings.exists():
            return
        if not self.folder.is_dir() or any(self.folder.iterdir()):
            raise SystemExit(
                f"{self.folder} is not one of this script's, which would delete what is there; "
                "give another --folder"
            )

    def prepare(self, forms: list[str], tell: Callable[[str], None]) -> None:
        """Draws and packs the forms that are not there yet."""
        wanted = json.dumps(asdict(self.sizes))
        if not self.settings.exists() or self.settings.read_text() != wanted:
            tell(f"{self.key}: drawing")
            self._clear()
            for name in (FILES, "masks"):
                (self.folder / name).mkdir()
            self.draw()
            self.settings.write_text(wanted)
        for form in forms:
            self._pack(form, tell)
            warm(self.path(form))
        self.open_files()

    def _clear(self) -> None:
        """Empties the folder, and marks it as the script's own, even after an interruption."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings.write_text("not drawn yet")
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != self.settings:
                path.unlink()

    def _pack(self, form: str, tell: Callable[[str], None]) -> None:
        if form == FILES:
            self.bits[form] = BITS["float32"]
            return
        done = self.folder / f"{form}.json"
        if not done.exists():
            tell(f"{self.key}: packing {form}")
            shutil.rmtree(self.path(form), ignore_errors=True)
            report = hsipack.convert(
                self.path(FILES),
                self.path(form),
                mask=f"{self.folder}/masks/{{stem}}.npy",
                **FORMS[form],
                **self.convert_options(),
            )
            self.finish(self.path(form))
            kept = report.keep_bits or BITS[FORMS[form].get("dtype", "float16")]
            done.write_text(json.dumps({"keep_bits": kept}))
        self.bits[form] = json.loads(done.read_text())["keep_bits"]

    @cached_property
    def names(self) -> list[str]:
        """The names of the cubes, in the order of their ids in every packed form."""
        return sorted(path.stem for path in self.path(FILES).glob("*.npy"))

    def read(self, sample: int) -> Values:
        """A float32 cube, memory-mapped, so that a window reads only the pages that it touches."""
        cube: Values = np.load(self.path(FILES) / f"{self.names[sample]}.npy", mmap_mode="r")
        return cube

    def open_files(self) -> None:
        """Opens all cubes and masks of the files, as a torch dataset does at its creation."""
        count = range(len(self.names))
        # A mapped cube cannot be removed from the system's cache.
        self.cubes = [] if self.drop else [self.read(sample) for sample in count]
        self.masks = [np.load(self.folder / "masks" / f"{name}.npy") for name in self.names]

    def cut(self, window: Window) -> Values:
        """Cuts a window out of the float32 files, as (rows, columns, bands)."""
        cube = self.cubes[window.sample] if self.cubes else self.read(window.sample)
        row, column = window.row + self.margin, window.column + self.margin
        return cube[row : row + window.rows, column : column + window.columns]

    def collate(self, images: list[Values], windows: list[Window]) -> tuple[Tensor, Tensor]:
        """A batch of windows and its target. Memory has the band last, as in hsipack's batches."""
        image = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
        return image, self.target_of_files(windows)

    # ----------------------------------------------------------------------------------- windows

    def loader(self, form: str, training: bool = True, **options: Any) -> hsipack.Loader:
        """Batches of a packed form."""
        # Validation reads the same windows in all trainings.
        told: Json = {
            "seed": 0,
            "shuffle": training,
            "device": self.device,
            "dtype": torch.float32,
        }
        if self.drop:
            told["cache"] = None
        words = told | self.loader_options(training) | options
        return hsipack.Loader(self.path(form), **words)

    def windows(self, form: str, seed: int, epochs: int, training: bool = True) -> list[Any]:
        """The windows of each batch of each epoch, in the loader's order. They are the same for
        each form.
        """
        found = []
        with self.loader(form, training, seed=seed, bands=[0], device=CPU) as loader:
            for epoch in range(epochs):
                batches = []
                for number, batch in enumerate(loader):
                    columns = [batch["id"], batch["repeat"], *batch["window"].T, batch["label"]]
                    rows = zip(*(column.tolist() for column in columns), strict=True)
                    batches.append([Window(seed, epoch, number, *row) for row in rows])
                found.append(batches)
        return found

    # -------------------------------------------------------------------------------- validation

    def validation(self, form: str, packed: str) -> list[tuple[Tensor, Tensor]]:
        """Images and targets of a form for validation, in the device's memory. `packed` is any
        packed form.
        """
        if form == FILES:
            (epoch,) = self.windows(packed, 0, 1, training=False)
            batches = (self.collate([self.cut(one) for one in each], each) for each in epoch)
            return [(image.to(self.device), target.to(self.device)) for image, target in batches]
        with self.loader(form, training=False) as loader:
            return [(batch["image"].clone(), self.target(batch).clone()) for batch in loader]

    def validate(self, model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> Scores:
        """The scores of a network."""
        classes = fields.CLASSES
        confusion = torch.zeros(classes * classes, dtype=torch.int64, device=self.device)
        model.eval()
        with torch.no_grad():
            for image, target in batches:
                found = model(image).argmax(1)
                pairs = (target * classes + found).flatten()
                confusion += torch.bincount(pairs, minlength=classes * classes)
        model.train()
        return self.scores(confusion.reshape(classes, classes).cpu())


class Segmentation(Task):
    """Every pixel of a scene has a class."""

    key = "segmentation"
    title = "Segmentation of whole scenes"
    measures = {"miou": "mean IoU", "accuracy": "pixel accuracy"}  # noqa: RUF012
    masked = True
    rate = 3e-3
    margin = 0

    def __init__(self, folder: Path, sizes: Sizes, drop: bool, device: str) -> None:
        super().__init__(folder, sizes, drop, device)
        self.batch = sizes.batch

    def draw(self) -> None:
        drawn, sizes = self.folder / "drawn", self.sizes
        script = Path(__file__).parents[2] / "dev/make_cubes.py"
        words = [
            f"--{name}={getattr(sizes, name)}" for name in ("count", "rows", "columns", "bands")
        ]
        subprocess.run([sys.executable, script, drawn, *words], check=True, capture_output=True)
        for path in sorted([*drawn.glob("scene_*.hdr"), *drawn.glob("scene_*.npy")]):
            np.save(self.path(FILES) / f"{path.stem}.npy", read_source(path))
        (drawn / "table.csv").rename(self.folder / "table.csv")
        for path in (drawn / "masks").glob("*.png"):
            np.save(self.folder / "masks" / f"{path.stem}.npy", np.asarray(Image.open(path)))
        shutil.rmtree(drawn)

    def convert_options(self) -> Json:
        return {"table": self.folder / "table.csv"}

    def finish(self, packed: Path) -> None:
        pass

    def loader_options(self, training: bool) -> Json:
        if not training:
            return {"batch_size": 1, "split": ["validation", "test"]}
        crop = hsipack.RandomCrop(self.sizes.crop, per_cube=self.sizes.crops)
        return {"batch_size": self.batch, "split": "train", "crop": crop}

    def network(self) -> nn.Module:
        return UNet(self.sizes.bands, fields.CLASSES)

    def target(self, batch: Json) -> Tensor:
        return torch.as_tensor(batch["mask"]).long()

    def target_of_files(self, windows: list[Window]) -> Tensor:
        masks = [
            self.masks[one.sample][
                one.row : one.row + one.rows, one.column : one.column + one.columns
            ]
            for one in windows
        ]
        return torch.from_numpy(np.stack(masks).astype(np.int64))

    def scores(self, confusion: Tensor) -> Scores:
        right = confusion.diagonal().double()
        union = confusion.sum(0) + confusion.sum(1) - right
        there = union > 0
        iou = right[there] / union[there]
        return {"miou": float(iou.mean()), "accuracy": float(right.sum() / confusion.sum())}


class Patches(Task):
    """The pixel in the middle of a patch has a class."""

    key = "patches"
    title = "Classification of 9 x 9 patches of one scene"
    measures = {"accuracy": "accuracy"}  # noqa: RUF012
    masked = False
    rate = 2e-3
    window = 9
    margin = window // 2

    def __init__(self, folder: Path, sizes: Sizes, drop: bool, device: str) -> None:
        super().__init__(folder, sizes, drop, device)
        self.batch = sizes.patch_batch

    def draw(self) -> None:
        cube, classes = fields.draw(self.sizes.side)
        np.save(self.path(FILES) / "scene.npy", cube)
        np.save(self.folder / "masks/scene.npy", classes)

    def convert_options(self) -> Json:
        return {}

    def finish(self, packed: Path) -> None:
        hsipack.split(
            packed, "mask", by="blocks", block=2 * fields.FIELD, buffer="auto", patch=self.window,
            shares="train=0.5,test=rest", name="blocks",
        )  # fmt: skip

    def loader_options(self, training: bool) -> Json:
        mask = "blocks_train" if training else "blocks_test"
        crop = hsipack.LabelledPatches(self.window, mask=mask, per_class=self.sizes.per_class)
        return {"batch_size": self.batch if training else 1024, "crop": crop}

    def read(self, sample: int) -> Values:
        # The scene is small enough to stay in memory. It is mirrored at its edges.
        around = ((self.margin, self.margin), (self.margin, self.margin), (0, 0))
        return np.pad(super().read(sample), around, mode="reflect")

    def network(self) -> nn.Module:
        return nn.Sequential(
            nn.BatchNorm2d(fields.BANDS),
            nn.Conv2d(fields.BANDS, 32, 1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 16, fields.CLASSES),
        )

    def target(self, batch: Json) -> Tensor:
        # Labels of a batch are in the host's memory, also where its images are on a GPU.
        return (torch.as_tensor(batch["label"]) - 1).to(self.device)

    def target_of_files(self, windows: list[Window]) -> Tensor:
        return torch.tensor([one.label - 1 for one in windows])

    def scores(self, confusion: Tensor) -> Scores:
        return {"accuracy": float(confusion.diagonal().sum() / confusion.sum())}


TASKS: dict[str, type[Task]] = {task.key: task for task in (Segmentation, Patches)}


class UNet(nn.Module):
    """Spectra first (1 x 1), then three levels of their surroundings."""

    def __init__(self, bands: int, classes: int, width: int = 16) -> None:
        super().__init__()
        self.spectra = nn.Sequential(nn.BatchNorm2d(bands), nn.Conv2d(bands, width, 1), nn.ReLU())
        self.first = block(width, width)
        self.second = block(width, 2 * width)
        self.third = block(2 * width, 4 * width)
        self.up_second = block(6 * width, 2 * width)
        self.up_first = block(3 * width, width)
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Scores (B, classes, rows, columns); rows and columns are multiples of 4."""
        first = self.first(self.spectra(image))
        second = self.second(nn.functional.max_pool2d(first, 2))
        third = self.third(nn.functional.max_pool2d(second, 2))
        second = self.up_second(torch.cat([second, twice(third)], 1))
        first = self.up_first(torch.cat([first, twice(second)], 1))
        scores: Tensor = self.last(first)
        return scores


def block(inside: int, outside: int) -> nn.Module:
    """A convolution over 3 x 3 pixels, normalised."""
    layers = nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside)
    return nn.Sequential(*layers, nn.ReLU())


def twice(values: Tensor) -> Tensor:
    """Doubles rows and columns."""
    return nn.functional.interpolate(values, scale_factor=2, mode="nearest")
