"""Augmentations that mix samples of a batch, or move or hide pieces of a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hsipack import _torch
from hsipack._errors import ConflictError, UnsupportedError
from hsipack.augment import _arguments as read
from hsipack.augment._arguments import Number, Numbers
from hsipack.augment._augmentation import Augmentation

__all__ = [
    "HideAndSeek",
    "RandomCutMixV2",
    "RandomErasing",
    "RandomJigsaw",
    "RandomMixUpV2",
    "RandomTransplantation",
    "ValidGuard",
    "mix_labels",
]

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    Labels = TypeVar("Labels", torch.Tensor, npt.NDArray[Any])


class RandomErasing(Augmentation):
    """Erases a random rectangle. Masks get ``mask_fill`` there.

    Args:
        scale: (low, high) of the rectangle's share of the image area.
        ratio: (low, high) of its height divided by its width.
        value: new value of erased pixels: a number, a spectrum (one number for each band), or
            "random_l1" for a random spectrum whose absolute values sum to 1.

    >>> RandomErasing(value=[0.1, 0.2, 0.3]).config()["value"]
    [0.1, 0.2, 0.3]
    """

    op = "erase"

    def __init__(
        self,
        scale: Numbers = (0.02, 0.33),
        ratio: Numbers = (0.3, 3.3),
        value: Number | Numbers | str = 0.0,
        same_on_batch: bool = False,
        p: float = 0.5,
        keepdim: bool = False,
    ) -> None:
        read.each_by_itself(same_on_batch)
        super().__init__(
            scale=read.numbers("scale", scale, 2),
            ratio=read.numbers("ratio", ratio, 2),
            value=value if isinstance(value, str) else read.per_band(value),
            p=p,
        )


class RandomTransplantation(Augmentation):
    """Copies all pixels of one label from another sample of the batch (the donor), in images and
    masks. The label is drawn from the labels of the donor, of any size and sign.

    Args:
        excluded_labels: labels that are never copied.
        mask: name of the mask that has the labels; the first mask if ``None``.
        valid: name of a mask that is not 0 where labels are valid. If ``None``, all are valid.
        direction: the donor is the previous ("prev") or the next ("next") sample of the batch.
        count: "bernoulli" draws for each sample whether it is changed; "fixed" changes the first
            p·B samples, as HTC does.

    >>> import torch
    >>> image = torch.tensor([[[[1.0, 2.0]]], [[[3.0, 4.0]]]])
    >>> labels = torch.tensor([[[0, 5]], [[0, 0]]])
    >>> image, labels = RandomTransplantation(excluded_labels=[0], p=1.0)(image, labels)
    >>> image.flatten(), labels.flatten()
    (tensor([1., 2., 3., 2.]), tensor([0, 5, 0, 5]))
    """

    op = "transplant"

    def __init__(
        self,
        excluded_labels: Sequence[int] | torch.Tensor | None = None,
        p: float = 0.5,
        p_batch: float = 1.0,
        data_keys: Sequence[Any] | None = None,
        *,
        mask: str | None = None,
        valid: str | None = None,
        direction: str = "prev",
        count: str = "bernoulli",
    ) -> None:
        read.whole_batches(p_batch)
        excluded = [] if excluded_labels is None else read.plain(excluded_labels)
        super().__init__(
            excluded_labels=[int(label) for label in excluded],
            mask=mask,
            valid=valid,
            direction=direction,
            count=count,
            p=p,
            data_keys=data_keys,
        )


class RandomCutMixV2(Augmentation):
    """Copies a rectangle from another sample of the batch, in images and masks.

    The attribute ``mixed`` says which samples were mixed, and with which share of the area;
    ``mix_labels`` mixes labels in the same way (always the right way round, as in Kornia with
    ``use_correct_lambda=True``). ``num_mix`` other than 1 and ``cut_size`` are refused.

    Args:
        beta: the share of the area that is kept follows the distribution Beta(``beta``, ``beta``);
            1 if ``None``.

    >>> RandomCutMixV2(beta=0.4).config()
    {'op': 'cutmix_rect', 'beta': 0.4, 'p': 1.0}
    """

    op = "cutmix_rect"

    def __init__(
        self,
        num_mix: int = 1,
        cut_size: Numbers | None = None,
        beta: Number | None = None,
        same_on_batch: bool = False,
        p: float = 1.0,
        keepdim: bool = False,
        data_keys: Sequence[Any] | None = None,
        use_correct_lambda: bool = False,
    ) -> None:
        read.each_by_itself(same_on_batch)
        if num_mix != 1:
            raise UnsupportedError(
                f"num_mix = {num_mix} is not supported", remedy="add RandomCutMixV2 several times"
            )
        if cut_size is not None:
            raise UnsupportedError(
                f"cut_size = {cut_size!r} is not supported",
                remedy="leave it out; beta sets the sizes",
            )
        super().__init__(beta=1.0 if beta is None else float(beta), p=p, data_keys=data_keys)


class RandomMixUpV2(Augmentation):
    """Mixes images with other samples of the batch: x·(1 - share) + other·share. Masks stay
    unchanged.

    The attribute ``mixed`` says which samples were mixed; ``mix_labels`` mixes labels in the same
    way.

    Args:
        lambda_val: (low, high) of the share, from 0 to 1; (0, 1) if ``None``.

    >>> RandomMixUpV2((0.0, 0.5)).config()["lambda"]
    [0.0, 0.5]
    """

    op = "mixup"

    def __init__(
        self,
        lambda_val: Numbers | None = None,
        same_on_batch: bool = False,
        p: float = 1.0,
        keepdim: bool = False,
        data_keys: Sequence[Any] | None = None,
    ) -> None:
        read.each_by_itself(same_on_batch)
        share = [0.0, 1.0] if lambda_val is None else read.numbers("lambda_val", lambda_val, 2)
        super().__init__(**{"lambda": share}, p=p, data_keys=data_keys)


class RandomJigsaw(Augmentation):
    """Cuts images and masks into ``grid`` (rows, columns) cells, and shuffles the cells. The size
    of the image must be a multiple of the grid. Kornia's ``ensure_perm``, which excludes the
    unchanged order, is refused.

    >>> import torch
    >>> RandomJigsaw((2, 2), p=1.0)(torch.arange(4.0).reshape(1, 2, 2)).sort().values.sum()
    tensor(6.)
    """

    op = "jigsaw"

    def __init__(
        self,
        grid: tuple[int, int] = (4, 4),
        data_keys: Sequence[Any] | None = None,
        p: float = 0.5,
        same_on_batch: bool = False,
        keepdim: bool = False,
        ensure_perm: bool = False,
    ) -> None:
        read.each_by_itself(same_on_batch)
        if ensure_perm:
            raise UnsupportedError(
                "ensure_perm = True is not supported: every order is equally likely",
                remedy="leave it out",
            )
        super().__init__(grid=read.size("grid", grid), p=p, data_keys=data_keys)


class HideAndSeek(Augmentation):
    """Hides random patches of a sample. Masks get ``mask_fill`` there.

    Args:
        patches: sizes (rows, columns) of patches in pixels; one size is drawn for each sample.
        proportion: share of all patches of the sample to draw, from 0 to 1.
        with_replacement: draw with replacement, as HTC does. A patch may then be drawn twice, so
            fewer patches are hidden.
        fill: value of hidden pixels.

    >>> HideAndSeek([(4, 4)], 0.25).config()["patches"]
    [[4, 4]]
    """

    op = "hide_and_seek"

    def __init__(
        self,
        patches: Sequence[tuple[int, int]] = ((16, 16), (32, 32), (44, 44), (56, 56)),
        proportion: float = 0.5,
        with_replacement: bool = True,
        fill: float = 0.0,
        p: float = 0.5,
    ) -> None:
        super().__init__(
            patches=[read.size("patches", patch) for patch in patches],
            proportion=proportion,
            with_replacement=with_replacement,
            fill=fill,
            p=p,
        )


class ValidGuard(Augmentation):
    """Restores a sample, image and masks, if the mask named ``mask`` has only zeros left. Put this
    after augmentations that can lose pixels, and before crops.

    >>> ValidGuard("valid").config()
    {'op': 'valid_guard', 'mask': 'valid'}
    """

    op = "valid_guard"

    def __init__(self, mask: str) -> None:
        super().__init__(mask=mask)


def mix_labels(labels: Labels, mixed: Sequence[Mapping[str, Sequence[Any]]]) -> Labels:
    """Mixes labels as the images of a batch were mixed.

    Args:
        labels: a tensor or a NumPy array (B, classes) of floating-point numbers: one-hot vectors or
            probabilities.
        mixed: ``mixed`` of the augmentation or of the loader's batch.

    Returns:
        The mixed labels, of the same kind as ``labels``.

    Raises:
        ConflictError: if the shape or the type of ``labels`` is wrong.

    >>> import numpy as np
    >>> mix_labels(np.eye(2), [{"partners": [1, 1], "shares": [0.25, 0.0]}])
    array([[0.75, 0.25],
           [0.  , 1.  ]])
    """
    if labels.ndim != 2 or "float" not in str(labels.dtype):
        raise ConflictError(
            f"labels have shape {tuple(labels.shape)} and type {labels.dtype}",
            remedy="give (B, classes), floating point, such as one-hot vectors",
        )
    for entry in mixed:
        partners, shares = entry["partners"], entry["shares"]
        if len(partners) != len(labels):
            raise ConflictError(
                f"there are {len(labels)} labels, but {len(partners)} samples",
                remedy="give one row for each",
            )
        share: Any
        if _torch.is_tensor(labels):
            share = labels.new_tensor(shares)[:, None]
        else:
            share = np.asarray(shares, dtype=labels.dtype)[:, None]
        labels = labels + (labels[list(partners)] - labels) * share
    return labels
