"""A small training for test_parity.py: honest, or wrong in the way that is asked for."""

import sys

import keras
import numpy as np
import tensorflow as tf

import tfrun

cross_entropy = keras.losses.sparse_categorical_crossentropy
how = sys.argv[1] if len(sys.argv) > 1 else "honest"
rng = np.random.RandomState(0)
x, y = rng.rand(100, 4).astype("float32"), rng.randint(0, 3, 100)
world = tfrun.world()
strategy = tfrun.strategy()
if how == "nothing":
    raise SystemExit(0)
with strategy.scope():
    noisy = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)] * (how == "noisy")
    model = keras.Sequential([keras.Input((4,)), *noisy, keras.layers.Dense(3)])
    optimizer = keras.optimizers.Adam(0.01)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])

if how in ("honest", "noisy"):
    history = model.fit(x, y, batch_size=24, epochs=3, verbose=2, validation_split=0.1)
    again = model.fit(x, y, batch_size=24, epochs=2, verbose=2)
    if world.is_chief:
        print("after", len(history.history["val_loss"]), len(again.history["loss"]))
elif how == "sum":
    # The classic: each worker's mean over its own part, added up instead of averaged.
    data = tfrun.Dataset.from_arrays((x, y), batch_size=24, shuffle=True)

    @tf.function
    def train_step(batch):
        def on_replica(inputs, labels):
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(cross_entropy(labels, model(inputs), from_logits=True))
            optimizer.apply_gradients(
                zip(
                    tape.gradient(value, model.trainable_variables),
                    model.trainable_variables,
                    strict=True,
                )
            )

        strategy.run(on_replica, args=batch)

    state = tfrun.TrainState(model=model, optimizer=optimizer)
    for batch in state.steps(data, epochs=3):
        train_step(batch)
