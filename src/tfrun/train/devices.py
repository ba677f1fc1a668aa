"""Says what a person should know of the GPUs that a worker trains on, or does not."""

from __future__ import annotations

import functools
import os

import tensorflow as tf

from tfrun.job.settings import settings


@functools.cache  # said once
def unseen() -> str:
    """Returns what a person is told where TensorFlow finds none of this worker's GPUs; else ""."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if named.strip() in ("", "-1") or tf.config.list_physical_devices("GPU"):
        return ""
    if tf.test.is_built_with_cuda():
        why = "its log says what is missing: CUDA's libraries (extra gpu), or a newer driver"
    else:
        why = "this TensorFlow is the package without CUDA (the extra gpu brings the other one)"
    return (
        f"trains on the CPU: it was given GPU {named}, but TensorFlow finds none. {why}. "
        "CUDA_VISIBLE_DEVICES=-1 says that no GPU is wanted"
    )


@functools.cache  # said once
def unrepeatable() -> str:
    """Returns what a person is told where `--replicas` cannot give the same bits; else "".

    Also with one worker the kernels of a GPU add up in another order each time.
    """
    own = settings()
    if not own.replicas or own.deterministic or not tf.config.list_physical_devices("GPU"):
        return ""
    return (
        "on GPUs, --replicas gives the same bits on any number of workers only with --deterministic"
    )
