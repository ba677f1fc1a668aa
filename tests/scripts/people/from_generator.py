# after: TensorFlow's guide "tf.data": from_generator, interleave, window, cache, prefetch, zip
# expects: equal
import numpy as np
import tensorflow as tf
from tensorflow import keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(90)


def gen_series():
    i = 0
    rng = np.random.RandomState(7)
    while i < 230:
        size = rng.randint(1, 6)
        yield i, rng.normal(size=(size,))
        i += 1


ds_series = tf.data.Dataset.from_generator(
    gen_series,
    output_signature=(
        tf.TensorSpec(shape=(), dtype=tf.int64),
        tf.TensorSpec(shape=(None,), dtype=tf.float64),
    ),
)


def to_example(i, values):
    return values, tf.reduce_sum(values) + tf.cast(i % 3, tf.float64)


train = ds_series.map(to_example).padded_batch(23, padded_shapes=([6], []))
with strategy.scope():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
history = model.fit(train, epochs=3, verbose=0)
print("from_generator loss =", history.history["loss"][-1])
print("steps =", int(model.optimizer.iterations))

# Windows over a series, several files of it interleaved.
range_ds = tf.data.Dataset.range(3).interleave(
    lambda part: tf.data.Dataset.range(part * 100, part * 100 + 60), cycle_length=3, block_length=20)
features = range_ds.map(lambda i: tf.sin(tf.cast(i, tf.float64) / 9))
windows = features.window(6, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(6))
pairs = windows.map(lambda w: (w[:-1], w[-1:])).cache().shuffle(200, seed=1)
pairs = pairs.batch(25).prefetch(tf.data.AUTOTUNE)
print("windows =", sum(int(tf.shape(x)[0]) for x, _ in pairs))
with strategy.scope():
    forecaster = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    forecaster.compile(keras.optimizers.SGD(0.05), "mae")
history = forecaster.fit(pairs, epochs=2, verbose=0)
print("window loss =", history.history["loss"][-1])

images = tf.data.Dataset.from_tensor_slices(np.random.RandomState(1).uniform(size=(120, 5)))
labels = tf.data.Dataset.from_tensor_slices(np.arange(120) % 2)
zipped = tf.data.Dataset.zip((images, labels)).filter(lambda x, y: x[0] > 0.2)
counted = zipped.enumerate().map(lambda i, xy: (xy[0] + 0.001 * tf.cast(i, tf.float64), xy[1]))
with strategy.scope():
    classifier = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, activation="sigmoid")])
    classifier.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
history = classifier.fit(counted.batch(16), epochs=2, verbose=0, validation_data=zipped.take(30).batch(7))
print("zip loss =", history.history["loss"][-1], "val_loss =", history.history["val_loss"][-1])
