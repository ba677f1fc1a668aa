# after: Keras's guide "Training & evaluation with the built-in methods": losses, metrics, weights
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(50)
rng = np.random.default_rng(50)
x_train = rng.normal(size=(300, 12))
y_train = np.argmax(x_train[:, :4], axis=1)
x_val, y_val = x_train[240:], y_train[240:]
x_train, y_train = x_train[:240], y_train[:240]


class CustomMSE(keras.losses.Loss):
    def __init__(self, regularization_factor=0.1, name="custom_mse"):
        super().__init__(name=name)
        self.regularization_factor = regularization_factor

    def call(self, y_true, y_pred):
        mse = ops.mean(ops.square(y_true - y_pred), axis=-1)
        reg = ops.mean(ops.square(0.5 - y_pred), axis=-1)
        return mse + reg * self.regularization_factor


def custom_mean_squared_error(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred), axis=-1)


class CategoricalTruePositives(keras.metrics.Metric):
    def __init__(self, name="categorical_true_positives", **kwargs):
        super().__init__(name=name, **kwargs)
        self.true_positives = self.add_variable(shape=(), name="ctp", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_pred = ops.reshape(ops.argmax(y_pred, axis=1), (-1, 1))
        y_true = ops.reshape(ops.argmax(y_true, axis=1), (-1, 1))
        values = ops.cast(ops.equal(y_true, y_pred), self.dtype)
        if sample_weight is not None:
            values = ops.multiply(values, ops.reshape(ops.cast(sample_weight, self.dtype), (-1, 1)))
        self.true_positives.assign_add(ops.sum(values))

    def result(self):
        return self.true_positives.value

    def reset_state(self):
        self.true_positives.assign(0)


def get_model(loss, metrics=(), **more):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((12,)), layers.Dense(16, activation="relu"),
             layers.Dense(4, activation="softmax", activity_regularizer=keras.regularizers.L2(0.01))])
        model.compile(keras.optimizers.Adam(0.01), loss=loss, metrics=list(metrics), **more)
    return model


one_hot, one_hot_val = ops.one_hot(y_train, 4).numpy(), ops.one_hot(y_val, 4).numpy()
for name, loss in {"function": custom_mean_squared_error, "class": CustomMSE()}.items():
    model = get_model(loss, [CategoricalTruePositives(), keras.metrics.F1Score(average="macro")])
    history = model.fit(x_train, one_hot, batch_size=48, epochs=2, verbose=0)
    for key in sorted(history.history):
        print(name, key, "=", history.history[key][-1])

# class_weight and sample_weight
model = get_model("sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
history = model.fit(x_train, y_train, class_weight={0: 1.0, 1: 2.0, 2: 0.5, 3: 1.0}, batch_size=50,
                    epochs=2, verbose=0)
print("class_weight loss =", history.history["loss"][-1], "accuracy =", history.history["accuracy"][-1])
sample_weight = np.ones(shape=(len(y_train),))
sample_weight[y_train == 3] = 2.0
model = get_model("sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train, sample_weight))
train_dataset = train_dataset.shuffle(buffer_size=1024, seed=5).batch(44)
history = model.fit(train_dataset, epochs=2, verbose=0, validation_data=(x_val, y_val, np.full(60, 0.5)))
print("sample_weight loss =", history.history["loss"][-1], "val =", history.history["val_loss"][-1])
print("evaluate =", model.evaluate(x_val, y_val, batch_size=13, verbose=0)[0])
