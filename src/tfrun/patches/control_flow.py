"""Collectives inside `tf.cond`: what `steps_per_execution` > 1 needs."""

from __future__ import annotations

import functools

from tensorflow.python.framework.func_graph import FuncGraph


def capture_outside_conditions() -> None:
    """Captures call-time values in the function around a condition; once.

    A collective takes its instance key when the function runs (`capture_call_time_value`).
    Conditions do not support that, so TensorFlow's CollectiveReplicaLauncher climbs out of them,
    but a `tf.function` that is *called* in a condition hands its own captures to the condition
    all the same, and the step ends with "You must feed a value for placeholder tensor". Keras
    builds exactly that for `steps_per_execution` > 1.
    """
    original = FuncGraph.capture_call_time_value
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def capture_call_time_value(self, *args, **kwargs):
        graph = self
        while getattr(graph, "is_control_flow_graph", False):
            graph = graph.outer_graph
        with graph.as_default():
            return original(graph, *args, **kwargs)

    FuncGraph.capture_call_time_value = capture_call_time_value
