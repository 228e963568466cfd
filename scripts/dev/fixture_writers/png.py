"""PNG masks, written by Pillow, or by hand if it cannot write the variant."""

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from .synthetic import classes, truth

Truth = dict[str, dict[str, object]]

# Adam7: first row, first column, row step, column step of each pass.
ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2)]
ADAM7.append((1, 0, 2, 1))
GRAY = 0


def write(folder: Path) -> Truth:
    out = folder / "png"
    out.mkdir(parents=True, exist_ok=True)
    return {**by_pillow(out), **by_hand(out)}


def by_pillow(out: Path) -> Truth:
    labels = classes()
    wide = labels.astype(np.uint16) * 20000
    flags = labels > 1
    Image.fromarray(labels).save(out / "gray8.png")
    Image.fromarray(wide).save(out / "gray16.png")
    Image.fromarray(flags).save(out / "gray1.png")
    found = {
        "png/gray8.png": truth(labels),
        "png/gray16.png": truth(wide),
        "png/gray1.png": truth(flags),
    }
    for bits in (1, 2, 4, 8):
        ids = labels & ((1 << bits) - 1)
        image = Image.fromarray(ids).convert("P")
        image.putdata(ids.flatten().tolist())
        # The colours differ from the indices. Pillow stores as few bits as the palette needs.
        image.putpalette([255 - i % 200 for i in range(3 << bits)])
        image.save(out / f"palette{bits}.png")
        assert (out / f"palette{bits}.png").read_bytes()[24] == bits
        found[f"png/palette{bits}.png"] = truth(ids)
    Image.fromarray(np.stack([labels] * 3, axis=2)).save(out / "rgb.png")
    Image.fromarray(np.stack([labels] * 2, axis=2)).save(out / "gray_alpha.png")
    return found


def by_hand(out: Path) -> Truth:
    """Grayscale of 2 and 4 bits, and interlacing, which Pillow reads but does not write."""
    labels = classes((19, 21)).astype(np.uint32) + np.arange(21, dtype=np.uint32) * 5003
    found: Truth = {}
    for bits in (1, 2, 4, 8, 16):
        for interlaced in (False, True):
            values = labels % (1 << bits)
            name = f"gray{bits}_{'adam7' if interlaced else 'plain'}.png"
            (out / name).write_bytes(encode(values, bits, interlaced))
            check_with_pillow(out / name, values, bits)
            dtype = {1: np.bool_, 16: np.uint16}.get(bits, np.uint8)
            found[f"png/{name}"] = truth(values.astype(dtype))
    return found


def check_with_pillow(path: Path, values: np.ndarray, bits: int) -> None:
    """Compares with Pillow, which scales 1, 2 and 4 bits to 255."""
    seen = np.asarray(Image.open(path)).astype(np.int64)
    stretch = 255 // ((1 << bits) - 1) if 1 < bits < 8 else 1
    assert np.array_equal(seen, values.astype(np.int64) * stretch), path


def encode(values: np.ndarray, bits: int, interlaced: bool) -> bytes:
    rows, columns = values.shape
    passes = [values[y::dy, x::dx] for y, x, dy, dx in ADAM7] if interlaced else [values]
    data = b"".join(b"\0" + pack(row, bits) for part in passes if part.size for row in part)
    ihdr = struct.pack(">IIBBBBB", columns, rows, bits, GRAY, 0, 0, int(interlaced))
    chunks = [(b"IHDR", ihdr), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, body) for kind, body in chunks)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def pack(row: np.ndarray, bits: int) -> bytes:
    text = "".join(f"{int(value):0{bits}b}" for value in row)
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")
