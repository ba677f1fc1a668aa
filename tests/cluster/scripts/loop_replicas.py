"""Trains small models in loops of its own, one after the other, and prints the bits of each.

DIES_AT: the step of a loop in which the last worker kills itself, in the job's first round.
SLOW: the replicas of worker 0 take longer.
"""

import hashlib
import os
import signal
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.job import holding
from tfrun.job.errors import TfrunError

here, strategy = tfrun.world(), tfrun.strategy()
DIES_AT = int(os.environ.get("DIES_AT", "0"))
BATCH = 14  # of 90 samples: the last batch has 6, of which replicas have 2, 2, 1 and 1
x = np.random.default_rng(0).normal(size=(90, 4)).astype("float32")
ONES = tf.ones((8, 4))
VALID = tf.data.Dataset.from_tensor_slices((x[:40], x[:40, :1])).batch(16)


def exact():
    return tfrun.Dataset.from_arrays((x, x[:, :1]), batch_size=BATCH, shuffle=True)


def pipeline():
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
    return data.shuffle(90, seed=3).batch(BATCH)


def noisy():
    """A model whose replicas draw, and whose pieces count for themselves."""
    keras.utils.set_random_seed(3)
    dense, layers = keras.layers.Dense, keras.layers
    with strategy.scope():
        inner = [dense(8), layers.BatchNormalization(), layers.Dropout(0.2), dense(1)]
        model = keras.Sequential([keras.Input((4,)), *inner])
        return model, keras.optimizers.Adam(0.01), keras.metrics.Mean("seen")


def train(model, optimizer, x, y, seen=None, weight=1.0):
    """What one replica does in a step."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / BATCH * weight
    gradients = tape.gradient(loss, model.trainable_variables)
    if seen is not None:
        seen.update_state(loss)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


def tested(model, metric):
    """What adds up a model's losses on distributed data."""

    @tf.function
    def test_step(batch):
        def on_replica(x, y):
            metric.update_state(tf.reduce_sum((model(x) - y) ** 2) / 16)

        strategy.run(on_replica, args=batch)

    return test_step


def stands(value):
    return float(value).hex()


def dies(state):
    if here.round == 0 and here.rank == here.size - 1 and state.step + 1 == DIES_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def told(name, models, out):
    weights = [w for model in models for w in model.get_weights()]
    assert all(np.isfinite(w).all() for w in weights), name
    bits = b"".join(np.ascontiguousarray(w).tobytes() for w in weights)
    if here.is_chief:
        print("BITS", name, hashlib.sha256(bits).hexdigest()[:16], out, flush=True)


def epochs(name, dataset):
    """Epochs with validation; losses are reduced inside of the function, and outside."""
    model, optimizer, seen = noisy()
    with strategy.scope():
        val = keras.metrics.Mean("val")
    valid, test_step = strategy.experimental_distribute_dataset(VALID), tested(model, val)

    @tf.function
    def train_step(batch):
        losses = strategy.run(lambda x, y: train(model, optimizer, x, y, seen), args=batch)
        return losses, strategy.reduce("SUM", losses, axis=None)

    state, out = tfrun.TrainState(model=model, optimizer=optimizer, metrics=[seen]), []
    for epoch in range(state.epoch, 3):
        for batch in state.steps(dataset, epochs=epoch + 1):
            dies(state)
            losses, loss = train_step(batch)
            again = strategy.reduce("SUM", losses, axis=None)
            mean = strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)
            assert float(again) == float(loss), (again, loss)
            np.testing.assert_allclose(float(mean), float(loss) / 4, rtol=1e-6)
            out.append((stands(loss), stands(mean), stands(seen.result())))
        for batch in valid:
            test_step(batch)
        out.append((stands(seen.result()), stands(val.result())))
        seen.reset_state()
        val.reset_state()
    state.close()
    # The losses of steps before a death were those of another process.
    told(name, [model], [out[-5:], int(optimizer.iterations)])


def data():
    epochs("data", exact())


def tf_data():
    epochs("tf_data", pipeline())


def distributed():
    epochs("distributed", strategy.experimental_distribute_dataset(pipeline()))


def ours():
    epochs("ours", strategy.experimental_distribute_dataset(exact()))


