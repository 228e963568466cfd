"""Runs the command, writes inputs and reads packed datasets, without any code of hsipack."""

import hashlib
import json
import re
import resource
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorstore as ts
import xarray as xr
import zarr

ENVI_TYPES = {
    "uint8": 1,
    "int16": 2,
    "int32": 3,
    "float32": 4,
    "float64": 5,
    "complex64": 6,
    "complex128": 9,
    "uint16": 12,
    "uint32": 13,
    "int64": 14,
    "uint64": 15,
}
INTERLEAVES = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}


@dataclass(frozen=True)
class Hsipack:
    """The command under test."""

    binary: Path

    def run(
        self,
        *words: object,
        memory: int | None = None,
        cwd: Path | None = None,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end, with at most `memory` bytes of address space."""

        def limit() -> None:
            if memory is not None:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

        return subprocess.run(
            [self.binary, *map(str, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            timeout=timeout,
            preexec_fn=limit if memory is not None else None,
        )

    def start(self, *words: object, cwd: Path | None = None) -> "subprocess.Popen[str]":
        """Starts the command without waiting for it."""
        return subprocess.Popen(
            [self.binary, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )

    def convert(self, *words: object, out: Path, cwd: Path | None = None) -> dict[str, Any]:
        """Converts into `out`, which must succeed. Returns the report."""
        done = self.run("convert", *words, "-o", out, "--json", cwd=cwd)
        assert done.returncode == 0, done.stderr
        assert not partial(out).exists()
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def refuse(self, *words: object, out: Path, names: object, memory: int | None = None) -> str:
        """Converts into `out`, which must fail: with exit status 1, a message that begins with the
        file `names` and ends with a remedy, and without output. Returns the message."""
        before = tree(out) if out.is_dir() else None
        done = self.run("convert", *words, "-o", out, memory=memory)
        message = check_refusal(done, names)
        assert not partial(out).exists(), message
        if before is None:
            assert not out.is_dir(), message
        else:
            assert tree(out) == before, message
        return message


def check_refusal(done: "subprocess.CompletedProcess[str]", names: object) -> str:
    """Returns the message of a failed run: `hsipack: FILE: WHAT (REMEDY)`, without a backtrace."""
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == "", done.stdout
    assert "panicked" not in done.stderr, done.stderr
    assert "RUST_BACKTRACE" not in done.stderr, done.stderr
    lines = done.stderr.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith("hsipack: ")), None)
    assert first is not None, done.stderr
    # The possible choices are on separate lines.
    message = "\n".join(lines[first:])
    for line in lines[:first]:
        assert line.startswith(("note: ", "left out: ")), done.stderr
    if names is not None:
        assert message.startswith(f"hsipack: {names}"), message
    assert message.endswith(")"), f"no remedy: {message}"
    assert re.search(r"\s\(", message), f"no remedy: {message}"
    return message


def partial(out: Path) -> Path:
    """The folder in which a dataset is written before it is complete."""
    return out.with_name(out.name + ".partial")


# ---------------------------------------------------------------------------------------- reading


def root(path: Path) -> dict[str, Any]:
    """The `hsipack` attributes of the root group."""
    meta = json.loads((path / "zarr.json").read_text())
    own: dict[str, Any] = meta["attributes"]["hsipack"]
    return own


def samples(path: Path) -> list[dict[str, Any]]:
    """The lines of samples.jsonl."""
    return [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]


def stacks(path: Path) -> list[str]:
    """Names of the stacks."""
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir())


def only_stack(path: Path) -> str:
    """The name of the only stack."""
    (name,) = stacks(path)
    return name


def attributes(path: Path, stack: str | None = None, array: str = "image") -> dict[str, Any]:
    """The attributes of an array, as written."""
    meta = json.loads((path / (stack or only_stack(path)) / array / "zarr.json").read_text())
    own: dict[str, Any] = meta["attributes"]
    return own


def metadata(path: Path, stack: str | None = None, array: str = "image") -> dict[str, Any]:
    """zarr.json of an array."""
    text = (path / (stack or only_stack(path)) / array / "zarr.json").read_text()
    whole: dict[str, Any] = json.loads(text)
    return whole


def read_zarr(path: Path, stack: str | None = None, array: str = "image") -> np.ndarray:
    """Reads a whole array with zarr-python."""
    group = zarr.open_group(path, mode="r")
    values = group[f"{stack or only_stack(path)}/{array}"]
    assert isinstance(values, zarr.Array)
    return np.asarray(values[...])


def read_tensorstore(path: Path, stack: str | None = None, array: str = "image") -> np.ndarray:
    """Reads a whole array with TensorStore."""
    place = path / (stack or only_stack(path)) / array
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{place}/"}}
    values = np.asarray(ts.open(spec, open=True, read=True).result().read().result())
    return values


def open_xarray(path: Path, stack: str | None = None) -> xr.Dataset:
    """Opens a stack with xarray."""
    dataset: xr.Dataset = xr.open_zarr(path, group=stack or only_stack(path), consolidated=False)
    return dataset


def read_everywhere(path: Path, stack: str | None = None, array: str = "image") -> np.ndarray:
    """Reads an array with zarr-python and TensorStore, which must agree."""
    values = read_zarr(path, stack, array)
    assert_same_bits(read_tensorstore(path, stack, array), values)
    return values


def tree(path: Path) -> dict[str, str]:
    """Every file below a folder, with a hash of its bytes."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }


def timeless_tree(path: Path, command: bool = True) -> dict[str, str]:
    """Like `tree`, but without the times in the root's zarr.json and that file's line in
    SHA256SUMS. Without `command`, the commands are left out, too."""
    files = tree(path)
    meta = json.loads((path / "zarr.json").read_text())
    own = meta["attributes"]["hsipack"]
    for place in [own, *own["history"]]:
        place.pop("created", None)
        if not command:
            place.pop("command", None)
            place.pop("request", None)
    files["zarr.json"] = json.dumps(meta)
    sums = (path / "SHA256SUMS").read_text().splitlines()
    files["SHA256SUMS"] = "\n".join(line for line in sums if not line.endswith("  zarr.json"))
    return files


def check_sums(path: Path) -> None:
    """SHA256SUMS covers all metadata, and `sha256sum -c` agrees."""
    listed = {line.split("  ", 1)[1] for line in (path / "SHA256SUMS").read_text().splitlines()}
    there = {str(file.relative_to(path)) for file in path.rglob("zarr.json")} | {"samples.jsonl"}
    assert listed == there
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"],
        cwd=path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --------------------------------------------------------------------------------------- comparing


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Asserts equal type, shape and bits. All NaNs are equal."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    unsigned = f"u{got.dtype.itemsize}"
    ours, theirs = (np.where(nan, 0, np.ascontiguousarray(a).view(unsigned)) for a in (got, want))
    differ = np.argwhere(ours != theirs)
    assert differ.size == 0, (
        f"{len(differ)} values differ, the first at {differ[0]}: "
        f"{got[tuple(differ[0])]!r} instead of {want[tuple(differ[0])]!r}"
    )


def expected(
    stored: np.ndarray,
    *,
    ignore: float | None = None,
    multiply: float | np.ndarray = 1.0,
    divide: float | np.ndarray = 1.0,
    add: float | np.ndarray = 0.0,
    empty: Sequence[int] = (),
    scale: float = 1.0,
    dtype: str = "float16",
) -> np.ndarray:
    """The expected packed values: computed in double precision, rounded once. A factor applies to
    all bands, or there is one for each band. `empty` bands have no data."""
    values = stored.astype(np.float64)
    if ignore is not None:
        values[stored == np.asarray(ignore).astype(stored.dtype)] = np.nan
    values[..., list(empty)] = np.nan
    with np.errstate(over="ignore"):
        values = values * multiply / divide
        if np.any(add):  # 0 added to -0 makes 0
            values = values + add
        packed: np.ndarray = (values / scale).astype(dtype)
    return packed


def check_statistics(path: Path, packed: np.ndarray, values: np.ndarray, stack: str) -> None:
    """Checks that the attributes of `stack` have the statistics and quantisation errors of the
    packed values, which were `values` before the cast."""
    own = attributes(path, stack)["hsipack"]
    flat = packed.reshape(-1, packed.shape[-1]).astype(np.float64)
    exact = values.reshape(-1, values.shape[-1]).astype(np.float64)
    finite = np.isfinite(flat)
    stats, errors = own["stats"], own["quantisation"]
    assert stats["nan"] == np.isnan(flat).sum(0).tolist()
    assert stats["inf"] == np.isinf(flat).sum(0).tolist()
    assert stats["count"] == finite.sum(0).tolist()
    for band in range(flat.shape[1]):
        known = finite[:, band]
        if not known.any():
            for key in ("min", "max", "mean", "std"):
                assert stats[key][band] is None
            continue
        y, x = flat[known, band], exact[known, band]
        assert stats["min"][band] == y.min()
        assert stats["max"][band] == y.max()
        magnitude = max(abs(y.mean()), y.std(), 1e-30)
        assert abs(stats["mean"][band] - y.mean()) <= 1e-6 * magnitude
        assert abs(stats["std"][band] - y.std()) <= 1e-6 * magnitude
        absolute = np.abs(y - x)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(absolute == 0, 0.0, absolute / np.abs(x))
        # The command computes the differences in single precision.
        for key, want, unit in (
            ("max_abs", absolute.max(), np.abs(x).max()),
            ("max_rel", relative.max(), 1.0),
            ("mean_rel", relative.mean(), 1.0),
        ):
            assert abs(errors[key][band] - want) <= 2**-22 * unit + 1e-6 * want, (key, band)


# ----------------------------------------------------------------------------------------- writing


def write_envi(
    header: Path,
    cube: np.ndarray,
    interleave: str = "bip",
    order: Literal["<", ">"] = "<",
    ending: str = ".img",
    **keys: object,
) -> Path:
    """Writes `cube` (row, column, band) as ENVI, and returns the data file. `keys` have _ for
    spaces; None removes a key."""
    rows, columns, bands = cube.shape
    fields: dict[str, object] = {
        "samples": columns,
        "lines": rows,
        "bands": bands,
        "header offset": 0,
        "file type": "ENVI Standard",
        "data type": ENVI_TYPES[cube.dtype.name],
        "interleave": interleave,
        "byte order": int(order == ">"),
    }
    for key, value in keys.items():
        fields[key.replace("_", " ")] = value
    text = ["ENVI"]
    for key, value in fields.items():
        if isinstance(value, (list, tuple, np.ndarray)):
            text.append(f"{key} = {{{', '.join(map(str, value))}}}")
        elif value is not None:
            text.append(f"{key} = {value}")
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text("\n".join(text) + "\n")
    data = header.with_suffix(ending)
    ordered = cube.transpose(INTERLEAVES[interleave]) if interleave in INTERLEAVES else cube
    offset = fields["header offset"]
    assert isinstance(offset, int)
    content = np.ascontiguousarray(ordered).astype(cube.dtype.newbyteorder(order)).tobytes()
    data.write_bytes(b"\xa5" * offset + content)
    return data


def smooth_cube(
    shape: tuple[int, int, int] = (12, 9, 11), seed: int = 0, dtype: str = "float32"
) -> np.ndarray:
    """A cube of smooth spectra with noise. It differs along all axes and between seeds. Floats are
    from 0.1 to 1."""
    y, x, b = np.indices(shape, dtype=np.float64)
    noise = np.random.default_rng(seed).uniform(size=shape)
    values = 0.4 + 0.2 * np.sin(0.3 * b + 0.2 * x + seed) + 0.01 * y + 0.05 * noise
    values = values / values.max()
    if np.dtype(dtype).kind in "iu":
        top = min(4000, np.iinfo(dtype).max)
        return np.asarray(np.round(values * top).astype(dtype))
    return np.asarray(values.astype(dtype))


def write_cubes(
    folder: Path, count: int, shape: tuple[int, int, int] = (12, 9, 11), first: int = 0
) -> list[np.ndarray]:
    """Writes cube_000.npy, cube_001.npy, … and returns their values."""
    folder.mkdir(parents=True, exist_ok=True)
    cubes = [smooth_cube(shape, seed) for seed in range(first, first + count)]
    for number, cube in enumerate(cubes, first):
        np.save(folder / f"cube_{number:03}.npy", cube)
    return cubes


def class_map(shape: tuple[int, int] = (12, 9), seed: int = 0, top: int = 5) -> np.ndarray:
    """Class ids from 0 to `top`, including both."""
    ids = np.random.default_rng(seed).integers(0, top + 1, shape)
    ids.flat[0], ids.flat[-1] = 0, top
    return np.asarray(ids)


@contextmanager
def heeding(number: signal.Signals, how: signal.Handlers) -> Iterator[None]:
    """What is started here inherits how a signal is handled, whatever started the tests."""
    before = signal.signal(number, how)
    try:
        yield
    finally:
        signal.signal(number, before)
