"""Augmentations of images and masks together, with Kornia's names, arguments and results.

    from hsipack.augment import AugmentationSequential, RandomAffine, RandomHorizontalFlip

    augment = AugmentationSequential(RandomAffine(45, p=0.5), RandomHorizontalFlip(), seed=7)
    image, mask = augment(image, mask)              # (B, C, H, W), (B, H, W), on any device
    loader = hsipack.Loader(dataset, 8, augment=augment)

Classes that Kornia also has take the same arguments in the same order, so you only have to change
the import. Arguments without a counterpart raise an error that says what to do instead. These
things differ from Kornia:

- ``clip_output`` of RandomContrast and RandomBrightness, ``ensure_perm`` of RandomJigsaw and
  ``crop_if_exceeds`` of PadTo are False.
- Masks are integers or booleans, and keep their number of dimensions.
- Results that are too large for the images' type become its largest finite value, not infinity.
- Pixels with a weight of 0 are not read, so that NaN does not spread to them.
- ``keepdim`` changes nothing, because images always keep their number of dimensions.

The page Augmentations of the documentation describes each augmentation.
"""

from hsipack.augment import geometric, mixing, values
from hsipack.augment._augmentation import Augmentation
from hsipack.augment.geometric import *  # noqa: F403
from hsipack.augment.mixing import *  # noqa: F403
from hsipack.augment.sequential import (
    Augmentations,
    AugmentationSequential,
    from_config,
    sequential,
    to_config,
)
from hsipack.augment.values import *  # noqa: F403

__all__ = [
    "Augmentation",
    "AugmentationSequential",
    "Augmentations",
    "from_config",
    "sequential",
    "to_config",
]
__all__ += geometric.__all__
__all__ += mixing.__all__
__all__ += values.__all__
