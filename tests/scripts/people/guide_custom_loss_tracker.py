# after: Keras's guide "Customizing what happens in fit()": a lower-level train_step, compute_loss
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(2)


class CustomModel(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.mae_metric = keras.metrics.MeanAbsoluteError(name="mae")
        self.loss_fn = keras.losses.MeanSquaredError()

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.loss_fn(y, y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.loss_tracker.update_state(loss)
        self.mae_metric.update_state(y, y_pred)
        return {"loss": self.loss_tracker.result(), "mae": self.mae_metric.result()}

    @property
    def metrics(self):
        return [self.loss_tracker, self.mae_metric]


class WithOwnLoss(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        loss = ops.mean(ops.square(y_pred - y))
        loss += ops.sum(self.losses) if self.losses else 0.0
        self.loss_tracker.update_state(loss)
        return loss

    def reset_metrics(self):
        self.loss_tracker.reset_state()

    @property
    def metrics(self):
        return [self.loss_tracker]


x = np.random.random((160, 10))
y = np.random.random((160, 1))
with strategy.scope():
    inputs = keras.Input(shape=(10,))
    model = CustomModel(inputs, layers.Dense(1)(inputs))
    # We don't pass a loss or metrics here.
    model.compile(optimizer="adam")
history = model.fit(x, y, batch_size=32, epochs=3, verbose=0)
print("loss =", history.history["loss"][-1])
print("mae =", history.history["mae"][-1])
print("kernel =", float(model.get_weights()[0].sum()))

with strategy.scope():
    inputs = keras.Input(shape=(10,))
    outputs = layers.ActivityRegularization(l2=0.01)(layers.Dense(1)(inputs))
    own = WithOwnLoss(inputs, outputs)
    own.compile(optimizer=keras.optimizers.SGD(0.1))
history = own.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(32), epochs=2, verbose=0)
print("own loss =", history.history["loss"][-1])
print("kernel =", float(own.get_weights()[0].sum()))
