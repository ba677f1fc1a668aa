"""Steps of the script's own that change gradients, or keep in variables what they compute."""

from __future__ import annotations

import json
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

import tfrun

strategy = tfrun.strategy()
keras.config.set_floatx("float64")
rng = np.random.default_rng(0)
X = rng.normal(size=(22, 4))
Y = X.sum(1, keepdims=True)


class Base(keras.Model):
    def __init__(self):
        super().__init__()
        self.d = keras.Sequential(
            [keras.Input((4,)), layers.Dense(3, activation="tanh"), layers.Dense(1)]
        )
        self.tr = keras.metrics.Mean(name="loss")
        self.make()

    def make(self):
        pass

    @property
    def metrics(self):
        return [self.tr]

    def call(self, x):
        return self.d(x)

    def grads(self, x, y):
        with tf.GradientTape() as t:
            loss = tf.reduce_mean((self.d(x) - y) ** 2)
        return loss, t.gradient(loss, self.d.trainable_variables)

    def train_step(self, data):
        x, y = data
        loss, g = self.grads(x, y)
        self.tr.update_state(loss)
        extra = self.use(x, y, loss, g)
        return {"loss": self.tr.result(), **(extra or {})}

    def state(self):
        return {}


class Clip(Base):
    def use(self, x, y, loss, g):
        g, n = tf.clip_by_global_norm(g, 0.5)
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))
        return {"norm": n}


class ClipEach(Base):
    def use(self, x, y, loss, g):
        g = [tf.clip_by_norm(v, 0.3) for v in g]
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))


class ClipValue(Base):
    def use(self, x, y, loss, g):
        g = [tf.clip_by_value(v, -0.2, 0.2) for v in g]
        self.optimizer.apply(g, self.d.trainable_variables)


class AGC(Base):
    def use(self, x, y, loss, g):
        out = []
        for p, v in zip(self.d.trainable_variables, g, strict=True):
            mx = (
                tf.math.maximum(
                    tf.norm(p, axis=0, keepdims=True) if len(p.shape) > 1 else tf.norm(p), 1e-3
                )
                * 0.05
            )
            n = tf.norm(v, axis=0, keepdims=True) if len(p.shape) > 1 else tf.norm(v)
            clipped = v * (mx / tf.math.maximum(n, 1e-6))
            out.append(tf.where(n < mx, v, clipped))
        self.optimizer.apply_gradients(zip(out, self.d.trainable_variables, strict=True))


class SAM(Base):
    def use(self, x, y, loss, g):
        v = self.d.trainable_variables
        norm = tf.norm(tf.stack([tf.norm(a) for a in g]))
        e_ws = []
        for w, a in zip(v, g, strict=True):
            e = a * (0.5 / (norm + 1e-12))
            w.assign_add(e)
            e_ws.append(e)
        _, g2 = self.grads(x, y)
        for w, e in zip(v, e_ws, strict=True):
            w.assign_sub(e)
        self.optimizer.apply_gradients(zip(g2, v, strict=True))


class Manual(Base):
    def use(self, x, y, loss, g):
        for w, a in zip(self.d.trainable_variables, g, strict=True):
            w.assign_sub(0.05 * a)


class Norm(Base):
    def use(self, x, y, loss, g):
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))
        return {"norm": tf.linalg.global_norm(g)}


class Queue(Base):
    def make(self):
        self.q = self.add_weight(shape=(12, 1), initializer="zeros", trainable=False)

    def use(self, x, y, loss, g):
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))
        p = self.d(x)
        self.q.assign(ops.concatenate([p, self.q[: -ops.shape(p)[0]]], axis=0))

    def state(self):
        return {"q": float(ops.sum(self.q))}


class Codebook(Base):
    def make(self):
        self.cs = self.add_weight(shape=(2,), initializer="ones", trainable=False)
        self.dw = self.add_weight(shape=(2, 4), initializer="ones", trainable=False)
        self.cb = self.add_weight(
            shape=(2, 4), initializer=keras.initializers.RandomNormal(seed=1), trainable=False
        )

    def use(self, x, y, loss, g):
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))
        enc = tf.one_hot(
            tf.argmin(tf.reduce_sum((x[:, None] - self.cb[None]) ** 2, -1), 1), 2, dtype="float64"
        )
        self.cs.assign(0.9 * self.cs + 0.1 * tf.reduce_sum(enc, 0))
        self.dw.assign(0.9 * self.dw + 0.1 * tf.matmul(enc, x, transpose_a=True))
        n = tf.reduce_sum(self.cs)
        self.cb.assign(self.dw / (((self.cs + 1e-5) / (n + 2e-5) * n)[:, None]))

    def state(self):
        return {
            "cs": float(ops.sum(self.cs)),
            "dw": float(ops.sum(self.dw)),
            "cb": float(ops.sum(self.cb**2)),
        }


