"""Classifies images that lie in TFRecord files; it names neither tfrun nor a strategy.

    python examples/image_classification.py
    tfrun -n 2 examples/image_classification.py --epochs 5

Every worker runs the script, and each step's batch is shared out among them. Each also writes the
files here first; in a real project they are there already, and --records names them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

SIDE, CLASSES = 8, 10
FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def write(folder: Path, files: int = 4) -> str:
    """Writes scikit-learn's handwritten digits, as PNG; returns a pattern of the files."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16.0 * 255).astype("uint8")[..., None]
    for number in range(files):
        with tf.io.TFRecordWriter(str(folder / f"digits-{number:02}.tfrecord")) as writer:
            for image, label in zip(
                images[number::files], digits.target[number::files], strict=True
            ):
                png = tf.io.encode_png(image).numpy()
                feature = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[png])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
    return str(folder / "digits-*.tfrecord")


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """An image, float32 of shape [8, 8, 1] from 0 to 1, and its label, int64."""
    found = tf.io.parse_single_example(record, FEATURES)
    image = tf.io.decode_png(found["image"], channels=1)
    return tf.ensure_shape(tf.cast(image, tf.float32) / 255.0, [SIDE, SIDE, 1]), found["label"]


def build_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(CLASSES),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", help="a pattern of TFRecord files instead of those it writes")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()

    keras.utils.set_random_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        pattern = args.records or write(Path(folder))
        records = tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(pattern)))
        samples = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        held_out = samples.take(300).batch(args.batch_size)
        train = samples.skip(300).shuffle(2000, seed=1).batch(args.batch_size)

        model = build_model()
        model.compile(
            keras.optimizers.Adam(3e-3),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        model.fit(
            train.prefetch(tf.data.AUTOTUNE),
            validation_data=held_out,
            epochs=args.epochs,
            verbose=2,
        )
        loss, accuracy = model.evaluate(held_out, verbose=0)
    print(f"validation accuracy {np.round(accuracy, 4)}, loss {loss:.4f}")


if __name__ == "__main__":
    main()
