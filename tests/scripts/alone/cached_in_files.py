# after: TensorFlow's guide "Better performance with the tf.data API": `cache` in a file
# expects: equal
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
x = np.random.randn(70, 5)
y = x.sum(axis=1, keepdims=True)
train = (
    tf.data.Dataset.from_tensor_slices((x[:50], y[:50]))
    .map(lambda a, b: (a * 2.0, b))
    .cache("train_cache")
    .shuffle(50, seed=3)
    .batch(8)
)
test = tf.data.Dataset.from_tensor_slices((x[50:], y[50:])).batch(6).cache("test_cache")
model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse", metrics=["mae"])
history = model.fit(train, epochs=3, validation_data=test, verbose=0)
for name, values in history.history.items():
    print(name.replace("_", " "), "=", values[-1])
print("test loss =", model.evaluate(test, verbose=0)[0])
print("predicted =", float(model.predict(test, verbose=0).sum()))
