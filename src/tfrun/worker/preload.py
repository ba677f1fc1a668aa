"""What every worker process does before its script: import TensorFlow, repair, seed.

`preload` runs in the zygote and must execute no op: one `tf.constant` there would make every
fork fail with "Collective ops must be configured at program startup".
"""

from __future__ import annotations

import os


def preload() -> None:
    """Imports TensorFlow and Keras and installs the repairs."""
    # The zygote's own environment must not make TensorFlow form a cluster.
    os.environ.pop("TF_CONFIG", None)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import tfrun.engine.install
    import tfrun.train.install

    tfrun.engine.install.install()
    tfrun.train.install.install()


def set_global_seed(seed: int) -> None:
    """Seeds Python, numpy and TensorFlow without executing an op."""
    import keras

    keras.utils.set_random_seed(seed)
