"""Augmentations that change values but do not move pixels. Masks stay unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from hsipack._errors import UnsupportedError
from hsipack.augment import _arguments as read
from hsipack.augment._arguments import Number, Numbers
from hsipack.augment._augmentation import Augmentation

__all__ = [
    "SNV",
    "BandJitter",
    "BandOffset",
    "Gain",
    "IlluminationRamp",
    "L1Normalize",
    "L2Normalize",
    "Normalize",
    "Offset",
    "Projection",
    "RandomBands",
    "RandomBrightness",
    "RandomChannelDropout",
    "RandomContrast",
    "RandomGaussianBlur",
    "RandomGaussianNoise",
    "Resample",
    "SpectralShift",
    "SpectralSmooth",
]


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
    """Multiplies all values of a sample by a random factor, like Kornia's RandomContrast.

    Kornia clips values to 0 … 1 by default. Here values are never clipped, and ``clip_output=True``
    is refused.

    Args:
        contrast: (low, high) of the factor, or a number for 1 ± this number, but not below 0.

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
    """Adds f - 1 with a random f to all values of a sample, like Kornia's RandomBrightness.

    Kornia clips values to 0 … 1 by default. Here values are never clipped, and ``clip_output=True``
    is refused.

    Args:
        brightness: (low, high) of f, or a number for 1 ± this number, but not below 0.

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
    """Adds independent Gaussian noise with mean ``mean`` and standard deviation ``std`` to every
    value.

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
    """Blurs every band with a Gaussian.

    Args:
        kernel_size: (rows, columns) in pixels, odd numbers; or one number for both.
        sigma: (low, high) of the Gaussian's standard deviation in pixels.
        border_type: only "reflect": the image is mirrored at its border.
        separable: ignored.

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
    """Replaces random bands of each sample with a constant.

    Args:
        num_drop_channels: number of bands to replace, or (smallest, largest) number.
        fill_value: the new value: a number, or one for each band (such as the dataset's means).
        contiguous: whether the bands are adjacent.
        groups: replace groups of bands instead of single ones, such as all bands of a detector:
            lists of band numbers. ``num_drop_channels`` is then the number of groups.

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
        groups: Sequence[Sequence[int]] | None = None,
    ) -> None:
        read.each_by_itself(same_on_batch)
        chosen = [] if groups is None else [read.band_numbers("groups", one) for one in groups]
        super().__init__(
            bands=read.square("num_drop_channels", num_drop_channels),
            fill=read.per_band(fill_value),
            contiguous=contiguous,
            groups=chosen,
            p=p,
        )


