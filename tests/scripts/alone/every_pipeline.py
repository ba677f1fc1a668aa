# after: pipelines that pad, bucket, interleave, mix, draw, window, resample, save and read again
# expects: equal
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(8)
x = rng.normal(size=(60, 4))
y = (x.sum(1) > 0).astype("int64")
plain = tf.data.Dataset.from_tensor_slices((x, y))
folder = pathlib.Path(tempfile.mkdtemp())
np.savetxt(folder / "rows.csv", np.c_[x, y], delimiter=",", header="a,b,c,d,y", comments="")


def drawn(x, y):
    return x + 0.1 * tf.random.uniform(tf.shape(x), dtype=tf.float64), y


def windows():
    series = tf.data.Dataset.from_tensor_slices(x[:, 0]).window(5, shift=1, drop_remainder=True)
    rows = series.flat_map(lambda row: row.batch(5))
    return rows.map(lambda row: (row[:4], tf.cast(row[4] > 0, tf.int64)))


def of_lengths():
    def rows():
        for i in range(48):
            yield x[i, : 1 + i % 4], y[i]

    spec = tf.TensorSpec([None], tf.float64), tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(rows, output_signature=spec)


def wide(x, y):
    x = tf.pad(x, [[0, 0], [0, 4 - tf.shape(x)[1]]])
    return tf.ensure_shape(x, [None, 4]), y


def saved():
    plain.map(lambda x, y: (2 * x, y)).save(str(folder / "saved"))
    return tf.data.Dataset.load(str(folder / "saved"))


def of_csv():
    read = tf.data.experimental.make_csv_dataset(
        str(folder / "rows.csv"), 8, label_name="y", shuffle=False, num_epochs=1
    )
    return read.map(lambda given, y: (tf.stack([given[c] for c in "abcd"], 1), tf.cast(y, tf.int64)))


def counted(state, row):
    return state + 1, (row[0] + 0.01 * tf.cast(state, tf.float64), row[1])


PIPELINES = {
    "padded_batch": lambda: of_lengths().padded_batch(8).map(wide),
    "bucket_by_sequence_length": lambda: of_lengths()
    .bucket_by_sequence_length(lambda x, y: tf.shape(x)[0], [2, 4], [8, 8, 8])
    .map(wide),
    "ragged_batch": lambda: of_lengths().ragged_batch(8).map(lambda x, y: wide(x.to_tensor(), y)),
    "window": lambda: windows().batch(8),
    "interleave": lambda: tf.data.Dataset.range(3)
    .interleave(lambda i: plain.shard(3, i), cycle_length=2)
    .batch(8),
    "parallel interleave": lambda: tf.data.Dataset.range(3)
    .interleave(lambda i: plain.shard(3, i), num_parallel_calls=2, deterministic=True)
    .batch(8),
    "sample_from_datasets": lambda: tf.data.Dataset.sample_from_datasets(
        [plain.take(30), plain.skip(30)], [0.3, 0.7], seed=4
    ).batch(8),
    "sample without a seed": lambda: tf.data.Dataset.sample_from_datasets(
        [plain.take(30), plain.skip(30)]
    ).batch(8),
    "choose_from_datasets": lambda: tf.data.Dataset.choose_from_datasets(
        [plain.take(20), plain.skip(20)], tf.data.Dataset.range(2).repeat(20)
    ).batch(8),
    "rejection_resample": lambda: plain.rejection_resample(
        lambda x, y: tf.cast(y, tf.int32), [0.5, 0.5], seed=4
    )
    .map(lambda label, row: row)
    .batch(8),
    "drawn": lambda: plain.map(drawn).batch(8),
    "drawn in parallel": lambda: plain.map(drawn, num_parallel_calls=1).batch(8).prefetch(2),
    "random": lambda: tf.data.Dataset.zip(tf.data.Dataset.random(seed=3), plain)
    .map(lambda number, row: (row[0] * tf.cast(number % 3, tf.float64), row[1]))
    .batch(8),
    "shuffle without a seed": lambda: plain.shuffle(60).batch(8),
    "scan": lambda: plain.scan(tf.constant(0, tf.int64), counted).batch(8),
    "group_by_window": lambda: plain.group_by_window(
        lambda x, y: y, lambda key, rows: rows.batch(8), window_size=8
    ),
    "unbatch": lambda: plain.batch(7).shuffle(9, seed=1).unbatch().batch(8),
    "rebatch": lambda: plain.batch(5).rebatch(8),
    "zip and concatenate": lambda: tf.data.Dataset.zip(
        plain.map(lambda x, y: x), plain.map(lambda x, y: y)
    )
    .concatenate(plain.take(7))
    .batch(8),
    "take_while": lambda: plain.take_while(lambda x, y: tf.reduce_sum(x) < 6).batch(8),
    "filter and enumerate": lambda: plain.enumerate()
    .filter(lambda i, row: i % 3 > 0)
    .map(lambda i, row: row)
    .batch(8),
    "cache in a file": lambda: plain.cache(str(folder / "cache")).shuffle(60, seed=2).batch(8),
    "saved": lambda: saved().batch(8),
    "csv": of_csv,
    "ignore_errors": lambda: plain.map(
        lambda x, y: (tf.debugging.check_numerics(1 / (x * tf.cast(y, tf.float64)), "") * x * x, y)
    )
    .ignore_errors()
    .batch(8),
    "unique": lambda: tf.data.Dataset.from_tensor_slices(np.arange(60) % 48)
    .unique()
    .map(lambda i: (tf.gather(x, i), tf.gather(y, i)))
    .batch(8),
    "from tensors": lambda: tf.data.Dataset.from_tensors((x[:8], y[:8])).repeat(5),
    "a range": lambda: tf.data.Dataset.range(5).map(
        lambda i: (tf.constant(x[:8]) * tf.cast(i, tf.float64), tf.constant(y[:8]))
    ),
    "drop_remainder": lambda: plain.batch(8, drop_remainder=True),
    "options": lambda: plain.batch(8).with_options(options()),
}


def options():
    made = tf.data.Options()
    made.deterministic = True
    made.threading.private_threadpool_size = 1
    return made


for name, make in PIPELINES.items():
    keras.utils.set_random_seed(8)
    layers = [keras.layers.Dense(6, "relu"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])
    found = model.fit(make(), epochs=2, verbose=0)
    for key, values in found.history.items():
        print(f"{name} {key} = {sum(values):.9g}")
    for i, values in enumerate(model.get_weights()):
        print(f"{name} weights {i} = {np.abs(values).sum():.9g}")
