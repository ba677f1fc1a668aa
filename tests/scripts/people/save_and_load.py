# after: TensorFlow's tutorial "Save and load models": checkpoints of epochs, by hand, whole models
# expects: equal
import os

import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow import keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(6)
digits = load_digits()
train_images, train_labels = digits.data[:400] / 16.0, digits.target[:400]
test_images, test_labels = digits.data[400:600] / 16.0, digits.target[400:600]


def create_model():
    with strategy.scope():
        model = tf.keras.Sequential(
            [keras.layers.Input((64,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)])
        model.compile(optimizer="adam",
                      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()])
    return model


model = create_model()
checkpoint_path = "training_1/cp.weights.h5"
checkpoint_dir = os.path.dirname(checkpoint_path)
cp_callback = tf.keras.callbacks.ModelCheckpoint(
    filepath=checkpoint_path, save_weights_only=True, verbose=0)
model.fit(train_images, train_labels, epochs=2, validation_data=(test_images, test_labels),
          callbacks=[cp_callback], verbose=0)
print(os.listdir(checkpoint_dir))

model = create_model()
loss, acc = model.evaluate(test_images, test_labels, verbose=0)
print("Untrained model, loss: {}".format(loss))
model.load_weights(checkpoint_path)
loss, acc = model.evaluate(test_images, test_labels, verbose=0)
print("Restored model, loss: {}".format(loss))

checkpoint_path = "training_2/cp-{epoch:04d}.weights.h5"
checkpoint_dir = os.path.dirname(checkpoint_path)
batch_size = 32
n_batches = -(-len(train_images) // batch_size)
cp_callback = tf.keras.callbacks.ModelCheckpoint(
    filepath=checkpoint_path, verbose=0, save_weights_only=True, save_freq=2 * n_batches)
model = create_model()
os.makedirs(checkpoint_dir, exist_ok=True)
model.save_weights(checkpoint_path.format(epoch=0))
model.fit(train_images, train_labels, epochs=4, batch_size=batch_size, callbacks=[cp_callback],
          validation_data=(test_images, test_labels), verbose=0)
latest = sorted(os.listdir(checkpoint_dir))[-1]
print("files =", len(os.listdir(checkpoint_dir)))
model = create_model()
model.load_weights(os.path.join(checkpoint_dir, latest))
print("From the latest: loss = {}, accuracy = {}".format(
    *model.evaluate(test_images, test_labels, verbose=0)))

os.makedirs("saved_model", exist_ok=True)
model.save("saved_model/my_model.keras")
new_model = tf.keras.models.load_model("saved_model/my_model.keras")
print("Whole: loss = {}".format(new_model.evaluate(test_images, test_labels, verbose=0)[0]))
print(new_model.predict(test_images, verbose=0).shape)
model.save("my_model.h5")
new_model = tf.keras.models.load_model("my_model.h5")
print("HDF5: loss = {}".format(new_model.evaluate(test_images, test_labels, verbose=0)[0]))
