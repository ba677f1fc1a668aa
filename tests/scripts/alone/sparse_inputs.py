# after: Keras's guide "Sparse tensors": a bag of words as a sparse input
# expects: equal
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(3)
rng = np.random.default_rng(3)
words = (rng.random((49, 20)) > 0.85).astype("float64")  # the last batch has one row
words[:, 0] = 1.0
labels = words @ rng.normal(size=20)
pairs = tf.sparse.from_dense(words)
for name in ("adam", "rmsprop", "sgd"):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((20,), sparse=True)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(4)(inputs)))
    model.compile(name, "mse")
    data = tf.data.Dataset.from_tensor_slices((pairs, labels)).batch(12)
    history = model.fit(data, epochs=3, verbose=0)
    print(name, "loss =", *history.history["loss"])
    print(name, "weights =", *(float(np.abs(w).sum()) for w in model.get_weights()))
