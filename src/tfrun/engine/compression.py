"""`--compress`: chooses which gradients travel in half the bytes, and names them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfrun.collective.counts import Gradients
from tfrun.engine import host_collective
from tfrun.job.errors import UsageError
from tfrun.job.settings import settings


def wanted() -> str:
    """As what gradients are to travel; "" is as they are."""
    name = settings().compress
    return "" if name == "off" else name


def check_is_host(strategy: Any) -> None:
    """Refuses a strategy whose workers use TensorFlow's collectives, which do not compress.

    Raises:
      UsageError: TFRUN-107.
    """
    way = wanted()
    if not way or strategy.extended._num_workers == 1 or host_collective.calls_of(strategy):
        return
    raise UsageError(
        "TFRUN-107",
        f"--compress {way} is for the host collective, and these workers use TensorFlow's",
        where="--communication, the strategy's CommunicationOptions, or workers of several GPUs",
        fix="Use --communication host, for workers of one device each; or --compress off",
    )


def shown(strategy: Any | None) -> str:
    """What a person is told of how a strategy's gradients travel; "" when it is nothing special."""
    calls = None if strategy is None else host_collective.calls_of(strategy)
    if calls is None or not wanted():
        return ""
    if calls.group.compression:
        return f"gradients travel as {calls.group.compression}"
    return "gradients stay in this machine's memory and are not compressed"


def gradients_of(
    optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]
) -> Gradients | None:
    """Which of an update's gradients may travel compressed; None where none do.

    The number of the update finds what was rounded off before it, also in a new round: as the
    weights, the optimizer's counter comes from the snapshot.

    Args:
      optimizer: a Keras optimizer.
      gradients: what is reduced.
      variables: whose they are.
    """
    if not wanted():
        return None
    chosen = [
        i
        for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True))
        if isinstance(gradient, tf.Tensor)
        and gradient.dtype == tf.float32
        and not getattr(variable, "overwrite_with_gradient", False)
    ]
    if not chosen:
        return None
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    paths = [variables[i].path for i in chosen]
    name = zlib.crc32(";".join([inner.name, *paths]).encode())
    # Not `iterations`, which counts less with gradient accumulation.
    counter = inner._iterations._value
    return Gradients(which=chosen, name=f"{name:08x}", version=counter)
