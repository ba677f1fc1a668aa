"""The seed CNN in PyTorch, DistributedDataParallel, 64 samples a worker; a checkpoint each epoch.

    torchrun … recovery_torch.py EPOCHS

Every worker writes down each step that it has done, as scripts/recovery.py does.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

EPOCHS, SAMPLES, PER_WORKER = int(sys.argv[1]), 6400, 64
dist.init_process_group("gloo")
rank, workers = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 26 * 26, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loss = nn.CrossEntropyLoss()
random = np.random.default_rng(0)
x = torch.from_numpy(random.random((SAMPLES, 1, 28, 28), np.float32))
y = torch.from_numpy(random.integers(0, 10, SAMPLES))

checkpoint = Path(os.environ["BENCH_BACKUP"], "checkpoint.pt")
checkpoint.parent.mkdir(exist_ok=True)
first, step = 0, 0
if checkpoint.exists():
    kept = torch.load(checkpoint)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    first, step = kept["epoch"], kept["step"]

path = Path(os.environ["BENCH_STEPS"], f"steps-{rank}-{os.getpid()}.txt")
file = path.open("w", buffering=1)
for epoch in range(first, EPOCHS):
    order = np.random.default_rng(epoch).permutation(SAMPLES)
    for start in range(0, SAMPLES, PER_WORKER * workers):
        mine = order[start + rank * PER_WORKER :][:PER_WORKER]
        optimizer.zero_grad()
        loss(model(x[mine]), y[mine]).backward()
        optimizer.step()
        step += 1
        file.write(f"{time.time():.4f} {step}\n")
    if rank == 0:
        temporary = checkpoint.with_suffix(".new")
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**kept, "epoch": epoch + 1, "step": step}, temporary)
        temporary.replace(checkpoint)
    dist.barrier()
