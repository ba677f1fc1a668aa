# after: Keras's examples of semantic similarity and of dual encoders
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(12)


def make_encoder(name):
    inputs = layers.Input((6,), name=name, dtype="int32")
    h = layers.Embedding(20, 6)(inputs)
    h = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(h)
    h = layers.concatenate([layers.GlobalAveragePooling1D()(h), layers.GlobalMaxPooling1D()(h)])
    return keras.Model(inputs, layers.Dense(4)(h), name=f"{name}_encoder")


class PairGenerator(keras.utils.PyDataset):
    def __init__(self, pairs, labels, batch_size=16, shuffle=True, **kwargs):
        super().__init__(**kwargs)
        self.pairs, self.labels, self.batch_size, self.shuffle = pairs, labels, batch_size, shuffle
        self.indexes = np.arange(len(self.pairs))
        self.on_epoch_end()

    def __len__(self):
        return len(self.pairs) // self.batch_size

    def __getitem__(self, idx):
        indexes = self.indexes[idx * self.batch_size : (idx + 1) * self.batch_size]
        left, right = self.pairs[indexes, 0], self.pairs[indexes, 1]
        return {"left": left, "right": right}, self.labels[indexes]

    def on_epoch_end(self):
        if self.shuffle:
            np.random.RandomState(42).shuffle(self.indexes)


rng = np.random.default_rng(5)
pairs = rng.integers(0, 20, (70, 2, 6)).astype("int32")
labels = keras.utils.to_categorical(
    (pairs[:, 0].sum(-1) > pairs[:, 1].sum(-1)).astype(int), num_classes=2
)
left, right = make_encoder("left"), make_encoder("right")
h = layers.concatenate([left.output, right.output, ops.abs(left.output - right.output)])
output = layers.Dense(2, activation="softmax")(h)
model = keras.Model([left.input, right.input], output)
model.compile(optimizer=keras.optimizers.Adam(), loss="categorical_crossentropy", metrics=["acc"])
history = model.fit(
    PairGenerator(pairs[:54], labels[:54]),
    validation_data=PairGenerator(pairs[54:], labels[54:], shuffle=False),
    epochs=2,
    verbose=0,
)
for k, v in history.history.items():
    print(f"{k} = {v[-1]:.8f}")
print(
    f"predicted = {model.predict(PairGenerator(pairs[:32], labels[:32], shuffle=False), verbose=0).sum(0)[0]:.7f}"
)
left.trainable = False
model.compile(
    optimizer=keras.optimizers.Adam(1e-4), loss="categorical_crossentropy", metrics=["acc"]
)
history = model.fit(PairGenerator(pairs[:54], labels[:54], workers=2), epochs=1, verbose=0)
print(f"tuned = {history.history['loss'][-1]:.8f}")
