# after: examples that read `x.shape[0]`, where pipelines drop the remainder (DCGAN, attention); words
# expects: equal
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(4)
rng = np.random.default_rng(4)
x = rng.normal(size=(90, 6))
y = np.tanh(x[:, :2]) + rng.normal(size=(90, 2)) * 0.1
BATCH = 12


def batches(seed=None):
    made = tf.data.Dataset.from_tensor_slices((x, y))
    made = made if seed is None else made.shuffle(90, seed=seed)
    return made.batch(BATCH, drop_remainder=True)


def mapped(seed=None):
    return batches(seed).map(lambda x, y: (x * 2.0, y)).prefetch(2)


def unknown():
    samples = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda x, y: y[0] > -0.8)
    return samples.batch(BATCH, drop_remainder=True)


class Heads(keras.layers.Layer):
    """Splits into heads as many scripts do: by the number of rows."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(8)

    def call(self, x):
        rows = x.shape[0]
        split = tf.reshape(self.dense(x), (rows, 4, 2))
        weights = tf.nn.softmax(tf.matmul(split, split, transpose_b=True))
        return tf.reshape(tf.matmul(weights, split), (rows, 8))


class Attends(keras.Model):
    def __init__(self):
        super().__init__()
        self.heads, self.out = Heads(), keras.layers.Dense(2)

    def call(self, x):
        return self.out(self.heads(x))


class Gan(keras.Model):
    def __init__(self):
        super().__init__()
        self.made, self.judge = keras.layers.Dense(2), keras.layers.Dense(1)
        self.g_loss = keras.metrics.Mean(name="g_loss")
        self.d_loss = keras.metrics.Mean(name="d_loss")

    def compile(self, d, g, loss):
        super().compile()
        self.d, self.g, self.judged = d, g, loss

    @property
    def metrics(self):
        return [self.g_loss, self.d_loss]

    def train_step(self, data):
        x, real = data
        rows = real.shape[0]
        labels = tf.concat([tf.ones((rows, 1)), tf.zeros((rows, 1))], axis=0)
        with tf.GradientTape() as tape:
            both = tf.concat([self.made(x), tf.cast(real, self.compute_dtype)], axis=0)
            d_loss = self.judged(labels, self.judge(both))
        weights = self.judge.trainable_weights
        self.d.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            g_loss = self.judged(tf.zeros((rows, 1)), self.judge(self.made(x)))
        weights = self.made.trainable_weights
        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        self.g.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        return {m.name: m.result() for m in self.metrics}


def shown(name, history):
    for key, values in history.items():
        for epoch, value in enumerate(values):
            print(f"{name} {key} {epoch} = {value:.12f}")


for name, made in (("arrays", batches), ("mapped", mapped)):
    model = Attends()
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    shown(name, model.fit(made(5), epochs=3, verbose=0, validation_data=made()).history)
    for key, value in model.evaluate(made(), verbose=0, return_dict=True).items():
        print(f"{name} evaluated {key} = {value:.12f}")
    print(f"{name} predicted = {float(np.abs(model.predict(made(), verbose=0)).sum()):.9f}")

model = Attends()
model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
shown("unknown", model.fit(unknown(), epochs=3, verbose=0, validation_data=unknown()).history)

gan = Gan()
loss = keras.losses.BinaryCrossentropy(from_logits=True)
gan.compile(keras.optimizers.SGD(0.05), keras.optimizers.SGD(0.05), loss)
shown("gan", gan.fit(batches(6), epochs=3, verbose=0).history)

words = rng.integers(0, 11, (96, 9)).astype("int32")


def language_model():
    tokens = keras.Input((8,), dtype="int32")
    x = keras.layers.Embedding(11, 6)(tokens)
    x = x + keras.layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
    model = keras.Model(tokens, keras.layers.Dense(11)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


parts = words[:, :-1], words[:, 1:]
read = tf.data.Dataset.from_tensor_slices(parts).batch(BATCH, drop_remainder=True)
shown("words", language_model().fit(*parts, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history)
shown("read words", language_model().fit(read, epochs=2, verbose=0).history)


class OwnWords(keras.Model):
    def train_step(self, data):
        read, wanted = data
        with tf.GradientTape() as tape:
            logits = tf.reshape(self(read, training=True), (-1, 11))
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.reshape(wanted, (-1,)), logits=logits
            )
            loss = tf.reduce_sum(entropy) / (read.shape[0] * read.shape[1])
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


plain = language_model()
model = OwnWords(plain.inputs, plain.outputs)
model.compile(keras.optimizers.Adam(0.01))
shown("own words", model.fit(read, epochs=2, verbose=0).history)
