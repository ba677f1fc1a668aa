"""Trains in ways that cost something where a worker may hold several replicas; prints the bits.

one_for_good.py KIND[,KIND…]
"""

import hashlib
import sys

import keras
import numpy as np
import tensorflow as tf

import tfrun

X = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
Y = (X.sum(axis=1, keepdims=True) > 0).astype("float32")
GIVEN = {"batch_size": 16, "epochs": 2, "verbose": 0}


def made(units: int = 16, times: int = 1) -> keras.Model:
    layers = [keras.layers.Dense(units, "relu") for _ in range(times)]
    last = [keras.layers.Dropout(0.2), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((8,)), *layers, *last])


class Noisy(keras.Model):
    """Adds noise by an op that has its seed."""

    def train_step(self, data):
        x, y = data
        return super().train_step((x + tf.random.normal(tf.shape(x), stddev=0.01), y))


class Clipped(keras.Model):
    """Bounds its weights behind each update."""

    def train_step(self, data):
        logs = super().train_step(data)
        for weight in self.trainable_weights:
            weight.assign(tf.clip_by_value(weight, -0.3, 0.3))
        return logs


class WithCritic(keras.Model):
    """Has a second model, whose optimizer the first step builds; adds noise by an op."""

    def compile(self, *arguments, **options):
        super().compile(*arguments, **options)
        self.critic, self.second = made(8), keras.optimizers.Adam(0.01)

    def train_step(self, data):
        x, y = data
        for _ in range(2):
            noise = tf.random.normal(tf.shape(x), stddev=0.1)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.critic(x + noise, training=True) - y) ** 2)
            weights = self.critic.trainable_variables
            self.second.apply(tape.gradient(loss, weights), weights)
        return super().train_step((x, y - tf.stop_gradient(self.critic(x))))


class Counts(keras.Model):
    """Its first step makes a variable, which all assign."""

    steps = None

    def train_step(self, data):
        if self.steps is None:
            self.steps = tf.Variable(0.0, trainable=False)
        self.steps.assign_add(1.0)
        x, y = data
        return super().train_step((x, y + 0.01 * self.steps))


def trained(model: keras.Model, *data, **options) -> keras.Model:
    compiled = {name: options.pop(name) for name in list(options) if name in OF_COMPILE}
    model.compile("adam", "mse", **compiled)
    model.fit(*(data or (X, Y)), **{**GIVEN, **options})
    return model


OF_COMPILE = ("run_eagerly", "steps_per_execution")


def of(kind: type[keras.Model]) -> keras.Model:
    inner = made()
    return kind(inner.inputs, inner.outputs)


def pipeline() -> tf.data.Dataset:
    """Of which the last batch is a short one."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(24)


def eager_functions() -> keras.Model:
    tf.config.run_functions_eagerly(True)
    model = trained(made(), pipeline(), batch_size=None)
    tf.config.run_functions_eagerly(False)
    return model


def own_data() -> keras.Model:
    options = tf.data.Options()
    off = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = off
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16).with_options(options)
    return trained(made(), data, batch_size=None)


def own_loop() -> keras.Model:
    strategy = tfrun.strategy()
    with strategy.scope():
        model, optimizer = made(), keras.optimizers.Adam()
    data = strategy.experimental_distribute_dataset(
        tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    )

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2) / 2
        optimizer.apply_gradients(
            zip(
                tape.gradient(loss, model.trainable_variables),
                model.trainable_variables,
                strict=True,
            )
        )

    @tf.function
    def on_all(x, y):
        strategy.run(step, (x, y))

    for batch in data:
        on_all(*batch)
    return model


def sparse() -> keras.Model:
    words = np.arange(64 * 8).reshape(64, 8) % 50
    layers = [keras.layers.Embedding(50, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
    return trained(keras.Sequential(layers), words, Y)


KINDS = {
    "seeded op": lambda: trained(of(Noisy)),
    "critic": lambda: trained(of(WithCritic)),
    "makes": lambda: trained(of(Counts)),
    "assigned": lambda: trained(of(Clipped)),
    "eager": lambda: trained(made(), pipeline(), batch_size=None, run_eagerly=True),
    "eager functions": eager_functions,
    "own data": own_data,
    "several steps": lambda: trained(made(), steps_per_execution=2),
    "own loop": own_loop,
    "overlap": lambda: trained(made(units=800, times=3)),  # of more than one pack
    "sparse": sparse,
}

for kind in sys.argv[1].split(","):
    keras.utils.set_random_seed(7)
    weights = KINDS[kind]().get_weights()
    found = hashlib.sha256(b"".join(weight.tobytes() for weight in weights)).hexdigest()
    if tfrun.world().is_chief:
        print(f"BITS {kind}: {found}")
