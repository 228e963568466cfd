#!/usr/bin/env python3
"""Trains on two agents of torchrun with two ranks each, kills one, and checks the samples.

usage: .venv/bin/python scripts/check/elastic.py [--folder FOLDER]

Runs docs/examples/elastic.py twice at the same time on this machine, as two machines would, over
gloo. The second agent and its ranks are killed in the middle of the second epoch. The first agent
must continue from the checkpoint with two ranks and finish all epochs. In each epoch, every sample
must come once: from four ranks in the steps up to the checkpoint, from two ranks in the others.
Takes a minute. Logs are written to FOLDER (default: target/elastic). Needs the package and torch,
as scripts/test installs them.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hsipack
import numpy as np

EXAMPLE = Path(__file__).resolve().parents[2] / "docs/examples/elastic.py"
CUBES, EPOCHS, EVERY = 62, 4, 3


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def agent(folder: Path, number: int, port: int) -> subprocess.Popen[bytes]:
    """Starts an agent with two ranks, in a process group of its own."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=2"]
    words += ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--max-restarts=3"]
    # A lost agent is noticed after three of these intervals.
    words += ["--rdzv-id=check", "--rdzv-conf=keep_alive_interval=2,is_host=" + str(1 - number)]
    words += [str(EXAMPLE), "scans.hsipack", "state.pt", f"--epochs={EPOCHS}"]
    words += [f"--every={EVERY}", "--step=0.3", "--record=log"]
    with (folder / f"agent-{number}.out").open("wb") as out:
        return subprocess.Popen(
            words,
            cwd=folder,
            stdout=out,
            stderr=out,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )


def lines(folder: Path, world: int) -> list[dict[str, Any]]:
    logs = (folder / "log").glob(f"{world}-*.jsonl")
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def steps(folder: Path, world: int) -> int:
    return max((line["step"] for line in lines(folder, world)), default=0)


Agent = subprocess.Popen[bytes]


def wait(what: str, ready: Callable[[], bool], agents: list[Agent], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end or any(one.poll() not in (None, 0) for one in agents):
            raise SystemExit(f"FAILED: {what} does not happen; look into the logs of the agents")
        time.sleep(0.1)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the agent and its ranks, which are in sessions of their own."""
    found = subprocess.run(
        ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False
    )
    for pid in [process.pid, *map(int, found.stdout.split())]:
        os.kill(pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("target/elastic"))
    folder = parser.parse_args().folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "log").mkdir(parents=True)
    (folder / "cubes").mkdir()
    rng = np.random.default_rng(7)
    for number in range(CUBES):
        np.save(folder / f"cubes/cube_{number:02}.npy", rng.random((8, 8, 5), np.float32))
    hsipack.convert(folder / "cubes", folder / "scans.hsipack")
    port = free_port()
    agents = [agent(folder, number, port) for number in range(2)]
    try:
        # An epoch has six steps on four ranks.
        wait("a step of the second epoch", lambda: steps(folder, 4) >= 10, agents, 90)
        kill(agents[1])
        print(f"killed one of two agents at step {steps(folder, 4)}", flush=True)
        start = time.monotonic()
        wait("a step of two ranks", lambda: steps(folder, 2) > 0, agents[:1], 180)
        print(f"two ranks continued after {time.monotonic() - start:.0f} s", flush=True)
        agents[0].wait(120)
    finally:
        for process in agents:
            if process.poll() is None:
                kill(process)
    if agents[0].returncode != 0:
        raise SystemExit(f"FAILED: the other agent ended with {agents[0].returncode}")
    after = lines(folder, 2)
    begun = min(line["step"] for line in after) - 1
    assert begun % EVERY == 0, begun
    assert begun >= EVERY, begun
    kept = [line for line in lines(folder, 4) if line["step"] <= begun] + after
    for epoch in range(EPOCHS):
        of = [line["ids"] for line in kept if line["epoch"] == epoch]
        counts = Counter(number for ids in of for number in ids)
        assert counts == Counter(range(CUBES)), f"epoch {epoch}: {counts}"
    print(f"continued from step {begun}; each of {EPOCHS} epochs has all {CUBES} samples once")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
