"""Of a script's lines, that which a message names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrun.engine.script_lines import line_of


@contextlib.contextmanager
def without_a_script(graph: tf.Graph) -> Iterator[Callable[..., Any]]:
    """Calls functions in a graph, on a thread that no script's code has called anything on."""
    scope = graph.as_default()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(scope.__enter__).result()
        try:
            yield lambda function, *given: thread.submit(function, *given).result()
        finally:
            thread.submit(scope.__exit__, None, None, None).result()


def test_of_what_keras_computes_the_line_is_that_of_what_it_computes_it_from() -> None:
    graph = tf.Graph()
    with graph.as_default():
        computed: Any = tf.constant(2.0) * 3.0  # the line
    with without_a_script(graph) as call:
        for _ in range(3):
            computed = call(tf.negative, computed)
    with graph.as_default():
        path, _, number = line_of(computed).rpartition(":")
    assert Path(path).read_text().splitlines()[int(number) - 1].endswith("# the line")


def test_where_no_line_of_a_script_led_to_it_none_is_named() -> None:
    graph = tf.Graph()
    with without_a_script(graph) as call:
        zeros = call(tf.zeros, (2,))
    with graph.as_default():
        assert line_of(zeros) == "an unknown place"
