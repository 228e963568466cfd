"""Class ids of masks: weights by their counts, and other ids for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from hsipack import _options
from hsipack._errors import ConflictError

if TYPE_CHECKING:
    from hsipack.dataset import Dataset

Classes = Mapping[int | str, int] | Mapping[str, Mapping[int | str, int]]
"""New class ids by class ids or names; of several masks, such mappings by the masks' names."""

NewIds = tuple[str, list[tuple[int | str, int]], int | None]
"""As the native part takes them: the mask, classes with new ids, what all others have."""

_MOST = (1 << 16) - 1
_KINDS = ("balanced", "inverse", "inverse_sqrt", "median")


def class_weights(
    counts: Mapping[int, int],
    kind: Literal["balanced", "inverse", "inverse_sqrt", "median"] = "balanced",
    *,
    ignore: int | Sequence[int] = (),
    num_classes: int | None = None,
) -> npt.NDArray[np.float32]:
    """Weights of classes by their pixels, for a loss: an array indexed by class id.

    With n the count of a class, N the sum of all counts and k the number of classes that have any:

    ============ =============================================================================
    balanced     N / (k n), as scikit-learn's ``class_weight="balanced"``
    inverse      1 / n, divided by the mean over the k classes
    inverse_sqrt 1 / √n, divided by the mean over the k classes
    median       median of the counts / n (median frequency balancing)
    ============ =============================================================================

    Classes without a pixel, and those of ``ignore``, have weight 0 and are in neither N, k, the
    mean nor the median.

    Args:
        counts: pixels by class id, as :meth:`Dataset.class_counts` gives them.
        kind: see above.
        ignore: class ids that do not count, such as 0 where it is "unlabelled".
        num_classes: length of the array; up to the greatest class id if ``None``.

    Raises:
        ConflictError: if no class is left, or an id does not fit ``num_classes``.

    >>> class_weights({0: 60, 1: 30, 2: 10}, ignore=0).tolist()
    [0.0, 0.6666666865348816, 2.0]
    >>> import torch
    >>> loss = torch.nn.CrossEntropyLoss(torch.from_numpy(class_weights({0: 60, 1: 40})))
    """
    kind = _options.choice("kind", kind, _KINDS)  # type: ignore[assignment]
    ignored = _ids("ignore", ignore)
    if not isinstance(counts, Mapping):
        raise _options.wrong("counts", counts, "give pixels by class id: ds.class_counts(mask)")
    numbers = {
        _options.natural("counts", one, least=0): _options.natural("counts", count, least=0)
        for one, count in counts.items()
    }
    known = {one: count for one, count in numbers.items() if count and one not in ignored}
    if not known:
        raise ConflictError("no class has a pixel", remedy="count a mask that has labels")
    length = max([*numbers, *ignored]) + 1
    if num_classes is not None:
        length = _options.natural("num_classes", num_classes)
        if max(known) >= length:
            raise ConflictError(
                f"class {max(known)} of {length} classes",
                remedy="give a larger num_classes, or leave the class out with ignore",
            )
    ids, n = np.array(list(known)), np.array(list(known.values()), dtype=np.float64)
    if kind == "balanced":
        weights = n.sum() / (len(n) * n)
    elif kind == "median":
        weights = np.median(n) / n
    else:
        weights = 1 / (n if kind == "inverse" else np.sqrt(n))
        weights /= weights.mean()
    made = np.zeros(length, dtype=np.float32)
    made[ids] = weights
    return made


def _ids(name: str, ids: Any) -> list[int]:
    """Class ids; one alone is a list of one."""
    given = np.atleast_1d(np.asarray(ids)).ravel().tolist()
    return [_options.natural(name, one, least=0, most=_MOST) for one in given]


def new_ids(
    dataset: Dataset, masks: Sequence[str], classes: Classes | None, ignore: int | None
) -> list[NewIds]:
    """Other class ids for those of some masks, as the native part takes them.

    Args:
        dataset: whose masks they are.
        masks: the masks that are read.
        classes: see :class:`hsipack.Loader`.
        ignore: likewise.
    """
    if classes is None:
        if ignore is not None:
            raise ConflictError(
                f"ignore={ignore} without classes", remedy="say which ids stay, with classes"
            )
        return []
    remedy = "give new ids by class ids or names, such as {3: 1, 'tumour': 2}"
    if not isinstance(classes, Mapping) or not classes:
        raise _options.wrong("classes", classes, remedy)
    other = None if ignore is None else _options.natural("ignore", ignore, least=0, most=_MOST)
    by_mask = [isinstance(one, Mapping) for one in classes.values()]
    if all(by_mask):
        given: dict[Any, Any] = dict(classes)
    elif any(by_mask):
        raise _options.wrong("classes", classes, "give ids for one mask, or such by masks' names")
    else:
        given = {_only_mask(dataset, masks): classes}
    made: list[NewIds] = []
    for mask, ids in given.items():
        pairs = [(_class(one), _new(one, new)) for one, new in ids.items()]
        made.append((_options.text("classes", mask), pairs, other))
    return made


def _only_mask(dataset: Dataset, masks: Sequence[str]) -> str:
    """The mask that holds class ids, if it is one."""
    stacks = dataset._used_stacks()
    of_ids = [
        name
        for name in dict.fromkeys(masks)
        if not any(stack.masks[name].layers for stack in stacks if name in stack.masks)
    ]
    if len(of_ids) == 1:
        return of_ids[0]
    raise ConflictError(
        f"classes for {len(of_ids)} masks of class ids" if of_ids else "classes without a mask",
        path=dataset.path,
        remedy="give them by the masks' names, such as classes={'organs': {3: 1}}"
        if of_ids
        else "read a mask of class ids with masks",
    )


def _class(one: Any) -> int | str:
    return one if isinstance(one, str) else _options.natural("classes", one, least=0, most=_MOST)


def _new(one: Any, new: Any) -> int:
    return _options.natural(f"classes[{one!r}]", new, least=0, most=_MOST)
