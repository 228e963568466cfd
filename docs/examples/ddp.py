"""Trains on two processes: in each epoch, every sample comes once, in one of the processes.

usage: python docs/examples/ddp.py [--work FOLDER] [--epochs 10] [--short]

The scenes are drawn. On GPUs, use "nccl" and one process for each GPU; nothing else changes. With
--short it takes seconds, and fails if the loss does not fall.
"""

import os
import tempfile

import common
import hsipack
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PROCESSES = 2


def train(rank: int, packed: str, meeting: str, epochs: int) -> None:
    """Runs in each process."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=PROCESSES)
    torch.manual_seed(0)
    # The loader takes rank and world size from the process group.
    loader = hsipack.Loader(
        packed,
        4,
        shuffle=True,
        crop=hsipack.RandomCrop(32, per_cube=8),
        normalize="snv",
        dtype=torch.float32,
        device="cpu",
        num_threads=1,
    )
    bands = next(iter(hsipack.open(packed).stacks.values())).shape[2]
    layers = [nn.Conv2d(bands, 32, 1), nn.ReLU(), nn.Conv2d(32, 6, 3, padding=1)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for epoch in range(epochs):
        total = torch.zeros(2)
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["mask"].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        losses.append(float(total[0] / total[1]))
        if rank == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.3f} over {int(total[1])} batches")
    dist.destroy_process_group()
    assert losses[-1] < 0.8 * losses[0], losses


def main() -> None:
    options = common.options(__doc__, epochs=10)
    cubes = common.draw(options.work / "scenes")
    packed = options.work / "scenes.hsipack"
    table, masks = cubes / "table.csv", "{dir}/masks/{stem}.png"
    hsipack.convert(cubes, packed, mask=masks, table=table, exclude=["*/masks/*"], resume=True)
    epochs = 5 if options.short else options.epochs
    with tempfile.TemporaryDirectory() as folder:
        arguments = (str(packed), f"file://{folder}/meeting", epochs)
        torch.multiprocessing.spawn(train, arguments, nprocs=PROCESSES)


if __name__ == "__main__":
    main()
