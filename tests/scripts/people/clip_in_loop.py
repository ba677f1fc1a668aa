# after: a custom loop that clips gradients itself, before apply_gradients: on each replica
# expects: near 0.3: each replica clips the gradient of its part of the batch (docs/parity.md)
# floatx: float32: tf.nn averages in float32
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow import keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(77)
x, y = load_digits(return_X_y=True)
x = (x[:512] / 16).astype("float32")
y = y[:512].astype("int32")
BATCH = 64

with strategy.scope():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(24, "relu"), keras.layers.Dense(10)])
    optimizer = keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.8))
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    train_loss = keras.metrics.Mean()
    train_acc = keras.metrics.SparseCategoricalAccuracy()

ds = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(512, seed=3).batch(BATCH, drop_remainder=True)
dist = strategy.experimental_distribute_dataset(ds)


def step(batch):
    images, labels = batch
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        per_example = loss_fn(labels, logits)
        loss = tf.nn.compute_average_loss(per_example, global_batch_size=BATCH)
    grads = tape.gradient(loss, model.trainable_variables)
    grads, norm = tf.clip_by_global_norm(grads, 0.5)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    train_loss.update_state(per_example)
    train_acc.update_state(labels, logits)


@tf.function
def train_epoch(dataset):
    for batch in dataset:
        strategy.run(step, args=(batch,))


for epoch in range(3):
    train_loss.reset_state()
    train_acc.reset_state()
    train_epoch(dist)
    print(f"Epoch {epoch + 1}: loss = {float(train_loss.result()):.6f}")
print("steps =", int(optimizer.iterations))
