# after: steps that draw one number for the whole batch: mixup with one lambda, loss weights, layers that are dropped
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers

rng = np.random.default_rng(30)
x, y = rng.normal(size=(62, 4)), rng.normal(size=(62, 1))


class StochasticDepth(layers.Layer):
    """Leaves out its branch for a whole batch, now and then."""

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate, self.dense = rate, layers.Dense(6, "tanh")
        self.seed_generator = keras.random.SeedGenerator(3)

    def call(self, x, training=False):
        if not training:
            return x + self.dense(x)
        keep = keras.random.uniform((1, 1), seed=self.seed_generator, dtype=x.dtype) > self.rate
        return x + tf.cast(keep, x.dtype) * self.dense(x) / (1 - self.rate)


class Mixed(keras.Model):
    def train_step(self, data):
        x, y = data
        beta = keras.random.beta((), 0.8, 0.8, seed=self.seeds)
        weight = keras.random.uniform((), seed=self.seeds, dtype=x.dtype)
        noisy = tf.cast(beta, x.dtype) * x + (1 - tf.cast(beta, x.dtype)) * tf.sin(x)
        with tf.GradientTape() as tape:
            p = self(noisy, training=True)
            loss = weight * tf.reduce_mean(tf.square(p - y)) + (1 - weight) * tf.reduce_mean(tf.abs(p - y))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


keras.utils.set_random_seed(9)
inputs = keras.Input((4,))
model = Mixed(inputs, layers.Dense(1)(StochasticDepth(0.3)(layers.Dense(6, "tanh")(inputs))))
model.seeds = keras.random.SeedGenerator(5)
model.compile(keras.optimizers.SGD(0.05))
model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
print("weights =", float(sum(np.abs(w).sum() for w in model.get_weights())))
