"""Augmentations that move pixels, of images and masks alike.

Masks take the nearest pixel and are given the ``mask_fill`` of their AugmentationSequential where
there is nothing. Consecutive ones are one warp.
"""

from __future__ import annotations

from typing import Any

from hsipack._errors import UnsupportedError
from hsipack.augment import _arguments as read
from hsipack.augment._arguments import Number, Numbers, Padding, Resample
from hsipack.augment._augmentation import Augmentation


class RandomHorizontalFlip(Augmentation):
    """Mirrors left and right, a share ``p`` of the samples. Moves pixels, changes none.

    >>> import torch
    >>> RandomHorizontalFlip(p=1.0)(torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[3., 2., 1.]]])
    """

    op = "hflip"

    def __init__(
        self,
        p: float = 0.5,
        p_batch: float = 1.0,
        same_on_batch: bool = False,
        keepdim: bool = False,
    ) -> None:
        read.whole_batches(p_batch)
        read.each_by_itself(same_on_batch)
        super().__init__(p=p)


class RandomVerticalFlip(Augmentation):
    """Mirrors top and bottom, a share ``p`` of the samples. Moves pixels, changes none.

    >>> import torch
    >>> RandomVerticalFlip(p=1.0)(torch.tensor([[[1.0], [2.0]]]))
    tensor([[[2.],
             [1.]]])
    """

    op = "vflip"

    def __init__(
        self,
        p: float = 0.5,
        p_batch: float = 1.0,
        same_on_batch: bool = False,
        keepdim: bool = False,
    ) -> None:
        read.whole_batches(p_batch)
        read.each_by_itself(same_on_batch)
        super().__init__(p=p)


class RandomRotation90(Augmentation):
    """Turns by quarters, counter-clockwise: between ``times[0]`` and ``times[1]`` of them.

    Pixels are moved exactly, so that ``resample`` and ``align_corners`` mean nothing. All numbers
    of turns come equally often; with ``kornia_law`` the least and the greatest come half as often,
    as Kornia has it. Frames that are not square are turned by halves only; with ``kornia_law``, or
    where ``times`` has only odd numbers, they raise ConflictError when called.

    >>> import torch
    >>> RandomRotation90((1, 1), p=1.0)(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    tensor([[[2., 4.],
             [1., 3.]]])
    """

    op = "rot90"

    def __init__(
        self,
        times: tuple[int, int],
        resample: Resample = "bilinear",
        same_on_batch: bool = False,
        align_corners: bool = True,
        p: float = 0.5,
        keepdim: bool = False,
        *,
        kornia_law: bool = False,
    ) -> None:
        read.resample(resample)
        read.each_by_itself(same_on_batch)
        turns = [int(turn) for turn in read.numbers("times", times, 2)]
        super().__init__(turns=turns, kornia_law=kornia_law, p=p)


class RandomAffine(Augmentation):
    """Shears, then turns and scales about the centre, then moves.

    ``degrees``: (low, high), or a number for ± that; positive angles turn clockwise. ``translate``:
    the most it moves by, as parts of the width and of the height. ``scale``: (low, high) of the
    factor, or (low, high, low, high) of x and y apart. ``shear``: degrees along x as a number for ±
    that or (low, high), or (low, high, low, high) along x and y. ``resample``: "bilinear" or
    "nearest". ``padding_mode``: "zeros", "border", "reflection", or "fill" for ``fill_value``,
    which zeros are replaced with (one number for all bands).

    >>> RandomAffine(45, (0.1, 0.1), (0.9, 1.1), padding_mode="reflection").config()["degrees"]
    [-45.0, 45.0]
    """

    op = "affine"

    def __init__(
        self,
        degrees: Number | Numbers,
        translate: Numbers | None = None,
        scale: Numbers | None = None,
        shear: Number | Numbers | None = None,
        resample: Resample = "bilinear",
        same_on_batch: bool = False,
        align_corners: bool = False,
        padding_mode: Padding = "zeros",
        fill_value: Number | Numbers | None = None,
        p: float = 0.5,
        keepdim: bool = False,
    ) -> None:
        read.each_by_itself(same_on_batch)
        shear_x, shear_y = _shear(shear)
        scales = None if scale is None else read.numbers("scale", scale, 2, 4)
        super().__init__(
            degrees=read.around("degrees", degrees),
            translate=None if translate is None else read.numbers("translate", translate, 2),
            scale=scales and scales[:2],
            scale_y=(scales and scales[2:]) or None,
            shear=shear_x,
            shear_y=shear_y,
            interpolation=read.resample(resample),
            align_corners=align_corners,
            **_filled(padding_mode, fill_value),
            p=p,
        )


