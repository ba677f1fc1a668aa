"""The table of all patches, in the order in which they are put in place.

What a class inherits comes before what replaces it in the class, so that the one stands around the
other: Keras's trainer before its `Model`. Apart from that the order is that of reading.
"""

from __future__ import annotations

from tfrun.patches import rows_keras, rows_tensorflow
from tfrun.patches.patch import Patch

SECTIONS: dict[str, tuple[Patch, ...]] = {
    "TensorFlow: strategies and their variables": rows_tensorflow.STRATEGIES,
    "TensorFlow: datasets and iterators": rows_tensorflow.DATA,
    "Keras: random numbers": rows_keras.RANDOM,
    "Keras: variables and layers": rows_keras.VARIABLES,
    "Keras: losses and gradients": rows_keras.LOSSES,
    "Keras: optimizers": rows_keras.OPTIMIZERS,
    "Keras: the trainer": rows_keras.TRAINER,
    "Keras: models": rows_keras.MODELS,
    "Saving and loading": (*rows_keras.SAVING, *rows_tensorflow.SAVING),
    "Files that a script writes": rows_tensorflow.FILES,
}
TABLE = tuple(patch for patches in SECTIONS.values() for patch in patches)
