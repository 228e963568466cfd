"""HTC .blosc files, written with pickle and python-blosc, as htc's compress_file does."""

import os
import pickle
from pathlib import Path

import blosc
import numpy as np

from . import synthetic

blosc.set_nthreads(1)


def frame(values: np.ndarray, **options: object) -> bytes:
    """One Blosc-1 frame of an array."""
    settings = {"typesize": values.itemsize, "cname": "zstd", "clevel": 9} | options
    packed: bytes = blosc.compress(np.ascontiguousarray(values).tobytes(), **settings)
    return packed


def single(values: np.ndarray, protocol: int = 4, **options: object) -> bytes:
    """The bytes of a file with one array."""
    return pickle.dumps((values.shape, values.dtype), protocol) + frame(values, **options)


def named(arrays: dict[str, np.ndarray], protocol: int = 4) -> bytes:
    """The bytes of a file with several arrays."""
    frames = {name: frame(values) for name, values in arrays.items()}
    header = {name: (v.shape, v.dtype, len(frames[name])) for name, v in arrays.items()}
    return pickle.dumps(header, protocol) + b"".join(frames.values())


class Evil:
    """An object whose pickle calls os.system."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("false",)


def write(folder: Path) -> dict[str, object]:
    """Writes every pickle protocol, codec and shuffle, several element types, and broken files."""
    htc = folder / "htc"
    htc.mkdir(parents=True, exist_ok=True)
    entries: dict[str, object] = {}

    def add(name: str, values: np.ndarray, protocol: int = 4, **options: object) -> None:
        (htc / f"{name}.blosc").write_bytes(single(values, protocol, **options))
        entries[f"htc/{name}.blosc"] = synthetic.truth(values)

    half = synthetic.cube("float16")
    for protocol in (2, 3, 4, 5):
        add(f"protocol{protocol}", half, protocol)
    for codec in ("blosclz", "lz4", "lz4hc", "zlib"):
        add(codec, np.round(half, 1), cname=codec, shuffle=blosc.BITSHUFFLE)
    add("big_endian", synthetic.cube("float32").astype(">f4"))
    add("uint8", synthetic.cube("uint8"), shuffle=blosc.NOSHUFFLE)
    add("bool", synthetic.cube("uint8") % 2 == 1)
    add("other_typesize", half, typesize=4)
    noise = np.random.RandomState(1).randint(0, 65536, (5, 6, 7)).astype("uint16")
    add("incompressible", noise, clevel=0)
    blosc.set_blocksize(1024)
    add("many_blocks", synthetic.cube("float32", (20, 9, 12)), cname="lz4")
    blosc.set_blocksize(0)
    sensor = synthetic.cube("float16", (4, 3, 100))
    add("sensor_bands", sensor)
    entries["htc/sensor_bands.blosc"] = synthetic.truth(
        sensor, wavelength=np.linspace(500, 1000, 100).tolist()
    )
    entries.update(dictionaries(htc))
    refused(htc)
    return entries


def dictionaries(htc: Path) -> dict[str, object]:
    """Files with several arrays."""
    masks = {"polygon#annotator1": synthetic.classes(), "blood": synthetic.classes() // 2}
    mixed = {"cube": synthetic.cube("float16"), "mask": synthetic.classes()}
    for protocol in (2, 5):
        (htc / f"masks_protocol{protocol}.blosc").write_bytes(named(masks, protocol))
    (htc / "mixed.blosc").write_bytes(named(mixed))
    files = {"masks_protocol2": masks, "masks_protocol5": masks, "mixed": mixed}
    return {
        f"htc/{file}.blosc#{name}": synthetic.truth(values)
        for file, arrays in files.items()
        for name, values in arrays.items()
    }


def refused(htc: Path) -> None:
    """Files that are broken, or whose pickle would call a function."""
    values = synthetic.cube("float16")
    whole = single(values)
    (htc / "cut_short.blosc").write_bytes(whole[:-10])
    (htc / "longer.blosc").write_bytes(whole + b"more")
    (htc / "only_header.blosc").write_bytes(pickle.dumps((values.shape, values.dtype), 4))
    (htc / "bare_frame.blosc").write_bytes(frame(values))
    other = pickle.dumps(((7, 9, 13), values.dtype), 4)
    (htc / "other_shape.blosc").write_bytes(other + frame(values))
    (htc / "evil.blosc").write_bytes(pickle.dumps((Evil(), values.dtype), 4) + frame(values))
    (htc / "complex.blosc").write_bytes(single(values.astype("complex64")))
    (htc / "cut_short_dictionary.blosc").write_bytes(named({"a": values, "b": values})[:-10])
    damaged = bytearray(whole)
    middle = len(damaged) - 200
    damaged[middle : middle + 100] = bytes(100)
    (htc / "damaged.blosc").write_bytes(damaged)