def _shear(shear: Number | Numbers | None) -> tuple[list[float] | None, list[float] | None]:
    given = read.plain(shear)
    if not isinstance(given, list) or len(given) != 4:
        if isinstance(given, list) and len(given) == 2 and isinstance(given[0], list):
            return read.numbers("shear", given[0], 2), read.numbers("shear", given[1], 2)
        return (None if given is None else read.around("shear", given)), None
    both = read.numbers("shear", given, 4)
    return both[:2], both[2:]


def _filled(padding_mode: Padding, fill_value: Number | Numbers | None) -> dict[str, Any]:
    fill = 0.0 if fill_value is None else read.one_for_all("fill_value", fill_value)
    if str(getattr(padding_mode, "name", padding_mode)).lower() in ("fill", "3"):
        return {"padding": "zeros", "fill": fill}
    padding = read.padding(padding_mode)
    if fill != 0 and padding == "zeros":
        # Kornia ignores a fill_value without its mode; nobody means that.
        raise UnsupportedError(
            f'fill_value = {fill} with padding_mode = "zeros"', remedy='give padding_mode = "fill"'
        )
    return {"padding": padding}


class RandomRotation(Augmentation):
    """Turns about the centre. ``degrees``: (low, high), or a number for ± that; positive angles
    turn counter-clockwise. Kornia pads with zeros only; ``padding_mode`` is "zeros", "border" or
    "reflection".

    >>> RandomRotation((10, 20)).config()["degrees"]
    [10.0, 20.0]
    """

    op = "rotate"

    def __init__(
        self,
        degrees: Number | Numbers,
        resample: Resample = "bilinear",
        same_on_batch: bool = False,
        align_corners: bool = True,
        p: float = 0.5,
        keepdim: bool = False,
        *,
        padding_mode: Padding = "zeros",
    ) -> None:
        read.each_by_itself(same_on_batch)
        super().__init__(
            degrees=read.around("degrees", degrees),
            interpolation=read.resample(resample),
            align_corners=align_corners,
            padding=read.padding(padding_mode),
            p=p,
        )


class RandomPerspective(Augmentation):
    """Moves the corners, each by itself, and the plane with them: inwards by up to
    ``distortion_scale`` (0 to 1) of half the frame, with ``sampling_method`` "area_preserving"
    inwards and outwards. Kornia pads with zeros only; ``padding_mode`` is "zeros", "border" or
    "reflection".

    >>> RandomPerspective(0.2, sampling_method="area_preserving").config()["area_preserving"]
    True
    """

    op = "perspective"

    def __init__(
        self,
        distortion_scale: Number = 0.5,
        resample: Resample = "bilinear",
        same_on_batch: bool = False,
        align_corners: bool = False,
        p: float = 0.5,
        keepdim: bool = False,
        sampling_method: str = "basic",
        *,
        padding_mode: Padding = "zeros",
    ) -> None:
        read.each_by_itself(same_on_batch)
        if sampling_method not in ("basic", "area_preserving"):
            raise UnsupportedError(
                f"sampling_method = {sampling_method!r}", remedy='give "basic" or "area_preserving"'
            )
        super().__init__(
            distortion=float(distortion_scale),
            area_preserving=sampling_method == "area_preserving",
            interpolation=read.resample(resample),
            align_corners=align_corners,
            padding=read.padding(padding_mode),
            p=p,
        )


