# after: Keras's example "Timeseries forecasting for weather prediction": windows, best weights
# expects: equal
import keras
import numpy as np

keras.utils.set_random_seed(10)
rng = np.random.default_rng(10)
t = np.arange(400)
features = np.stack([np.sin(t / 9 + i) * (i + 1) + rng.normal(size=400) * 0.1 for i in range(4)], 1)
train_split = int(0.7 * len(features))
step, past, future, batch_size, epochs = 2, 20, 4, 32, 4


def normalize(data, train_split):
    data_mean, data_std = data[:train_split].mean(axis=0), data[:train_split].std(axis=0)
    return (data - data_mean) / data_std


features = normalize(features, train_split)
train_data, val_data = features[:train_split], features[train_split:]
start = past + future
x_train, y_train = train_data, features[start : start + train_split][:, [1]]
sequence_length = int(past / step)
dataset_train = keras.preprocessing.timeseries_dataset_from_array(
    x_train, y_train, sequence_length=sequence_length, sampling_rate=step, batch_size=batch_size)
x_end = len(val_data) - past - future
x_val, y_val = val_data[:x_end], features[train_split + past + future :][:, [1]]
dataset_val = keras.preprocessing.timeseries_dataset_from_array(
    x_val, y_val, sequence_length=sequence_length, sampling_rate=step, batch_size=batch_size)
for batch in dataset_train.take(1):
    inputs, targets = batch
print("Input shape:", inputs.numpy().shape)
print("Target shape:", targets.numpy().shape)

inputs = keras.layers.Input(shape=(inputs.shape[1], inputs.shape[2]))
lstm_out = keras.layers.LSTM(8)(inputs)
model = keras.Model(inputs=inputs, outputs=keras.layers.Dense(1)(lstm_out))
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.01), loss="mse")
model.summary()
path_checkpoint = "model_checkpoint.weights.h5"
es_callback = keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0, patience=5)
modelckpt_callback = keras.callbacks.ModelCheckpoint(
    monitor="val_loss", filepath=path_checkpoint, verbose=1, save_weights_only=True, save_best_only=True)
history = model.fit(
    dataset_train, epochs=epochs, validation_data=dataset_val,
    callbacks=[es_callback, modelckpt_callback])


def visualize_loss(history, title):
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.figure()
    plt.plot(range(len(history.history["loss"])), history.history["loss"], "b", label="Training loss")
    plt.title(title)
    plt.savefig("loss.png")


visualize_loss(history, "Training and Validation Loss")
for name in ("loss", "val_loss"):
    for value in history.history[name]:
        print(name, "=", value)
model.load_weights(path_checkpoint)
for x, y in dataset_val.take(2):
    print("prediction =", float(model.predict(x, verbose=0)[0][0]), " truth =", float(y[0].numpy()[0]))
print("best =", model.evaluate(dataset_val, verbose=0))
