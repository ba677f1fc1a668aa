# after: Keras's examples "Adaptive gradient clipping" and "Sharpness-Aware Minimization": gradients changed in train_step
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(2)
rng = np.random.default_rng(2)
x, y = rng.random((44, 6, 6, 3)), rng.integers(0, 3, 44)


def network():
    return keras.Sequential([
        layers.Input((6, 6, 3)), layers.Conv2D(4, 3, strides=2, activation="relu"),
        layers.GlobalAveragePooling2D(), layers.Dense(3, activation="softmax")])


class SAMModel(keras.Model):
    def __init__(self, resnet_model, rho=0.05):
        super().__init__()
        self.resnet_model, self.rho = resnet_model, rho

    def train_step(self, data):
        images, labels = data
        e_ws = []
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self.resnet_model(images))
        trainable_params = self.resnet_model.trainable_variables
        gradients = tape.gradient(loss, trainable_params)
        norm = tf.norm(tf.stack([tf.norm(grad) for grad in gradients if grad is not None]))
        for grad, param in zip(gradients, trainable_params):
            e_w = grad * self.rho / (norm + 1e-12)
            param.assign_add(e_w)
            e_ws.append(e_w)
        with tf.GradientTape() as tape:
            predictions = self.resnet_model(images)
            loss = self.compute_loss(y=labels, y_pred=predictions)
        sam_gradients = tape.gradient(loss, trainable_params)
        for param, e_w in zip(trainable_params, e_ws):
            param.assign_sub(e_w)
        self.optimizer.apply_gradients(zip(sam_gradients, trainable_params))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(labels, predictions)
        return {m.name: m.result() for m in self.metrics}

    def call(self, inputs):
        return self.resnet_model(inputs)


def unitwise_norm(v):
    if len(v.shape) <= 1:
        return tf.sqrt(tf.reduce_sum(v**2))
    return tf.sqrt(tf.reduce_sum(v**2, axis=list(range(len(v.shape) - 1)), keepdims=True))


class AGC(keras.Model):
    def train_step(self, data):
        images, labels = data
        with tf.GradientTape() as tape:
            predictions = self(images, training=True)
            loss = self.compute_loss(y=labels, y_pred=predictions)
        params = self.trainable_variables
        gradients = tape.gradient(loss, params)
        clipped = []
        for param, grad in zip(params, gradients):
            max_norm = tf.math.maximum(unitwise_norm(param), 1e-3) * 0.01
            norm = unitwise_norm(grad)
            small = tf.math.less(norm, max_norm)
            clipped.append(tf.where(small, grad, grad * (max_norm / tf.math.maximum(norm, 1e-6))))
        clipped, norm = tf.clip_by_global_norm(clipped, 0.02)
        self.optimizer.apply_gradients(zip(clipped, params))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(labels, predictions)
        return {**{m.name: m.result() for m in self.metrics}, "norm": norm}


sam = SAMModel(network())
inputs = keras.Input((6, 6, 3))
agc = AGC(inputs, network()(inputs))
for name, model in (("sam", sam), ("agc", agc)):
    model.compile(
        optimizer=keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, batch_size=8, epochs=3, validation_split=0.1, shuffle=False, verbose=0)
    for key, values in history.history.items():
        print(f"{name} {key} =", values[-1])
    print(f"{name} weights =", sum(float(np.abs(w).sum()) for w in model.get_weights()))
