"""Small folders that are arranged as public datasets are.

Each function writes such a folder as the public loaders of the dataset expect it, with libraries
that are independent of hsipack, and returns what must be packed.
"""

from . import driving, earth, laboratory, pictures, scenes
from .folders import Expected, Folder

FOLDERS: dict[str, Folder] = {
    **driving.FOLDERS,
    **earth.FOLDERS,
    **laboratory.FOLDERS,
    **pictures.FOLDERS,
    **scenes.FOLDERS,
}

__all__ = ["FOLDERS", "Expected", "Folder"]
