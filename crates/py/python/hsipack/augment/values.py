"""Augmentations that change values and leave pixels where they are; masks stay."""

from __future__ import annotations

from collections.abc import Sequence

from hsipack._errors import UnsupportedError
from hsipack.augment import _arguments as read
from hsipack.augment._arguments import Number, Numbers
from hsipack.augment._augmentation import Augmentation


class Gain(Augmentation):
    """Multiplies all values of a sample by a number drawn from ``range`` (low, high).

    >>> import torch
    >>> Gain((2, 2))(torch.ones(1, 1, 2))
    tensor([[[2., 2.]]])
    """

    op = "gain"

    def __init__(self, range: Numbers, p: float = 1.0) -> None:
        super().__init__(range=read.numbers("range", range, 2), p=p)


class Offset(Augmentation):
    """Adds a number drawn from ``range`` (low, high) to all values of a sample.

    >>> import torch
    >>> Offset((-1, -1))(torch.ones(1, 1, 2))
    tensor([[[0., 0.]]])
    """

    op = "offset"

    def __init__(self, range: Numbers, p: float = 1.0) -> None:
        super().__init__(range=read.numbers("range", range, 2), p=p)


class RandomContrast(Augmentation):
    """Multiplies all values of a sample by a factor, as Kornia's RandomContrast does.

    ``contrast``: (low, high), or a number for 1 ± that, but no less than 0. Kornia clips to 0 … 1
    unless told not to; here values are never clipped, and ``clip_output=True`` is refused.

    >>> RandomContrast(0.2).config()
    {'op': 'gain', 'range': [0.8, 1.2], 'p': 1.0}
    """

    op = "gain"

    def __init__(
        self,
        contrast: Number | Numbers = (1.0, 1.0),
        clip_output: bool = False,
        same_on_batch: bool = False,
        p: float = 1.0,
        keepdim: bool = False,
    ) -> None:
        read.unclipped(clip_output)
        read.each_by_itself(same_on_batch)
        super().__init__(range=read.around("contrast", contrast, centre=1.0, least=0.0), p=p)


class RandomBrightness(Augmentation):
    """Adds f - 1 to all values of a sample, as Kornia's RandomBrightness does.

    ``brightness``: (low, high) of f, or a number for 1 ± that, but no less than 0. Kornia clips to
    0 … 1 unless told not to; here values are never clipped, and ``clip_output=True`` is refused.

    >>> RandomBrightness((0.75, 1.5)).config()
    {'op': 'offset', 'range': [-0.25, 0.5], 'p': 1.0}
    """

    op = "offset"

    def __init__(
        self,
        brightness: Number | Numbers = (1.0, 1.0),
        clip_output: bool = False,
        same_on_batch: bool = False,
        p: float = 1.0,
        keepdim: bool = False,
    ) -> None:
        read.unclipped(clip_output)
        read.each_by_itself(same_on_batch)
        low, high = read.around("brightness", brightness, centre=1.0, least=0.0)
        super().__init__(range=[low - 1, high - 1], p=p)


class RandomGaussianNoise(Augmentation):
    """Adds independent normal noise of ``mean`` and standard deviation ``std`` to every value.

    >>> RandomGaussianNoise(std=0.01).config()
    {'op': 'gaussian_noise', 'mean': 0.0, 'std': 0.01, 'p': 0.5}
    """

    op = "gaussian_noise"

    def __init__(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        same_on_batch: bool = False,
        p: float = 0.5,
        keepdim: bool = False,
    ) -> None:
        read.each_by_itself(same_on_batch)
        super().__init__(mean=float(mean), std=float(std), p=p)


class RandomGaussianBlur(Augmentation):
    """Blurs every band with a Gaussian: ``kernel_size`` (rows, columns; odd, or one number for
    both), ``sigma`` (low, high) in pixels. The frame is mirrored at its border; other
    ``border_type``s are refused. ``separable`` changes nothing.

    >>> RandomGaussianBlur(5, (0.5, 2.0)).config()["kernel"]
    [5, 5]
    """

    op = "gaussian_blur"

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        sigma: Numbers,
        border_type: str = "reflect",
        separable: bool = True,
        same_on_batch: bool = False,
        p: float = 0.5,
        keepdim: bool = False,
    ) -> None:
        read.each_by_itself(same_on_batch)
        if str(getattr(border_type, "name", border_type)).lower() != "reflect":
            raise UnsupportedError(f"border_type = {border_type!r}", remedy='give "reflect"')
        super().__init__(
            kernel=read.square("kernel_size", kernel_size),
            sigma=read.numbers("sigma", sigma, 2),
            p=p,
        )


class RandomChannelDropout(Augmentation):
    """Replaces whole bands of a sample, drawn anew for every sample, with ``fill_value``: a number,
    or one for each band (the dataset's means, say).

    ``num_drop_channels``: how many, or (least, most); with ``contiguous`` they lie side by side.

    >>> RandomChannelDropout((1, 5), contiguous=True).config()["bands"]
    [1, 5]
    """

    op = "band_dropout"

    def __init__(
        self,
        num_drop_channels: int | tuple[int, int] = 1,
        fill_value: Number | Numbers = 0.0,
        same_on_batch: bool = False,
        p: float = 0.5,
        keepdim: bool = False,
        *,
        contiguous: bool = False,
    ) -> None:
        read.each_by_itself(same_on_batch)
        super().__init__(
            bands=read.square("num_drop_channels", num_drop_channels),
            fill=read.per_band(fill_value),
            contiguous=contiguous,
            p=p,
        )


