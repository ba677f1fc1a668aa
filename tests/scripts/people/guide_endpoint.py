# after: Keras's guide "Customizing what happens in fit" and its endpoint layers: losses by add_loss
# expects: equal
import keras
import numpy as np
from keras import layers, ops

import tfrun

strategy = tfrun.strategy()
keras.utils.set_random_seed(3)


class LogisticEndpoint(layers.Layer):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
        self.accuracy_metric = keras.metrics.BinaryAccuracy(name="accuracy")

    def call(self, logits, targets=None, sample_weight=None):
        if targets is not None:
            # Compute the training-time loss value and add it to the layer using `self.add_loss()`.
            loss = self.loss_fn(targets, logits, sample_weight)
            self.add_loss(loss)
            # Log the accuracy as a metric (we could log arbitrary metrics, including different
            # metrics for training and inference.)
            self.accuracy_metric.update_state(targets, logits, sample_weight)
        # Return the inference-time prediction tensor (for `.predict()`).
        return ops.sigmoid(logits)


rng = np.random.default_rng(0)
x = rng.normal(size=(160, 8))
t = (x[:, :1] * x[:, 1:2] > 0).astype("float64")

with strategy.scope():
    inputs = keras.Input((8,), name="inputs")
    targets = keras.Input((1,), name="targets")
    hidden = layers.Dense(10, activation="relu")(inputs)
    logits = layers.Dense(1)(hidden)
    preds = LogisticEndpoint(name="predictions")(logits, targets)
    model = keras.Model([inputs, targets], preds)
    model.compile(optimizer=keras.optimizers.Adam(0.01))

history = model.fit({"inputs": x, "targets": t}, batch_size=32, epochs=3, verbose=0)
print("losses:")
for value in history.history["loss"]:
    print("loss =", value)
print("weights =", float(sum(np.square(w).sum() for w in model.get_weights()[:4])))

with strategy.scope():
    inference_model = keras.Model(inputs, ops.sigmoid(logits))
out = inference_model.predict(x, batch_size=40, verbose=0)
print("mean probability =", float(out.mean()))
print("wrong =", int(((out > 0.5) != (t > 0.5)).sum()))
