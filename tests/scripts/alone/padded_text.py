# after: Keras's and TensorFlow's text tutorials: sentences of any length, shuffled, `padded_batch`, a mask
# expects: equal to 1e-9: nothing in it is float32
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(21)
rng = np.random.default_rng(21)
sentences = [rng.integers(1, 40, size=rng.integers(2, 12)) for _ in range(200)]
labels = np.array([[float(sentence.mean() > 20)] for sentence in sentences])

tokens = tf.ragged.constant([sentence.tolist() for sentence in sentences], dtype="int64")
samples = tf.data.Dataset.from_tensor_slices((tokens, labels))
samples = samples.map(lambda sentence, label: (sentence[:10], label))
train = samples.take(160).shuffle(160, seed=5).padded_batch(16, padded_shapes=([None], [1]))
test = samples.skip(160).padded_batch(16, padded_shapes=([None], [1])).cache()
print("shape is known =", int(train.element_spec[0].shape[1] is not None))

model = keras.Sequential([
    keras.layers.Embedding(40, 8, mask_zero=True),
    keras.layers.GRU(6),
    keras.layers.Dense(1, activation="sigmoid")])
model.compile("adam", "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(name="auc")])
history = model.fit(train, validation_data=test, epochs=3, verbose=0).history
for name, values in history.items():
    print(name, "=", values[-1])
print("evaluate =", model.evaluate(test, verbose=0)[0], " iterations =", int(model.optimizer.iterations))
