# after: Keras 2 scripts with a keras.utils.Sequence, moved to PyDataset: workers, on_epoch_end
# expects: equal
import math

import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(66)


class DataGenerator(keras.utils.PyDataset):
    """Generates data for Keras."""

    def __init__(self, x, y, batch_size=24, shuffle=True, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y = x, y
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.rng = np.random.default_rng(0)
        self.indexes = np.arange(len(self.x))

    def __len__(self):
        return math.ceil(len(self.x) / self.batch_size)

    def __getitem__(self, index):
        rows = self.indexes[index * self.batch_size : (index + 1) * self.batch_size]
        return self.x[rows], self.y[rows]

    def on_epoch_end(self):
        # Updates indexes after each epoch
        if self.shuffle:
            self.rng.shuffle(self.indexes)


x = np.random.default_rng(1).normal(size=(250, 9))
y = (x[:, :4].sum(axis=1) > x[:, 4:].sum(axis=1)).astype("float64")
training_generator = DataGenerator(x[:200], y[:200], workers=2, use_multiprocessing=False, max_queue_size=4)
validation_generator = DataGenerator(x[200:], y[200:], shuffle=False)

with strategy.scope():
    model = keras.Sequential(
        [keras.Input((9,)), keras.layers.Dense(10, activation="relu"), keras.layers.Dense(1, activation="sigmoid")])
    model.compile(optimizer=keras.optimizers.Nadam(0.01), loss="binary_crossentropy", metrics=["accuracy"])
history = model.fit(training_generator, validation_data=validation_generator, epochs=3, verbose=0)
for loss, val_loss in zip(history.history["loss"], history.history["val_loss"]):
    print("loss =", loss, "val_loss =", val_loss)
print("predictions =", float(model.predict(validation_generator, verbose=0).sum()))
print("evaluate =", model.evaluate(validation_generator, verbose=0)[1])
print("steps =", int(model.optimizer.iterations))
