# after: Keras's guide "Customizing what happens in fit() with TensorFlow": train_step, own metrics
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)


class SimpleModel(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        trainable_vars = self.trainable_variables
        gradients = tape.gradient(loss, trainable_vars)
        self.optimizer.apply(gradients, trainable_vars)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


class WeightedModel(keras.Model):
    def train_step(self, data):
        if len(data) == 3:
            x, y, sample_weight = data
        else:
            sample_weight = None
            x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred, sample_weight=sample_weight)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred, sample_weight=sample_weight)
        return {m.name: m.result() for m in self.metrics}

    def test_step(self, data):
        x, y = data
        y_pred = self(x, training=False)
        loss = self.compute_loss(y=y, y_pred=y_pred)
        for metric in self.metrics:
            if metric.name != "loss":
                metric.update_state(y, y_pred)
            else:
                metric.update_state(loss)
        return {m.name: m.result() for m in self.metrics}


x = np.random.random((192, 12))
y = np.random.random((192, 1))
sw = np.random.random((192, 1))


def build(cls):
    with strategy.scope():
        inputs = keras.Input(shape=(12,))
        outputs = layers.Dense(1)(layers.Dense(8, activation="relu")(inputs))
        model = cls(inputs, outputs)
        model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model


model = build(SimpleModel)
h = model.fit(x, y, epochs=3, batch_size=32, verbose=0)
print("loss =", h.history["loss"][-1], "mae =", h.history["mae"][-1])
print("weights =", sum(float(abs(w).sum()) for w in model.get_weights()))
model = build(WeightedModel)
h = model.fit(x, y, sample_weight=sw, epochs=3, batch_size=48, verbose=0)
print("weighted loss =", h.history["loss"][-1], "weighted mae =", h.history["mae"][-1])
print("weights =", sum(float(abs(w).sum()) for w in model.get_weights()))
print("test =", model.evaluate(x, y, batch_size=64, return_dict=True, verbose=0)["loss"])
