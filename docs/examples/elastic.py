"""Trains on several machines. If one of them is lost, training continues on the others.

usage: torchrun --nnodes 1:2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \\
           docs/examples/elastic.py DATASET CHECKPOINT [--epochs 4] [--every 5] [--step 0.05]

Run it on two machines that can both read the two paths. If one agent of torchrun is lost, the other
restarts its processes as a world of two ranks instead of four. They continue from the checkpoint:
the rest of the epoch is divided anew, no sample comes twice and none is missing. With --record
FOLDER, each process records the samples of its steps.
"""

import argparse
import json
import os
import time
from pathlib import Path

import hsipack
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("dataset")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints [5]")
    parser.add_argument("--step", type=float, default=0.05, help="seconds a step takes [0.05]")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    # Rank and world size come from the process group; they may differ from the last checkpoint's.
    loader = hsipack.Loader(options.dataset, 3, shuffle=True, dtype=torch.float32, device="cpu")
    bands = next(iter(hsipack.open(options.dataset).stacks.values())).shape[2]
    model = DistributedDataParallel(nn.Conv2d(bands, 4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    step = 0
    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]
    print(f"rank {rank} of {world} begins at step {step}", flush=True)
    log = None
    if options.record is not None:
        restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
        log = (options.record / f"{world}-{rank}-{restarts}-{os.getpid()}.jsonl").open("w")
    while loader.epoch < options.epochs:
        for batch in loader:
            loss = model(batch["image"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(options.step)
            step += 1
            if log is not None:
                # Without padding, which a rank gets when it has no sample left.
                ids = batch["id"][~batch["padding"]].tolist()
                log.write(json.dumps({"step": step, "epoch": batch["epoch"], "ids": ids}) + "\n")
                log.flush()
            if step % options.every == 0 and rank == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                state |= {"loader": loader.state_dict(), "step": step}
                # The file is either complete or missing, even after a power failure.
                torch.save(state, options.checkpoint.with_suffix(".tmp"))
                options.checkpoint.with_suffix(".tmp").rename(options.checkpoint)
    if rank == 0:
        print(f"loss {loss.item():.4f} after {step} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
