"""Augmentations that move pixels, in images and masks alike.

Masks take the nearest pixel. Outside the image they get the ``mask_fill`` of their
AugmentationSequential. Consecutive augmentations are combined to one warp.
"""

from __future__ import annotations

from typing import Any

from hsipack._errors import UnsupportedError
from hsipack.augment import _arguments as read
from hsipack.augment._arguments import Number, Numbers, Padding, Resample
from hsipack.augment._augmentation import Augmentation

__all__ = [
    "CenterCrop",
    "PadTo",
    "RandomAffine",
    "RandomCrop",
    "RandomElasticTransform",
    "RandomHorizontalFlip",
    "RandomPerspective",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomRotation90",
    "RandomVerticalFlip",
    "Resize",
]


class RandomHorizontalFlip(Augmentation):
    """Mirrors a share ``p`` of the samples left to right. Pixels are moved, never changed.

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
    """Mirrors a share ``p`` of the samples top to bottom. Pixels are moved, never changed.

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
    """Rotates counter-clockwise by a random number of quarter turns.

    Images that are not square are rotated by half turns only. With ``kornia_law``, or if ``times``
    allows only odd numbers, such images raise ConflictError when called.

    Args:
        times: (smallest, largest) number of quarter turns. All numbers are equally likely.
        resample: ignored, because pixels are moved exactly.
        align_corners: ignored, too.
        kornia_law: make the smallest and the largest number half as likely as the others, as in
            Kornia.

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
    """Shears, then rotates and scales about the centre, then translates.

    Args:
        degrees: (low, high), or a number for ± this number. Positive angles rotate clockwise.
        translate: the largest translations, as fractions of the width and of the height.
        scale: (low, high) of the factor, or (low, high, low, high) for x and y separately.
        shear: degrees along x, as (low, high) or a number for ± this number; or (low, high, low,
            high) along x and y.
        resample: "bilinear" or "nearest".
        padding_mode: what to fill in outside the image: "zeros", "border", "reflection", or "fill"
            for ``fill_value``.
        fill_value: with ``padding_mode="fill"``, one number for all bands.

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
        # Kornia ignores fill_value in other modes; nobody wants that.
        raise UnsupportedError(
            f'fill_value = {fill} has no effect with padding_mode = "zeros"',
            remedy='give padding_mode = "fill"',
        )
    return {"padding": padding}


class RandomRotation(Augmentation):
    """Rotates about the centre.

    Args:
        degrees: (low, high), or a number for ± this number. Positive angles rotate
            counter-clockwise.
        resample: "bilinear" or "nearest".
        padding_mode: what to fill in outside the image: "zeros", "border" or "reflection". Kornia
            has only zeros.

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
    """Changes the perspective: moves each corner at random, and the image plane with the corners.

    Args:
        distortion_scale: how far corners may move, from 0 to 1, as a fraction of half the image.
        resample: "bilinear" or "nearest".
        sampling_method: "basic" moves corners inwards, "area_preserving" inwards or outwards.
        padding_mode: what to fill in outside the image: "zeros", "border" or "reflection". Kornia
            has only zeros.

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
                f"sampling_method = {sampling_method!r} is not supported",
                remedy='give "basic" or "area_preserving"',
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
    """Moves every pixel by a smooth random field: random numbers from -1 to 1, smoothed by a
    Gaussian.

    Args:
        kernel_size: (rows, columns) of the Gaussian in pixels; odd numbers.
        sigma: standard deviations of the Gaussian in pixels, along rows and columns.
        alpha: strength along x and y, as a fraction of half the image.
        resample: "bilinear" or "nearest".
        padding_mode: what to fill in outside the image: "zeros", "border" or "reflection".

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
    """Cuts a window out of every sample, at a random position.

    Args:
        size: (rows, columns) of the window.
        padding: pixels to add around the image before: a number, (left and right, top and bottom)
            or (left, top, right, bottom).
        pad_if_needed: if an image is smaller than the window, add the missing number of pixels on
            both sides. If False, such images raise ConflictError.
        fill: with ``padding_mode="constant"``, one number for all bands.
        padding_mode: what the added pixels are: "constant" (``fill``), "replicate" or "reflect".
        resample: ignored, because pixels are never interpolated.
        align_corners: ignored, too.

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
    """Padding as [left, top, right, bottom]."""
    given = read.plain(padding)
    if given is None or isinstance(given, int):
        return [given or 0] * 4
    sides = [int(side) for side in read.numbers("padding", given, 2, 4)]
    return sides * 2 if len(sides) == 2 else sides


class CenterCrop(Augmentation):
    """Cuts out the middle of the image. Images that are smaller raise ConflictError when called.

    Args:
        size: (rows, columns) of the window, or one number for both.

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
    """Cuts out a window of random size and shape, and resizes it.

    With ``align_corners=True``, masks are sampled at other positions than the image, as in Kornia:
    see Resize.

    Args:
        size: (rows, columns) after resizing.
        scale: (low, high) of the window's share of the image area.
        ratio: (low, high) of the window's width divided by its height.
        resample: "bilinear" or "nearest".

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
    """Resizes to ``size`` (rows, columns). A single number as ``size``, which keeps the proportions
    in Kornia, and ``antialias`` are refused.

    With ``align_corners=True``, which is Kornia's default, the centres of the outermost pixels of
    the image stay in place. Masks however take the pixel under the centre of each new pixel, as if
    the outer edges stayed in place. At the edges, image and mask are therefore
    abs(old / new - 1) / 2 old pixels apart, as in Kornia. For masks that match their image exactly,
    give ``align_corners=False`` or ``resample="nearest"``.

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
    """Adds pixels below and on the right until the image has ``size`` (rows, columns).

    Images that are larger raise ConflictError when called. Kornia's ``crop_if_exceeds``, which
    crops such images, is refused.

    Args:
        size: (rows, columns) of the padded image.
        pad_mode: what the added pixels are: "constant" (``pad_value``), "replicate" or "reflect".
        pad_value: with ``pad_mode="constant"``, the value of added pixels.

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
                "crop_if_exceeds = True is not supported",
                remedy="put CenterCrop or RandomCrop before, or leave it out",
            )
        super().__init__(
            size=read.size("size", size),
            padding=read.crop_padding("pad_mode", pad_mode),
            fill=float(pad_value),
        )
