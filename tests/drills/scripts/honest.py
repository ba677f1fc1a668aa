"""Two `fit` calls, some seconds long, that compute the same each time."""

import sys

import keras
import numpy as np

import tfrun

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 12
rng = np.random.RandomState(0)
x, y = rng.rand(400, 8, 8, 1).astype("float32"), rng.randint(0, 10, 400)
with tfrun.strategy().scope():
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
model.fit(x, y, batch_size=20, epochs=EPOCHS, verbose=2)
model.fit(x, y, batch_size=20, epochs=EPOCHS, verbose=2)
