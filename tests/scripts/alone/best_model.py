# after: Keras's example "Timeseries classification from scratch": the best model is loaded again
# expects: near 0.35: BatchNorm
import keras
import numpy as np

keras.utils.set_random_seed(4)
rng = np.random.default_rng(4)
y_train = rng.integers(0, 2, 80) * 2 - 1
x_train = np.sin(np.arange(30) * (0.3 + 0.2 * (y_train[:, None] > 0))) + rng.normal(size=(80, 30)) * 0.2
x_train = x_train.reshape((80, 30, 1))
idx = np.random.permutation(len(x_train))
x_train, y_train = x_train[idx], y_train[idx]
y_train[y_train == -1] = 0
num_classes = len(np.unique(y_train))
print("classes =", num_classes)


def make_model(input_shape):
    x = input_layer = keras.layers.Input(input_shape)
    for _ in range(2):
        x = keras.layers.Conv1D(filters=8, kernel_size=3, padding="same")(x)
        x = keras.layers.BatchNormalization(momentum=0.5)(x)
        x = keras.layers.ReLU()(x)
    gap = keras.layers.GlobalAveragePooling1D()(x)
    return keras.models.Model(input_layer, keras.layers.Dense(num_classes, activation="softmax")(gap))


model = make_model(input_shape=x_train.shape[1:])
callbacks = [
    keras.callbacks.ModelCheckpoint("best_model.keras", save_best_only=True, monitor="val_loss"),
    keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, min_lr=0.0001),
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=50, verbose=1),
    keras.callbacks.BackupAndRestore("backup"),
]
model.compile(
    optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])
history = model.fit(
    x_train, y_train, batch_size=16, epochs=5, callbacks=callbacks, validation_split=0.2, verbose=1)
model = keras.models.load_model("best_model.keras")
test_loss, test_acc = model.evaluate(x_train, y_train)
print("Test accuracy =", test_acc)
print("Test loss =", test_loss)
print("min val loss =", min(history.history["val_loss"]))
model.fit(x_train, y_train, batch_size=16, epochs=1, verbose=0)
print("after more loss =", model.evaluate(x_train, y_train, verbose=0)[0])
