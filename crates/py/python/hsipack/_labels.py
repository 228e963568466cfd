"""Class ids of masks: weights from their counts, and new ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hsipack import _options
from hsipack._errors import ConflictError
from hsipack.stacks import Stack

Classes = Mapping[int | str, int] | Mapping[str, Mapping[int | str, int]]
"""New class ids by old ids or names; for several masks, such mappings by mask name."""

NewIds = dict[str, Any]
"""For the native part: the mask, classes with their new ids, and the new id of all others."""

_MOST = (1 << 16) - 1
_KINDS = ("balanced", "inverse", "inverse_sqrt", "median")


def class_weights(
    counts: Mapping[int, int],
    kind: Literal["balanced", "inverse", "inverse_sqrt", "median"] = "balanced",
    *,
    ignore: int | Sequence[int] = (),
    num_classes: int | None = None,
) -> npt.NDArray[np.float32]:
    """Computes weights of classes for a loss, from the number of pixels of each class.

    n is the count of a class, N the sum of all counts, and k the number of classes with pixels:

    ============ =============================================================================
    balanced     N / (k n), as scikit-learn's ``class_weight="balanced"``
    inverse      1 / n, divided by the mean over the k classes
    inverse_sqrt 1 / √n, divided by the mean over the k classes
    median       median of the counts / n (median frequency balancing)
    ============ =============================================================================

    Classes without pixels, and the classes of ``ignore``, have weight 0. They are not counted in N,
    k, the mean or the median.

    Args:
        counts: number of pixels by class id, as :meth:`Dataset.class_counts` returns it.
        kind: see above.
        ignore: class ids that count as unlabelled, such as 0.
        num_classes: length of the array. If ``None``, up to the largest class id that is not
            ignored, so that ``ignore=255`` makes no weights for the ids in between.

    Returns:
        A float32 array of weights, indexed by class id.

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
        raise _options.wrong_type(
            "counts", counts, "give pixels by class id: ds.class_counts(mask)"
        )
    numbers = {
        _options.natural("counts", one, least=0): _options.natural("counts", count, least=0)
        for one, count in counts.items()
    }
    known = {one: count for one, count in numbers.items() if count and one not in ignored}
    if not known:
        raise ConflictError("no class has a pixel", remedy="count a mask that has labels")
    length = max(one for one in numbers if one not in ignored) + 1
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
    """Class ids as a list; a single id becomes a list of one."""
    given = np.atleast_1d(np.asarray(ids)).ravel().tolist()
    return [_options.natural(name, one, least=0, most=_MOST) for one in given]


def new_ids(
    stacks: Sequence[Stack],
    path: str,
    masks: Sequence[str],
    classes: Classes | None,
    other: int | None,
) -> list[NewIds]:
    """New class ids for some masks, as the native part takes them.

    Args:
        stacks: the stacks of the dataset.
        path: the dataset's path, for errors.
        masks: the masks that are read.
        classes: ``remap_classes`` of :meth:`hsipack.Dataset.with_masks`.
        other: its ``other_class``.
    """
    check(classes, other)
    if classes is None:
        return []
    if all(isinstance(one, Mapping) for one in classes.values()):
        given: dict[Any, Any] = dict(classes)
    else:
        given = {_only_mask(stacks, path, masks): classes}
    return [
        {"mask": mask, "classes": _pairs(ids), "other": None if other is None else int(other)}
        for mask, ids in given.items()
    ]


def check(classes: object, other: object) -> None:
    """Refuses new class ids that are none."""
    if classes is None:
        if other is not None:
            raise ConflictError(
                f"other_class={other} without remap_classes",
                remedy="say which ids stay, with remap_classes",
            )
        return
    remedy = "give new ids by class ids or names, such as {3: 1, 'tumour': 2}"
    if not isinstance(classes, Mapping):
        raise _options.wrong_type("remap_classes", classes, remedy)
    if not classes:
        raise _options.wrong("remap_classes", classes, remedy)
    if other is not None:
        _options.natural("other_class", other, least=0, most=_MOST)
    by_mask = [isinstance(one, Mapping) for one in classes.values()]
    if all(by_mask):
        for mask, ids in classes.items():
            _options.text("remap_classes", mask)
            _pairs(ids)
    elif any(by_mask):
        raise _options.wrong("remap_classes", classes, "give ids for one mask, or ids by mask name")
    else:
        _pairs(classes)


def _pairs(ids: Mapping[Any, Any]) -> list[tuple[int | str, int]]:
    """Classes with their new ids."""
    return [(_class(one), _new(one, new)) for one, new in ids.items()]


def _only_mask(stacks: Sequence[Stack], path: str, masks: Sequence[str]) -> str:
    """The only mask of class ids; an error if there are several or none."""
    of_ids = [
        name
        for name in dict.fromkeys(masks)
        if not any(stack.masks[name].layers for stack in stacks if name in stack.masks)
    ]
    if len(of_ids) == 1:
        return of_ids[0]
    raise ConflictError(
        f"remap_classes is given for {len(of_ids)} masks"
        if of_ids
        else "remap_classes needs a mask of class ids",
        path=path,
        remedy="give them by the masks' names, such as remap_classes={'organs': {3: 1}}"
        if of_ids
        else "read a mask of class ids: ds.with_masks(NAME, remap_classes=…)",
    )


def _class(one: Any) -> int | str:
    return one if isinstance(one, str) else _options.natural("classes", one, least=0, most=_MOST)


def _new(one: Any, new: Any) -> int:
    return _options.natural(f"remap_classes[{one!r}]", new, least=0, most=_MOST)
