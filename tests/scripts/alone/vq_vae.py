# after: Keras's example "Vector-Quantized Variational Autoencoders", then its PixelCNN
# expects: equal to 1e-5: the codes' losses are float32 sums
import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(2)
rng = np.random.default_rng(2)
x_train = rng.random((64, 8, 8, 1)) - 0.5
data_variance = np.var(x_train + 0.5)


class VectorQuantizer(layers.Layer):
    def __init__(self, num_embeddings, embedding_dim, beta=0.25, **kwargs):
        super().__init__(**kwargs)
        self.embedding_dim, self.num_embeddings, self.beta = embedding_dim, num_embeddings, beta
        self.embeddings = self.add_weight(
            shape=(embedding_dim, num_embeddings), initializer="random_uniform", trainable=True,
            name="embeddings_vqvae")

    def call(self, x):
        input_shape = tf.shape(x)
        flattened = tf.reshape(x, [-1, self.embedding_dim])
        encoding_indices = self.get_code_indices(flattened)
        encodings = tf.one_hot(encoding_indices, self.num_embeddings, dtype=x.dtype)
        quantized = tf.matmul(encodings, self.embeddings, transpose_b=True)
        quantized = tf.reshape(quantized, input_shape)
        commitment_loss = tf.reduce_mean((tf.stop_gradient(quantized) - x) ** 2)
        codebook_loss = tf.reduce_mean((quantized - tf.stop_gradient(x)) ** 2)
        self.add_loss(self.beta * commitment_loss + codebook_loss)
        return x + tf.stop_gradient(quantized - x)

    def get_code_indices(self, flattened_inputs):
        similarity = tf.matmul(flattened_inputs, self.embeddings)
        distances = (
            tf.reduce_sum(flattened_inputs**2, axis=1, keepdims=True)
            + tf.reduce_sum(self.embeddings**2, axis=0) - 2 * similarity)
        return tf.argmin(distances, axis=1)


encoder_inputs = keras.Input(shape=(8, 8, 1))
h = layers.Conv2D(8, 3, activation="relu", strides=2, padding="same")(encoder_inputs)
encoder = keras.Model(encoder_inputs, layers.Conv2D(4, 1, padding="same")(h), name="encoder")
latent_inputs = keras.Input(shape=(4, 4, 4))
h = layers.Conv2DTranspose(8, 3, activation="relu", strides=2, padding="same")(latent_inputs)
decoder = keras.Model(latent_inputs, layers.Conv2DTranspose(1, 3, padding="same")(h), name="decoder")
vq_layer = VectorQuantizer(16, 4, name="vector_quantizer")
inputs = keras.Input(shape=(8, 8, 1))
vqvae = keras.Model(inputs, decoder(vq_layer(encoder(inputs))), name="vq_vae")


class VQVAETrainer(keras.models.Model):
    def __init__(self, train_variance, vqvae, **kwargs):
        super().__init__(**kwargs)
        self.train_variance = train_variance
        self.vqvae = vqvae
        self.trackers = [keras.metrics.Mean(name=n) for n in ("loss", "reconstruction_loss", "vqvae_loss")]

    @property
    def metrics(self):
        return self.trackers

    def train_step(self, x):
        with tf.GradientTape() as tape:
            reconstructions = self.vqvae(x)
            reconstruction_loss = tf.reduce_mean((tf.cast(x, "float64") - reconstructions) ** 2) / self.train_variance
            total_loss = reconstruction_loss + sum(self.vqvae.losses)
        grads = tape.gradient(total_loss, self.vqvae.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.vqvae.trainable_variables))
        for tracker, value in zip(self.trackers, (total_loss, reconstruction_loss, sum(self.vqvae.losses))):
            tracker.update_state(value)
        return {m.name: m.result() for m in self.trackers}


trainer = VQVAETrainer(data_variance, vqvae)
trainer.compile(optimizer=keras.optimizers.Adam())
history = trainer.fit(x_train, epochs=5, batch_size=16, shuffle=False, verbose=0)
for name, values in history.history.items():
    print(name, "=", values[-1])

encoded_outputs = encoder.predict(x_train, verbose=0)
flat = encoded_outputs.reshape(-1, encoded_outputs.shape[-1])
codebook_indices = vq_layer.get_code_indices(flat).numpy().reshape(encoded_outputs.shape[:-1])
print("codes used =", len(np.unique(codebook_indices)), " code sum =", int(codebook_indices.sum()))


class PixelConvLayer(layers.Layer):
    def __init__(self, mask_type, **kwargs):
        super().__init__()
        self.mask_type = mask_type
        self.conv = layers.Conv2D(**kwargs)

    def build(self, input_shape):
        self.conv.build(input_shape)
        shape = self.conv.kernel.shape
        self.mask = np.zeros(shape=shape)
        self.mask[: shape[0] // 2, ...] = 1.0
        self.mask[shape[0] // 2, : shape[1] // 2, ...] = 1.0
        if self.mask_type == "B":
            self.mask[shape[0] // 2, shape[1] // 2, ...] = 1.0

    def call(self, inputs):
        self.conv.kernel.assign(self.conv.kernel * self.mask)
        return self.conv(inputs)


pixelcnn_inputs = keras.Input(shape=(4, 4), dtype="int32")
ohe = layers.Lambda(lambda c: tf.one_hot(c, 16, dtype="float64"), output_shape=(4, 4, 16))(pixelcnn_inputs)
h = PixelConvLayer("A", filters=8, kernel_size=3, activation="relu", padding="same")(ohe)
h = PixelConvLayer("B", filters=8, kernel_size=1, activation="relu", padding="same")(h)
pixel_cnn = keras.Model(pixelcnn_inputs, layers.Conv2D(16, 1)(h), name="pixel_cnn")
pixel_cnn.compile(
    optimizer=keras.optimizers.Adam(3e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
history = pixel_cnn.fit(
    x=codebook_indices, y=codebook_indices, batch_size=16, epochs=2, validation_split=0.25,
    shuffle=False, verbose=0)
print("prior loss =", history.history["loss"][-1], " val =", history.history["val_loss"][-1])
priors = np.zeros((2, 4, 4), "int32")
for row in range(4):
    for col in range(4):
        logits = pixel_cnn.predict(priors, verbose=0)
        priors[:, row, col] = logits[:, row, col].argmax(-1)
print("drawn =", int(priors.sum()))
