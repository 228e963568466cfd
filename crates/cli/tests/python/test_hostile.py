"""Malicious datasets: their checksums are right, but their content is wrong.

A dataset from elsewhere can contain anything. Every command must end with an error that names the
file, use little memory, and write only to its own output.
"""

import hashlib
import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from helpers import Hsipack, tree

ROWS, COLUMNS, BANDS = 64, 48, 10
STACK = f"{ROWS}x{COLUMNS}x{BANDS}"
IMAGE = f"{STACK}/image/zarr.json"
SHARD = f"{STACK}/image/c/0/0/0/0"
# Bytes of the index: it has room for 64 cubes of two chunks each; then its checksum.
INDEX = 64 * 2 * 16 + 4
# Limit of the address space: a reader that trusts a bomb cannot allocate the memory.
MEMORY = 2 << 30

Attack = Callable[[Path], None]


@pytest.fixture(scope="module")
def sound(hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two cubes with two chunks each, and their masks."""
    folder = tmp_path_factory.mktemp("sound")
    values = np.random.default_rng(5).integers(0, 50, (2, ROWS, COLUMNS, BANDS))
    (folder / "in").mkdir()
    for number, cube in enumerate(values.astype(np.float32)):
        np.save(folder / f"in/cube_{number}.npy", cube)
    np.save(folder / "mask.npy", values[0, ..., 0].astype(np.uint8))
    mask = "--mask={dir}/../mask.npy"
    hsipack.convert(folder / "in", mask, "--chunk", f"{ROWS // 2}x{COLUMNS}", out=folder / "out")
    return folder / "out"


# ------------------------------------------------------------------------------- correct checksums


def seal(out: Path) -> None:
    """Rewrites the checksums of metadata. Deletes samples.index, so that the text is read."""
    (out / "samples.index").unlink(missing_ok=True)
    files = [line.split("  ", 1)[1] for line in (out / "SHA256SUMS").read_text().splitlines()]
    sums = [f"{hashlib.sha256((out / file).read_bytes()).hexdigest()}  {file}\n" for file in files]
    (out / "SHA256SUMS").write_text("".join(sums))


def crc(content: bytes) -> bytes:
    return struct.pack("<I", google_crc32c.value(content))


def spans(shard: bytes | bytearray) -> list[tuple[int, int]]:
    """The places of the chunks of two cubes."""
    numbers = struct.unpack("<8Q", shard[-INDEX:][:64])
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def with_image(change: Callable[[dict[str, Any]], None]) -> Attack:
    """Changes the metadata of the image."""

    def attack(out: Path) -> None:
        meta = json.loads((out / IMAGE).read_text())
        change(meta)
        (out / IMAGE).write_text(json.dumps(meta))
        seal(out)

    return attack


def with_shape(*shape: float) -> Attack:
    def change(meta: dict[str, Any]) -> None:
        meta["shape"] = list(shape)

    return with_image(change)


def with_chunks(outer: list[int], inner: list[int]) -> Attack:
    def change(meta: dict[str, Any]) -> None:
        meta["chunk_grid"]["configuration"]["chunk_shape"] = outer
        meta["codecs"][0]["configuration"]["chunk_shape"] = inner

    return with_image(change)


def with_text(file: str, text: Callable[[str], str]) -> Attack:
    """Changes the text of a metadata file."""

    def attack(out: Path) -> None:
        (out / file).write_text(text((out / file).read_text()))
        seal(out)

    return attack


def with_sample(**keys: Any) -> Attack:
    """Changes the first sample."""

    def attack(out: Path) -> None:
        lines = (out / "samples.jsonl").read_text().splitlines()
        lines[0] = json.dumps(json.loads(lines[0]) | keys)
        (out / "samples.jsonl").write_text("".join(f"{line}\n" for line in lines))
        seal(out)

    return attack


def with_sums(line: str) -> Attack:
    """Adds a line to the list of sums."""

    def attack(out: Path) -> None:
        with (out / "SHA256SUMS").open("a") as sums:
            sums.write(line)

    return attack


def with_span(offset: int, length: int) -> Attack:
    """Changes the place of the first chunk in the index."""

    def attack(out: Path) -> None:
        shard = bytearray((out / SHARD).read_bytes())
        start = len(shard) - INDEX
        struct.pack_into("<QQ", shard, start, offset, length)
        shard[-4:] = crc(bytes(shard[start:-4]))
        (out / SHARD).write_bytes(shard)

    return attack


def with_frame(change: Callable[[bytearray], None]) -> Attack:
    """Changes the Blosc frame of the first chunk, but not its length."""

    def attack(out: Path) -> None:
        shard = bytearray((out / SHARD).read_bytes())
        offset, length = spans(shard)[0]
        frame = shard[offset : offset + length - 4]
        change(frame)
        assert len(frame) == length - 4
        shard[offset : offset + length] = frame + crc(bytes(frame))
        (out / SHARD).write_bytes(shard)

    return attack


def with_header(form: str, place: int, value: int) -> Attack:
    """Changes a field of that frame's header."""
    return with_frame(lambda frame: struct.pack_into(form, frame, place, value))


CHUNK = ROWS // 2 * COLUMNS * BANDS * 2
HALF = [1, ROWS // 2, COLUMNS, BANDS]
HUGE = 2**62

# For each attack, the file that the error must name.
METADATA: dict[str, tuple[Attack, str]] = {
    "samples that overflow": (with_shape(HUGE, ROWS, COLUMNS, BANDS), f"{STACK}/mask"),
    "a shape whose product is 0 when it overflows": (with_shape(2**32, 2**32, 4, 4), IMAGE),
    "more rows than bytes": (with_shape(2, 2**40, COLUMNS, BANDS), IMAGE),
    "negative rows": (with_shape(2, -ROWS, COLUMNS, BANDS), IMAGE),
    "half a row": (with_shape(2, 0.5, COLUMNS, BANDS), IMAGE),
    "no axes": (with_shape(), IMAGE),
    "too many axes": (with_shape(*[1] * 10_000), IMAGE),
    "chunks of no rows": (with_chunks([64, ROWS, COLUMNS, BANDS], [1, 0, COLUMNS, BANDS]), IMAGE),
    "chunks that overflow": (with_chunks([HUGE] * 4, [HUGE] * 4), IMAGE),
    "chunks that do not divide shards": (with_chunks([64, 7, 7, 7], HALF), IMAGE),
    "shards of more samples than a file has bytes": (
        with_chunks([HUGE, ROWS, COLUMNS, BANDS], HALF),
        IMAGE,
    ),
    "nested beyond measure": (
        with_text(IMAGE, lambda text: text.replace('"attributes"', '"a":' + "[" * 10**5, 1)),
        IMAGE,
    ),
    "a type of half a gigabyte": (
        with_image(lambda meta: meta.update(data_type="r4294967296")),
        IMAGE,
    ),
    "a stack that leads out": (with_sample(stack="../../evil"), "samples.jsonl"),
    "a cube that is not there": (with_sample(index=2**63), "samples.jsonl"),
    "a cube that another sample has": (with_sample(index=1), "samples.jsonl"),
    "a sum of a file outside": (with_sums(f"{'0' * 64}  ../evil/zarr.json\n"), "SHA256SUMS"),
    "a sum of a file of the system": (with_sums(f"{'0' * 64}  /etc/zarr.json\n"), "SHA256SUMS"),
}

CHUNKS: dict[str, Attack] = {
    "a span behind the end": with_span(2**40, 1000),
    "a span that overflows": with_span(2**64 - 2, 1000),
    "a span of everything": with_span(0, 2**63),
    "a span of nothing": with_span(0, 0),
    "a span of one byte": with_span(0, 1),
    "a span of the index": with_span(100_000, 100_000),
    "more values than the chunk has": with_header("<I", 4, 2**31 - 1),
    "four gigabytes": with_header("<I", 4, 2**32 - 1),
    "no values": with_header("<I", 4, 0),
    "a byte less": with_header("<I", 4, CHUNK - 1),
    "blocks of no bytes": with_header("<I", 8, 0),
    "blocks of one byte": with_header("<I", 8, 1),
    "blocks of four gigabytes": with_header("<I", 8, 2**32 - 1),
    "a frame beyond its end": with_header("<I", 12, 2**32 - 1),
    "a frame of its header": with_header("<I", 12, 16),
    "an empty frame": with_header("<I", 12, 0),
    "elements of no bytes": with_header("<B", 3, 0),
    "elements of 255 bytes": with_header("<B", 3, 255),
    "another version": with_header("<B", 0, 255),
    "copied, and longer than the frame": with_header("<B", 2, 0x03),
    "another codec": with_header("<B", 2, 0xE1),
    "the first block before the frame": with_header("<i", 16, -(2**31)),
    "the first block behind the frame": with_header("<i", 16, 2**31 - 1),
    "the first block in the header": with_header("<i", 16, 0),
    "a part of a block longer than all": with_header("<i", 20, 2**31 - 1),
    "a part of a block of less than nothing": with_header("<i", 20, -1),
}


# -------------------------------------------------------------------------------------------- tests


def made(sound: Path, tmp_path: Path, attack: Attack) -> Path:
    """An attacked copy of the dataset, in a deep folder, so that paths out of it are noticed."""
    out = tmp_path / "some/where/out"
    shutil.copytree(sound, out)
    attack(out)
    return out


def refusal(done: "subprocess.CompletedProcess[str]") -> str:
    """The message of a run that must fail. Malicious files need no remedy."""
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == "", done.stdout
    assert "panicked" not in done.stderr, done.stderr
    assert "\x1b" not in done.stderr, done.stderr
    return done.stderr


def refuse_all(hsipack: Hsipack, out: Path, names: str, tmp_path: Path) -> None:
    """Every command refuses the dataset and writes nothing."""
    before = tree(tmp_path)
    for words in [
        ("read", out, "-b", 1, "-e", 1),
        ("export", out, "--sample", 0, "-o", out.parent / "cube.npy"),
        ("preview", out, "-o", out.parent / "page.png"),
    ]:
        done = hsipack.run(*words, memory=MEMORY)
        message = refusal(done)
        assert names in message, message
    done = hsipack.run("validate", out, memory=MEMORY)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert names in done.stdout + done.stderr
    assert "panicked" not in done.stderr, done.stderr
    assert tree(tmp_path) == before


@pytest.mark.parametrize("what", METADATA)
def test_metadata_that_lies(what: str, hsipack: Hsipack, sound: Path, tmp_path: Path) -> None:
    attack, names = METADATA[what]
    out = made(sound, tmp_path, attack)
    refuse_all(hsipack, out, names, tmp_path)
    info = hsipack.run("info", out, memory=MEMORY)
    assert names in refusal(info)


@pytest.mark.parametrize(
    "name", ["../../evil", "/tmp/evil", "a\0b", "\x1b]0;evil\x07", "a\nb", "\u202egnp.a", ""]
)
def test_names_are_text(name: str, hsipack: Hsipack, sound: Path, tmp_path: Path) -> None:
    """Names are shown without control characters, and do not determine the place of a file."""
    out = made(sound, tmp_path, with_sample(name=name))
    hsipack.run("export", out, "--sample", 0, "-o", out.parent / "cube.npy")
    (out.parent / "cube.npy").unlink()
    before = tree(tmp_path)
    for words in [
        ("info", out),
        ("info", out, "--json"),
        ("read", out, "-e", 1),
        ("validate", out),
        ("export", out, "--sample", "no such sample", "-o", out.parent / "cube.npy"),
        ("preview", out, "-o", out.parent / "page.png"),
        ("preview", out, "--sample", 0, "-o", out.parent / "page.png"),
    ]:
        done = hsipack.run(*words, memory=MEMORY)
        printed = done.stdout + done.stderr
        assert done.returncode in (0, 1), printed
        assert "panicked" not in printed
        assert not set(printed) & set("\0\x1b\x07\u202e"), printed
        (out.parent / "page.png").unlink(missing_ok=True)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("what", CHUNKS)
def test_chunks_that_lie(what: str, hsipack: Hsipack, sound: Path, tmp_path: Path) -> None:
    out = made(sound, tmp_path, CHUNKS[what])
    refuse_all(hsipack, out, SHARD, tmp_path)
    # This does not read chunks.
    assert hsipack.run("info", out, memory=MEMORY).returncode == 0


@pytest.mark.parametrize("seed", range(24))
def test_frames_of_any_bytes(seed: int, hsipack: Hsipack, sound: Path, tmp_path: Path) -> None:
    """Changed bytes in a frame give values or an error, and nothing else."""
    draws = np.random.default_rng(seed)

    def change(frame: bytearray) -> None:
        # The header and the table of blocks, or anywhere.
        most = 64 if seed % 2 else len(frame)
        for place in draws.integers(0, most, draws.integers(1, 8)):
            frame[place] = draws.integers(256)

    out = made(sound, tmp_path, with_frame(change))
    done = hsipack.run("read", out, "-b", 1, "-e", 1, memory=MEMORY)
    assert done.returncode in (0, 1), (done.returncode, done.stderr)
    if done.returncode == 1:
        assert SHARD in refusal(done)


def test_links_out_of_a_dataset_write_nothing_there(
    hsipack: Hsipack, sound: Path, tmp_path: Path
) -> None:
    """Reading follows a shard that is a link, as file systems do. Repair does not write to it."""
    out = made(sound, tmp_path, lambda _: None)
    outside = tmp_path / "outside"
    shutil.move(out / SHARD, outside)
    content = bytearray(outside.read_bytes())
    content[100] ^= 1
    outside.write_bytes(content)
    (out / SHARD).symlink_to(outside)
    hsipack.run("repair", out)
    assert outside.read_bytes() == content
