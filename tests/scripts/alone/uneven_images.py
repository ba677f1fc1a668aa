# after: Keras's examples of convolutions, "Conditional GAN", "OCR model for reading Captchas"
# expects: equal to 1e-4: float32, in which TensorFlow computes with oneDNN
# floatx: float32: in float64 TensorFlow does without oneDNN
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(6)
rng = np.random.default_rng(6)
# 33 in batches of 16: of the last one all workers but the first have nothing.
images, labels = rng.random((33, 12, 12, 3)).astype("float32"), np.arange(33) % 3

model = keras.Sequential([
    keras.Input((12, 12, 3)),
    layers.Conv2D(4, 3, padding="same", activation="relu"),
    layers.BatchNormalization(synchronized=True),
    layers.MaxPooling2D(),
    layers.SeparableConv2D(6, 3, padding="same", use_bias=False),
    layers.LayerNormalization(),
    layers.DepthwiseConv2D(3, strides=1, depth_multiplier=2, activation="swish"),
    layers.Conv2DTranspose(4, 3, strides=2, padding="same"),
    layers.AveragePooling2D(2),
    layers.Reshape((4, 16)),
    layers.Conv1D(5, 2, padding="causal", activation="tanh"),
    layers.MaxPooling1D(2),
    layers.Flatten(),
    layers.Dense(3),
])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
history = model.fit(
    images, labels, batch_size=16, epochs=3, shuffle=False, verbose=0,
    validation_data=(images[:17], labels[:17]), validation_batch_size=16)
for name, values in history.history.items():
    print(f"{name} = {values[-1]:.7f}")
print(f"predicted = {model.predict(images, batch_size=16, verbose=0).sum():.6f}")


class Conditional(keras.Model):
    """Its step takes four things, and no (x, y, sample_weight)."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([keras.Input((7,)), layers.Dense(48), layers.Reshape((4, 4, 3)), layers.Conv2DTranspose(3, 3, strides=3, padding="same")])
        self.discriminator = keras.Sequential([keras.Input((12, 12, 6)), layers.Conv2D(4, 3, strides=2), layers.LeakyReLU(), layers.GlobalMaxPooling2D(), layers.Dense(1)])
        self.loss_tracker = keras.metrics.Mean(name="d_loss")

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

    def train_step(self, data):
        real, one_hot, latent, flipped = data
        n = ops.shape(real)[0]
        planes = ops.reshape(ops.repeat(one_hot[:, :, None, None], 144), (-1, 12, 12, 3))
        vectors = ops.concatenate([latent, one_hot], axis=1)
        fake = ops.concatenate([self.generator(vectors), planes], -1)
        combined = ops.concatenate([fake, ops.concatenate([flipped, planes], -1)], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(ops.concatenate([ops.ones((n, 1)), ops.zeros((n, 1))], 0), self.discriminator(combined))
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(grads, self.discriminator.trainable_weights))
        with tf.GradientTape() as tape:
            fake = ops.concatenate([self.generator(vectors), planes], -1)
            g_loss = self.loss_fn(ops.zeros((n, 1)), self.discriminator(fake))
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights))
        self.loss_tracker.update_state(d_loss)
        return {"d_loss": self.loss_tracker.result()}


gan = Conditional()
gan.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(from_logits=True))
given = (images, keras.utils.to_categorical(labels).astype("float32"), rng.normal(size=(33, 4)).astype("float32"), images[:, ::-1])
history = gan.fit(tf.data.Dataset.from_tensor_slices(given).batch(16), epochs=3, verbose=0)
print(f"d_loss = {float(history.history['d_loss'][-1]):.7f}")
print(f"generated = {float(ops.sum(gan.generator(ops.ones((1, 7))))):.6f}")

letters = np.array(["".join(rng.choice(list("abcdef"), 4)) for _ in range(33)])
char_to_num = layers.StringLookup(vocabulary=list("abcdef"), mask_token=None)


def ctc_loss(y_true, y_pred):
    rows = tf.cast(tf.shape(y_true)[0], "int64")
    input_length = tf.cast(tf.shape(y_pred)[1], "int64") * tf.ones((rows,), "int64")
    label_length = tf.cast(tf.shape(y_true)[1], "int64") * tf.ones((rows,), "int64")
    return ops.ctc_loss(y_true, y_pred, label_length, input_length, mask_index=0)


def encode(image, text):
    return image, char_to_num(tf.strings.unicode_split(text, input_encoding="UTF-8"))


train = tf.data.Dataset.from_tensor_slices((images, letters)).map(encode).padded_batch(16)
inputs = keras.Input((12, 12, 3))
x = layers.Conv2D(4, 3, activation="relu", padding="same")(inputs)
x = layers.Reshape((12, 48))(x)
x = layers.Bidirectional(layers.LSTM(5, return_sequences=True))(x)
ocr = keras.Model(inputs, layers.Dense(8)(x))
ocr.compile(keras.optimizers.Adam(0.01), loss=ctc_loss)
history = ocr.fit(train, validation_data=train, epochs=3, verbose=0)
for name, values in history.history.items():
    print(f"ocr {name} = {values[-1]:.6f}")
