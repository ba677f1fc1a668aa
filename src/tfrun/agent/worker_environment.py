"""Puts together the environment of a worker process. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tfrun.job.spec import JobSpec
from tfrun.process import allocator


def threads_for(spec: JobSpec, workers_here: int, cores: int) -> int:
    """Returns each worker's threads: as stated, else its share of the cores, at least one."""
    return spec.threads_per_worker or max(1, cores // max(1, workers_here))


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
    threads = str(threads_for(spec, workers_here, cores))
    shared = {
        # TensorFlow's own variables, read when a process's context starts: a script that sets
        # its threads itself still wins.
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        **allocator.environment(outer),
        **{key: value for key, value in outer.items() if key != "TF_CONFIG"},
        "KERAS_BACKEND": "tensorflow",
        "TFRUN_COMMUNICATION": spec.communication,
        "TFRUN_COMPRESS": spec.compress,
        "TFRUN_OVERLAP": spec.overlap,
        # Where nothing is recovered from, nobody would read a snapshot.
        "TFRUN_SNAPSHOT_EVERY": spec.snapshot_every if spec.max_restarts else "0",
        "TFRUN_STEPS_PER_EXECUTION": spec.steps_per_execution,
        "TFRUN_RECOVERS": "1" if spec.max_restarts else "0",
    }
    shared.pop("TFRUN_DETERMINISTIC", None)  # it may say that it is off
    if spec.checkpoint_dir:
        shared["TFRUN_CHECKPOINT_DIR"] = spec.checkpoint_dir
        shared["TFRUN_CHECKPOINT_EVERY"] = spec.checkpoint_every
        shared["TFRUN_KEEP"] = str(spec.keep)
    shared.pop("TFRUN_MAX_STALENESS", None)
    if spec.max_staleness is not None:
        shared["TFRUN_MAX_STALENESS"] = str(spec.max_staleness)
    measured = {
        "TFRUN_PREFERRED": spec.preferred or None,
        "TFRUN_SMALL_BYTES": spec.small_bytes,
        "TFRUN_PACK_BYTES": spec.pack_bytes,
    }
    shared.update({name: str(value) for name, value in measured.items() if value is not None})
    shared.pop("TFRUN_LEDGER", None)
    if spec.ledger:
        shared["TFRUN_LEDGER"] = str(spec.ledger)
    if spec.deterministic:
        shared["TFRUN_DETERMINISTIC"] = "1"
    shared.pop("TFRUN_TENSORBOARD", None)
    if spec.tensorboard:
        shared["TFRUN_TENSORBOARD"] = spec.tensorboard
    if spec.sync_check:
        shared["TFRUN_SYNC_CHECK"] = str(spec.sync_check)
    shared["TFRUN_STATED"] = " ".join(spec.stated)
    return shared