class Counter(Base):
    def make(self):
        self.n = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.i = self.add_weight(shape=(), initializer="zeros", dtype="int64", trainable=False)
        self.k = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.pos = self.add_weight(shape=(), initializer="zeros", dtype="int64", trainable=False)
        self.p = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def use(self, x, y, loss, g):
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))
        self.n.assign_add(ops.cast(ops.shape(x)[0], "float64"))
        self.i.assign_add(ops.cast(ops.shape(x)[0], "int64"))
        self.k.assign_add(1.0)
        self.pos.assign_add(tf.math.count_nonzero(y > 0))
        self.p.assign(ops.clip(self.p + (ops.mean(ops.cast(y > 0, "float64")) - 0.4) / 2, 0.0, 1.0))

    def state(self):
        return {n: float(getattr(self, n)) for n in ("n", "i", "k", "pos", "p")}


class Centers(Base):
    def make(self):
        self.c = self.add_weight(shape=(2, 4), initializer="zeros", trainable=False)

    def use(self, x, y, loss, g):
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))
        lab = tf.cast(y[:, 0] > 0, "int32")
        self.c.assign(
            tf.tensor_scatter_nd_sub(
                tf.convert_to_tensor(self.c), lab[:, None], 0.1 * (tf.gather(self.c, lab) - x)
            )
        )

    def state(self):
        return {"c": float(ops.sum(self.c**2))}


class Renamed(Base):
    def make(self):
        self.auc = keras.metrics.AUC(name="the_auc")
        self.mae = keras.metrics.MeanAbsoluteError()

    @property
    def metrics(self):
        return [self.tr, self.auc, self.mae]

    def use(self, x, y, loss, g):
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))
        p = self.d(x)
        self.auc.update_state(y > 0, ops.sigmoid(p))
        self.mae.update_state(y, p)
        return {
            "auc": self.auc.result(),
            "err": self.mae.result(),
            "perplexity": ops.exp(self.tr.result()),
        }


class Center2(Base):  # gradient centralization
    def use(self, x, y, loss, g):
        g = [v - tf.reduce_mean(v, axis=[0], keepdims=True) if len(v.shape) > 1 else v for v in g]
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))


class Skip(Base):  # NaN guard
    def use(self, x, y, loss, g):
        ok = tf.linalg.global_norm(g) < 3.0
        self.optimizer.apply_gradients(
            [
                (tf.where(ok, v, tf.zeros_like(v)), w)
                for v, w in zip(g, self.d.trainable_variables, strict=True)
            ]
        )


class Accumulate(Base):  # by the script, on trainable=False
    def make(self):
        self.acc = [
            self.add_weight(shape=v.shape, initializer="zeros", trainable=False)
            for v in self.d.trainable_variables
        ]
        self.n = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False)

    def use(self, x, y, loss, g):
        self.n.assign_add(1)
        for a, v in zip(self.acc, g, strict=True):
            a.assign_add(v)

        def go():
            self.optimizer.apply_gradients(
                [
                    (tf.convert_to_tensor(a), w)
                    for a, w in zip(self.acc, self.d.trainable_variables, strict=True)
                ]
            )
            for a in self.acc:
                a.assign(tf.zeros_like(a))
            self.n.assign(0)

        tf.cond(tf.equal(self.n, 2), go, lambda: None)


class Noise(Base):  # one draw for the whole batch, whoever draws it
    def make(self):
        self.seed = keras.random.SeedGenerator(3)

    def use(self, x, y, loss, g):
        noise = [keras.random.normal(v.shape, dtype="float64", seed=self.seed) for v in g]
        g = [v + 0.1 * e for v, e in zip(g, noise, strict=True)]
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))


class Masked(Base):  # a part of the gradients, drawn anew for each step
    def make(self):
        self.seed = keras.random.SeedGenerator(4)

    def use(self, x, y, loss, g):
        out = []
        for v in g:
            kept = keras.random.uniform(v.shape, dtype="float64", seed=self.seed) < 0.7
            out.append(tf.where(kept, v / 0.7, tf.zeros_like(v)))
        self.optimizer.apply_gradients(zip(out, self.d.trainable_variables, strict=True))
        return {"kept": tf.reduce_mean(tf.cast(kept, "float64"))}


