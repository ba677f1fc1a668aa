# after: pre-tf.data Keras scripts: a Python generator with steps_per_epoch
# expects: equal
import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(11)


def load():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(203, 6))
    y = X @ rng.normal(size=(6, 1)) + 0.1 * rng.normal(size=(203, 1))
    return X, y


X, y = load()
seen = []


def batch_generator(X, y, batch_size):
    indices = np.arange(len(X))
    rng = np.random.default_rng(0)
    while True:
        rng.shuffle(indices)
        for start in range(0, len(X), batch_size):
            batch = indices[start : start + batch_size]
            seen.append(len(batch))
            yield X[batch], y[batch]


batch_size = 20
steps = int(np.ceil(len(X) / batch_size))

with strategy.scope():
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(12, activation="tanh"), keras.layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])

history = model.fit(
    batch_generator(X, y, batch_size), steps_per_epoch=steps, epochs=3, verbose=2,
)
for epoch, (loss, mae) in enumerate(zip(history.history["loss"], history.history["mae"])):
    print(f"epoch {epoch}: loss = {loss}, mae = {mae}")


def once():
    for start in range(0, len(X), 16):
        yield X[start : start + 16], y[start : start + 16]


# One pass, as many batches as there are.
with strategy.scope():
    second = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    second.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
second.fit(once(), epochs=1, verbose=0)
print("iterations =", int(second.optimizer.iterations))
print("one pass weights =", float(np.sum(second.get_weights()[0])))
print("evaluate =", second.evaluate(once(), verbose=0))
print("predictions =", float(second.predict(((b,) for b, _ in once()), verbose=0).sum()))
