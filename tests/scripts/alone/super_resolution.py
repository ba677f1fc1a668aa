# after: Keras's example "Image Super-Resolution using an Efficient Sub-Pixel CNN"
# expects: equal
import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(21)
rng = np.random.default_rng(4)
pictures = rng.random((36, 12, 12, 1)).astype("float32")
pictures = tf.nn.avg_pool2d(pictures, 3, 1, "SAME").numpy()
upscale_factor = 3
all_ds = tf.data.Dataset.from_tensor_slices(pictures).batch(6)


def process_input(image):
    return tf.image.resize(image, [4, 4], method="area")


train_ds = all_ds.take(4).map(lambda x: (process_input(x), x)).prefetch(buffer_size=32)
valid_ds = all_ds.skip(4).map(lambda x: (process_input(x), x)).prefetch(buffer_size=32)
test_img = pictures[:1]


def get_model(upscale_factor=3, channels=1):
    conv_args = {"activation": "relu", "kernel_initializer": "orthogonal", "padding": "same"}
    inputs = keras.Input(shape=(None, None, channels))
    x = layers.Conv2D(8, 5, **conv_args)(inputs)
    x = layers.Conv2D(8, 3, **conv_args)(x)
    x = layers.Conv2D(channels * (upscale_factor**2), 3, **conv_args)(x)
    return keras.Model(inputs, DepthToSpace(upscale_factor)(x))


class DepthToSpace(layers.Layer):
    def __init__(self, block_size):
        super().__init__()
        self.block_size = block_size

    def call(self, input):
        batch, height, width, depth = tf.unstack(tf.shape(input), 4)
        depth = depth // (self.block_size**2)
        x = tf.reshape(input, [batch, height, width, self.block_size, self.block_size, depth])
        x = tf.transpose(x, [0, 1, 3, 2, 4, 5])
        return tf.reshape(x, [batch, height * self.block_size, width * self.block_size, depth])


def upscale_image(model, img):
    return model.predict(process_input(img), verbose=0)[0].clip(0, 1)


class ESPCNCallback(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.test_img = test_img
        self.seen = []

    def on_epoch_begin(self, epoch, logs=None):
        self.psnr = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(float(np.mean(self.psnr)))
        if epoch % 2 == 0:
            prediction = upscale_image(self.model, self.test_img)
            keras.utils.array_to_img(prediction).save(f"epoch-{epoch}.png")

    def on_test_batch_end(self, batch, logs=None):
        self.psnr.append(10 * math.log10(1 / logs["loss"]))


early_stopping_callback = keras.callbacks.EarlyStopping(monitor="loss", patience=10)
model_checkpoint_callback = keras.callbacks.ModelCheckpoint(
    filepath="checkpoint.keras", monitor="loss", mode="min", save_best_only=True)
espcn = ESPCNCallback()
model = get_model(upscale_factor=upscale_factor, channels=1)
model.compile(optimizer=keras.optimizers.Adam(0.003), loss=keras.losses.MeanSquaredError())
model.fit(
    train_ds, epochs=4, validation_data=valid_ds, verbose=2,
    callbacks=[espcn, early_stopping_callback, model_checkpoint_callback])
model.load_weights("checkpoint.keras")
for value in espcn.seen:
    print("psnr =", value)
total_test_psnr = 0.0
for img in pictures[32:36]:
    high = upscale_image(model, img[None])
    total_test_psnr += float(tf.image.psnr(high, img.astype(high.dtype), max_val=1))
print("Avg. PSNR of reconstructions = %.4f" % (total_test_psnr / 4))