def plain():
    """A loop over distributed data, which knows nothing of `TrainState`."""
    model, optimizer, seen = noisy()
    train_step = tf.function(lambda x, y: train(model, optimizer, x, y, seen))
    out = []
    for made in (pipeline(), exact()):
        batches = strategy.experimental_distribute_dataset(made)
        for _ in range(2):
            for batch in batches:
                losses = strategy.run(train_step, args=batch)
                out.append(stands(strategy.reduce("SUM", losses, axis=None)))
        iterator = iter(batches)
        for _ in range(3):
            strategy.run(train_step, args=next(iterator))
    told("plain", [model], [out[-3:], stands(seen.result())])


class Gan:
    """Two models, two optimizers, two calls in a step: methods that are functions."""

    def __init__(self):
        keras.utils.set_random_seed(5)
        dense, self.seed = keras.layers.Dense, keras.random.SeedGenerator(7)
        with strategy.scope():
            norm, dropout = keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)
            self.maker = keras.Sequential([keras.Input((2,)), dense(8), norm, dense(4)])
            self.judge = keras.Sequential([keras.Input((4,)), dense(8), dropout, dense(1)])
            self.optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01)]

    def apply(self, tape, loss, model, optimizer):
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    @tf.function
    def judges(self, real, *, rate):
        def on_replica(real):
            with tf.GradientTape() as tape:
                made = self.maker(keras.random.normal((tf.shape(real)[0], 2), seed=self.seed))
                loss = tf.reduce_sum(self.judge(made, training=True) ** 2)
                loss = (loss + tf.reduce_sum((self.judge(real) - 1) ** 2)) / BATCH * rate
            self.apply(tape, loss, self.judge, self.optimizers[0])
            return loss, made

        return strategy.run(on_replica, args=(real,))

    @tf.function
    def makes(self, real, made, judged):
        def on_replica(real, made, judged):
            with tf.GradientTape() as tape:
                other = self.maker(real[:, :2], training=True)
                loss = tf.reduce_sum((self.judge(other) - 1) ** 2) / BATCH
                loss += judged / 7 + tf.reduce_sum((other - made) ** 2) / BATCH
            self.apply(tape, loss, self.maker, self.optimizers[1])
            return loss

        return strategy.run(on_replica, args=(real,), kwargs={"made": made, "judged": judged})


def gan():
    gan, out = Gan(), []
    parts = {"maker": gan.maker, "judge": gan.judge}
    state = tfrun.TrainState(
        model=parts, optimizer=gan.optimizers, metrics=[], noise=Held(gan.seed)
    )
    for real, _ in state.steps(exact(), epochs=2):
        judged, made = gan.judges(real, rate=0.5)
        loss = gan.makes(real, made=made, judged=judged)
        out += [stands(strategy.reduce("SUM", value, axis=None)) for value in (judged, loss)]
        assert made.shape == real.shape, "the first replica's"
    state.close()
    told("gan", [gan.maker, gan.judge], out[-6:])


class Held:
    """A seed generator, which no model holds."""

    def __init__(self, seed):
        self.seed = seed

    def get_state(self):
        return np.asarray(self.seed.state)

    def set_state(self, state):
        self.seed.state.assign(state)


def before():
    """Functions before the step; keyword arguments, numbers, constants; metrics of the body."""
    model, optimizer, seen = noisy()
    with strategy.scope():
        mean, whole = keras.metrics.Mean("mean"), keras.metrics.Sum("whole")
        hits = keras.metrics.MeanAbsoluteError("hits")
    shift = tf.constant([0.25, 0.5, 0.75, 1.0])

    @tf.function
    def prepared(x, *, by, scale):
        return {"x": (x + by) * scale + tf.random.stateless_normal(tf.shape(x), seed=(1, 2))}

    @tf.function
    def step(x, y, weight):
        return train(model, optimizer, x, y, seen, weight)

    @tf.function
    def found(x):
        return model(x)

    assert found(x[:2]).shape == (2, 1), "outside of a step"
    state, out = tfrun.TrainState(model=model, optimizer=optimizer, metrics=[seen, mean]), []
    added = 0.0
    for x_here, y in state.steps(pipeline(), epochs=2):
        made = prepared(x_here, by=shift, scale=2)
        losses = strategy.run(step, args=(made["x"], y), kwargs={"weight": 0.5})
        assert model(x_here).shape == y.shape
        loss = strategy.reduce("SUM", losses, axis=None)
        mean.update_state(losses)
        whole.update_state(loss)
        hits.update_state(y, found(made["x"]))
        out.append([stands(one.result()) for one in (seen, mean, whole, hits)])
        means = [float(one.result()) for one in (seen, mean)]
        np.testing.assert_allclose(means[1], means[0], rtol=1e-5)
        added += float(loss)
        np.testing.assert_allclose(float(whole.result()), added, rtol=1e-5)
    state.close()
    told("before", [model], out[-2:])


