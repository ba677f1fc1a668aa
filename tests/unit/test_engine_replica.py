"""What a replica's values weigh among those of all replicas."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from tfrun.engine.replica import ReplicaRun


@pytest.mark.parametrize("samples", [None, 1.0])
def test_the_mean_of_equal_float64_values_is_that_value(samples: float | None) -> None:
    run = ReplicaRun(context=SimpleNamespace(num_replicas_in_sync=3), graph=None)
    if samples is not None:
        run.samples, run.all_samples = tf.constant(samples), tf.constant(3 * samples)
    value = tf.constant(0.1, tf.float64)
    # A third in float32 is 3e-8 too much: moving statistics grew by that in each step.
    assert float(3 * run.weighted(value)) == pytest.approx(0.1, rel=1e-15)
