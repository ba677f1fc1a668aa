"""Leaves a strategy's scope for a while, which TensorFlow itself does not offer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tensorflow.python.distribute import distribute_lib
from tensorflow.python.framework import ops


@contextlib.contextmanager
def default_strategy() -> Iterator[None]:
    """Makes TensorFlow's default strategy current, also inside another strategy's scope.

    tensorflow/python/distribute/distribute_lib.py: entering a scope inside a scope is refused,
    and a scope also leaves a creator of distributed variables behind, which is set aside here.
    """
    graph = ops.get_default_graph()
    creators = graph._variable_creator_stack
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    graph._variable_creator_stack = []
    try:
        yield
    finally:
        graph._variable_creator_stack = creators
        distribute_lib._pop_per_thread_mode()