def nap():
    if os.environ.get("SLOW") and here.rank == 0:
        time.sleep(0.02)
    return np.float32(0)


def balanced():
    """Loops whose replicas move; one iterator over the validation data outlives the moves."""
    model, optimizer, seen = noisy()
    with strategy.scope():
        val = keras.metrics.Mean("val")
    # Repeated, so that it never ends.
    endless = iter(strategy.experimental_distribute_dataset(VALID.repeat()))
    ours = tfrun.Dataset.from_arrays((x, x[:, :1]), batch_size=15)
    other = iter(strategy.experimental_distribute_dataset(ours))
    test_step = tested(model, val)
    next(endless)
    next(other)

    @tf.function
    def train_step(batch):
        def on_replica(x, y):
            slow = tf.numpy_function(nap, [], tf.float32)
            with tf.control_dependencies([slow]):
                return train(model, optimizer, tf.identity(x), y, seen)

        return strategy.run(on_replica, args=batch)

    out = []
    state = tfrun.TrainState(model=model, optimizer=optimizer, metrics=[seen])
    for data, stop in ((exact(), 10), (pipeline(), 20)):
        for epoch in range(state.epoch, stop):
            for batch in state.steps(data, epochs=epoch + 1):
                train_step(batch)
            if epoch % 4 == 3:
                test_step(next(endless))
                test_step(next(other))
            out.append((stands(seen.result()), stands(val.result())))
    state.close()
    told("balanced", [model], out[-3:])
    if here.is_chief:
        print("MOVED", holding.moves, list(map(len, holding.blocks())), flush=True)


def refused():
    """What nobody could compute for the other replicas of a worker."""
    model, optimizer, seen = noisy()
    made = strategy.experimental_distribute_dataset(exact())
    model.compile("sgd", "mse")
    left = []

    @tf.function
    def step(x, y):
        return strategy.run(lambda x, y: train(model, optimizer, x, y), args=(x, y))

    @tf.function
    def reads(iterator):
        return step(*next(iterator))

    @tf.function
    def reads_all():
        for batch in made:
            step(*batch)

    cases = {
        "a tensor": lambda x, y, _: step(2 * x, y),
        "an array": lambda x, y, _: step(x.numpy(), y),
        "an earlier tensor": lambda x, y, _: step(left[0], y),
        "an earlier loss": lambda x, y, _: step(x, left[1]),
        "a sum": lambda x, y, _: strategy.reduce("SUM", tf.reduce_sum(x), axis=None),
        "a changed loss": lambda x, y, loss: strategy.reduce("SUM", 2 * loss, axis=None),
        "a mean over rows": lambda x, y, _: strategy.reduce("MEAN", x, axis=0),
        "a function of Python": lambda x, y, _: strategy.run(lambda x: 2 * x, args=(x,)),
        "no part of it": lambda x, y, _: step(ONES, ONES[:, :1]),
        "a metric's tensor": lambda x, y, loss: seen.update_state(2 * loss),
        "a metric's array": lambda x, y, _: seen(x.numpy()),
        "a metric's number": lambda x, y, loss: seen.update_state(float(loss)),
        "a step on a batch": lambda x, y, _: model.train_on_batch(x, y),
        "an iterator": lambda x, y, _: reads(iter(made)),
        "a loop in a function": lambda x, y, _: reads_all(),
        "fit": lambda x, y, _: model.fit(made, verbose=0),
        "evaluate": lambda x, y, _: model.evaluate(made, verbose=0),
        "predict": lambda x, y, _: model.predict(made, verbose=0),
    }
    state = tfrun.TrainState(model=model, optimizer=optimizer)
    for x_here, y in state.steps(exact(), epochs=1):
        loss = step(x_here, y)
        if left:
            for name, case in cases.items():
                tells(name, case, x_here, y, loss)
            break
        left += [2 * x_here, loss]

    def commits(*_):
        state = tfrun.TrainState(model=model, optimizer=optimizer)
        while state.step < 2:
            step(ONES, ONES[:, :1])
            state.commit()

    tells("commit", commits)


def tells(name, case, *given):
    try:
        found = f"nothing: {case(*given)}"
    except TfrunError as error:
        found = str(error)
    print("TOLD", name, "|", found.replace("\n", " "), flush=True)


for name in sys.argv[1:]:
    globals()[name]()