class BandJitter(Augmentation):
    """Multiplies every band of a sample by 1 + ε, ε normal with standard deviation ``sigma`` and
    alike over ``correlation`` bands (0: every band by itself).

    >>> BandJitter(0.02, correlation=5).config()
    {'op': 'band_jitter', 'sigma': 0.02, 'correlation': 5, 'p': 0.5}
    """

    op = "band_jitter"

    def __init__(self, sigma: float = 0.05, correlation: float = 0.0, p: float = 0.5) -> None:
        super().__init__(sigma=sigma, correlation=correlation, p=p)


class BandOffset(Augmentation):
    """Adds ε to every band of a sample, ε as for BandJitter, in the image's unit.

    >>> BandOffset(0.02).config()
    {'op': 'band_offset', 'sigma': 0.02, 'correlation': 0.0, 'p': 0.5}
    """

    op = "band_offset"

    def __init__(self, sigma: float = 0.05, correlation: float = 0.0, p: float = 0.5) -> None:
        super().__init__(sigma=sigma, correlation=correlation, p=p)


class SpectralShift(Augmentation):
    """Shifts spectra along the bands by up to ``max_bands`` of them, parts of a band included.

    >>> SpectralShift(0.5).config()
    {'op': 'spectral_shift', 'max_bands': 0.5, 'p': 0.5}
    """

    op = "spectral_shift"

    def __init__(self, max_bands: float = 1.0, p: float = 0.5) -> None:
        super().__init__(max_bands=max_bands, p=p)


class SpectralSmooth(Augmentation):
    """Smooths spectra with a Gaussian whose width is drawn from ``sigma`` (low, high), in bands.

    >>> SpectralSmooth((1, 2)).config()["sigma"]
    [1.0, 2.0]
    """

    op = "spectral_smooth"

    def __init__(self, sigma: Numbers = (0.5, 2.0), p: float = 0.5) -> None:
        super().__init__(sigma=read.numbers("sigma", sigma, 2), p=p)


class Projection(Augmentation):
    """Maps spectra linearly: y = x·``matrix`` + ``offset``, with ``matrix`` (bands, bands) and
    ``offset`` a number or one for each band; only pixels with ``labels`` in the mask named ``mask``
    (the first), if they are given.

    >>> import torch
    >>> Projection([[0, 1], [1, 0]], p=1.0)(torch.tensor([[[1.0]], [[2.0]]])).flatten()
    tensor([2., 1.])
    """

    op = "projection"

    def __init__(
        self,
        matrix: Numbers,
        offset: Number | Numbers = 0.0,
        labels: Sequence[int] | None = None,
        mask: str | None = None,
        p: float = 0.5,
    ) -> None:
        super().__init__(
            matrix=[[float(number) for number in row] for row in read.plain(matrix)],
            offset=read.per_band(offset),
            labels=None if labels is None else [int(label) for label in read.plain(labels)],
            mask=mask,
            p=p,
        )


class IlluminationRamp(Augmentation):
    """Lights the scene from a side: x·(1 + s·(u·cos φ + v·sin φ)), u and v from -1 to 1 across the
    frame, s drawn from ``strength`` (low, high), any φ.

    >>> IlluminationRamp((0, 0.1)).config()["strength"]
    [0.0, 0.1]
    """

    op = "illumination_ramp"

    def __init__(self, strength: Numbers = (0.0, 0.3), p: float = 0.5) -> None:
        super().__init__(strength=read.numbers("strength", strength, 2), p=p)


class L1Normalize(Augmentation):
    """Divides every pixel's spectrum by the sum of its absolute values; spectra of nothing become
    0.

    >>> import torch
    >>> L1Normalize()(torch.tensor([[[1.0]], [[3.0]]])).flatten()
    tensor([0.2500, 0.7500])
    """

    op = "l1_normalize"

    def __init__(self, p: float = 1.0) -> None:
        super().__init__(p=p)


class L2Normalize(Augmentation):
    """Divides every pixel's spectrum by its length; spectra of nothing become 0.

    >>> import torch
    >>> L2Normalize()(torch.tensor([[[3.0]], [[4.0]]])).flatten()
    tensor([0.6000, 0.8000])
    """

    op = "l2_normalize"

    def __init__(self, p: float = 1.0) -> None:
        super().__init__(p=p)


class SNV(Augmentation):
    """Standard normal variate: gives every pixel's spectrum mean 0 and standard deviation 1;
    constant spectra become 0.

    >>> import torch
    >>> SNV()(torch.tensor([[[1.0]], [[2.0]], [[3.0]]])).flatten()
    tensor([-1.,  0.,  1.])
    """

    op = "snv"

    def __init__(self, p: float = 1.0) -> None:
        super().__init__(p=p)


class Normalize(Augmentation):
    """Standardises bands: (x - ``mean``)/``std``, numbers or one for each band (the ``stats`` of
    ``dataset.split("train")`` have them). A band where one of them is NaN stays as it is.

    >>> import torch
    >>> Normalize([1, 2], [1, 4])(torch.tensor([[[2.0]], [[4.0]]])).flatten()
    tensor([1.0000, 0.5000])
    """

    op = "standardize"

    def __init__(
        self,
        mean: Number | Numbers,
        std: Number | Numbers,
        p: float = 1.0,
        keepdim: bool = False,
    ) -> None:
        super().__init__(mean=read.per_band(mean), std=read.per_band(std), p=p)
