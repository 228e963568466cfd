"""hsipack: hyperspectral cubes, packed once and streamed to training as fast as they decompress.

>>> import hsipack
>>> ds = hsipack.open(dataset_path)
>>> tuple(ds[0]["image"].shape)  # (bands, rows, columns), float16
(7, 20, 24)
>>> with hsipack.Loader(ds, batch_size=4, shuffle=True, device="cpu") as loader:
...     for batch in loader:
...         image, mask = batch["image"], batch["labels"]
>>> tuple(image.shape), tuple(mask.shape)
((4, 7, 20, 24), (4, 20, 24))

Arrays are torch tensors if torch is installed, otherwise NumPy arrays. torch is imported when the
first tensor is made, not before.

Errors are subclasses of :class:`Error`, and of Python's class for the same kind of error: an
argument of the wrong type raises a ``TypeError``, another wrong argument a ``ValueError``, a
missing file an ``OSError``, missing memory a ``MemoryError``.

The command ``hsipack`` comes with the package; ``hsipack --help`` explains it.
"""

from hsipack import _processor

_processor.check()

from hsipack import augment  # noqa: E402  (an older processor cannot run what this imports)
from hsipack._concat import Concat, Mix, Pad, concat, mix  # noqa: E402
from hsipack._errors import (  # noqa: E402
    AmbiguousError,
    ArgumentTypeError,
    BugError,
    ConflictError,
    DamagedError,
    DeviceError,
    DeviceMemoryError,
    Error,
    FileError,
    MalformedError,
    OutOfMemoryError,
    RangeError,
    UnsupportedError,
)
from hsipack._hsipack import Array, __version__  # noqa: E402
from hsipack._labels import class_weights  # noqa: E402
from hsipack._pack import pack  # noqa: E402
from hsipack._ranks import Place  # noqa: E402
from hsipack._spectra import spectra  # noqa: E402
from hsipack._view import Viewer, view  # noqa: E402
from hsipack.columns import set_columns  # noqa: E402
from hsipack.companions import add_image, add_target  # noqa: E402
from hsipack.crops import (  # noqa: E402
    CenterCrop,
    GridCrop,
    LabelledPatches,
    RandomCrop,
    Regions,
    WholeCubes,
    Windows,
)
from hsipack.dataset import Dataset  # noqa: E402
from hsipack.dataset import open as open  # noqa: E402
from hsipack.diagnosis import Diagnosis, diagnose  # noqa: E402
from hsipack.loader import Loader  # noqa: E402
from hsipack.loader_reports import (  # noqa: E402
    AugmentReport,
    BatchTimes,
    CacheReport,
    DeviceCacheReport,
    Distribution,
    LoaderReport,
    LoaderStats,
    MemoryReport,
    RegionsReport,
    ShuffleWindowReport,
    ThreadStats,
    TransferReport,
)
from hsipack.maps import write_map  # noqa: E402
from hsipack.masks import add_mask, split  # noqa: E402
from hsipack.merging import merge  # noqa: E402
from hsipack.packing import convert, estimate, validate  # noqa: E402
from hsipack.publishing import card  # noqa: E402
from hsipack.reports import (  # noqa: E402
    AddArrayReport,
    AddMaskReport,
    CardReport,
    ClassSplit,
    ColumnsReport,
    ConvertReport,
    Estimate,
    LabelSplit,
    MergeReport,
    PackedStack,
    Problem,
    SampleSplit,
    SampleSplitReport,
    SeenPixels,
    SplitPart,
    SplitReport,
    StackEstimate,
    ValidateReport,
    WorstError,
)
from hsipack.samples import Samples  # noqa: E402
from hsipack.stacks import Image, Mask, Stack, Target  # noqa: E402
from hsipack.stats import Stats  # noqa: E402
from hsipack.stitching import Stitcher  # noqa: E402

# Without `open`, so that `from hsipack import *` keeps Python's own.
__all__ = [
    "AddArrayReport",
    "AddMaskReport",
    "AmbiguousError",
    "ArgumentTypeError",
    "Array",
    "AugmentReport",
    "BatchTimes",
    "BugError",
    "CacheReport",
    "CardReport",
    "CenterCrop",
    "ClassSplit",
    "ColumnsReport",
    "Concat",
    "ConflictError",
    "ConvertReport",
    "DamagedError",
    "Dataset",
    "DeviceCacheReport",
    "DeviceError",
    "DeviceMemoryError",
    "Diagnosis",
    "Distribution",
    "Error",
    "Estimate",
    "FileError",
    "GridCrop",
    "Image",
    "LabelSplit",
    "LabelledPatches",
    "Loader",
    "LoaderReport",
    "LoaderStats",
    "MalformedError",
    "Mask",
    "MemoryReport",
    "MergeReport",
    "Mix",
    "OutOfMemoryError",
    "PackedStack",
    "Pad",
    "Place",
    "Problem",
    "RandomCrop",
    "RangeError",
    "Regions",
    "RegionsReport",
    "SampleSplit",
    "SampleSplitReport",
    "Samples",
    "SeenPixels",
    "ShuffleWindowReport",
    "SplitPart",
    "SplitReport",
    "Stack",
    "StackEstimate",
    "Stats",
    "Stitcher",
    "Target",
    "ThreadStats",
    "TransferReport",
    "UnsupportedError",
    "ValidateReport",
    "Viewer",
    "WholeCubes",
    "Windows",
    "WorstError",
    "__version__",
    "add_image",
    "add_mask",
    "add_target",
    "augment",
    "card",
    "class_weights",
    "concat",
    "convert",
    "diagnose",
    "estimate",
    "merge",
    "mix",
    "pack",
    "set_columns",
    "spectra",
    "split",
    "validate",
    "view",
    "write_map",
]
