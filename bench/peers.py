"""Whole training steps, beside those of others: same model, samples, batch and cores.

    python bench/peers.py [REPEATS [WORKERS [WORKLOAD …]]]

WORKLOAD is one of cnn, transformer, recommender. Each contender lives in an environment of its own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

import harness
from harness import (
    alone,
    by_hand,
    compare_what_runs,
    jax_python,
    legacy_python,
    ray_python,
    record,
    tfrun,
    torch_python,
)

TITLES = {
    "cnn": "seed CNN against its peers",
    "transformer": "transformer against its peers",
    "recommender": "two-tower recommender against its peers",
}
ALONE, TORCH, OURS = "tfrun, one worker alone", "PyTorch, DDP, gloo", "tfrun, fit, Keras 3"
OUR_DATA = "tfrun, fit of a tfrun.Dataset"  # OURS reads by tf.data, as TensorFlow does

Contender = Callable[[], Sequence[float]]


def main(repeats: int = 3, workers: int = 2, names: Sequence[str] = tuple(TITLES)) -> None:
    for name in names:
        results, not_run = compare_what_runs(contenders(name, workers), repeats)
        ratios = {}
        if OURS in results and ALONE in results:
            ratios["scaling_efficiency"] = results[ALONE]["median"] / results[OURS]["median"]
        for other, numbers in results.items():
            if not other.startswith("tfrun"):
                key = f"samples_per_second_over_{other.replace(',', '').replace(' ', '_')}"
                ratios[key] = numbers["median"] / results[OURS]["median"]
        many = f", {workers} workers" if workers != 2 else ""
        record(f"{TITLES[name]}{many}", "ms a step", results, not_run=not_run, **ratios)


def contenders(name: str, workers: int) -> dict[str, Contender]:
    """What trains a workload, by what it is called in the table."""
    return {
        OURS: lambda: tfrun(workers, "peer_fit.py", name, "keras3"),
        OUR_DATA: lambda: tfrun(workers, "peer_fit.py", name, "keras3", "tfrun.Dataset"),
        ALONE: lambda: tfrun(1, "peer_fit.py", name, "keras3"),
        "TensorFlow, MWMS, fit, legacy Keras": lambda: by_hand(
            workers, "peer_fit.py", name, "legacy", python=legacy_python()
        ),
        "TensorFlow, MWMS, a bare loop": lambda: by_hand(
            workers, "peer_loop.py", name, python=legacy_python()
        ),
        TORCH: functools.partial(torchrun, name, workers),
        "JAX, gloo, fit, Keras 3": lambda: by_hand(
            workers, "peer_jax.py", name, python=jax_python()
        ),
        "Ray Train, fit, legacy Keras": lambda: alone(
            str(harness.SCRIPTS / "peer_ray.py"), name, str(workers), python=ray_python()
        ),
    }


def torchrun(name: str, workers: int) -> list[float]:
    """DistributedDataParallel."""
    script = str(harness.SCRIPTS / "peer_torch.py")
    processes = ["--standalone", "--nproc-per-node", str(workers)]
    return alone("torch.distributed.run", *processes, script, name, python=torch_python())


if __name__ == "__main__":
    names = sys.argv[3:]
    main(*map(int, sys.argv[1:3]), **({"names": names} if names else {}))
