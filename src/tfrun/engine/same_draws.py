"""Tells of random numbers that all replicas draw alike, each for samples of its own.

What a step draws by a seed that the script states, or by Python's and numpy's global generators in
a function that the step calls, is the same on all replicas: N samples of a batch then get the same
noise. That is right for what is one number for the whole batch, and nothing is said.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.data import global_random
from tfrun.engine import replica, step_graph
from tfrun.engine.loss_reader import Op
from tfrun.engine.losses import Losses
from tfrun.engine.script_lines import line_of

_log = logging.getLogger("tfrun")
_DRAWS = ("StatelessRandom", "StatelessTruncated", "StatelessParameterized", "StatelessMultinomial")
_KEYS = ("GetKeyCounter", "GetAlg")
_warned: set[str] = set()


def tell(losses: Losses, drawn: Any, op: Op) -> None:
    """Says where a tensor of a step has something for each sample, drawn by a stated seed.

    Args:
      losses: of the step.
      drawn: a tensor on the way to what is trained on.
      op: who computed it.
    """
    run = replica.current()
    if run is None or not run.tells or not op.type.startswith(_DRAWS) or op.type.endswith(_KEYS):
        return
    if drawn.shape.rank == 0 or losses.walk.rows_axis(drawn) != 0 or losses.walk.batch == 1:
        return
    own = set(map(id, run.own_seeds))
    if any(id(each) in own for each, _ in step_graph.upstream(losses, op.inputs)):
        return
    _say(
        f" at {line_of(drawn)}",
        "from a seed that the script states, so all workers draw the same ones, each for its own "
        "samples",
    )


def watched(function: Callable[..., Any], where: str) -> Callable[..., Any]:
    """`function`, which a step calls; it is told if it draws more than a single number.

    Args:
      function: of the script's.
      where: its line, in parentheses.
    """
    told = False

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        nonlocal told
        if told:
            return function(*args)
        before = _states()
        result = function(*args)
        is_one = all(np.prod(np.shape(value)) <= 1 for value in tf.nest.flatten(result))
        if not (is_one or global_random.are_equal(_states(), before)):
            told = True
            _say(
                where,
                "by calling Python code that uses `random` or `np.random`, so all workers draw "
                "the same ones, each for its own samples",
            )
        return result

    return call


def _states() -> global_random.State:
    """What changes when one draws of the generators that Python code uses."""
    python, numpy, _, *own = global_random.take()
    return python, numpy, *own


def _say(where: str, how: str) -> None:
    if where + how not in _warned:
        _warned.add(where + how)
        _log.warning(
            "the step draws random numbers%s %s. A single worker would draw other numbers for "
            "these samples. Draw with keras.random and a SeedGenerator (see docs/parity.md).",
            where,
            how,
        )
