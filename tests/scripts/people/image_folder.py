# after: TensorFlow's tutorial "Image classification": a folder of images, augmentation in the model
# expects: near 0.2: each replica flips and rotates images of its own
# floatx: float32: RandomRotation fails in float64, in Keras itself
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow import keras
from tensorflow.keras import layers
from tensorflow.keras.models import Sequential

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(123)

data_dir = pathlib.Path(tempfile.mkdtemp()) / "flower_photos"
digits = load_digits(n_class=3)
for i, (image, label) in enumerate(zip(digits.images[:180], digits.target)):
    folder = data_dir / ["daisy", "roses", "tulips"][label]
    folder.mkdir(parents=True, exist_ok=True)
    png = tf.io.encode_png(tf.cast(image[..., None] * 15, tf.uint8))
    tf.io.write_file(str(folder / f"{i}.png"), png)
print("images =", len(list(data_dir.glob("*/*.png"))))

batch_size, img_height, img_width = 24, 12, 12
train_ds, val_ds = tf.keras.utils.image_dataset_from_directory(
    data_dir, validation_split=0.2, subset="both", seed=123, color_mode="grayscale",
    image_size=(img_height, img_width), batch_size=batch_size, verbose=False)
class_names = train_ds.class_names
print(class_names)
for image_batch, labels_batch in train_ds.take(1):
    print(image_batch.shape, labels_batch.shape)

options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
AUTOTUNE = tf.data.AUTOTUNE
train_ds = train_ds.cache().shuffle(1000, seed=1).prefetch(buffer_size=AUTOTUNE).with_options(options)
val_ds = val_ds.cache().prefetch(buffer_size=AUTOTUNE).with_options(options)

with strategy.scope():
    data_augmentation = keras.Sequential(
        [
            layers.Input((img_height, img_width, 1)),
            layers.RandomFlip("horizontal"),
            layers.RandomRotation(0.1),
            layers.RandomZoom(0.1),
        ]
    )
    model = Sequential(
        [
            data_augmentation,
            layers.Rescaling(1.0 / 255),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.2),
            layers.Flatten(),
            layers.Dense(16, activation="relu"),
            layers.Dense(len(class_names), name="outputs"),
        ]
    )
    model.compile(optimizer="adam", metrics=["accuracy"],
                  loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(train_ds, validation_data=val_ds, epochs=3, verbose=0)
print("loss =", history.history["loss"][-1])
print("val_loss =", history.history["val_loss"][-1])
img_array = tf.expand_dims(digits.images[0][:, :, None] * 15, 0)
predictions = model.predict(tf.image.resize(img_array, (img_height, img_width)), verbose=0)
print("scores =", len(tf.nn.softmax(predictions[0])))