class RandomElasticTransform(Augmentation):
    """Moves every pixel by a smooth random field: numbers from -1 to 1, smoothed by a Gaussian.

    ``kernel_size`` (odd) and ``sigma`` of the Gaussian are in pixels, rows first; ``alpha`` is the
    strength along x and y, in halves of the frame.

    >>> RandomElasticTransform((31, 31), (16, 16), (0.7, 0.7)).config()["alpha"]
    [0.7, 0.7]
    """

    op = "elastic"

    def __init__(
        self,
        kernel_size: tuple[int, int] = (63, 63),
        sigma: Numbers = (32.0, 32.0),
        alpha: Numbers = (1.0, 1.0),
        align_corners: bool = False,
        resample: Resample = "bilinear",
        padding_mode: Padding = "zeros",
        same_on_batch: bool = False,
        p: float = 0.5,
        keepdim: bool = False,
    ) -> None:
        read.each_by_itself(same_on_batch)
        super().__init__(
            kernel=read.size("kernel_size", kernel_size),
            sigma=read.numbers("sigma", sigma, 2),
            alpha=read.numbers("alpha", alpha, 2),
            align_corners=align_corners,
            interpolation=read.resample(resample),
            padding=read.padding(padding_mode),
            p=p,
        )


class RandomCrop(Augmentation):
    """Cuts a window of ``size`` (rows, columns) out of every sample, anywhere.

    ``padding`` puts pixels around the frame before: a number, (left and right, top and bottom) or
    (left, top, right, bottom). ``pad_if_needed`` puts as many on both sides as a frame lacks that
    is too small, which else raises ConflictError. ``padding_mode`` says what they are: "constant"
    (``fill``, one number), "replicate" or "reflect". Pixels are never interpolated: ``resample``
    and ``align_corners`` mean nothing.

    >>> import torch
    >>> RandomCrop((2, 3))(torch.zeros(4, 7, 20, 20)).shape
    torch.Size([4, 7, 2, 3])
    """

    op = "random_crop"

    def __init__(
        self,
        size: tuple[int, int],
        padding: int | tuple[int, int] | tuple[int, int, int, int] | None = None,
        pad_if_needed: bool | None = False,
        fill: Number | Numbers = 0,
        padding_mode: str = "constant",
        resample: Resample = "bilinear",
        same_on_batch: bool = False,
        align_corners: bool = True,
        p: float = 1.0,
        keepdim: bool = False,
        cropping_mode: str = "slice",
    ) -> None:
        read.each_by_itself(same_on_batch)
        read.always("RandomCrop", p)
        read.cut_out(cropping_mode)
        super().__init__(
            size=read.size("size", size),
            pad=_sides(padding),
            pad_if_needed=bool(pad_if_needed),
            padding=read.crop_padding("padding_mode", padding_mode),
            fill=read.one_for_all("fill", fill),
        )


def _sides(padding: Any) -> list[int]:
    """Left, top, right, bottom."""
    given = read.plain(padding)
    if given is None or isinstance(given, int):
        return [given or 0] * 4
    sides = [int(side) for side in read.numbers("padding", given, 2, 4)]
    return sides * 2 if len(sides) == 2 else sides


class CenterCrop(Augmentation):
    """Cuts out the middle: ``size`` (rows, columns), or a number for both. Frames that are smaller
    raise ConflictError when called.

    >>> import torch
    >>> CenterCrop(2)(torch.arange(16.0).reshape(1, 4, 4))
    tensor([[[ 5.,  6.],
             [ 9., 10.]]])
    """

    op = "center_crop"

    def __init__(
        self,
        size: int | tuple[int, int],
        align_corners: bool = True,
        resample: Resample = "bilinear",
        p: float = 1.0,
        keepdim: bool = False,
        cropping_mode: str = "slice",
    ) -> None:
        read.always("CenterCrop", p)
        read.cut_out(cropping_mode)
        super().__init__(size=read.square("size", size))


