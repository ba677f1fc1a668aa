"""`float(optimizer.learning_rate)` and `int(optimizer.iterations)` under a strategy."""

from __future__ import annotations

from tensorflow.python.distribute import values


def let_variables_be_numbers() -> None:
    """Gives distributed variables the conversions that `tf.Variable` has; once.

    Keras's `Variable.__float__` is `float(self.value)`, and TensorFlow's `DistributedVariable`
    has `numpy()` but neither `__int__` nor `__float__`: "TypeError: float() argument must be a
    string or a real number, not 'MirroredVariable'".
    """
    cls = values.DistributedVariable
    for name, convert in (("__int__", int), ("__float__", float)):
        if not hasattr(cls, name):
            setattr(cls, name, lambda self, convert=convert: convert(self.numpy()))
