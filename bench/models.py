"""Models that people train, on workers of one machine: time, memory, bytes, beside others.

    python bench/models.py [--models resnet50 encoder …] [--contenders "tfrun, fit" DDP …]

For each model: ms a step, start to first step, memory of a worker, and what a worker sends over TCP
in a step (through shared memory: next to nothing). Those that are "alone" are one worker on one
core; the efficiency of several is against them.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
from collections.abc import Callable, Mapping, Sequence

import peers
from harness import by_hand, numbers, record, tfrun
from measured import Contender, Measured, chosen, in_turn
from peers import ALONE, OUR_DATA, OURS, TORCH

TITLES = {
    "resnet50": "ResNet50, 96x96",
    "resnet50-224": "ResNet50, 224x224",
    "encoder": "encoder of 109 million weights",
    "decoder": "decoder of 34 million weights",
    "cnn": "small CNN",
    "transformer": "transformer of 3 million weights",
    "recommender": "two-tower recommender",
}
PER_WORKER = {"resnet50": 8, "resnet50-224": 4, "encoder": 2, "decoder": 2}  # as in workloads.py
PER_WORKER |= {"cnn": 64, "transformer": 8, "recommender": 512}
MODELS = ("resnet50", "encoder", "decoder")
LOOP, LOOP_ALONE = "TensorFlow, MWMS, a bare loop", "TensorFlow, a bare loop, one worker alone"
TORCH_ALONE, PLAIN = "PyTorch, one worker alone", "Keras 3 without tfrun, one process"
OVER_TCP = "tfrun, fit, Keras 3, over TCP"
DEFAULT = (OURS, ALONE, PLAIN, LOOP, TORCH, TORCH_ALONE)
# With whom the efficiency of each compares it.
SINGLE = {OURS: ALONE, OVER_TCP: ALONE, OUR_DATA: ALONE, LOOP: LOOP_ALONE, TORCH: TORCH_ALONE}


def main(
    models: Sequence[str] = MODELS,
    wanted: Sequence[str] = DEFAULT,
    workers: int = 2,
    repeats: int = 1,
) -> None:
    for name in models:
        found, not_run = in_turn(chosen(contenders(name, workers), wanted), repeats)
        tell(name, workers, found, not_run)


def contenders(name: str, workers: int) -> dict[str, Contender]:
    """Those of peers.py, and what each has to be compared with."""
    tcp = {"TFRUN_SHARED_MEMORY": "0"}
    return {
        **peers.contenders(name, workers),
        OVER_TCP: lambda: tfrun(workers, "peer_fit.py", name, "keras3", **tcp),
        PLAIN: lambda: by_hand(1, "peer_fit.py", name, "plain"),
        LOOP_ALONE: lambda: by_hand(1, "peer_loop.py", name, python=peers.legacy_python()),
        TORCH_ALONE: functools.partial(peers.torchrun, name, 1),
    }


def tell(
    name: str, workers: int, found: Mapping[str, list[Measured]], not_run: Mapping[str, str]
) -> None:
    """Records a model's tables."""
    title = TITLES[name] + (f", {workers} workers" if workers != 2 else "")

    def table(what: str, unit: str, values: Callable[[Measured], Sequence[float]], **ratios: float):
        rows = {who: numbers([v for run in all for v in values(run)]) for who, all in found.items()}
        record(title + what, unit, rows, not_run=not_run, **ratios)

    steps = {w: statistics.median(v for run in all for v in run.steps) for w, all in found.items()}
    ratios = {}
    for who, milliseconds in steps.items():
        many = workers if who not in (PLAIN, *SINGLE.values()) else 1
        ratios[f"samples a second: {who}"] = 1000 * many * PER_WORKER[name] / milliseconds
    for who, single in SINGLE.items():
        if who in steps and single in steps:
            ratios[f"efficiency: {who}"] = steps[single] / steps[who]
    for who in (LOOP, TORCH):
        if who in steps and OURS in steps:
            ratios[f"tfrun's samples a second over {who}"] = steps[who] / steps[OURS]
    table("", "ms a step", lambda run: run.steps, **ratios)
    first = {w: statistics.median(run.first_step for run in all) for w, all in found.items()}
    ratios = {}
    if PLAIN in first:
        ratios = {
            f"{w}, over {PLAIN}": first[w] / first[PLAIN] for w in (OURS, ALONE) if w in first
        }
    table(", start to first step", "s", lambda run: [run.first_step], **ratios)
    table(", most memory of a worker", "MB", lambda run: [run.memory / 1e6])
    table(", sent over TCP by a worker", "MB a step", lambda run: [b / 1e6 for b in run.sent])


def arguments(parser: argparse.ArgumentParser, names: Sequence[str]) -> argparse.Namespace:
    """Those that this and networks.py have in common; epochs and steps go on to the scripts."""
    parser.add_argument("--models", nargs="+", choices=tuple(TITLES), default=names)
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help="or a part of a name")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each, by turns")
    parser.add_argument("--epochs", type=int, help="measured of each run (3)")
    parser.add_argument("--steps", type=int, help="of an epoch (ResNet50 and encoder 3, decoder 5)")
    given = parser.parse_args()
    if given.epochs:
        os.environ["BENCH_EPOCHS"] = str(given.epochs + 1)
    if given.steps:
        os.environ["BENCH_EPOCH_STEPS"] = str(given.steps)
    return given


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    given = arguments(parser, MODELS)
    main(given.models, given.contenders or DEFAULT, given.workers, given.repeats)
