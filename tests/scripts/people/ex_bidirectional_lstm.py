# after: Keras's example "Bidirectional LSTM on IMDB": sequences padded at the front
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(31)
max_features = 60  # Only consider the top words
maxlen = 14  # Only consider the first words of each review


def load_data(num_words, samples=180):
    rng = np.random.RandomState(113)
    xs, labels = [], []
    for _ in range(samples):
        label = rng.randint(2)
        words = rng.randint(3, num_words, size=rng.randint(4, 20))
        words[rng.randint(len(words), size=3)] = 1 + label
        xs.append(list(words))
        labels.append(label)
    return (xs[:140], np.array(labels[:140])), (xs[140:], np.array(labels[140:]))


with strategy.scope():
    # Input for variable-length sequences of integers
    inputs = keras.Input(shape=(None,), dtype="int32")
    # Embed each integer in a vector
    x = layers.Embedding(max_features, 12)(inputs)
    # Add 2 bidirectional LSTMs
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    x = layers.Bidirectional(layers.LSTM(8))(x)
    # Add a classifier
    outputs = layers.Dense(1, activation="sigmoid")(x)
    model = keras.Model(inputs, outputs)

(x_train, y_train), (x_val, y_val) = load_data(num_words=max_features)
print(len(x_train), "Training sequences")
print(len(x_val), "Validation sequences")
# Use pad_sequence to standardize sequence length:
x_train = keras.utils.pad_sequences(x_train, maxlen=maxlen)
x_val = keras.utils.pad_sequences(x_val, maxlen=maxlen)

model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
history = model.fit(x_train, y_train, batch_size=32, epochs=2, validation_data=(x_val, y_val), verbose=0)
for key, values in history.history.items():
    print(key, "=", values[-1])
print("norm =", float(sum(np.square(w).sum() for w in model.get_weights())))