class RandomBands(Augmentation):
    """Keeps random bands, for networks that take any bands.

    ``bands`` (B, count) of a batch says which bands each image has, numbered as they were read. The
    extras ``wavelength``, ``fwhm`` and ``band_valid`` are those of these bands; if items have
    different ones, (B, count).

    Args:
        count: number of bands to keep.
        contiguous: whether they are adjacent.
        per: draw bands for each ``"batch"``, or for each ``"item"`` of it. The bands of a batch
            depend on which samples it has.
        sorted: whether bands keep their order.

    >>> import torch
    >>> RandomBands(3)(torch.rand(2, 10, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    op = "random_bands"

    def __init__(
        self, count: int, contiguous: bool = False, per: str = "batch", sorted: bool = True
    ) -> None:
        (number,) = read.band_numbers("count", [count])
        super().__init__(count=number, contiguous=contiguous, per=per, sorted=sorted)


class Resample(Augmentation):
    """Resamples spectra to other bands, such as those of another sensor.

    Every new band is a weighted mean of the bands of the image: a Gaussian of its ``fwhm``, made
    narrower by the width of these bands if it is known. So constant spectra stay the same. Bands
    without ``fwhm``, or too narrow for the bands of the image, are interpolated linearly. Bands
    that are not valid take no part.

    A new band is not valid if less than half of its response is where the image has bands. Its
    values are NaN, and ``band_valid`` of a batch is False. A value is also NaN if a value that it
    is made of is missing.

    In a loader, the dataset must have wavelengths. In a call, give a dictionary with ``wavelength``
    in nm beside ``image``, and ``fwhm`` and ``band_valid`` where they are known. These keys are
    afterwards those of the new bands. Place it before ``RandomBands``, and standardise after it.

    Args:
        wavelengths: centres of the new bands in nm.
        fwhm: their full widths at half maximum in nm: one for each, or one for all. NaN or 0 is
            unknown; if ``None``, all are.

    >>> import numpy as np
    >>> nm = np.arange(400, 701, 10, dtype=np.float32)
    >>> batch = {"image": np.full((2, 31, 4, 4), 0.5, np.float32), "wavelength": nm}
    >>> made = Resample([490, 560, 665], fwhm=[65, 35, 30])(batch)
    >>> made["image"].shape, made["wavelength"].tolist()
    ((2, 3, 4, 4), [490.0, 560.0, 665.0])
    """

    op = "resample"

    def __init__(self, wavelengths: Numbers, fwhm: Number | Numbers | None = None) -> None:
        centres = read.list_of_numbers("wavelengths", wavelengths)
        widths = None if fwhm is None else read.widths(fwhm, len(centres))
        super().__init__(wavelengths=centres, fwhm=widths)


class BandJitter(Augmentation):
    """Multiplies every band of a sample by 1 + ε, where ε is normally distributed.

    Args:
        sigma: standard deviation of ε.
        correlation: number of bands over which ε is similar; with 0, all bands are independent.

    >>> BandJitter(0.02, correlation=5).config()
    {'op': 'band_jitter', 'sigma': 0.02, 'correlation': 5, 'p': 0.5}
    """

    op = "band_jitter"

    def __init__(self, sigma: float = 0.05, correlation: float = 0.0, p: float = 0.5) -> None:
        super().__init__(sigma=sigma, correlation=correlation, p=p)


class BandOffset(Augmentation):
    """Adds ε to every band of a sample; ε is drawn as in BandJitter, in the unit of the image.

    >>> BandOffset(0.02).config()
    {'op': 'band_offset', 'sigma': 0.02, 'correlation': 0.0, 'p': 0.5}
    """

    op = "band_offset"

    def __init__(self, sigma: float = 0.05, correlation: float = 0.0, p: float = 0.5) -> None:
        super().__init__(sigma=sigma, correlation=correlation, p=p)


class SpectralShift(Augmentation):
    """Shifts spectra along the bands by up to ``max_bands`` bands, also by fractions of a band.

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
    """Maps spectra linearly: y = x·``matrix`` + ``offset``.

    Args:
        matrix: (bands, bands).
        offset: a number, or one for each band.
        labels: change only pixels with these labels; all pixels if ``None``.
        mask: name of the mask that has the labels; the first mask if ``None``.

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
    """Lights the scene from a random side: x·(1 + s·(u·cos φ + v·sin φ)).

    u and v go from -1 to 1 across the image. s is drawn from ``strength`` (low, high), and φ is any
    angle.

    >>> IlluminationRamp((0, 0.1)).config()["strength"]
    [0.0, 0.1]
    """

    op = "illumination_ramp"

    def __init__(self, strength: Numbers = (0.0, 0.3), p: float = 0.5) -> None:
        super().__init__(strength=read.numbers("strength", strength, 2), p=p)


class L1Normalize(Augmentation):
    """Divides every spectrum by the sum of its absolute values. If the sum is 0, the spectrum
    becomes 0.

    >>> import torch
    >>> L1Normalize()(torch.tensor([[[1.0]], [[3.0]]])).flatten()
    tensor([0.2500, 0.7500])
    """

    op = "l1_normalize"

    def __init__(self, p: float = 1.0) -> None:
        super().__init__(p=p)


class L2Normalize(Augmentation):
    """Divides every spectrum by its Euclidean norm. If the norm is 0, the spectrum becomes 0.

    >>> import torch
    >>> L2Normalize()(torch.tensor([[[3.0]], [[4.0]]])).flatten()
    tensor([0.6000, 0.8000])
    """

    op = "l2_normalize"

    def __init__(self, p: float = 1.0) -> None:
        super().__init__(p=p)


class SNV(Augmentation):
    """Standard normal variate: shifts and scales every spectrum to mean 0 and standard deviation 1.
    Constant spectra become 0.

    >>> import torch
    >>> SNV()(torch.tensor([[[1.0]], [[2.0]], [[3.0]]])).flatten()
    tensor([-1.,  0.,  1.])
    """

    op = "snv"

    def __init__(self, p: float = 1.0) -> None:
        super().__init__(p=p)


class Normalize(Augmentation):
    """Standardises bands: (x - ``mean``)/``std``.

    ``mean`` and ``std`` are numbers, or lists with one number for each band, such as those in
    ``dataset.split("train").stats``. A band whose mean or standard deviation is NaN stays
    unchanged.

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
