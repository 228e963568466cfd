"""Augmentations that take pixels of other samples of the batch, or move or hide pieces of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hsipack import _torch
from hsipack._errors import ConflictError, UnsupportedError
from hsipack.augment import _arguments as read
from hsipack.augment._arguments import Number, Numbers
from hsipack.augment._augmentation import Augmentation

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    Labels = TypeVar("Labels", torch.Tensor, npt.NDArray[Any])


class RandomErasing(Augmentation):
    """Erases a rectangle; masks are given ``mask_fill`` there.

    ``scale``: (low, high) of its part of the frame's area; ``ratio``: of height to width.
    ``value``: what erased pixels become: a number, a spectrum (one number for each band), or
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
    """Copies all pixels of one label, images and masks, from another sample of the batch.

    A label is drawn from those of the donor but ``excluded_labels``. ``mask`` names the mask that
    has the labels (the first); ``valid`` one that is not 0 where labels count. The donor is the
    sample before (``direction`` "prev") or after ("next"). ``count`` "bernoulli" draws for every
    sample by itself; "fixed" takes the first p·B, as HTC does.

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
    """Copies a rectangle from another sample of the batch, images and masks.

    The part that is kept has the distribution Beta(``beta``, ``beta``). Who was mixed with whom,
    and with what share of the area, is in ``mixed``; ``mix_labels`` mixes labels alike (always the
    right way round, which ``use_correct_lambda`` asks Kornia for). ``num_mix`` other than 1 and
    ``cut_size`` are refused.

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
                f"num_mix = {num_mix}", remedy="put RandomCutMixV2 there several times"
            )
        if cut_size is not None:
            raise UnsupportedError(
                f"cut_size = {cut_size!r}", remedy="leave it out; beta sets the sizes"
            )
        super().__init__(beta=1.0 if beta is None else float(beta), p=p, data_keys=data_keys)


class RandomMixUpV2(Augmentation):
    """Mixes images with other samples of the batch: x·(1 - share) + other·share. Masks stay.

    ``lambda_val``: (low, high) of the share, from 0 to 1. Who was mixed with whom is in ``mixed``;
    ``mix_labels`` mixes labels alike.

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
    """Cuts the frame into ``grid`` (rows, columns) cells and puts them in another order, images and
    masks. The grid has to divide the frame. Kornia's ``ensure_perm``, which never draws the order
    that changes nothing, is refused.

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
                "ensure_perm = True: every order is as likely as any other", remedy="leave it out"
            )
        super().__init__(grid=read.size("grid", grid), p=p, data_keys=data_keys)


class HideAndSeek(Augmentation):
    """Hides patches of every sample; masks are given ``mask_fill`` there.

    ``patches``: sizes (rows, columns), of which one is drawn for every sample. ``proportion`` (0 to
    1) of all its patches are drawn, ``with_replacement`` as HTC does, so that fewer are hidden.
    Hidden pixels become ``fill``.

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
    """Gives samples back as they were, images and masks, if nothing of the mask named ``mask`` is
    left. Put it after whatever can lose pixels, and before crops.

    >>> ValidGuard("valid").config()
    {'op': 'valid_guard', 'mask': 'valid'}
    """

    op = "valid_guard"

    def __init__(self, mask: str) -> None:
        super().__init__(mask=mask)


def mix_labels(labels: Labels, mixed: Sequence[Mapping[str, Sequence[Any]]]) -> Labels:
    """Mixes labels as the images of a batch were mixed.

    ``labels`` is (B, classes), floating point: one-hot, or probabilities; a tensor or an array of
    NumPy's. ``mixed`` is ``mixed`` of the augmentation or of the loader's batch. Raises
    ConflictError if shape or type are others.

    >>> import numpy as np
    >>> mix_labels(np.eye(2), [{"partners": [1, 1], "shares": [0.25, 0.0]}])
    array([[0.75, 0.25],
           [0.  , 1.  ]])
    """
    if labels.ndim != 2 or "float" not in str(labels.dtype):
        raise ConflictError(
            f"labels of shape {tuple(labels.shape)} and type {labels.dtype}",
            remedy="give (B, classes), floating point, such as one-hot vectors",
        )
    for entry in mixed:
        partners, shares = entry["partners"], entry["shares"]
        if len(partners) != len(labels):
            raise ConflictError(
                f"{len(labels)} labels for {len(partners)} samples", remedy="give one row for each"
            )
        share: Any
        if _torch.is_tensor(labels):
            share = labels.new_tensor(shares)[:, None]
        else:
            share = np.asarray(shares, dtype=labels.dtype)[:, None]
        labels = labels + (labels[list(partners)] - labels) * share
    return labels
