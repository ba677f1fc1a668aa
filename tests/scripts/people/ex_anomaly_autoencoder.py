# after: Keras's example "Timeseries anomaly detection using an Autoencoder"
# expects: near 0.15: each replica drops units of its own
import keras
import numpy as np
import tensorflow as tf
from keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(64)

t = np.arange(400)
rng = np.random.default_rng(0)
training_value = np.sin(t / 6) + 0.05 * rng.normal(size=400)
test_value = np.sin(t / 6) + 0.05 * rng.normal(size=400)
test_value[200:206] += 3
training_mean, training_std = training_value.mean(), training_value.std()
TIME_STEPS = 16


def create_sequences(values, time_steps=TIME_STEPS):
    output = []
    for i in range(len(values) - time_steps + 1):
        output.append(values[i : (i + time_steps)])
    return np.stack(output)[..., None]


x_train = create_sequences((training_value - training_mean) / training_std)
print("Training input rows:", len(x_train))

with strategy.scope():
    model = keras.Sequential(
        [
            layers.Input(shape=(x_train.shape[1], x_train.shape[2])),
            layers.Conv1D(filters=8, kernel_size=5, padding="same", strides=2, activation="relu"),
            layers.Dropout(rate=0.2),
            layers.Conv1D(filters=4, kernel_size=5, padding="same", strides=2, activation="relu"),
            layers.Conv1DTranspose(filters=4, kernel_size=5, padding="same", strides=2, activation="relu"),
            layers.Dropout(rate=0.2),
            layers.Conv1DTranspose(filters=8, kernel_size=5, padding="same", strides=2, activation="relu"),
            layers.Conv1DTranspose(filters=1, kernel_size=5, padding="same"),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.005), loss="mse")

history = model.fit(
    x_train, x_train, epochs=3, batch_size=64, validation_split=0.1, verbose=0,
    callbacks=[keras.callbacks.EarlyStopping(monitor="val_loss", patience=5, mode="min")],
)
print("val_loss =", history.history["val_loss"][-1])

x_train_pred = model.predict(x_train, verbose=0)
train_mae_loss = np.mean(np.abs(x_train_pred - x_train), axis=1)
threshold = np.max(train_mae_loss)
print("Reconstruction error threshold: ", threshold)
x_test = create_sequences((test_value - training_mean) / training_std)
x_test_pred = model.predict(x_test, verbose=0)
test_mae_loss = np.mean(np.abs(x_test_pred - x_test), axis=1).reshape((-1))
print("largest test error =", test_mae_loss.max())
