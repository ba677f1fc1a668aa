# after: Keras's guide "Understanding masking & padding": a tagger of padded sentences
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(55)
rng = np.random.default_rng(2)
vocabulary, tags = 30, 4
sentences = [rng.integers(1, vocabulary, size=rng.integers(2, 11)) for _ in range(150)]
labels = [(s // 8).astype("int64") for s in sentences]
x = keras.utils.pad_sequences(sentences, padding="post", maxlen=10)
y = keras.utils.pad_sequences(labels, padding="post", maxlen=10)
print("tokens =", int((x != 0).sum()))

with strategy.scope():
    inputs = keras.Input(shape=(None,), dtype="int32")
    h = layers.Embedding(input_dim=vocabulary, output_dim=8, mask_zero=True)(inputs)
    h = layers.LSTM(12, return_sequences=True)(h)
    outputs = layers.TimeDistributed(layers.Dense(tags, activation="softmax"))(h)
    model = keras.Model(inputs, outputs)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, batch_size=30, epochs=3, verbose=0)
for loss, accuracy in zip(history.history["loss"], history.history["accuracy"]):
    print("loss =", loss, "accuracy =", accuracy)
print("norm =", float(sum(np.square(w).sum() for w in model.get_weights())))
print("evaluate =", model.evaluate(x, y, batch_size=30, verbose=0)[0])

# The same with a Masking layer before vectors.
vectors = rng.normal(size=(90, 7, 3))
lengths = rng.integers(1, 8, 90)
vectors[np.arange(7)[None] >= lengths[:, None]] = 0.0
targets = vectors.cumsum(axis=1)[..., :1]
with strategy.scope():
    masked = keras.Sequential(
        [keras.Input((7, 3)), layers.Masking(), layers.GRU(8, return_sequences=True), layers.Dense(1)])
    masked.compile("adam", loss="mse")
history = masked.fit(vectors, targets, batch_size=18, epochs=2, verbose=0)
print("masked loss =", history.history["loss"][-1])
print("predictions =", float(masked.predict(vectors, batch_size=32, verbose=0).sum()))
