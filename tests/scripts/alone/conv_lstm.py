# after: Keras's example "Next-Frame Video Prediction with Convolutional LSTMs"; anomalies by predict
# expects: equal
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(19)
rng = np.random.default_rng(19)
dataset = np.zeros((30, 6, 8, 8))
for movie in dataset:
    row, col = rng.integers(0, 4, 2)
    for i, frame in enumerate(movie):
        frame[row : row + 3, (col + i) % 6 : (col + i) % 6 + 2] = 1
dataset = np.expand_dims(dataset, axis=-1)
indexes = np.arange(dataset.shape[0])
np.random.shuffle(indexes)
train_index, val_index = indexes[: int(0.8 * 30)], indexes[int(0.8 * 30) :]
train_dataset, val_dataset = dataset[train_index], dataset[val_index]


def create_shifted_frames(data):
    return data[:, 0 : data.shape[1] - 1, :, :], data[:, 1 : data.shape[1], :, :]


x_train, y_train = create_shifted_frames(train_dataset)
x_val, y_val = create_shifted_frames(val_dataset)
inp = layers.Input(shape=(None, *x_train.shape[2:]))
x = layers.ConvLSTM2D(4, (3, 3), padding="same", return_sequences=True, activation="relu")(inp)
x = layers.LayerNormalization()(x)
x = layers.Conv3D(1, (3, 3, 3), activation="sigmoid", padding="same")(x)
model = keras.models.Model(inp, x)
model.compile(
    loss=keras.losses.binary_crossentropy, optimizer=keras.optimizers.Adam(), steps_per_execution=2)
early_stopping = keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, restore_best_weights=True)
reduce_lr = keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1)
history = model.fit(
    x_train, y_train, batch_size=5, epochs=3, validation_data=(x_val, y_val),
    callbacks=[early_stopping, reduce_lr], shuffle=False, verbose=0)
for value in history.history["val_loss"]:
    print("val_loss =", value)

example = val_dataset[0]
frames, original_frames = example[:3, ...], example[3:, ...]
for _ in range(3):
    new_prediction = model.predict(np.expand_dims(frames, axis=0), verbose=0)
    new_prediction = np.squeeze(new_prediction, axis=0)
    frames = np.concatenate((frames, np.expand_dims(new_prediction[-1, ...], axis=0)), axis=0)
print("frames =", len(frames), " drawn =", float(frames.sum()))

train_mae_loss = np.mean(np.abs(model.predict(x_train, verbose=0) - y_train), axis=(1, 2, 3, 4))
threshold = np.max(train_mae_loss)
print("Reconstruction error threshold:", threshold)
odd = np.random.default_rng(0).random(x_val.shape)
anomalies = np.mean(np.abs(model.predict(odd, verbose=0) - odd), axis=(1, 2, 3, 4)) > threshold
print("Number of anomaly samples: ", np.sum(anomalies))
