# after: Keras's guide "Save, serialize, and export models": custom objects, get_config, export
# expects: equal
# floatx: float32: the exported endpoint takes float32
import keras
import numpy as np
import tensorflow as tf
from keras import ops

import tfrun

strategy = tfrun.strategy()
keras.utils.set_random_seed(5)


@keras.saving.register_keras_serializable(package="MyLayers")
class CustomLayer(keras.layers.Layer):
    def __init__(self, factor, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def build(self, input_shape):
        self.gain = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="gain")

    def call(self, x):
        return x * self.factor * self.gain

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


@keras.saving.register_keras_serializable(package="my_package", name="custom_fn")
def custom_fn(x):
    return ops.square(x)


@keras.saving.register_keras_serializable()
class CustomModel(keras.Model):
    def __init__(self, hidden_units, **kwargs):
        super().__init__(**kwargs)
        self.hidden_units = hidden_units
        self.dense_layers = [keras.layers.Dense(u, activation=custom_fn) for u in hidden_units]
        self.scale = CustomLayer(0.5)

    def call(self, x):
        for layer in self.dense_layers:
            x = layer(x)
        return self.scale(x)

    def get_config(self):
        return {**super().get_config(), "hidden_units": self.hidden_units}


test_input = np.random.random((96, 12)).astype("float32")
test_target = np.random.random((96, 1)).astype("float32")
with strategy.scope():
    model = CustomModel([8, 4, 1])
    model.compile(optimizer="adam", loss="mean_squared_error")
model.fit(test_input, test_target, epochs=2, batch_size=24, verbose=0)
model.save("custom_model.keras")
reconstructed_model = keras.models.load_model("custom_model.keras")
np.testing.assert_allclose(
    model.predict(test_input, verbose=0), reconstructed_model.predict(test_input, verbose=0), rtol=1e-5)
with strategy.scope():
    again = keras.models.load_model("custom_model.keras")
history = again.fit(test_input, test_target, epochs=1, batch_size=24, verbose=0)
print("loss after loading =", history.history["loss"][0])

with strategy.scope():
    clone = keras.models.clone_model(
        keras.Sequential([keras.Input((12,)), keras.layers.Dense(2), CustomLayer(2.0)]))
    other = keras.models.model_from_json(clone.to_json())
    other.set_weights(clone.get_weights())
print("same =", float(abs(clone(test_input) - other(test_input)).numpy().max()))
clone.export("exported", verbose=False)
reloaded_artifact = tf.saved_model.load("exported")
served = reloaded_artifact.serve(tf.constant(test_input))
print("served =", float(tf.reduce_sum(tf.abs(served))))
