"""hsipack: hyperspectral cubes, packed once and streamed to training as fast as they decompress.

>>> import hsipack
>>> ds = hsipack.open(dataset_path)
>>> ds[0]["image"].shape  # (bands, rows, columns), float16
torch.Size([7, 20, 24])
>>> with hsipack.Loader(ds, batch_size=4, shuffle=True, device="cpu") as loader:
...     for batch in loader:
...         image, mask = batch["image"], batch["labels"]
>>> image.shape, mask.shape
(torch.Size([4, 7, 20, 24]), torch.Size([4, 20, 24]))

The command ``hsipack`` comes with the package; ``hsipack --help`` explains it.
"""

from hsipack import augment
from hsipack._errors import (
    AmbiguousError,
    BugError,
    ConflictError,
    DamagedError,
    DeviceError,
    Error,
    FileError,
    MalformedError,
    RangeError,
    UnsupportedError,
)
from hsipack._hsipack import Array, __version__
from hsipack.crops import CenterCrop, GridCrop, RandomCrop
from hsipack.dataset import Dataset, Mask, Stack, Stats, open
from hsipack.diagnosis import Diagnosis, diagnose
from hsipack.loader import Loader
from hsipack.packing import convert, estimate, validate
from hsipack.reports import (
    ConvertReport,
    Estimate,
    Problem,
    StackEstimate,
    ValidateReport,
    WorstError,
)
from hsipack.samples import Samples

__all__ = [
    "AmbiguousError",
    "Array",
    "BugError",
    "CenterCrop",
    "ConflictError",
    "ConvertReport",
    "DamagedError",
    "Dataset",
    "DeviceError",
    "Diagnosis",
    "Error",
    "Estimate",
    "FileError",
    "GridCrop",
    "Loader",
    "MalformedError",
    "Mask",
    "Problem",
    "RandomCrop",
    "RangeError",
    "Samples",
    "Stack",
    "StackEstimate",
    "Stats",
    "UnsupportedError",
    "ValidateReport",
    "WorstError",
    "__version__",
    "augment",
    "convert",
    "diagnose",
    "estimate",
    "open",
    "validate",
]
