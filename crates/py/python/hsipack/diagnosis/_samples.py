"""What loading samples costs, measured in this process."""

from __future__ import annotations

import cProfile
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from torch.utils.data import Dataset

# Folders of libraries that augment images, as in the paths of their files.
LIBRARIES = re.compile(
    r"[/\\](kornia|torchvision[/\\]transforms|albumentations|imgaug|volumentations|batchgenerators"
    r"|monai[/\\]transforms|torchio[/\\]transforms|hsipack[/\\]augment)[/\\]"
)
# Names of functions and classes that augment.
NAMES = re.compile("augment|transform", re.IGNORECASE)
# Attributes of datasets that hold the function for their samples.
ATTRIBUTES = ("transform", "transforms", "augment", "augmentation", "augmentations")


def load(dataset: Dataset[Any], numbers: list[Any]) -> tuple[list[Any], float | None]:
    """Loads samples. Returns them, and the share of the loading time in which this process worked.

    In the rest of the time it waited. The share is None if loading took no time.
    """
    wall, work = time.perf_counter(), _worked()
    samples = [dataset[number] for number in numbers]
    wall, work = time.perf_counter() - wall, _worked() - work
    return samples, (min(work / wall, 1.0) if wall > 0 else None)


def _worked() -> float:
    """Seconds in which this process worked, or was ready to work but had no processor."""
    try:
        queued = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        queued = 0.0
    return time.process_time() + queued


def augmenting(dataset: Dataset[Any], numbers: Iterable[Any]) -> float | None:
    """The share of augmentation in the time of loading samples.

    Functions count as augmentation if they are from the usual libraries, if their name has
    "augment" or "transform" in it, or if the dataset keeps them under such a name. None if another
    profiler is running.
    """
    profile = cProfile.Profile()
    numbers = list(numbers)
    start = time.perf_counter()
    try:
        profile.enable()
    except ValueError:
        return None
    try:
        for number in numbers:
            dataset[number]
    finally:
        profile.disable()
    wall = time.perf_counter() - start
    kept, methods = set(_kept(dataset)), set(_methods(dataset))

    def augments(code: CodeType | str) -> bool:
        if isinstance(code, str):
            return False
        # A dataset whose class has such a name also loads samples, so use only its methods' names.
        # Python 3.10 does not know the class of a method.
        name = code.co_name if code in methods else getattr(code, "co_qualname", code.co_name)
        return code in kept or bool(LIBRARIES.search(code.co_filename) or NAMES.search(name))

    spent = 0.0
    for entry in profile.getstats():
        if augments(entry.code):
            # Time in another augmentation that it calls is counted there.
            within = (call.totaltime for call in entry.calls or () if augments(call.code))
            spent += entry.totaltime - sum(within)
    return min(max(spent / wall, 0.0), 1.0) if wall > 0 else None


def collating(collate: Callable[[list[Any]], Any], samples: list[Any]) -> dict[str, Any]:
    """The name of a function that makes a batch of samples, and the seconds that it takes."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        collate(samples)
        times.append(time.perf_counter() - start)
    name = getattr(collate, "__qualname__", type(collate).__qualname__)
    return {"name": name.rpartition("<locals>.")[2], "batch_s": min(times)}


def _datasets(dataset: Any) -> Iterator[Any]:
    """A dataset, and the datasets inside it."""
    seen: set[int] = set()
    while dataset is not None and id(dataset) not in seen:
        seen.add(id(dataset))
        yield dataset
        dataset = getattr(dataset, "dataset", None)


def _kept(dataset: Any) -> Iterator[CodeType]:
    """The code of the functions that a dataset, or one inside it, applies to its samples."""
    for one in _datasets(dataset):
        codes = (_code(getattr(one, name, None)) for name in ATTRIBUTES)
        yield from (code for code in codes if code is not None)


def _methods(dataset: Any) -> Iterator[CodeType]:
    """The code of the methods of a dataset, and of those inside it."""
    for one in _datasets(dataset):
        for kind in type(one).__mro__:
            codes = (getattr(member, "__code__", None) for member in vars(kind).values())
            yield from (code for code in codes if isinstance(code, CodeType))


def _code(function: Any) -> CodeType | None:
    """The code that runs when an object is called."""
    if not callable(function):
        return None
    # All of torch's modules share the code of their __call__.
    for name in ("forward", "__call__"):
        if not hasattr(function, "__code__"):
            function = getattr(type(function), name, function)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
