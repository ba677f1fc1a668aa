"""Milliseconds a step of DistributedDataParallel with gloo, by epoch.

    torchrun … peer_torch.py WORKLOAD

WORKLOAD may be "all-reduce": 100 MB in 160 parameters whose gradients cost next to nothing.
"""

import os
import sys
import time

import numpy as np
import pinned
import quantities
import torch
import torch.distributed as dist
import workloads
from torch import nn
from workloads import EPOCHS, PER_WORKER, STEPS

torch.set_num_threads(int(os.environ.get("BENCH_THREADS", "1")))
dist.init_process_group("gloo")
rank, workers = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)


def all_reduce() -> list[float]:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = np.random.default_rng(0).dirichlet(np.ones(160)) * (100 << 20) / 4
            self.all = nn.ParameterList([torch.ones(max(1, int(size))) for size in sizes])

        def forward(self) -> torch.Tensor:
            return sum((one * 1.5).sum() for one in self.all)

    model = nn.parallel.DistributedDataParallel(Sums())
    return [_timed(lambda: model().backward()) for _ in range(12)][3:]


def train(name: str) -> list[float]:
    import workloads_torch

    made, loss = workloads_torch.model(name)
    model = nn.parallel.DistributedDataParallel(made) if workers > 1 else made
    optimizer = workloads_torch.optimizer(name, model.parameters())
    inputs, labels = workloads.samples(name)
    order, batch = np.random.default_rng(1), PER_WORKER[name]

    def step() -> None:
        rows = order.integers(0, len(labels), batch * workers)[rank * batch :][:batch]
        x, y = workloads_torch.batch(name, inputs, labels, rows)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return quantities.epochs(step, STEPS[name], EPOCHS)[1:]


def _timed(work) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


pinned.write(all_reduce() if sys.argv[1] == "all-reduce" else train(sys.argv[1]))
dist.barrier()
dist.destroy_process_group()
