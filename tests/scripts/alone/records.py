# after: TensorFlow's tutorial "TFRecord and tf.train.Example": written, read, trained on
# expects: equal
import os
import tempfile

import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(4)


def _bytes_feature(value):
    if isinstance(value, type(tf.constant(0))):
        value = value.numpy()
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _float_feature(values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def serialize_example(feature0, feature1, feature2):
    feature = {
        "feature0": _float_feature(feature0),
        "feature1": _int64_feature(feature1),
        "feature2": _bytes_feature(tf.io.serialize_tensor(feature2)),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


rng = np.random.RandomState(0)
n_observations = 330
x = rng.normal(size=(n_observations, 5)).astype("float32")
label = rng.randint(0, 3, n_observations)
x[np.arange(n_observations), label] += 1.5
images = rng.randint(0, 255, size=(n_observations, 3, 3)).astype("uint8")

directory = tempfile.mkdtemp()
for part in range(3):
    with tf.io.TFRecordWriter(os.path.join(directory, f"part-{part}.tfrecord")) as writer:
        for i in range(part * 110, (part + 1) * 110):
            writer.write(serialize_example(x[i], int(label[i]), tf.constant(images[i])))

feature_description = {
    "feature0": tf.io.FixedLenFeature([5], tf.float32),
    "feature1": tf.io.FixedLenFeature([], tf.int64),
    "feature2": tf.io.FixedLenFeature([], tf.string),
}


def _parse_function(example_proto):
    parsed = tf.io.parse_single_example(example_proto, feature_description)
    image = tf.ensure_shape(tf.io.parse_tensor(parsed["feature2"], tf.uint8), (3, 3))
    return {"x": tf.cast(parsed["feature0"], "float64"), "image": tf.cast(image, "float64") / 255.0}, parsed["feature1"]


filenames = sorted(tf.io.gfile.glob(os.path.join(directory, "*.tfrecord")))
raw_dataset = tf.data.TFRecordDataset(filenames)
train = raw_dataset.map(_parse_function, num_parallel_calls=tf.data.AUTOTUNE).cache()
train = train.shuffle(400, seed=1).batch(44).prefetch(tf.data.AUTOTUNE)
print("records =", sum(1 for _ in raw_dataset))

a, b = tf.keras.Input((5,), name="x"), tf.keras.Input((3, 3), name="image")
joined = tf.keras.layers.concatenate([a, tf.keras.layers.Flatten()(b)])
model = tf.keras.Model([a, b], tf.keras.layers.Dense(3, activation="softmax")(joined))
model.compile(tf.keras.optimizers.AdamW(0.003, weight_decay=0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(train, epochs=3, verbose=0)
for loss in history.history["loss"]:
    print("loss =", loss)
print("evaluate =", model.evaluate(train, verbose=0)[0])
print("iterations =", int(model.optimizer.iterations))
