"""TensorFlow's tutorial "Parameter server training with ParameterServerStrategy".

    tfrun -n 2 --ps 1 examples/parameter_server_training.py

A script that knows nothing of tfrun: `Model.fit` first, then a loop of its own with a
`ClusterCoordinator`, which hands each step to whichever worker is free.
"""

from __future__ import annotations

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

GLOBAL_BATCH = 64
STEPS_PER_EPOCH = 40

images, labels = load_digits(return_X_y=True)
images, labels = images.astype("float32") / 16.0, labels.astype("int64")

strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.TFConfigClusterResolver(),
    variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(
        min_shard_bytes=256 << 10, max_shards=2
    ),
)


def digits_dataset() -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.shuffle(len(images), seed=1).repeat().batch(GLOBAL_BATCH).prefetch(2)


def build_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


# Training with Model.fit.
with strategy.scope():
    model = build_model()
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(0.1),
        metrics=["accuracy"],
    )
model.fit(digits_dataset(), epochs=5, steps_per_epoch=STEPS_PER_EPOCH, verbose=2)

# Training with a custom loop.
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    model = build_model()
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    accuracy = keras.metrics.SparseCategoricalAccuracy()


@tf.function
def step_fn(iterator):
    def replica_fn(batch_data, batch_labels):
        with tf.GradientTape() as tape:
            predictions = model(batch_data, training=True)
            per_example_loss = keras.losses.sparse_categorical_crossentropy(
                batch_labels, predictions, from_logits=True
            )
            loss = tf.nn.compute_average_loss(per_example_loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(batch_labels, predictions)
        return loss

    losses = strategy.run(replica_fn, args=next(iterator))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(lambda _: digits_dataset())


per_worker_iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
for epoch in range(5):
    accuracy.reset_state()
    for _ in range(STEPS_PER_EPOCH):
        coordinator.schedule(step_fn, args=(per_worker_iterator,))
    coordinator.join()
    print(f"Finished epoch {epoch}, accuracy: {float(accuracy.result()):.4f}")
