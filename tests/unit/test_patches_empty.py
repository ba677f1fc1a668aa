"""What TensorFlow does without a sample; tests/scripts/alone/uneven_images.py trains with it."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import tensorflow as tf
from keras.src.backend.tensorflow import nn

ONEDNN = """
import keras, tensorflow as tf
layer = keras.layers.Conv2D(4, 3)
layer.build((None, 8, 8, 3))
convolve = tf.function(layer, input_signature=[tf.TensorSpec([None, 8, 8, 3])])
print(tuple(convolve(tf.zeros([0, 8, 8, 3])).shape))
"""


def test_onednn_still_gives_none_the_wrong_shape() -> None:
    """When this fails, it does not: most of patches/empty_batches.py can go."""
    done = subprocess.run(
        [sys.executable, "-c", ONEDNN], capture_output=True, text=True, check=False, timeout=200
    )
    if "oneDNN custom operations are on" not in done.stderr:
        pytest.skip("this machine's TensorFlow computes without oneDNN")
    assert done.stdout.strip() == "(0, 8, 8, 3)", done.stdout + done.stderr


def test_ctc_still_fails_without_a_sample() -> None:
    """When this fails, it does not: its row in the table can go."""
    none = tf.zeros([0], tf.int32)
    loss = inspect.unwrap(nn.ctc_loss)
    with pytest.raises(tf.errors.InvalidArgumentError):
        loss(tf.zeros([0, 4], tf.int32), tf.zeros([0, 8, 5]), none, none)
