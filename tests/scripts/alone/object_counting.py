# after: Keras's examples with several outputs (detection, keypoints, focal loss), jit_compile=True
# expects: equal
import os
import zipfile

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(23)
rng = np.random.default_rng(23)
images, counts, points = rng.random((80, 12, 12, 1)) * 0.2, rng.integers(1, 4, 80), np.zeros((80, 2))
for i, count in enumerate(counts):
    for _ in range(count):
        r, c = rng.integers(0, 11, 2)
        images[i, r : r + 2, c : c + 2] += 1
        points[i] = r / 12, c / 12


class FocalLoss(keras.losses.Loss):
    def __init__(self, gamma=2.0, alpha=0.25, name="focal", **kwargs):
        super().__init__(name=name, **kwargs)
        self.gamma, self.alpha = gamma, alpha

    def call(self, y_true, y_pred):
        y_true = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), ops.shape(y_pred)[-1])
        p = ops.clip(ops.softmax(y_pred), 1e-6, 1 - 1e-6)
        y_true = ops.cast(y_true, p.dtype)
        focal = -self.alpha * (1 - p) ** self.gamma * y_true * ops.log(p)
        return ops.sum(focal, axis=-1)


class StochasticDepth(layers.Layer):
    def __init__(self, drop_prop, **kwargs):
        super().__init__(**kwargs)
        self.drop_prob = drop_prop
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, x, training=None):
        if training and self.drop_prob:
            keep_prob = 1 - self.drop_prob
            shape = (ops.shape(x)[0],) + (1,) * (len(x.shape) - 1)
            mask = keep_prob + keras.random.uniform(shape, 0, 1, seed=self.seed_generator)
            return (x / keep_prob) * ops.floor(mask)
        return x


def mae_of_points(y_true, y_pred):
    return ops.mean(ops.abs(y_true - y_pred), axis=-1)


class Counter(keras.metrics.Metric):
    def __init__(self, name="exact", **kwargs):
        super().__init__(name=name, **kwargs)
        self.right = self.add_weight(name="right", initializer="zeros")
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        hit = ops.equal(ops.cast(ops.reshape(y_true, (-1,)), "int64"), ops.cast(ops.argmax(y_pred, -1), "int64"))
        self.right.assign_add(ops.sum(ops.cast(hit, self.dtype)))
        self.total.assign_add(ops.cast(ops.size(hit), self.dtype))

    def result(self):
        return self.right / self.total


inputs = keras.Input((12, 12, 1))
x = layers.Conv2D(8, 3, activation="relu")(inputs)
skip = x
x = StochasticDepth(0.0)(layers.Conv2D(8, 3, padding="same", activation="relu")(x))
x = layers.GlobalAveragePooling2D()(layers.Add()([x, skip]))
outputs = {"count": layers.Dense(4, name="count")(x), "point": layers.Dense(2, "sigmoid", name="point")(x)}
model = keras.Model(inputs, outputs)
model.compile(
    optimizer=keras.optimizers.AdamW(keras.optimizers.schedules.PolynomialDecay(0.01, 20), clipnorm=1.0),
    loss={"count": FocalLoss(), "point": "mse"}, loss_weights={"count": 1.0, "point": 2.0},
    metrics={"count": [Counter()], "point": [mae_of_points]}, jit_compile=True)
history = model.fit(
    images, {"count": counts, "point": points}, batch_size=16, epochs=3, shuffle=False, verbose=0,
    validation_split=0.2)
for name in sorted(history.history):
    print(name, "=", history.history[name][-1])
model.save("counter.keras")
with zipfile.ZipFile("counter.keras") as saved:
    print("large =", int(os.path.getsize("counter.keras") > 10_000), " files =", len(saved.namelist()))
loaded = keras.models.load_model("counter.keras", custom_objects={
    "FocalLoss": FocalLoss, "StochasticDepth": StochasticDepth, "Counter": Counter,
    "mae_of_points": mae_of_points})
loaded.fit(images, {"count": counts, "point": points}, batch_size=16, shuffle=False, verbose=0)
predicted = loaded.predict(images, verbose=0)
print("counted =", int(predicted["count"].argmax(-1).sum()), " point =", float(predicted["point"].sum()))
