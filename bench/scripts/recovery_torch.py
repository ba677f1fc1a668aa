"""A model of workloads_torch.py, DistributedDataParallel; a checkpoint every so many steps.

    torchrun … recovery_torch.py cnn|resnet50 EPOCHS EVERY

An epoch has 50 steps, and EVERY is how many steps are between two checkpoints. The seed CNN takes
64 samples a worker; ResNet50 is the one of in_place.py: four pictures a worker, ten classes, Adam.
Every worker writes down each step that it has done, as scripts/recovery.py does.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import workloads
import workloads_torch
from torch import nn

STEPS, CLASSES = 50, 10
SHAPES = {"cnn": (28, 28, 1), "resnet50": (96, 96, 3)}
PER_WORKER = {"cnn": 64, "resnet50": 4}

State = dict[str, Any]


def train(
    name: str, epochs: int, every: int, keep: Callable[[State], None], kept: State | None
) -> None:
    """Trains from the last checkpoint to the end.

    Args:
      name: of the model.
      epochs: in all, of 50 steps each.
      every: steps from one checkpoint to the next.
      keep: writes a checkpoint; all workers call it, with the same state.
      kept: the last checkpoint; None when there is none.
    """
    rank, batch = dist.get_rank(), PER_WORKER[name]
    samples = STEPS * batch * dist.get_world_size()
    torch.manual_seed(7)
    made, loss = workloads_torch.model(name, CLASSES)
    if name == "resnet50":
        optimizer = torch.optim.Adam(made.parameters(), workloads.ADAM_RATE)
    else:
        optimizer = workloads_torch.optimizer(name, made.parameters())
    if kept:
        made.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
    model = nn.parallel.DistributedDataParallel(made)
    random = np.random.default_rng(0)
    inputs = random.random((samples, *SHAPES[name]), np.float32)
    labels = random.integers(0, CLASSES, samples)

    @functools.lru_cache(maxsize=1)
    def order(epoch: int) -> np.ndarray:
        return np.random.default_rng(epoch).permutation(samples).reshape(STEPS, -1, batch)

    path = Path(os.environ["BENCH_STEPS"], f"steps-{rank}-{os.getpid()}.txt")
    file = path.open("w", buffering=1)
    for step in range(kept["step"] if kept else 0, epochs * STEPS):
        epoch, place = divmod(step, STEPS)
        x, y = workloads_torch.batch(name, inputs, labels, order(epoch)[place, rank])
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        file.write(f"{time.time():.4f} {step + 1}\n")
        if (step + 1) % every == 0:
            state = {"model": made.state_dict(), "optimizer": optimizer.state_dict()}
            keep({**state, "step": step + 1})


def main(name: str, epochs: int, every: int) -> None:
    dist.init_process_group("gloo")
    checkpoint = Path(os.environ["BENCH_BACKUP"], "checkpoint.pt")
    checkpoint.parent.mkdir(exist_ok=True)

    def keep(state: State) -> None:
        if dist.get_rank() == 0:
            temporary = checkpoint.with_suffix(".new")
            torch.save(state, temporary)
            temporary.replace(checkpoint)
        dist.barrier()

    kept = torch.load(checkpoint) if checkpoint.exists() else None
    train(name, epochs, every, keep, kept)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