class Moved(Base):  # the samples, along the gradient of the loss
    def use(self, x, y, loss, g):
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                before = tf.reduce_mean((self.d(x) - y) ** 2)
            slope = inner.gradient(before, x)
            moved = tf.reduce_mean((self.d(x + 0.3 * tf.stop_gradient(slope)) - y) ** 2)
            moved += 0.1 * tf.reduce_sum(slope**2)
        weights = self.d.trainable_variables
        self.optimizer.apply(tape.gradient(moved, weights), weights)
        return {"moved": moved}


class Factor(Base):  # numbers that are drawn for the whole batch
    def make(self):
        self.seed = keras.random.SeedGenerator(5)

    def use(self, x, y, loss, g):
        a = keras.random.uniform((), dtype="float64", seed=self.seed)
        b = keras.random.uniform((1, 1), dtype="float64", seed=self.seed)
        with tf.GradientTape() as tape:
            loss = a * tf.reduce_mean((self.d(x * b) - y) ** 2)
        weights = self.d.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)


class Drawn(Base):
    """Noise by operations of TensorFlow's: other numbers on N workers, the same on each."""

    def make(self):
        self.z = self.add_weight(shape=(2,), initializer="zeros", trainable=False)
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def use(self, x, y, loss, g):
        noise = [self.noise(v) for v in g]
        g = [v + e for v, e in zip(g, noise, strict=True)]
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))
        self.z.assign(tf.random.uniform((2,), dtype="float64"))
        self.seen.assign_add(sum(tf.reduce_sum(e**2) for e in noise))

    @tf.function
    def noise(self, v):
        return tf.random.normal(v.shape, dtype="float64")

    def state(self):
        return {"z": float(ops.sum(self.z)), "seen": float(self.seen)}


class Unknown(Base):
    """Keeps what nobody can put together from the workers' parts."""

    def make(self):
        self.q = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def use(self, x, y, loss, g):
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))
        self.q.assign(tf.reduce_max(x))


class Largest(Base):
    """A metric of its own keeps the largest error: none of the workers' sum."""

    class Metric(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="largest")
            self.value = self.add_weight(name="value", initializer="zeros")

        def update_state(self, error):
            self.value.assign(ops.maximum(self.value, ops.max(error)))

        def result(self):
            return self.value * 1.0

    def make(self):
        self.largest = self.Metric()

    def use(self, x, y, loss, g):
        self.optimizer.apply_gradients(zip(g, self.d.trainable_variables, strict=True))
        self.largest.update_state(ops.abs(self.d(x) - y))


class Nested(Base):
    """Changes gradients in a function of its own."""

    @tf.function
    def clipped(self, g):
        return [tf.clip_by_norm(v, 0.3) for v in g]

    def use(self, x, y, loss, g):
        self.optimizer.apply(self.clipped(g), self.d.trainable_variables)


class Scaled(Base):
    """Changes gradients by what Python reads, where the step runs eagerly."""

    def use(self, x, y, loss, g):
        scale = 0.5 / float(tf.linalg.global_norm(g))
        self.optimizer.apply([v * scale for v in g], self.d.trainable_variables)


class Branch(Base):
    """Changes gradients if Python finds them large, where the step runs eagerly."""

    def use(self, x, y, loss, g):
        if tf.linalg.global_norm(g) > 2.0:
            g = [v * 0.5 for v in g]
        self.optimizer.apply(g, self.d.trainable_variables)


class Guard(Base):
    """Makes no step with a loss or gradients that are no numbers, where the step runs eagerly."""

    def use(self, x, y, loss, g):
        if tf.math.is_nan(loss) or not all(tf.reduce_all(tf.math.is_finite(v)) for v in g):
            return
        self.optimizer.apply(g, self.d.trainable_variables)


def numbers(cls):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = cls()
        model.compile(optimizer=keras.optimizers.SGD(0.1), run_eagerly="TEST_EAGER" in os.environ)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(6)
    history = model.fit(data, epochs=2, verbose=0).history
    logs = [history[name][-1] for name in sorted(history)]
    return [logs, [float(w.sum()) for w in model.d.get_weights()], model.state()]


chosen = os.environ.get("TEST_CASES", "").split()
results = {
    cls.__name__: numbers(cls)
    for cls in Base.__subclasses__()
    if cls.__name__ in chosen
    or (not chosen and cls not in (Drawn, Unknown, Largest, Nested, Scaled, Branch, Guard))
}
if "TFRUN_TEST_OUT" in os.environ:
    Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(results))
