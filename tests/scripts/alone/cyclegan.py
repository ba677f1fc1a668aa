# after: Keras's example "CycleGAN": four models, four optimizers, losses given to compile
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(6)
rng = np.random.default_rng(6)
horses = tf.data.Dataset.from_tensor_slices(rng.random((24, 8, 8, 1)) - 0.5).batch(4)
zebras = tf.data.Dataset.from_tensor_slices(rng.random((26, 8, 8, 1)) * 2 - 1).batch(4)
adv_loss_fn = keras.losses.MeanSquaredError()


def get_generator(name):
    img_input = layers.Input(shape=(8, 8, 1), name=name + "_img_input")
    x = layers.Conv2D(4, 3, padding="same")(img_input)
    x = layers.GroupNormalization(groups=-1)(x)
    x = layers.Conv2DTranspose(1, 3, padding="same", activation="tanh")(layers.ReLU()(x))
    return keras.Model(img_input, x, name=name)


def get_discriminator(name):
    img_input = layers.Input(shape=(8, 8, 1), name=name + "_img_input")
    x = layers.LeakyReLU(0.2)(layers.Conv2D(4, 4, strides=2, padding="same")(img_input))
    return keras.Model(img_input, layers.Conv2D(1, 4, padding="same")(x), name=name)


def generator_loss_fn(fake):
    return adv_loss_fn(ops.ones_like(fake), fake)


def discriminator_loss_fn(real, fake):
    return (adv_loss_fn(ops.ones_like(real), real) + adv_loss_fn(ops.zeros_like(fake), fake)) * 0.5


class CycleGan(keras.Model):
    def __init__(self, generator_G, generator_F, discriminator_X, discriminator_Y):
        super().__init__()
        self.gen_G, self.gen_F = generator_G, generator_F
        self.disc_X, self.disc_Y = discriminator_X, discriminator_Y

    def call(self, inputs):
        return self.gen_G(inputs), self.gen_F(inputs)

    def compile(self, gen_G_optimizer, gen_F_optimizer, disc_X_optimizer, disc_Y_optimizer,
                gen_loss_fn, disc_loss_fn):
        super().compile()
        self.gen_G_optimizer, self.gen_F_optimizer = gen_G_optimizer, gen_F_optimizer
        self.disc_X_optimizer, self.disc_Y_optimizer = disc_X_optimizer, disc_Y_optimizer
        self.generator_loss_fn, self.discriminator_loss_fn = gen_loss_fn, disc_loss_fn
        self.cycle_loss_fn = keras.losses.MeanAbsoluteError()
        self.identity_loss_fn = keras.losses.MeanAbsoluteError()

    def train_step(self, batch_data):
        real_x, real_y = batch_data
        with tf.GradientTape(persistent=True) as tape:
            fake_y, fake_x = self.gen_G(real_x, training=True), self.gen_F(real_y, training=True)
            cycled_x, cycled_y = self.gen_F(fake_y, training=True), self.gen_G(fake_x, training=True)
            disc_real_x, disc_fake_x = self.disc_X(real_x), self.disc_X(fake_x)
            disc_real_y, disc_fake_y = self.disc_Y(real_y), self.disc_Y(fake_y)
            total_loss_G = self.generator_loss_fn(disc_fake_y) + 10 * self.cycle_loss_fn(
                real_y, cycled_y) + 5 * self.identity_loss_fn(real_y, self.gen_G(real_y))
            total_loss_F = self.generator_loss_fn(disc_fake_x) + 10 * self.cycle_loss_fn(
                real_x, cycled_x) + 5 * self.identity_loss_fn(real_x, self.gen_F(real_x))
            disc_X_loss = self.discriminator_loss_fn(disc_real_x, disc_fake_x)
            disc_Y_loss = self.discriminator_loss_fn(disc_real_y, disc_fake_y)
        for loss, net, optimizer in (
            (total_loss_G, self.gen_G, self.gen_G_optimizer),
            (total_loss_F, self.gen_F, self.gen_F_optimizer),
            (disc_X_loss, self.disc_X, self.disc_X_optimizer),
            (disc_Y_loss, self.disc_Y, self.disc_Y_optimizer),
        ):
            grads = tape.gradient(loss, net.trainable_variables)
            optimizer.apply_gradients(zip(grads, net.trainable_variables))
        return {"G_loss": total_loss_G, "F_loss": total_loss_F,
                "D_X_loss": disc_X_loss, "D_Y_loss": disc_Y_loss}


class GANMonitor(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        for i, img in enumerate(horses.take(1)):
            prediction = self.model.gen_G(img, training=False)[0].numpy()
            prediction = (prediction * 127.5 + 127.5).astype(np.uint8)
            keras.utils.array_to_img(prediction).save(f"generated_img_{i}_{epoch + 1}.png")
        self.model.gen_F.save_weights(f"cyclegan_{epoch + 1:03d}.weights.h5")


model = CycleGan(get_generator("G"), get_generator("F"), get_discriminator("X"), get_discriminator("Y"))
model.compile(
    *(keras.optimizers.Adam(learning_rate=2e-3, beta_1=0.5) for _ in range(4)),
    gen_loss_fn=generator_loss_fn, disc_loss_fn=discriminator_loss_fn)
history = model.fit(
    tf.data.Dataset.zip((horses, zebras)), epochs=2, verbose=0,
    callbacks=[GANMonitor()])
for name, values in sorted(history.history.items()):
    print(name, "=", values[-1])
for net in (model.gen_G, model.gen_F, model.disc_X, model.disc_Y):
    print(net.name, "=", float(sum(np.abs(w).sum() for w in net.get_weights())))
model.gen_F.load_weights("cyclegan_001.weights.h5")
for i, img in enumerate(zebras.take(1)):
    print("translated =", float(np.abs(model.gen_F.predict(img, verbose=0)).sum()))
