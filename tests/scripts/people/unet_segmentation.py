# after: TensorFlow's tutorial "Image segmentation": a U-Net, a weight for each pixel, MeanIoU
# expects: equal
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.keras.utils.set_random_seed(3)
images = load_digits().images[:176, ..., None] / 16.0
masks = (images[..., 0] > 0.2).astype("int32") + (images[..., 0] > 0.7)

BATCH_SIZE, BUFFER_SIZE, OUTPUT_CLASSES = 32, 200, 3
train_images = tf.data.Dataset.from_tensor_slices((images[:128], masks[:128]))
test_images = tf.data.Dataset.from_tensor_slices((images[128:], masks[128:]))
train_batches = train_images.cache().shuffle(BUFFER_SIZE, seed=42).batch(BATCH_SIZE).repeat()
train_batches = train_batches.prefetch(buffer_size=tf.data.AUTOTUNE)
test_batches = test_images.batch(BATCH_SIZE)


def upsample(filters, size):
    return tf.keras.Sequential([
        tf.keras.layers.Conv2DTranspose(filters, size, strides=2, padding="same", use_bias=False),
        tf.keras.layers.GroupNormalization(4),
        tf.keras.layers.ReLU(),
    ])


def unet_model(output_channels):
    inputs = tf.keras.layers.Input(shape=[8, 8, 1])
    a = tf.keras.layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    b = tf.keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(a)
    c = tf.keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(b)
    x = tf.keras.layers.Concatenate()([upsample(8, 3)(c), b])
    x = tf.keras.layers.Concatenate()([upsample(8, 3)(x), a])
    return tf.keras.Model(inputs=inputs, outputs=tf.keras.layers.Conv2D(output_channels, 1)(x))


def add_sample_weights(image, label):
    # The weights for each class, with the constraint that: sum(class_weights) == 1.0
    class_weights = tf.constant([2.0, 2.0, 1.0])
    class_weights = class_weights / tf.reduce_sum(class_weights)
    sample_weights = tf.gather(class_weights, indices=tf.cast(label, tf.int32))
    return image, label, sample_weights


with strategy.scope():
    model = unet_model(output_channels=OUTPUT_CLASSES)
    model.compile(optimizer="adam", metrics=["accuracy"],
                  loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def create_mask(pred_mask):
    return tf.math.argmax(pred_mask, axis=-1)[..., tf.newaxis][0]


class DisplayCallback(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        mask = create_mask(self.model.predict(images[:1], verbose=0))
        print("Sample prediction after epoch {}: pixels = {}".format(epoch + 1, int(tf.reduce_sum(mask))))


history = model.fit(train_batches, epochs=2, steps_per_epoch=4, validation_steps=1,
                    validation_data=test_batches, callbacks=[DisplayCallback()], verbose=0)
print("loss =", history.history["loss"][-1], "val_loss =", history.history["val_loss"][-1])
history = model.fit(train_batches.map(add_sample_weights), epochs=2, steps_per_epoch=4, verbose=0)
print("weighted loss =", history.history["loss"][-1])
iou = tf.keras.metrics.MeanIoU(num_classes=3)
iou.update_state(masks[128:], np.argmax(model.predict(test_batches, verbose=0), axis=-1))
print("mean IoU =", float(iou.result()))
