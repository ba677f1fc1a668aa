"""Puts together the environment of a worker process. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tfrun.job.settings import STATE_DIR
from tfrun.job.spec import JobSpec
from tfrun.process import allocator


def worker_environment(
    outer: Mapping[str, str], spec: JobSpec, *, workers_here: int, cores: int
) -> dict[str, str]:
    """Returns what all workers of a machine share; what the user has set himself stays.

    Args:
      outer: the environment that the agent runs in.
      spec: the job.
      workers_here: workers on this machine.
      cores: cores that they share.
    """
    # As stated, else its share of the cores, at least one.
    threads = str(spec.threads_per_worker or max(1, cores // max(1, workers_here)))
    return {
        # TensorFlow's own variables, read when a process's context starts: a script that sets
        # its threads itself still wins.
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        # The order of a set of texts follows from it, and with that the numbers that a script
        # gives its words. In a worker that comes later, it must be that of the job.
        "PYTHONHASHSEED": str(spec.seed),
        **allocator.environment(outer, takes_turns=spec.replicas > spec.workers.low),
        **{key: value for key, value in outer.items() if key not in ("TF_CONFIG", STATE_DIR)},
        "KERAS_BACKEND": "tensorflow",
    }
