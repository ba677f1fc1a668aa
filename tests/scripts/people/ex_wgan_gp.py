# after: Keras's example "WGAN-GP overriding Model.train_step": gradient penalty, several critic steps
# expects: near 0.5: each replica draws noise of its own
# floatx: float32: the example draws its noise with tf.random, in float32
import keras
import numpy as np
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(7)
train_images = (load_digits().images[:320].astype("float32") - 8) / 8
train_images = train_images.reshape(-1, 64)
BATCH_SIZE, noise_dim = 64, 6


class WGAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim, discriminator_extra_steps=2, gp_weight=10.0):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.d_steps = discriminator_extra_steps
        self.gp_weight = gp_weight

    def compile(self, d_optimizer, g_optimizer, d_loss_fn, g_loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.d_loss_fn = d_loss_fn
        self.g_loss_fn = g_loss_fn

    def gradient_penalty(self, batch_size, real_images, fake_images):
        alpha = tf.random.uniform([batch_size, 1], 0.0, 1.0)
        diff = fake_images - real_images
        interpolated = real_images + alpha * diff
        with tf.GradientTape() as gp_tape:
            gp_tape.watch(interpolated)
            pred = self.discriminator(interpolated, training=True)
        grads = gp_tape.gradient(pred, [interpolated])[0]
        norm = tf.sqrt(tf.reduce_sum(tf.square(grads), axis=[1]) + 1e-12)
        return tf.reduce_mean((norm - 1.0) ** 2)

    def train_step(self, real_images):
        if isinstance(real_images, tuple):
            real_images = real_images[0]
        batch_size = tf.shape(real_images)[0]
        for _ in range(self.d_steps):
            random_latent_vectors = tf.random.normal(shape=(batch_size, self.latent_dim))
            with tf.GradientTape() as tape:
                fake_images = self.generator(random_latent_vectors, training=True)
                fake_logits = self.discriminator(fake_images, training=True)
                real_logits = self.discriminator(real_images, training=True)
                d_cost = self.d_loss_fn(real_img=real_logits, fake_img=fake_logits)
                gp = self.gradient_penalty(batch_size, real_images, fake_images)
                d_loss = d_cost + gp * self.gp_weight
            d_gradient = tape.gradient(d_loss, self.discriminator.trainable_variables)
            self.d_optimizer.apply_gradients(zip(d_gradient, self.discriminator.trainable_variables))
        random_latent_vectors = tf.random.normal(shape=(batch_size, self.latent_dim))
        with tf.GradientTape() as tape:
            generated_images = self.generator(random_latent_vectors, training=True)
            g_loss = self.g_loss_fn(self.discriminator(generated_images, training=True))
        gen_gradient = tape.gradient(g_loss, self.generator.trainable_variables)
        self.g_optimizer.apply_gradients(zip(gen_gradient, self.generator.trainable_variables))
        return {"d_loss": d_loss, "g_loss": g_loss}


with strategy.scope():
    d_model = keras.Sequential([keras.Input((64,)), layers.Dense(24), layers.LeakyReLU(), layers.Dense(1)])
    g_model = keras.Sequential(
        [keras.Input((noise_dim,)), layers.Dense(24, activation="relu"), layers.Dense(64, activation="tanh")])
    wgan = WGAN(discriminator=d_model, generator=g_model, latent_dim=noise_dim)
    wgan.compile(
        d_optimizer=keras.optimizers.Adam(0.001, beta_1=0.5, beta_2=0.9),
        g_optimizer=keras.optimizers.Adam(0.001, beta_1=0.5, beta_2=0.9),
        g_loss_fn=lambda fake_img: -tf.reduce_mean(fake_img),
        d_loss_fn=lambda real_img, fake_img: tf.reduce_mean(fake_img) - tf.reduce_mean(real_img),
    )
history = wgan.fit(train_images, batch_size=BATCH_SIZE, epochs=3, verbose=0)
print("d_loss =", float(history.history["d_loss"][-1]))
print("epochs =", len(history.history["g_loss"]))
print("critic weights =", float(sum(np.abs(w).sum() for w in d_model.get_weights())))
