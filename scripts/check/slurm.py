#!/usr/bin/env python3
"""Runs the recipes of docs/parts.md under Slurm, on this machine.

usage: .venv/bin/python scripts/check/slurm.py [--folder FOLDER] [--hsipack PROGRAM]

Starts a cluster of one node in FOLDER (default: target/slurm), with its own ports; it ends with the
script. Draws cubes and packs them in one process. Then compares this dataset with the results of an
array of workers followed by a job that commits, of the same array with a killed worker, and of an
executor of dask-jobqueue. Prints one line for each check; the exit status is 1 if one failed. Needs
root, Debian's packages slurm-wlm and munge, and the package, as scripts/test installs it.
dask-jobqueue is installed into FOLDER.
"""

import argparse
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hsipack
import hsipack_command
import numpy as np

JOBQUEUE = "dask-jobqueue==0.9.0"
PARTS = 5


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Cluster:
    """Slurm with one node, which is this machine."""

    def __init__(self, folder: Path) -> None:
        self.running: list[subprocess.Popen[bytes]] = []
        self.folder = folder
        host, cores = socket.gethostname(), os.cpu_count()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        sockets = folder / "munge.socket"
        places = {
            "StateSaveLocation": "state",
            "SlurmdSpoolDir": "spool",
            "SlurmctldPidFile": "slurmctld.pid",
            "SlurmdPidFile": "slurmd.pid",
            "SlurmctldLogFile": "slurmctld.log",
            "SlurmdLogFile": "slurmd.log",
        }
        lines = [
            "ClusterName=check",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={free_port()}",
            f"SlurmdPort={free_port()}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={sockets}",
            "CredType=cred/munge",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "ReturnToService=2",
            *(f"{name}={folder / place}" for name, place in places.items()),
            f"NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=4000 State=UNKNOWN",
            "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        ]
        (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        self.start(
            *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={sockets}"),
            *(f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log"),
            f"--seed-file={folder}/munged.seed",
        )
        self.until(sockets.exists)
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D", "-N", host)
        self.until(lambda: "idle" in ask("sinfo", "--noheader", "--format=%T"))

    def start(self, *command: str) -> None:
        with (self.folder / f"{command[0]}.out").open("wb") as log:
            path = f"{os.environ['PATH']}:/usr/sbin"
            environment = os.environ | {"PATH": path}
            program = shutil.which(command[0], path=path)
            if program is None:
                raise SystemExit(f"{command[0]} is missing; run: apt-get install slurm-wlm munge")
            words = [program, *command[1:]]
            self.running.append(subprocess.Popen(words, stdout=log, stderr=log, env=environment))

    def until(self, ready: Callable[[], bool]) -> None:
        for _ in range(300):
            if ready():
                return
            time.sleep(0.1)
        raise SystemExit(f"Slurm does not start; look into {self.folder}/*.log")

    def stop(self) -> None:
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            process.wait(30)


def ask(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def submit(*words: str, cwd: Path) -> str:
    """Submits a job, and returns its number."""
    done = subprocess.run(
        ["sbatch", "--parsable", "--output=%A_%a.out", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def wait(*jobs: str) -> None:
    """Waits until none of these jobs is pending or running. Ignores jobs that can never start."""
    while True:
        states = ask("squeue", "--noheader", f"--jobs={','.join(jobs)}", "--format=%T %r")
        left = [line for line in states.splitlines() if "DependencyNeverSatisfied" not in line]
        if not left:
            return
        time.sleep(0.2)


def content(dataset: Path) -> dict[str, bytes]:
    """All files, except those that contain the time of creation."""
    files = (file for file in dataset.rglob("*") if file.is_file())
    named = ((str(file.relative_to(dataset)), file.read_bytes()) for file in files)
    return {name: text for name, text in named if name not in ("zarr.json", "SHA256SUMS")}


def planned(folder: Path, program: str, name: str) -> str:
    """Writes a plan, and returns its name."""
    options = ("--shard-size", "2MB", "--plan", f"{name}.json")
    command = (program, "convert", "cubes", "-o", f"{name}.hsipack", *options)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return f"{name}.json"


def array(folder: Path, program: str, plan: str) -> tuple[str, str]:
    """Submits both jobs as in docs/parts.md, and returns their numbers."""
    part = "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
    work = f"{program} work {plan} --part {part} --threads $SLURM_CPUS_PER_TASK"
    workers = submit(f"--array=1-{PARTS}", "--cpus-per-task=1", "--wrap", work, cwd=folder)
    commit = f"{program} commit {plan}"
    return workers, submit(f"--dependency=afterok:{workers}", "--wrap", commit, cwd=folder)


def check_array(folder: Path, program: str, whole: dict[str, bytes]) -> None:
    wait(*array(folder, program, planned(folder, program, "array")))
    assert content(folder / "array.hsipack") == whole


def check_killed(folder: Path, program: str, whole: dict[str, bytes]) -> None:
    """A worker is killed, so the commit does not run. The next worker does the remaining work."""
    plan = planned(folder, program, "killed")
    dying = folder / "dying"
    dying.write_text(
        f'#!/bin/sh\n[ "$SLURM_ARRAY_TASK_ID" != 2 ] || kill -9 $$\nexec {program} "$@"\n'
    )
    dying.chmod(0o755)
    jobs = array(folder, str(dying), plan)
    wait(*jobs)
    assert not (folder / "killed.hsipack").exists()
    early = subprocess.run([program, "commit", plan], cwd=folder, capture_output=True, text=True)
    assert "shards have no receipt" in early.stderr, early.stderr
    ask("scancel", jobs[1])
    last = submit("--wrap", f"{program} work {plan} && {program} commit {plan}", cwd=folder)
    wait(last)
    assert content(folder / "killed.hsipack") == whole


def check_dask(folder: Path, _: str, whole: dict[str, bytes]) -> None:
    jobqueue, distributed = map(importlib.import_module, ("dask_jobqueue", "distributed"))
    with (
        jobqueue.SLURMCluster(
            cores=1,
            memory="1GB",
            walltime="00:10:00",
            python=sys.executable,
            log_directory=str(folder),
            scheduler_options={"dashboard_address": None},
            worker_extra_args=["--no-dashboard"],
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        hsipack.convert(
            folder / "cubes", folder / "dask.hsipack", executor=client, shard_size=2_000_000
        )
    ours = content(folder / "dask.hsipack")
    # The records differ, because they contain the paths of cubes as they were given.
    records = [json.loads(line) for line in ours.pop("samples.jsonl").splitlines()]
    assert len(records) == 40
    assert ours == {name: text for name, text in whole.items() if name != "samples.jsonl"}
    assert hsipack.validate(folder / "dask.hsipack", source=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("target/slurm"))
    parser.add_argument("--hsipack", default=str(hsipack_command.PROGRAM))
    options = parser.parse_args()
    folder = options.folder.resolve()
    shutil.rmtree(folder / "run", ignore_errors=True)
    run = folder / "run"
    (run / "cubes").mkdir(parents=True)
    if not (folder / "python/dask_jobqueue").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        target = ["--root-user-action", "ignore", "--no-deps", "--target", str(folder / "python")]
        subprocess.run([*pip, *target, JOBQUEUE], check=True)
    sys.path.append(str(folder / "python"))
    os.environ["PYTHONPATH"] = str(folder / "python")
    rng = np.random.default_rng(3)
    for number in range(40):
        np.save(run / f"cubes/cube_{number:02}.npy", rng.random((64, 64, 70), np.float32))
    command = (options.hsipack, "convert", "cubes", "-o", "alone.hsipack", "--shard-size", "2MB")
    subprocess.run(command, cwd=run, check=True, stdout=subprocess.DEVNULL)
    whole = content(run / "alone.hsipack")
    failed = 0
    cluster = Cluster(run)
    try:
        print(ask("sinfo", "--version"))
        for check in (check_array, check_killed, check_dask):
            start = time.monotonic()
            try:
                check(run, options.hsipack, whole)
                result = "passed"
            except Exception as error:
                failed += 1
                result = f"FAILED: {type(error).__name__}: {error}"
            name, seconds = check.__name__.removeprefix("check_"), time.monotonic() - start
            print(f"{name:10} {result} ({seconds:.1f} s)", flush=True)
    finally:
        cluster.stop()
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