class RandomResizedCrop(Augmentation):
    """Cuts out a window of random size and shape and resizes it to ``size`` (rows, columns).

    ``scale``: (low, high) of its part of the frame's area; ``ratio``: of width to height. With
    ``align_corners=True``, masks take other positions than the image, as in Kornia: see Resize.

    >>> import torch
    >>> RandomResizedCrop((5, 6))(torch.zeros(4, 7, 20, 20)).shape
    torch.Size([4, 7, 5, 6])
    """

    op = "resized_crop"

    def __init__(
        self,
        size: tuple[int, int],
        scale: Numbers = (0.08, 1.0),
        ratio: Numbers = (3.0 / 4.0, 4.0 / 3.0),
        resample: Resample = "bilinear",
        same_on_batch: bool = False,
        align_corners: bool = True,
        p: float = 1.0,
        keepdim: bool = False,
        cropping_mode: str = "slice",
    ) -> None:
        read.each_by_itself(same_on_batch)
        read.always("RandomResizedCrop", p)
        read.cut_out(cropping_mode)
        super().__init__(
            size=read.size("size", size),
            scale=read.numbers("scale", scale, 2),
            ratio=read.numbers("ratio", ratio, 2),
            interpolation=read.resample(resample),
            align_corners=align_corners,
        )


class Resize(Augmentation):
    """Resizes to ``size`` (rows, columns). Kornia's single number, which keeps the proportions, is
    refused, and so is ``antialias``.

    With ``align_corners=True``, which is Kornia's default, the image keeps its outermost pixels'
    centres, but masks take the pixel under each new pixel's centre, as if edges were kept: at the
    edges of the frame both are abs(old / new - 1) / 2 old pixels apart, as in Kornia. Give
    ``align_corners=False``, or ``resample="nearest"``, for masks exactly under their image.

    >>> import torch
    >>> Resize((1, 3))(torch.tensor([[[1.0, 2.0]]]))
    tensor([[[1.0000, 1.5000, 2.0000]]])
    """

    op = "resize"

    def __init__(
        self,
        size: tuple[int, int],
        side: str = "short",
        resample: Resample = "bilinear",
        align_corners: bool = True,
        antialias: bool = False,
        p: float = 1.0,
        keepdim: bool = False,
    ) -> None:
        read.always("Resize", p)
        if not isinstance(read.plain(size), list):
            raise UnsupportedError(f"Resize to {size}", remedy="give (rows, columns)")
        if antialias:
            raise UnsupportedError("antialias = True", remedy="put RandomGaussianBlur before")
        super().__init__(
            size=read.size("size", size),
            interpolation=read.resample(resample),
            align_corners=align_corners,
        )


class PadTo(Augmentation):
    """Puts pixels below and to the right until the frame has ``size`` (rows, columns).

    ``pad_mode``: "constant" (``pad_value``), "replicate" or "reflect". Frames that are larger raise
    ConflictError when called; Kornia would crop them, which ``crop_if_exceeds`` asks for in vain.

    >>> import torch
    >>> PadTo((1, 3), pad_value=9)(torch.tensor([[[1.0, 2.0]]]))
    tensor([[[1., 2., 9.]]])
    """

    op = "pad_to"

    def __init__(
        self,
        size: tuple[int, int],
        pad_mode: str = "constant",
        pad_value: float = 0,
        keepdim: bool = False,
        crop_if_exceeds: bool = False,
    ) -> None:
        if crop_if_exceeds:
            raise UnsupportedError(
                "crop_if_exceeds = True",
                remedy="put CenterCrop or RandomCrop before, or leave it out",
            )
        super().__init__(
            size=read.size("size", size),
            padding=read.crop_padding("pad_mode", pad_mode),
            fill=float(pad_value),
        )
