"""What a step computes comes after the clock that says when it began."""

from __future__ import annotations

import tensorflow as tf

from tfrun.engine.step_clock import _after


def test_arguments_of_every_kind_come_after_the_clock():
    ragged = tf.RaggedTensor.from_row_lengths([1, 2, 3], [1, 2])
    sparse = tf.sparse.from_dense([[0, 1]])
    given = {"x": tf.constant([1.0]), "ragged": ragged, "sparse": sparse, "number": 3, "no": None}

    @tf.function
    def step(args: dict) -> tf.Tensor:
        began = tf.timestamp()
        later = _after(began, args)
        assert (later["number"], later["no"]) == (3, None)
        parts = tf.nest.flatten([later[name] for name in ("x", "ragged", "sparse")], True)
        assert len(parts) == 6
        assert all(part.op.control_inputs == [began.op] for part in parts)
        return later["ragged"].to_tensor()

    assert step(given).numpy().tolist() == [[1, 0], [2, 3]]


def test_nothing_is_copied_where_tensorflow_executes_eagerly():
    given = [tf.constant(1)]
    assert _after(tf.timestamp(), given) is given
