"""What calls of Keras have read, after the script has let go of it."""

import gc
import weakref

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)


def data():
    x = np.random.rand(64, 8).astype("float32")
    return x, x.sum(1, keepdims=True)


def gone_after(call):
    """Whether the samples of a call are gone after the next one: what was last is kept."""
    x, y = data()
    samples = weakref.ref(x)
    call(x, y)
    del x, y
    call(*data())
    gc.collect()
    return samples() is None


model = keras.Sequential(
    [keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
)
model.compile("adam", "mse", metrics=["mae"])
options = {"batch_size": 16, "verbose": 0}
calls = {
    "fit": lambda x, y: model.fit(x, y, epochs=2, **options),
    "validation": lambda x, y: model.fit(x, y, validation_data=(x, y), **options),
    "evaluate": lambda x, y: model.evaluate(x, y, **options),
    "predict": lambda x, y: model.predict(x, **options),
    "pipeline": lambda x, y: model.fit(
        tf.data.Dataset.from_tensor_slices((x, y)).batch(16), verbose=0
    ),
}
print("GONE", {name: gone_after(call) for name, call in calls.items()}, flush=True)
