# after: TensorFlow's guide "Better performance with tf.data": shuffle, batch, repeat, prefetch
# expects: equal
import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(41)

rng = np.random.default_rng(41)
features = rng.normal(size=(128, 7))
labels = features.sum(axis=1, keepdims=True) ** 2
BATCH_SIZE = 32
STEPS_PER_EPOCH = 128 // BATCH_SIZE
AUTOTUNE = tf.data.AUTOTUNE


def make(cache, order):
    ds = tf.data.Dataset.from_tensor_slices((features, labels))
    if cache:
        ds = ds.cache()
    if order == "shuffle, repeat":
        ds = ds.shuffle(200, seed=42).repeat().batch(BATCH_SIZE)
    elif order == "shuffle, batch, repeat":
        ds = ds.shuffle(200, seed=42).batch(BATCH_SIZE).repeat()
    else:
        ds = ds.map(lambda x, y: (x * 2, y), num_parallel_calls=AUTOTUNE)
        ds = ds.repeat().shuffle(50, seed=42).batch(BATCH_SIZE)
    return ds.prefetch(buffer_size=AUTOTUNE)


for cache in (False, True):
    for order in ("shuffle, repeat", "shuffle, batch, repeat", "repeat, shuffle"):
        keras.utils.set_random_seed(41)
        with strategy.scope():
            model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.01), "mse")
        history = model.fit(make(cache, order), epochs=3, steps_per_epoch=STEPS_PER_EPOCH, verbose=0)
        for loss in history.history["loss"]:
            print(f"{order} loss = {loss}")
